"""Lanes as data: which device is in which, what a mark may say, and what -m asks for."""

from dataclasses import replace

import pytest

from pytest_meshnet.hardware import lanes
from pytest_meshnet.hardware.inventory.device import GIB
from pytest_meshnet.hardware.lanes import Lane, LaneError, Want
from pytest_meshnet.hardware.lanes.matching import Machine, check_present, match
from pytest_meshnet.hardware.pinning.selector import select
from pytest_meshnet.hardware.pinning.visibility import visible
from pytest_meshnet.tests.hardware.fakes import inventory, uuids

TABLE = lanes.table(())


def machine(name, environment=None, selector=None, present=()):
    found = inventory(name)
    view = visible(found, environment or {})
    selection = None if selector is None else select(selector, found, view)
    return Machine(found, view, selection, frozenset(present))


def found(lane, *args, on, **more):
    return match([TABLE[lane].need(args)], machine(on, **more))


STATES = [
    ("gpu", (), "rtx3060", "ready"),
    ("gpu", (), "rocm", "ready"),
    ("gpu", (), "mig", "ready"),
    ("gpu", (), "empty", "absent"),
    ("gpu", (), "broken-driver", "unmeasured"),
    ("rtx3060", (), "rtx3060", "ready"),
    ("rtx3060", (), "both-vendors", "ready"),
    # A 3060 Ti, one of 8 GB, a laptop part and a GH200 are other devices.
    ("rtx3060", (), "look-alikes", "absent"),
    ("h200", (), "look-alikes", "absent"),
    ("rtx3060", (), "four", "absent"),
    # What cannot be measured is not too small: faults row 45.
    ("rtx3060", (), "memory-unknown", "unmeasured"),
    ("gpu", (), "memory-unknown", "ready"),
    ("h200", (), "mig", "ready"),
    ("h200", (), "rtx3060", "absent"),
    ("multi_gpu", (2,), "four", "ready"),
    ("multi_gpu", (4,), "four", "ready"),
    ("multi_gpu", (5,), "four", "absent"),
    # A process sees one MIG instance at most, and never two vendors at once.
    ("multi_gpu", (2,), "mig", "absent"),
    ("multi_gpu", (2,), "both-vendors", "absent"),
    ("rocm", (), "rocm", "ready"),
    ("rocm", ("gfx90a",), "rocm", "ready"),
    ("rocm", ("gfx1201",), "rocm", "absent"),
    ("rocm", (), "rtx3060", "absent"),
]


@pytest.mark.parametrize(("lane", "args", "on", "word"), STATES, ids=[str(one) for one in STATES])
def test_a_lane_is_ready_absent_or_cannot_be_told(lane, args, on, word):
    answer = found(lane, *args, on=on)
    assert answer.word == word, answer.reason


def test_a_gpu_in_mig_mode_is_in_no_lane():
    gpu, *_ = inventory("mig").devices
    states = {lane.name: lane.want.fits(gpu).value for lane in lanes.BUILT_IN if lane.want}
    assert set(states.values()) == {False}, states


def test_the_h200_lane_gives_the_whole_card_and_not_one_in_mig_mode():
    assert uuids(found("h200", on="mig").candidates) == [inventory("mig").devices[-1].uuid]


@pytest.mark.parametrize("on", ["empty", "four", "look-alikes", "memory-unknown", "broken-driver"])
def test_the_reason_names_what_was_found(on):
    # faults row 45
    reason = found("rtx3060", on=on).reason
    there = inventory(on)
    assert "rtx3060: 1 device wanted, 0 fit" in reason
    for text in (*uuids(there.devices), *there.problems, *there.notes):
        assert text in reason
    if on == "memory-unknown":
        assert "NVMLError_NoPermission: Insufficient Permissions" in reason


def test_a_mask_that_hides_the_device_is_in_the_reason():
    # faults row 133
    answer = found("rtx3060", on="rtx3060", environment={"CUDA_VISIBLE_DEVICES": ""})
    assert answer.word == "absent"
    assert "CUDA_VISIBLE_DEVICES is empty and hides every device" in answer.reason


