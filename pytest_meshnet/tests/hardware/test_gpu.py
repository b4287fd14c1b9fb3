"""The devices of one test, from the pinned environment to the proof."""

import os
from dataclasses import replace

import pytest

from pytest_meshnet.hardware.inventory import DriverError, Inventory, Reading
from pytest_meshnet.hardware.pinning.visibility import visible
from pytest_meshnet.hardware.placement.gpu import Gpu, NativeKernelMissing
from pytest_meshnet.hardware.placement.judge import Foreign, Seen
from pytest_meshnet.hardware.placement.processes import HOST_PID_NAMESPACE, ProcFs
from pytest_meshnet.hardware.placement.senses import Senses
from pytest_meshnet.tests.hardware.fakes import inventory, proc_tree

RUNTIME, CHILD, STRANGER = 9_000_001, 9_000_002, 9_000_003
"""Past the largest pid that Linux gives, so that none is this very process."""
MASK = "CUDA_VISIBLE_DEVICES"


class Driver:
    """A driver of the host whose lists a test writes; `pids` are by UUID."""

    provider = "file"

    def __init__(self, found, counts_host_pids=True):
        self.found, self.pids, self.error = found, {}, None
        self.counts_host_pids = counts_host_pids

    def read(self):
        return Reading(self.found.devices, self.found.problems)

    def processes(self, device):
        if self.error:
            raise DriverError(self.error)
        return tuple(self.pids.get(device.uuid, ()))


class Bench:
    """A simulated machine around one Gpu."""

    def __init__(self, tmp_path, name, places=(0,), namespace=HOST_PID_NAMESPACE, ignores=()):
        me = os.getpid()
        tree = {1: (0, 1, 1), me: (1, 2, 1), STRANGER: (1, 4, 1)}
        tree |= {RUNTIME: (me, 5, 1), CHILD: (RUNTIME, 6, 1)}
        self.found = inventory(name)
        self.driver = Driver(self.found)
        self.journal = []
        self.seen_environment = None
        self.root = proc_tree(tmp_path / "proc", tree, namespace)
        self.ignores = ignores
        senses = Senses((self.driver,), self.inside, ProcFs(self.root))
        devices = [self.found.devices[place] for place in places]
        self.gpu = Gpu(devices, self.found, senses, {"PATH": "/bin"}, self.journal.append)

    def inside(self, environment, vendor):
        self.seen_environment = environment
        kept = {name: value for name, value in environment.items() if name not in self.ignores}
        return 1, tuple(Seen(one.uuid, one.pci) for one in visible(self.found, kept).of(vendor))

    def put(self, pid, *places):
        for place in places:
            self.driver.pids.setdefault(self.found.devices[place].uuid, []).append(pid)


@pytest.fixture
def bench(tmp_path_factory):
    return lambda *args, **more: Bench(tmp_path_factory.mktemp("bench"), *args, **more)


# Before ----------------------------------------------------------------------------------------


def test_the_pinned_environment_is_looked_at_from_inside_before_the_test(bench):
    one = bench("four", (2,))
    before = one.gpu.before()
    assert before.verdict == "proven", before.reasons
    assert before.requested == before.observed == (one.found.devices[2].uuid,)
    assert one.seen_environment[MASK] == one.found.devices[2].uuid
    assert one.journal == [before]


def test_a_pin_that_the_container_ignores_is_contradicted(bench):
    # faults rows 84 and 86
    before = bench("four", ignores=(MASK,)).gpu.before()
    assert before.verdict == "contradicted"
    assert "the pin has no effect" in before.reasons[0]
    assert len(before.observed) == 4


def test_on_a_machine_with_one_device_isolation_is_not_exercised(bench):
    # faults row 84
    before = bench("rtx3060").gpu.before()
    assert before.verdict == "proven"
    assert "isolation not exercised: there is no other device" in before.reasons
    assert not any("not exercised" in one for one in bench("four").gpu.before().reasons)


def test_a_probe_without_a_library_proves_nothing(bench):
    one = bench("four")
    one.gpu._senses = replace(one.gpu._senses, inside=_no_library)
    before = one.gpu.before()
    assert (before.verdict, before.reasons) == ("unobservable", ("no libcuda",))


def _no_library(environment, vendor):
    raise DriverError("no libcuda")


# During ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("pid", [RUNTIME, CHILD])
def test_the_runtime_or_its_child_on_the_device_is_a_proof(bench, pid):
    one = bench("four", (1,))
    one.gpu.watch(RUNTIME)
    one.put(pid, 1)
    during = one.gpu.observe()
    assert during.verdict == "proven", during.reasons
    assert during.observed == (one.found.devices[1].uuid,)


