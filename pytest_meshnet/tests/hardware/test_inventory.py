"""Inventories: identity, joining, and unknown values that stay unknown."""

import json
import sys

import pytest

from pytest_meshnet.hardware.inventory import DriverError, InventoryError, Reading, join, read
from pytest_meshnet.hardware.inventory.device import GIB, Device, PciAddress, known_memory
from pytest_meshnet.hardware.inventory.file import FileDriver
from pytest_meshnet.hardware.inventory.nvml import Nvml, NvmlDriver
from pytest_meshnet.tests.hardware.fakes import (
    NAMES,
    RTX3060,
    FakeGpu,
    FakeNvml,
    NVMLError,
    inventory,
    inventory_file,
    uuids,
)

SPELLINGS = [
    "pci:00000000:01:00.0",
    "00000000:01:00.0",
    "0000:01:00.0",
    "01:00.0",
    "1:0",
    "0:01:00",
]


@pytest.mark.parametrize("text", SPELLINGS)
def test_every_accepted_spelling_of_a_bus_id_is_one_address(text):
    # faults row 25
    assert PciAddress.parse(text) == PciAddress(0, 1, 0, 0)


@pytest.mark.parametrize("text", ["", "gpu0", "cuda:0:0:0:0", "0000:01:00.9", "x:01:00.0", "0"])
def test_what_is_no_bus_id_is_refused(text):
    with pytest.raises(ValueError, match="expected a form like"):
        PciAddress.parse(text)


def test_bus_ids_sort_as_numbers_not_as_texts():
    # faults row 88
    found = inventory("eight").devices
    texts = [str(one.pci) for one in found]
    assert [one.index for one in found] == list(range(8)), texts
    assert texts != sorted(texts), "the inventory does not tell the two orders apart"


@pytest.mark.parametrize("told", [0, 1, 2000])
def test_a_placeholder_is_no_memory(told):
    # faults row 8
    memory, why = known_memory(told)
    assert memory is None
    assert f"{told} bytes" in why


# Joining ---------------------------------------------------------------------------------------


def test_the_order_of_an_inventory_does_not_depend_on_who_was_listed_first():
    # faults rows 10 and 176
    straight = inventory("uneven")
    turned = join(
        [
            _reading(list(reversed(straight.devices))[:1]),
            _reading(list(reversed(straight.devices))[1:]),
        ]
    )
    assert turned.devices == straight.devices


def _reading(devices):
    return Reading(tuple(devices))


@pytest.mark.parametrize("key", ["uuid", "pci"])
def test_two_devices_with_one_identity_are_refused(key):
    one = Device("nvml", "nvidia", RTX3060, PciAddress(0, 1, 0))
    other = Device("nvml", "nvidia", "GPU-2", PciAddress(0, 2, 0))
    twin = Device(
        "file",
        "nvidia",
        RTX3060.upper() if key == "uuid" else "GPU-3",
        PciAddress(0, 1 if key == "pci" else 3, 0),
    )
    with pytest.raises(InventoryError, match="two devices are"):
        join([_reading([one, other]), _reading([twin])])


@pytest.mark.parametrize("text", [RTX3060, RTX3060[4:], RTX3060.upper(), f" {RTX3060} "])
def test_a_device_is_found_by_its_uuid_with_or_without_prefix(text):
    found = inventory("both-vendors").find(uuid=text)
    assert found is not None
    assert found.uuid == RTX3060


def test_a_device_is_found_by_bus_id_and_never_by_position():
    found = inventory("mig").find(pci=PciAddress.parse("18:00.0"))
    assert found is not None
    assert found.split, "the bus id names the GPU, not an instance of it"
    assert inventory("mig").find() is None


# NVML ------------------------------------------------------------------------------------------


def nvml(*gpus, kernel_driver=False, **more):
    return NvmlDriver(FakeNvml(*gpus, **more), lambda: kernel_driver)