def test_a_lease_respects_an_outer_mask():
    third = inventory("four").devices[2]
    answer = found("gpu", on="four", environment={"CUDA_VISIBLE_DEVICES": third.uuid})
    assert answer.candidates == (third,)


def test_a_selector_narrows_the_candidates_and_is_in_the_reason():
    # faults row 83
    answer = found("gpu", on="fastest-first", selector="1")
    assert [one.name for one in answer.candidates] == ["NVIDIA GeForce RTX 4090"]
    refused = found("rtx3060", on="both-vendors", selector="GPU-73f8")
    assert refused.word == "absent"
    assert "selected by 'GPU-73f8'" in refused.reason


def test_several_lanes_of_one_test_must_fit_one_set_of_devices():
    needs = [TABLE["rtx3060"].need(), TABLE["gpu"].need()]
    assert match(needs, machine("both-vendors")).word == "ready"
    needs = [TABLE["rtx3060"].need(), TABLE["rocm"].need()]
    assert match(needs, machine("both-vendors")).word == "absent"
    needs = [TABLE["rtx3060"].need(), TABLE["real_runtime"].need(["freetoken"])]
    assert match(needs, machine("rtx3060")).word == "absent"
    assert match(needs, machine("rtx3060", present=["real_runtime:freetoken"])).word == "ready"


def test_a_device_without_uuid_is_not_leased_and_not_called_absent():
    there = inventory("rocm")
    bare = replace(there, devices=(replace(there.devices[0], uuid=None),))
    answer = match([TABLE["rocm"].need()], Machine(bare, visible(bare, {})))
    assert answer.word == "unmeasured"
    assert "no UUID" in answer.reason


HOST = [
    ("real_target", (), [], "absent"),
    ("real_target", (), ["real_target"], "ready"),
    ("real_runtime", ("llama.cpp",), ["real_runtime:freetoken"], "absent"),
    ("real_runtime", ("llama.cpp",), ["real_runtime:llama.cpp"], "ready"),
    ("multi_machine", (2,), [], "absent"),
    ("multi_machine", (2,), ["machines:2"], "ready"),
    ("multi_machine", (3,), ["machines:2"], "absent"),
    ("multi_machine", (3,), ["machines:10"], "ready"),
]


@pytest.mark.parametrize(("lane", "args", "present", "word"), HOST, ids=[str(one) for one in HOST])
def test_a_lane_about_the_host_believes_only_what_it_was_told(lane, args, present, word):
    answer = found(lane, *args, on="empty", present=present)
    assert (answer.word, answer.count) == (word, 0)


@pytest.mark.parametrize(
    "told", ["gpu", "real_target:x", "real_runtime", "machines:two", "machines"]
)
def test_a_host_fact_that_no_lane_asks_about_is_refused(told):
    with pytest.raises(LaneError, match="expected real_target, real_runtime:NAME, machines:N"):
        check_present([told])


# Marks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lane", "args", "kwargs"),
    [
        ("gpu", ("GPU-1",), {}),
        ("rtx3060", (), {"index": 0}),
        ("multi_gpu", (), {}),
        ("multi_gpu", (1,), {}),
        ("multi_gpu", ("2",), {}),
        ("multi_gpu", (True,), {}),
        ("multi_gpu", (2, 3), {}),
        ("rocm", (1100,), {}),
        ("rocm", ("",), {}),
        ("real_runtime", (), {}),
        ("real_target", ("/models",), {}),
    ],
)
def test_a_mark_with_other_arguments_than_its_lane_takes_is_refused(lane, args, kwargs):
    with pytest.raises(LaneError, match=lane):
        TABLE[lane].need(args, kwargs)


def test_a_mark_may_name_its_argument():
    assert TABLE["multi_gpu"].need((), {"n": 3}).count == 3
    assert TABLE["rocm"].need((), {"gfx": "gfx90a"}).want.gfx == "gfx90a"


def test_the_lines_of_pytest_markers_say_what_a_lane_needs():
    lines = [lanes.line(lane) for lane in lanes.BUILT_IN]
    assert "multi_gpu(n): needs n whole GPUs of one vendor; implies hardware." in lines
    assert [line.partition(":")[0] for line in lines] == [
        "gpu",
        "rtx3060",
        "h200",
        "multi_gpu(n)",
        "rocm(gfx=None)",
        "multi_machine(n)",
        "real_target",
        "real_runtime(name)",
    ]


