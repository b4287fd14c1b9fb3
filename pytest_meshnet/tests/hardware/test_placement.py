"""The verdict on a placement, and which processes count."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_meshnet.hardware.inventory import DriverError
from pytest_meshnet.hardware.inventory.device import PciAddress
from pytest_meshnet.hardware.placement import inside
from pytest_meshnet.hardware.placement.judge import (
    Foreign,
    Listing,
    Seen,
    Sighting,
    attribute,
    judge,
    resolve,
)
from pytest_meshnet.hardware.placement.processes import HOST_PID_NAMESPACE, ProcessId, ProcFs
from pytest_meshnet.hardware.placement.senses import look_inside
from pytest_meshnet.tests.hardware.fakes import FakeCuda, inventory, proc_tree

DRIVER, INSIDE = "driver", "in-process"


def driver(pid, *devices):
    return Sighting(DRIVER, pid, devices)


def inner(pid, *visible, used=None, rank=None):
    return Sighting(INSIDE, pid, visible if used is None else used, visible, rank)


JUDGED = [
    # One device, seen by the driver or by the process itself.
    (["A"], [driver(1, "A")], "proven"),
    (["A"], [inner(1, "A")], "proven"),
    # faults row 83: asked for B, landed on A.
    (["B"], [driver(1, "A")], "contradicted"),
    (["B"], [inner(1, "A")], "contradicted"),
    # faults row 87: a stray context on another device.
    (["B"], [driver(1, "B", "A")], "contradicted"),
    (["B"], [driver(1, "B"), driver(2, "A")], "contradicted"),
    # faults rows 84 and 86: the pin has no effect, although the work is on the right device.
    (["A"], [inner(1, "A", "B", "C", "D", used=("A",))], "contradicted"),
    (["A"], [inner(1, used=("A",))], "contradicted"),
    # faults row 133: nothing was seen, so nothing is proven.
    (["A"], [], "unobservable"),
    ([], [], "unobservable"),
    # faults row 41: the set of devices in use is the set that was requested.
    (["A", "B"], [driver(1, "A"), driver(2, "B")], "proven"),
    (["A", "B"], [driver(1, "A", "B")], "proven"),
    (["A", "B"], [driver(1, "A")], "unobservable"),
    (["A", "B"], [driver(1, "A"), driver(2, "C")], "contradicted"),
    # faults row 175: the order that is used is the order that was requested.
    (["B", "A"], [inner(1, "B", "A")], "proven"),
    (["B", "A"], [inner(1, "A", "B")], "contradicted"),
    # faults row 88: each rank is on the device of its place.
    (["B", "A"], [inner(1, "B", rank=0), inner(2, "A", rank=1)], "proven"),
    (["B", "A"], [inner(1, "A", rank=0), inner(2, "B", rank=1)], "contradicted"),
    (["B", "A"], [inner(1, "B", rank=0)], "unobservable"),
    (["B", "A"], [inner(1, "B", rank=0), inner(2, "B", rank=1)], "contradicted"),
    (["B", "A"], [inner(1, "B", rank=2)], "contradicted"),
    (["B", "A"], [inner(1, "A", rank=-1)], "contradicted"),
    # A proof does not outweigh a contradiction of another look.
    (["A"], [driver(1, "A"), inner(1, "B")], "contradicted"),
]


@pytest.mark.parametrize(("requested", "sightings", "verdict"), JUDGED)
def test_the_verdict_on_a_placement(requested, sightings, verdict):
    judged = judge(requested, sightings, [])
    assert judged.verdict == verdict, judged.reasons
    assert judged.reasons


def test_eight_ranks_each_prove_their_own_device():
    # faults row 41
    labels = [one.label for one in inventory("eight").devices]
    ranks = [inner(100 + rank, label, rank=rank) for rank, label in enumerate(labels)]
    assert judge(labels, ranks, []).verdict == "proven"
    assert judge(labels, ranks[:-1], []).verdict == "unobservable"
    swapped = [*ranks[:-2], inner(106, labels[7], rank=6), inner(107, labels[6], rank=7)]
    assert judge(labels, swapped, []).verdict == "contradicted"


def test_a_look_that_failed_is_no_proof_and_says_why():
    judged = judge(["A"], [], ["nvml: Insufficient Permissions"])
    assert (judged.verdict, judged.reasons) == ("unobservable", ("nvml: Insufficient Permissions",))
    assert judge(["A"], [driver(1, "A")], ["hip: no answer"]).verdict == "proven"


# Who a device is -------------------------------------------------------------------------------

MIG = inventory("mig")
GPU, PART1, PART2, OTHER = MIG.devices


def test_what_cuda_tells_as_bare_bytes_is_joined_to_the_inventory():
    body = PART1.uuid.removeprefix("MIG-").upper()
    assert resolve(Seen(body), MIG, [PART1]) == (PART1.label, "")
    assert resolve(Seen(None, OTHER.pci), MIG, [OTHER]) == (OTHER.label, "")


def test_the_uuid_of_the_gpu_says_nothing_about_an_instance_of_it():
    label, why = resolve(Seen(GPU.uuid), MIG, [PART1])
    assert label is None
    assert "which instance of it was not" in why
    assert resolve(Seen(GPU.uuid), MIG, [OTHER])[0] == GPU.label


def test_a_place_in_a_list_is_no_identity():
    # faults row 178
    assert resolve(Seen(), MIG, [OTHER]) == (
        None,
        "a device was told by neither UUID nor PCI bus id",
    )


def test_a_device_that_no_inventory_knows_contradicts():
    label, _ = resolve(Seen("0" * 32), MIG, [OTHER])
    assert judge([OTHER.label], [inner(1, label)], []).verdict == "contradicted"


# Which process is which ------------------------------------------------------------------------


def family(*pids):
    return frozenset(ProcessId(pid, 100, HOST_PID_NAMESPACE) for pid in pids)


def test_a_process_of_the_family_is_seen_where_the_driver_lists_it():
    listing = Listing({"A": (7, 50), "B": (8,), "C": ()})
    sightings, foreign, blind = attribute(listing, family(7, 8, 9), frozenset(), ["A"])
    assert sightings == [driver(7, "A"), driver(8, "B")]
    assert foreign == [Foreign("A", 50)]
    assert blind == []


def test_a_process_of_the_test_that_is_no_runtime_proves_nothing_and_strays():
    # faults row 87
    listing = Listing({"A": (5,), "B": ()})
    assert attribute(listing, family(), frozenset({5}), ["A"])[:2] == ([], [])
    assert attribute(listing, family(), frozenset({5}), ["B"])[0] == [driver(5, "A")]


def test_a_family_that_no_list_shows_is_not_observed():
    sightings, _, blind = attribute(Listing({"A": ()}), family(7), frozenset(), ["A"])
    assert sightings == []
    assert "lists process 7 and its children on no device" in blind[0]


@pytest.mark.parametrize("comparable", [False, None])
def test_equal_numbers_in_another_pid_namespace_are_no_proof(comparable):
    listing = Listing({"A": (7,)}, comparable=comparable)
    sightings, foreign, blind = attribute(listing, family(7), frozenset(), ["A"])
    assert sightings == []
    assert foreign == [], "one process is listed and one was started: nothing speaks of strangers"
    assert "equal numbers are no proof" in blind[0]


def test_more_processes_than_were_started_are_strangers_whatever_their_numbers():
    listing = Listing({"A": (7, 1234)}, comparable=False)
    assert attribute(listing, family(7), frozenset(), ["A"])[1] == [
        Foreign("A", 7),
        Foreign("A", 1234),
    ]
    assert attribute(Listing({"A": (7,)}, comparable=False), family(), frozenset(), ["A"])[1]


def test_a_list_that_could_not_be_had_is_blind_and_not_empty():
    # faults row 45
    listing = Listing({}, ("processes on A: nvml: Insufficient Permissions",))
    assert attribute(listing, family(7), frozenset(), ["A"]) == ([], [], list(listing.errors))


# The process table -----------------------------------------------------------------------------


def test_a_process_is_known_by_pid_start_time_and_namespace(tmp_path):
    procfs = ProcFs(proc_tree(tmp_path, {7: (1, 500, 4026531999), 8: (1, 501, None)}))
    assert procfs.identify(7) == ProcessId(7, 500, 4026531999)
    assert procfs.identify(8) == ProcessId(8, 501, None)
    assert procfs.identify(9) is None


def test_the_family_of_a_process_is_all_that_it_started(tmp_path):
    tree = {1: (0, 1, 1), 7: (1, 10, 1), 8: (7, 11, 1), 9: (8, 12, 1), 10: (1, 13, 1)}
    procfs = ProcFs(proc_tree(tmp_path, tree))
    assert {one.pid for one in procfs.family(procfs.identify(7))} == {7, 8, 9}


@pytest.mark.parametrize("now", [ProcessId(7, 11, 1), ProcessId(7, 10, 2)])
def test_a_pid_that_was_given_away_again_is_another_process(tmp_path, now):
    procfs = ProcFs(proc_tree(tmp_path, {7: (1, now.started, now.namespace), 8: (7, 20, 1)}))
    assert procfs.family(ProcessId(7, 10, 1)) == frozenset()


@pytest.mark.parametrize(
    ("namespace", "own", "expected"),
    [(HOST_PID_NAMESPACE, None, True), (4026532001, None, False), (0, "hidden", None)],
)
def test_a_container_counts_its_pids_for_itself(tmp_path, namespace, own, expected):
    procfs = ProcFs(proc_tree(tmp_path, {}, namespace, own))
    assert procfs.counts_as_the_host() is expected


def test_the_real_process_table_knows_this_process_and_its_child():
    procfs = ProcFs()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        me = procfs.identify(os.getpid())
        assert {os.getpid(), child.pid} <= {one.pid for one in procfs.family(me)}
    finally:
        child.communicate(b"\n")
    assert procfs.identify(child.pid) is None


# The probe -------------------------------------------------------------------------------------

BYTES = bytes.fromhex("3060a1f07c214d5e9b100c8f5e2d6a71")


def test_the_probe_tells_uuid_and_bus_id_in_the_order_of_cuda():
    other = bytes(range(16))
    library = FakeCuda([(other, "0000:41:00.0"), (BYTES, "0000:01:00.0")])
    assert inside.devices("nvidia", library) == [
        {"uuid": "00010203-0405-0607-0809-0a0b0c0d0e0f", "pci_bus_id": "0000:41:00.0"},
        {"uuid": "3060a1f0-7c21-4d5e-9b10-0c8f5e2d6a71", "pci_bus_id": "0000:01:00.0"},
    ]


def test_the_probe_asks_for_the_uuid_of_the_mig_instance_first():
    library = FakeCuda([(BYTES, "0000:01:00.0")])
    inside.devices("nvidia", library)
    assert library.asked == ["v2"]
    older = FakeCuda([(BYTES, "0000:01:00.0")], v2=False)
    inside.devices("nvidia", older)
    assert older.asked == ["v1"]


def test_no_visible_device_is_an_empty_list_and_any_other_code_an_error():
    assert inside.devices("nvidia", FakeCuda([], init=100)) == []
    with pytest.raises(inside.LibraryError, match="cuInit returned 999"):
        inside.devices("nvidia", FakeCuda([], init=999))


@pytest.mark.parametrize("vendor", ["nvidia", "amd"])
def test_without_the_library_the_probe_says_so(vendor, monkeypatch):
    monkeypatch.setitem(
        inside.RUNTIMES, vendor, inside.RUNTIMES[vendor]._replace(library="libnowhere.so.1")
    )
    with pytest.raises(inside.LibraryError, match=r"libnowhere\.so\.1"):
        inside.devices(vendor)


def test_the_probe_runs_as_a_script_of_its_own():
    command = [sys.executable, "-I", str(Path(inside.__file__)), "nvidia"]
    told = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert told.keys() in ({"pid", "devices"}, {"pid", "error"})


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("raise SystemExit('broken')", "the probe ended with 1 and said: broken"),
        (
            'print(\'{"pid": 1, "error": "no libcuda"}\')',
            "cannot ask the nvidia runtime: no libcuda",
        ),
    ],
)
def test_a_probe_that_cannot_tell_is_an_error(tmp_path, monkeypatch, script, message):
    (tmp_path / "probe.py").write_text(script)
    monkeypatch.setattr(inside, "__file__", str(tmp_path / "probe.py"))
    with pytest.raises(DriverError, match=message):
        look_inside({}, "nvidia")


def test_what_the_probe_tells_arrives_with_its_pid(tmp_path, monkeypatch):
    told = {"pid": 5, "devices": [{"uuid": "ab", "pci_bus_id": "0000:01:00.0"}]}
    (tmp_path / "probe.py").write_text(f"print({json.dumps(told)!r})")
    monkeypatch.setattr(inside, "__file__", str(tmp_path / "probe.py"))
    assert look_inside({}, "nvidia") == (5, (Seen("ab", PciAddress(0, 1, 0)),))