def test_nvml_tells_every_fact_of_a_device():
    (one,) = read([nvml(FakeGpu(RTX3060, "00000000:01:00.0"))]).devices
    assert one.facts() == {
        "provider": "nvml",
        "vendor": "nvidia",
        "uuid": RTX3060,
        "pci_bus_id": "0000:01:00.0",
        "name": "NVIDIA GeForce RTX 3060",
        "index": 0,
        "architecture": "sm_86",
        "memory_bytes": 12 * GIB,
        "driver": "580.159.04",
        "mig_mode": False,
        "mig_parent": None,
        "unknown": "",
    }
    assert not one.simulated


@pytest.mark.parametrize("code", [3, 4, 15])
def test_a_memory_that_nvml_does_not_tell_stays_unknown_with_the_raw_error(code):
    # faults rows 44 and 45
    neighbour = FakeGpu("GPU-1", "00000000:02:00.0", memory=24 * GIB)
    found = read([nvml(FakeGpu(RTX3060, "00000000:01:00.0", memory=NVMLError(code)), neighbour)])
    one = found.devices[0]
    assert one.memory_bytes is None, "an unknown memory is neither 0 nor the neighbour's"
    assert one.facts()["memory_bytes"] is None
    assert NAMES[code] in one.facts()["unknown"]
    assert "memory unknown" in str(one)


@pytest.mark.parametrize(
    ("what", "field"), [("name", "name"), ("capability", "capability"), ("mig", "mig_mode")]
)
def test_any_other_value_that_nvml_refuses_stays_unknown_too(what, field):
    (one,) = read([nvml(FakeGpu(RTX3060, "00000000:01:00.0", **{what: NVMLError(4)}))]).devices
    assert getattr(one, field) is None
    assert "Insufficient Permissions" in one.unknown[field]


def test_a_lost_gpu_is_a_problem_and_the_others_are_still_there():
    # faults row 114
    lost = FakeGpu("GPU-1", "00000000:01:00.0", handle_error=NVMLError(15))
    found = read([nvml(lost, FakeGpu("GPU-2", "00000000:02:00.0"))])
    assert uuids(found.devices) == ["GPU-2"]
    assert found.problems == ("nvml: device 0: NVMLError: GPU is lost",)


@pytest.mark.parametrize(
    ("code", "kernel_driver", "is_problem"),
    [(12, False, False), (12, True, True), (9, False, False), (18, False, True), (4, True, True)],
)
def test_a_driver_that_is_missing_is_a_note_and_one_that_is_broken_a_problem(
    code, kernel_driver, is_problem
):
    found = read([nvml(init_error=NVMLError(code), kernel_driver=kernel_driver)])
    told = found.problems if is_problem else found.notes
    assert NAMES[code] in told[0], found


@pytest.mark.parametrize("kernel_driver", [False, True])
def test_without_nvidia_ml_py_a_machine_with_the_driver_is_not_taken_for_an_empty_one(
    monkeypatch, kernel_driver
):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    found = read([NvmlDriver(None, lambda: kernel_driver)])
    told = found.problems if kernel_driver else found.notes
    assert "pip install" in told[0]


def test_mig_instances_have_their_own_uuids_and_the_gpu_in_mig_mode_is_no_device_to_use():
    parts = [
        FakeGpu("MIG-377e0049-1", "", name="NVIDIA H200 MIG 1g.18gb", memory=16 * GIB, mig=(1, 0)),
        FakeGpu("MIG-377e0049-2", "", name=NVMLError(3), memory=NVMLError(4), mig=(2, 0)),
    ]
    gpu = FakeGpu("GPU-200a", "00000000:18:00.0", capability=(9, 0), mig=1, instances=parts)
    whole, first, second = read([nvml(gpu)]).devices
    assert whole.split
    assert (first.uuid, first.mig.parent, first.memory_bytes) == (
        "MIG-377e0049-1",
        "GPU-200a",
        16 * GIB,
    )
    assert first.spellings == ("MIG-377e0049-1", "MIG-GPU-200a/1/0")
    assert (first.index, first.capability, first.pci) == (None, (9, 0), whole.pci)
    assert (second.name, second.memory_bytes) == (None, None), "never the parent's value"


