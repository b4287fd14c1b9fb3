"""Status, validity and headline from the record of a campaign, and every code."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_meshnet.campaign.documents import decode
from pytest_meshnet.campaign.errors import CampaignRefused
from pytest_meshnet.campaign.judging.codes import WHAT_TO_DO, Code
from pytest_meshnet.campaign.judging.facts import CampaignRecord
from pytest_meshnet.campaign.judging.judge import judge
from pytest_meshnet.evidence.strict import encode
from pytest_meshnet.tests.campaign.breaking import (
    BREAKS,
    of_arm,
    of_bandwidth,
    of_protocol,
    of_provenance,
    of_request,
)
from pytest_meshnet.tests.campaign.whole import (
    ARMS,
    OUTPUT_TOKENS,
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


@pytest.mark.parametrize(
    "name", ["dirty_paths", "checkout_commit_last", "gpu_memory_bytes", "runtime_version"]
)
def test_unknown_provenance_is_named(name):
    found = judge(of_provenance(**{name: None})(campaign()))
    assert found.codes == {"provenance.missing_required": 1}
    assert name in found.invalidations[0].message


@pytest.mark.parametrize("kept", ["no facts", "facts of a server that never served"])
def test_an_arm_without_the_facts_of_its_server_is_not_proven(kept):
    whole = campaign()
    silent = replace(whole.arms[0], ready=False, gpu_uuids=None, configuration=None)
    first = () if kept == "no facts" else (silent,)
    found = judge(replace(whole, arms=(*first, *whole.arms[1:])))
    assert found.validity == "INVALID"
    assert found.codes == {"runtime.config_missing": 1, "gpu.unproven": 1}
    assert {one.arm_id for one in found.invalidations} == {whole.arms[0].arm_id}


# The record itself


def test_a_record_survives_its_json_form():
    record = BREAKS[Code.SERVER_FAILED](campaign())
    assert decode(CampaignRecord, encode(record), "record") == record


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"intent": None}, "record.intent is NoneType: expected an object"),
        ({"extra": 1}, "record has the unknown field 'extra'"),
        ({"arms": {}}, "record.arms is"),
    ],
)
def test_a_record_of_another_form_is_refused(change, message):
    with pytest.raises(CampaignRefused, match=message):
        decode(CampaignRecord, encode(campaign()) | change, "record")
