"""Status, validity and headline from the record of a campaign, and every code."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_meshnet.campaign.documents import decode, encode
from pytest_meshnet.campaign.errors import CampaignRefused
from pytest_meshnet.campaign.judging.codes import WHAT_TO_DO, Code
from pytest_meshnet.campaign.judging.configuration import cross_arm
from pytest_meshnet.campaign.judging.facts import CampaignRecord, Placed
from pytest_meshnet.campaign.judging.judge import judge
from pytest_meshnet.tests.campaign.breaking import (
    BREAKS,
    of_arm,
    of_bandwidth,
    of_field,
    of_protocol,
    of_provenance,
    of_request,
)
from pytest_meshnet.tests.campaign.whole import (
    ARMS,
    OUTPUT_TOKENS,
    UUID,
    arm,
    campaign,
    configuration,
    intent,
    observation,
    profile,
)

EXECUTION = {Code.GENERATION_FAILED, Code.SERVER_FAILED}


def codes(record):
    return {one.code for one in judge(record).invalidations}


def test_a_whole_campaign_with_nothing_against_it_is_valid():
    found = judge(campaign())
    assert found.invalidations == ()
    assert (found.execution_status, found.validity) == ("COMPLETE", "VALID")
    assert found.headline == "VALID CANONICAL CAMPAIGN"
    assert (found.expected, found.observed, found.exit_code) == (240, 240, 0)


def test_every_code_has_a_break_and_an_advice():
    assert BREAKS.keys() == set(Code) == WHAT_TO_DO.keys()
    assert len(Code) == 28


@pytest.mark.parametrize("code", list(Code))
def test_a_code_stands_against_what_breaks_its_rule_and_against_nothing_else(code):
    found = judge(BREAKS[code](campaign()))
    assert {one.code for one in found.invalidations} == {code}
    assert found.codes == {str(code): 1}
    assert found.validity == "INVALID"
    if code in EXECUTION:
        assert (found.headline, found.exit_code) == ("INCOMPLETE RUN", 3)
    else:
        assert (found.headline, found.exit_code) == ("INVALID CANONICAL ATTEMPT", 1)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    chosen=st.sets(st.sampled_from(list(Code)), min_size=1),
    dropped=st.integers(0, 2),
    developer=st.booleans(),
    synthetic=st.booleans(),
)
def test_no_invalidated_campaign_ends_valid_and_incomplete_wins(
    chosen, dropped, developer, synthetic
):
    record = campaign(intent=intent(dev_smoke=developer, synthetic=synthetic))
    for code in sorted(chosen):
        record = BREAKS[code](record)
    if dropped:
        record = replace(record, observations=record.observations[:-dropped])
    found = judge(record)
    assert found.invalidations
    assert found.validity == ("NON_CANONICAL" if developer else "INVALID")
    assert found.exit_code in (1, 3)
    incomplete = bool(dropped or chosen & EXECUTION)
    assert (found.headline == "INCOMPLETE RUN") is incomplete
    assert (found.execution_status == "INCOMPLETE") is incomplete


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"dev_smoke": True}, "--dev-smoke"),
        ({"allow_missing_provenance": True}, "--allow-missing-provenance"),
        ({"synthetic": True}, "synthetic"),
    ],
)
def test_what_can_never_be_canonical_is_not_valid_whatever_it_shows(changes, word):
    found = judge(campaign(intent=intent(**changes)))
    assert (found.validity, found.headline) == ("NON_CANONICAL", "NON-CANONICAL DEVELOPER RUN")
    assert word in found.blockers[0]
    assert found.exit_code == 4


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (of_provenance(model_repository="nvidia/other", model_path="/m"), "nvidia/other"),
        (of_provenance(gpu_name="NVIDIA GeForce RTX 4090"), "RTX 4090"),
        (of_provenance(gpu_name="NVIDIA GeForce RTX 3060 Ti"), "3060 Ti"),
        (of_provenance(gpu_name="NVIDIA GeForce RTX 3060 Laptop GPU"), "Laptop"),
        (of_provenance(gpu_memory_bytes=8 * 1024**3), "8.0 GiB"),
        (of_protocol(baseline_prompts=False), "the manifest"),
        (of_protocol(arms=("B2", "B1", "B3", "B4", "B5")), "expected forward or reversed"),
    ],
)
def test_a_record_of_another_campaign_is_not_valid_whatever_its_intent_says(change, word):
    found = judge(change(campaign()))
    assert found.invalidations == ()
    assert (found.validity, found.exit_code) == ("NON_CANONICAL", 4)
    assert word in "; ".join(found.blockers)


@pytest.mark.parametrize("changes", [{"arms": ("B1",)}, {"classes": ("W1",)}, {"repetitions": 9}])
def test_less_than_the_whole_protocol_is_never_canonical(changes):
    found = judge(of_protocol(**changes)(campaign()))
    assert found.validity != "VALID"
    assert found.blockers


def test_both_orders_of_the_traversal_are_canonical():
    backward = of_protocol(arms=ARMS[::-1], classes=("W4", "W3", "W2", "W1"))
    assert judge(backward(campaign())).validity == "VALID"


def test_a_request_for_fewer_tokens_than_the_class_is_no_match():
    short = of_request(20, completion_tokens=5, requested_tokens=5)
    assert codes(short(campaign())) == {Code.COMPLETION_LENGTH_MISMATCH}


def test_a_server_that_says_it_is_simulated_makes_no_valid_campaign():
    told = configuration("B1") | {"simulated": True}
    found = judge(of_arm(0, configuration=told)(campaign()))
    assert found.validity == "NON_CANONICAL"


# Execution


def test_a_request_that_was_never_made_is_a_reason_of_its_block():
    # faults.md 171: what was counted is what was asked, block by block.
    found = judge(replace(campaign(), observations=campaign().observations[:-1]))
    (reason,) = found.invalidations
    assert (reason.code, reason.arm_id, reason.class_id) == (Code.GENERATION_FAILED, "B5", "W4")
    assert "1 of 12 requests were never made" in reason.message
    assert (found.headline, found.observed) == ("INCOMPLETE RUN", 239)


def test_a_request_made_twice_and_a_block_that_nobody_planned_are_no_complete_campaign():
    doubled = campaign(observations=(*campaign().observations, campaign().observations[0]))
    stray = campaign(observations=(*campaign().observations, observation("B6")))
    assert judge(doubled).execution_status == "INCOMPLETE"
    assert judge(stray).execution_status == "INCOMPLETE"


def test_a_campaign_of_nothing_is_incomplete():
    empty = campaign(observations=(), arms=())
    nothing = replace(empty, protocol=replace(empty.protocol, arms=()))
    assert judge(empty).headline == "INCOMPLETE RUN"
    assert judge(nothing).headline == "INCOMPLETE RUN"


# Warm-ups


def test_warm_ups_are_exempt_from_prefill_checks_only():
    cold = {"measured": False, "repetition": 0}
    assert codes(of_request(0, prefill="unavailable", **cold)(campaign())) == set()
    assert codes(of_request(0, prompt_tokens=9999, **cold)(campaign())) == {
        Code.PROMPT_SHAPE_VIOLATION
    }
    assert codes(of_request(0, completion_tokens=1, **cold)(campaign())) == {
        Code.COMPLETION_LENGTH_MISMATCH
    }


@pytest.mark.parametrize(
    ("class_id", "fewest", "most"),
    [("W1", 1, 2000), ("W2", 1, 1000), ("W3", 13_600, 18_400), ("W4", 96, 160)],
)
def test_a_prompt_is_of_its_class_up_to_both_bounds(class_id, fewest, most):
    def found(tokens):
        one = observation(class_id=class_id, prompt_tokens=tokens)
        record = campaign(observations=(one,))
        return Code.PROMPT_SHAPE_VIOLATION in codes(record)

    assert not found(fewest)
    assert not found(most)
    assert found(fewest - 1)
    assert found(most + 1)
    assert found(None)


def test_the_output_of_each_class_is_what_the_protocol_asks():
    from pytest_meshnet.campaign.workloads.classes import CLASSES

    assert {name: one.output_tokens for name, one in CLASSES.items()} == OUTPUT_TOKENS


# GPU and configuration


def test_uuids_are_compared_without_their_case():
    assert codes(of_arm(0, gpu_uuids=(UUID.lower(),))(campaign())) == set()


def test_a_driver_that_shows_a_server_elsewhere_outweighs_its_word():
    def seen(verdict, *foreign):
        return of_arm(0, placement=Placed(verdict, (), ("seen on GPU-9",), foreign))(campaign())

    assert codes(seen("contradicted")) == {Code.GPU_MISMATCH}
    assert judge(seen("proven")).validity == "VALID"
    assert judge(seen("unobservable")).validity == "VALID"
    shared = judge(seen("proven", "process 7 on GPU-1"))
    assert (shared.validity, shared.invalidations) == ("NON_CANONICAL", ())
    assert "process 7 on GPU-1" in shared.blockers[0]


def test_a_server_on_two_gpus_is_on_another_one_too():
    two = (UUID, "GPU-2")
    assert codes(of_arm(0, gpu_uuids=two)(campaign())) == {Code.GPU_MISMATCH}


def test_a_server_that_never_served_proves_nothing_and_is_only_failed():
    dead = arm("B4", ready=False, failure="exit 1", gpu_uuids=None, configuration=None)
    arms = campaign().arms
    found = codes(campaign(arms=(*arms[:3], dead, arms[4])))
    assert found == {Code.SERVER_FAILED}


REQUIRED = [
    "model.expert_quant",
    "moe.backend_requested",
    "moe.backend_resolved",
    "moe.cpu_threads",
    "moe.cpu_layers_resolved",
    "nvfp4.requested",
    "nvfp4.resolved",
    "cache.policy_requested",
    "cache.resolved_slots",
    "cache.kv_reserve_tokens",
    "runtime.attention_backend",
    "runtime.page_size",
    "runtime.memory_ratio",
    "runtime.max_running_req",
    "runtime.max_seq_len",
    "runtime.num_pages",
    "runtime.cuda_graph_max_bs",
    "runtime.cuda_graph_capture_happened",
    "runtime.max_prefill_length_resolved",
    "runtime.cache_type_resolved",
]


@pytest.mark.parametrize("path", REQUIRED)
def test_a_required_field_that_is_null_invalidates_the_arm(path):
    found = judge(of_field(0, path, None)(campaign()))
    assert {one.code for one in found.invalidations} == {Code.CONFIG_MISSING_FIELD}
    assert path in found.invalidations[0].message
    assert found.invalidations[0].arm_id == "B1"


@pytest.mark.parametrize(
    "path", ["moe.hybrid_max_fetch_resolved", "moe.hybrid_fetch_fraction_resolved"]
)
def test_fields_of_the_hybrid_backend_are_asked_of_it_alone(path):
    assert codes(of_field(1, path, None)(campaign())) == {Code.CONFIG_MISSING_FIELD}
    assert codes(of_field(0, path, None)(campaign())) == set()


@pytest.mark.parametrize(
    ("fraction", "good"), [(0, False), (0.0, False), (1.01, False), (True, False), (1, True)]
)
def test_the_fetch_fraction_is_above_nothing_and_up_to_one(fraction, good):
    path = "moe.hybrid_fetch_fraction_resolved"
    assert (codes(of_field(1, path, fraction)(campaign())) == set()) is good


HELD = [
    "moe.cpu_threads",
    "cache.kv_reserve_tokens",
    *(
        one
        for one in REQUIRED
        if one.startswith("runtime.")
        and one not in ("runtime.num_pages", "runtime.cuda_graph_capture_happened")
    ),
]


# faults.md 71: an attention backend that fell back is a difference between arms, or unreported.
@pytest.mark.parametrize("path", REQUIRED)
def test_only_what_is_held_constant_may_not_differ_between_arms(path):
    found = codes(of_field(3, path, "another")(campaign()))
    if path == "model.expert_quant":
        assert found == {Code.EXPERT_QUANT_MISMATCH}
    else:
        assert found == ({Code.HELD_CONSTANT_MISMATCH} if path in HELD else set())


def test_one_and_true_are_not_the_same_setting():
    assert codes(of_field(3, "runtime.page_size", True)(campaign())) == {
        Code.HELD_CONSTANT_MISMATCH
    }


@pytest.mark.parametrize(
    ("path", "value", "good"),
    [
        ("moe.backend_resolved", "offload", True),
        ("moe.backend_resolved", "cpu", False),
        ("nvfp4.resolved", "marlin", True),
        ("nvfp4.resolved", "cutlass", False),
    ],
)
def test_b3_resolves_to_what_b1_or_b2_is(path, value, good):
    found = codes(of_field(2, path, value)(campaign()))
    assert found == (set() if good else {Code.B3_RESOLUTION_UNEXPECTED})


def test_arms_that_collapse_and_backends_that_do_nothing_are_recorded_and_no_error():
    same = of_field(3, "nvfp4.resolved", "marlin")(campaign())
    assert codes(same) == set()
    found = cross_arm(same.arms)
    assert found["b1_b4_one_configuration"] is True
    assert cross_arm(campaign().arms)["b1_b4_one_configuration"] is False
    assert cross_arm(same.arms[:3])["b1_b4_one_configuration"] is None
    inert = {"B1": False, "B2": True, "B3": True, "B4": False, "B5": True}
    assert found["nvfp4_inert"] == inert
    locked = of_field(0, "moe.cpu_layers_resolved", [3])(campaign())
    assert cross_arm(locked.arms)["nvfp4_inert"]["B1"] is True


@pytest.mark.parametrize(
    ("policy", "slots", "nvfp4", "bound"),
    [
        ("auto", 992, "marlin", True),
        ("auto", 900, "marlin", False),
        ("auto", 992, "triton", False),
        ("size", 992, "marlin", "unknown"),
    ],
)
def test_whether_the_marlin_cap_bound_is_unknown_for_an_explicit_size(policy, slots, nvfp4, bound):
    record = of_field(0, "cache.policy_requested", policy)(campaign())
    record = of_field(0, "cache.resolved_slots", slots)(record)
    record = of_field(0, "nvfp4.resolved", nvfp4)(record)
    assert cross_arm(record.arms)["marlin_cap_bound"]["B1"] == bound


# Prerequisite and provenance


@pytest.mark.parametrize("figure", [0, -1.0, float("nan"), float("inf"), None, "30", True])
def test_a_bandwidth_that_is_no_positive_number_calibrates_nothing(figure):
    told = profile(dtype_kernels={"nvfp4": {"cpu_moe_gbs": figure, "pcie_gather_gbs": 1.0}})
    assert codes(of_bandwidth(contents=told)(campaign())) == {Code.BENCH_BW_CALIBRATION_UNUSABLE}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"returncode": None, "problem": "timed out"}, Code.BENCH_BW_FAILED),
        ({"contents": ["a list"]}, Code.BENCH_BW_PROFILE_UNREADABLE),
        ({"contents": profile(gpu={"uuid": ""})}, Code.BENCH_BW_PROFILE_GPU_UNVERIFIED),
    ],
)
def test_a_prerequisite_that_shows_nothing_is_no_prerequisite(changes, code):
    assert codes(of_bandwidth(**changes)(campaign())) == {code}


@pytest.mark.parametrize("revision", ["main", "A" * 40, "a" * 39, "a" * 41])
def test_a_revision_is_forty_hexadecimal_digits(revision):
    record = of_provenance(model_revision=revision, model_path="/models/here")(campaign())
    assert codes(record) == {Code.MODEL_REVISION_MISMATCH}


def test_a_path_that_says_nothing_contradicts_nothing():
    assert codes(of_provenance(model_path="/models/here")(campaign())) == set()


@pytest.mark.parametrize("name", ["dirty_paths", "gpu_memory_bytes", "runtime_version"])
def test_unknown_provenance_is_named(name):
    found = judge(of_provenance(**{name: None})(campaign()))
    assert found.codes == {"provenance.missing_required": 1}
    assert name in found.invalidations[0].message


# The record itself


def test_a_record_survives_its_json_form():
    record = BREAKS[Code.SERVER_FAILED](campaign())
    assert decode(CampaignRecord, encode(record), "record") == record


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"intent": None}, "record.intent is None: expected an object"),
        ({"extra": 1}, "has the fields"),
        ({"arms": {}}, "record.arms is"),
    ],
)
def test_a_record_of_another_form_is_refused(change, message):
    with pytest.raises(CampaignRefused, match=message):
        decode(CampaignRecord, encode(campaign()) | change, "record")