def test_an_error_among_mig_instances_is_not_taken_for_their_end():
    gpu = FakeGpu("GPU-200a", "00000000:18:00.0", mig=1)
    library = FakeNvml(gpu)
    library.nvmlDeviceGetMigDeviceHandleByIndex = lambda handle, index: _raise(NVMLError(4))
    found = read([NvmlDriver(library)])
    assert found.devices == ()
    assert "Insufficient Permissions" in found.problems[0]


def _raise(error):
    raise error


def test_nvml_lists_processes_by_full_uuid_and_closes_after_itself():
    library = FakeNvml(FakeGpu("GPU-1", "1:0"), FakeGpu("GPU-2", "2:0", pids=(7, 9)))
    driver = NvmlDriver(library)
    assert driver.processes(Device("nvml", "nvidia", "GPU-2", index=0)) == (7, 9)
    with pytest.raises(DriverError, match="Not Found"):
        driver.processes(Device("nvml", "nvidia", "GPU-"))
    assert library.open == 0


def test_a_process_list_that_cannot_be_had_is_an_error_and_not_empty():
    driver = nvml(FakeGpu("GPU-1", "1:0", pids=NVMLError(4)))
    with pytest.raises(DriverError, match="Insufficient Permissions"):
        driver.processes(Device("nvml", "nvidia", "GPU-1"))


def test_the_fake_has_the_functions_of_the_real_module():
    module = pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    names = [name for name in vars(Nvml) if name.startswith("nvml")] + ["NVMLError"]
    assert [name for name in names if not hasattr(module, name)] == []
    assert [name for name in names if not hasattr(FakeNvml, name)] == []
    assert module.NVML_ERROR_NOT_SUPPORTED == 3
    assert module.NVMLError(12).value == 12


# Files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", sorted(inventory_file("four").parent.glob("*.json")), ids=lambda p: p.stem
)
def test_every_simulated_inventory_is_readable_and_says_that_it_is_simulated(path):
    found = read([FileDriver(path)])
    assert found.simulated == bool(found.devices)
    assert all(one.provider == "file" for one in found.devices)


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ({"vendor": "nvidia", "uid": "GPU-1"}, "unknown key 'uid'"),
        ({"vendor": "intel"}, "vendor is 'intel'"),
        ({"vendor": "nvidia", "memory_bytes": True}, "memory_bytes is True"),
        ({"vendor": "nvidia", "compute_capability": "sm_86"}, "expected a form like 8.6"),
        ({"vendor": "nvidia", "pci_bus_id": "slot 1"}, "is no PCI bus id"),
        ({"vendor": "nvidia", "mig": {"of": "GPU-1"}}, "unknown key 'of'"),
    ],
)
def test_a_bad_inventory_file_is_refused(tmp_path, device, message):
    path = tmp_path / "bad.json"
    path.write_text(json.dumps({"schema": "meshnet-inventory/1", "devices": [device]}))
    with pytest.raises(InventoryError, match=message):
        FileDriver(path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "meshnet-inventory/2"}'])
def test_a_file_that_is_no_inventory_is_refused(tmp_path, text):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(InventoryError, match=r"no readable inventory|expected"):
        FileDriver(path)


def test_a_placeholder_in_a_file_is_unknown_memory(tmp_path):
    # faults row 8
    path = tmp_path / "one.json"
    device = {"vendor": "nvidia", "uuid": "GPU-1", "memory_bytes": 1}
    path.write_text(json.dumps({"schema": "meshnet-inventory/1", "devices": [device]}))
    (one,) = read([FileDriver(path)]).devices
    assert one.memory_bytes is None
    assert "1 bytes" in one.unknown["memory_bytes"]


def test_the_processes_of_a_file_are_what_simulated_runtimes_wrote_down(tmp_path):
    told = json.loads(inventory_file("four").read_text()) | {"processes": "here"}
    path = tmp_path / "four.json"
    path.write_text(json.dumps(told))
    driver = FileDriver(path)
    first, second, *_ = read([driver]).devices
    assert driver.processes(first) == ()
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "77").write_text(f"{first.uuid}\n")
    (tmp_path / "here" / "78").write_text(f"{first.uuid}\n{second.uuid.upper()}\n")
    assert driver.processes(first) == (77, 78)
    assert driver.processes(second) == (78,)