def test_the_runtime_on_another_device_is_contradicted(bench):
    # faults row 83
    one = bench("fastest-first", (1,))
    one.gpu.watch(RUNTIME)
    one.put(RUNTIME, 0)
    during = one.gpu.observe()
    assert during.verdict == "contradicted"
    assert during.observed == (one.found.devices[0].uuid,)


def test_a_stray_context_on_a_device_that_was_not_requested_is_contradicted(bench):
    # faults row 87
    one = bench("four", (1,))
    one.gpu.watch(RUNTIME)
    one.put(RUNTIME, 0, 1)
    assert one.gpu.observe().verdict == "contradicted"


def test_a_stray_context_of_pytest_itself_is_contradicted(bench):
    # faults row 87
    one = bench("four", (1,))
    one.gpu.watch(RUNTIME)
    one.put(RUNTIME, 1)
    one.put(os.getpid(), 0)
    assert one.gpu.observe().verdict == "contradicted"


def test_a_runtime_that_no_driver_lists_is_unobservable(bench):
    one = bench("four")
    one.gpu.watch(RUNTIME)
    during = one.gpu.observe()
    assert during.verdict == "unobservable"
    assert f"lists process {RUNTIME} and its children on no device" in during.reasons[0]


def test_a_test_that_watched_nothing_is_unobservable(bench):
    # faults row 133: a bare return proves nothing
    during = bench("four").gpu.observe()
    assert during.verdict == "unobservable"
    assert during.reasons == ("no process of the test was seen on a device",)


def test_a_process_list_that_is_refused_is_unobservable_with_the_raw_error(bench):
    # faults row 45
    one = bench("four")
    one.gpu.watch(RUNTIME)
    one.driver.error = "nvml: NVMLError_NoPermission: Insufficient Permissions"
    during = one.gpu.observe()
    assert during.verdict == "unobservable"
    assert "NVMLError_NoPermission: Insufficient Permissions" in during.reasons[0]


def test_in_a_container_the_pids_of_the_driver_prove_nothing(bench):
    one = bench("four", namespace=4026532222)
    one.gpu.watch(RUNTIME)
    one.put(RUNTIME, 0)
    during = one.gpu.observe()
    assert during.verdict == "unobservable"
    assert "equal numbers are no proof" in during.reasons[0]


def test_in_a_container_the_process_itself_can_still_prove_it(bench):
    one = bench("four", namespace=4026532222)
    one.gpu.report(RUNTIME, [Seen(one.gpu.device.uuid)])
    assert one.gpu.observe().verdict == "proven"


def test_a_pid_that_belongs_to_another_process_by_now_is_no_proof(bench):
    one = bench("four")
    one.gpu.watch(RUNTIME)
    one.put(RUNTIME, 0)
    stat = one.root / str(RUNTIME) / "stat"
    stat.write_text(stat.read_text().replace(" 5 ", " 55 "))
    during = one.gpu.observe()
    assert during.verdict == "unobservable"
    assert f"process {RUNTIME} has ended" in during.reasons


def test_watching_nobody_is_an_error(bench):
    with pytest.raises(ProcessLookupError, match="there is no process 4711"):
        bench("four").gpu.watch(4711)


def test_what_was_seen_earlier_in_the_test_still_counts(bench):
    one = bench("four")
    one.gpu.watch(RUNTIME)
    one.put(RUNTIME, 1)
    assert one.gpu.observe().verdict == "contradicted"
    one.driver.pids = {one.gpu.device.uuid: [RUNTIME]}
    assert one.gpu.observe().verdict == "contradicted", "a later good look repairs nothing"


def test_the_word_of_the_runtime_is_recorded_and_proves_nothing(bench):
    one = bench("four")
    one.gpu.claim(one.gpu.device.uuid)
    during = one.gpu.observe()
    assert during.claimed == (one.gpu.device.uuid,)
    assert during.verdict == "unobservable"
    assert "(the runtime's word)" in str(during)


def test_a_device_told_by_its_place_alone_is_no_proof(bench):
    # faults row 178
    one = bench("four")
    one.gpu.report(RUNTIME, [Seen()], visible=[Seen()])
    during = one.gpu.observe()
    assert during.verdict == "unobservable"
    assert "neither UUID nor PCI bus id" in during.reasons[0]