# Lanes of users --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "want", "count"),
    [
        ("any_one:", Want(), 1),
        ("a6000: name~RTX A6000, sm=8.6, count=2", Want(word="RTX A6000", capability=(8, 6)), 2),
        ("ada: sm>=8.9, vendor=nvidia", Want(vendor="nvidia", capability_from=(8, 9)), 1),
        ("old: sm=sm_75", Want(capability=(7, 5)), 1),
        ("new: sm>=sm_100", Want(capability_from=(10, 0)), 1),
        ("big: memory>=47GiB, mig=no", Want(memory_from=47 * GIB, whole=True), 1),
        ("small: memory<=16, gfx=gfx1100", Want(memory_to=16 * GIB, gfx="gfx1100"), 1),
        ("exact: name=GeForce RTX 3090", Want(name="GeForce RTX 3090"), 1),
    ],
)
def test_a_lane_of_an_ini_file(text, want, count):
    lane = lanes.parse(text)
    assert (lane.want, lane.count) == (want, count)
    assert lanes.table([lane])[lane.name] is lane


@pytest.mark.parametrize(
    "text",
    [
        "a6000",
        "two words: sm=8.6",
        "x: colour=red",
        "x: sm",
        "x: sm=8.x",
        "x: memory>=lots",
        "x: memory=48GiB",
        "x: count=two",
        "x: mig=yes",
    ],
)
def test_a_lane_of_an_ini_file_that_says_nothing_is_refused(text):
    with pytest.raises(LaneError, match=r"expected|whole number"):
        lanes.parse(text)


@pytest.mark.parametrize("name", ["gpu", "hardware", "rtx3060"])
def test_a_lane_cannot_take_a_name_that_is_taken(name):
    with pytest.raises(LaneError, match="exists already"):
        lanes.table([Lane(name, "mine", Want())])


@pytest.mark.parametrize(
    ("text", "on", "count"),
    [
        ("x: name~A6000", "a6000-pair", 2),
        ("x: name~6000", "a6000-pair", 0),
        ("x: name=GeForce RTX 3090", "a6000-pair", 2),
        ("x: name=RTX 3090", "a6000-pair", 0),
        ("x: name~Radeon RX 7900", "both-vendors", 1),
        ("x: sm>=8.0", "both-vendors", 1),
        ("x: sm>=8.9", "fastest-first", 1),
        ("x: memory>=20", "uneven", 2),
        ("x: memory<=16", "uneven", 1),
        ("x: gfx=gfx90a", "rocm", 1),
    ],
)
def test_conditions_choose_devices(text, on, count):
    want = lanes.parse(text).want
    assert sum(want.fits(one).value is True for one in inventory(on).devices) == count


# -m expressions --------------------------------------------------------------------------------

EXPRESSIONS = [
    ("rtx3060", {"rtx3060"}, False),
    ("rtx3060 or h200", {"rtx3060", "h200"}, False),
    ("rtx3060 and not slow", {"rtx3060"}, False),
    ("gpu and not h200", {"gpu"}, False),
    ("not hardware", set(), True),
    ("not rtx3060", set(), False),
    ("not (hardware or slow)", set(), True),
    ("not (hardware and slow)", set(), False),
    ("not slow and not hardware", set(), True),
    ("not hardware or slow", set(), False),
    ("(not hardware) and slow", set(), True),
    ("not not gpu", {"gpu"}, False),
    ("not (not gpu)", {"gpu"}, False),
    ("multi_gpu(n=2) and not (h200 or slow)", {"multi_gpu"}, False),
    ("hardware", {"hardware"}, False),
    ("gpus or mygpu", set(), False),
    ("", set(), False),
]


@pytest.mark.parametrize(
    ("expression", "asked", "excluded"), EXPRESSIONS, ids=[one for one, *_ in EXPRESSIONS]
)
def test_an_expression_asks_for_what_it_does_not_exclude(expression, asked, excluded):
    assert lanes.asked_for(expression, [*TABLE, "hardware"]) == asked
    assert lanes.excludes_hardware(expression) == excluded
