"""What the judge says of devices and of resolved configurations."""

import pytest

from pytest_meshnet.campaign.judging.codes import Code
from pytest_meshnet.campaign.judging.configuration import cross_arm
from pytest_meshnet.campaign.judging.facts import Placed
from pytest_meshnet.campaign.judging.judge import judge
from pytest_meshnet.tests.campaign.breaking import (
    of_arm,
    of_field,
)
from pytest_meshnet.tests.campaign.whole import (
    UUID,
    arm,
    campaign,
)


def codes(record):
    return {one.code for one in judge(record).invalidations}


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