def test_each_worker_of_several_proves_the_device_of_its_rank(bench):
    # faults rows 41 and 88
    one = bench("eight", tuple(range(8)))
    for rank, device in enumerate(one.gpu.devices):
        one.gpu.report(100 + rank, [Seen(device.uuid)], visible=[Seen(device.uuid)], rank=rank)
    assert one.gpu.observe().verdict == "proven"


# Others on the device --------------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["before", "observe", "after"])
def test_a_stranger_on_the_device_is_recorded_at_every_look(bench, moment):
    one = bench("four")
    one.put(STRANGER, 0, 1)
    placement = getattr(one.gpu, moment)()
    assert placement.foreign == (Foreign(one.gpu.device.uuid, STRANGER),)
    assert one.gpu.disturbance() == f"process {STRANGER} on {one.gpu.device.uuid}"


def test_nobody_else_is_no_disturbance(bench):
    one = bench("four")
    one.gpu.watch(RUNTIME)
    one.put(RUNTIME, 0)
    one.put(STRANGER, 1)
    one.gpu.before()
    one.gpu.observe()
    assert one.gpu.disturbance() == ""


# After -----------------------------------------------------------------------------------------


def test_the_devices_are_the_same_after_the_test(bench):
    assert bench("four").gpu.after().verdict == "proven"


def test_a_device_that_is_gone_after_the_test_contradicts(bench):
    # faults row 115
    one = bench("four")
    one.driver.found = Inventory(one.found.devices[1:])
    after = one.gpu.after()
    assert after.verdict == "contradicted"
    assert "is gone" in after.reasons[0]


def test_a_driver_that_was_swapped_in_mid_test_contradicts(bench):
    # faults row 64
    one = bench("four")
    swapped = [replace(device, driver="590.1") for device in one.found.devices]
    one.driver.found = Inventory(tuple(swapped))
    after = one.gpu.after()
    assert after.verdict == "contradicted"
    assert "driver was 580.159.04 and is 590.1" in after.reasons[0]


def test_another_index_or_a_value_that_became_unreadable_is_no_change(bench):
    # faults row 44
    one = bench("four")
    other = [replace(device, index=7, memory_bytes=None) for device in one.found.devices]
    one.driver.found = Inventory(tuple(other))
    assert one.gpu.after().verdict == "proven"


def test_a_driver_that_broke_in_mid_test_leaves_the_end_unobserved(bench):
    one = bench("four")
    one.driver.found = Inventory((), ("nvml: GPU is lost",))
    after = one.gpu.after()
    assert (after.verdict, after.reasons) == ("unobservable", ("nvml: GPU is lost",))


# Evidence --------------------------------------------------------------------------------------


def test_a_placement_is_evidence_by_uuid_with_the_ordering_variables(bench):
    # faults row 178
    one = bench("a6000-pair", (1, 2))
    told = one.gpu.before().document()
    uuids = [device.uuid for device in one.gpu.devices]
    assert told["requested"] == told["observed"] == uuids
    assert told["environment"] == {
        "CUDA_VISIBLE_DEVICES": ",".join(uuids),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "NVIDIA_VISIBLE_DEVICES": ",".join(uuids),
    }
    assert told["simulated"] is True


def test_the_records_of_a_placement_join_each_requested_device_to_its_facts(bench):
    one = bench("four", (0, 1))
    one.gpu.report(RUNTIME, [Seen(device.uuid) for device in one.gpu.devices])
    for (requested, observed), device in zip(
        one.gpu.observe().records(), one.gpu.devices, strict=True
    ):
        assert requested == {"uuid": device.uuid}
        assert observed == device.facts()


def test_the_record_of_a_wrong_device_shows_the_wrong_device(bench):
    one = bench("four", (1,))
    one.gpu.watch(RUNTIME)
    one.put(RUNTIME, 0)
    ((requested, observed),) = one.gpu.observe().records()
    assert requested == {"uuid": one.found.devices[1].uuid}
    assert observed == one.found.devices[0].facts()


def test_what_nobody_saw_leaves_no_record(bench):
    assert bench("four").gpu.observe().records() == []


# Arch gates ------------------------------------------------------------------------------------


def test_a_test_of_native_kernels_does_not_run_on_a_fallback(bench):
    gpu = bench("rtx3060").gpu
    with pytest.raises(NativeKernelMissing, match=r"fallback on GPU-3060.* sm_86"):
        gpu.require_native("nvfp4", "weights")
    with pytest.raises(NativeKernelMissing, match="incompatible"):
        gpu.require_native("fp8_e4m3", "kv")
    bench("mig", (3,)).gpu.require_native("nvfp4", "weights")
