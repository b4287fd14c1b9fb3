"""What a child process is told: UUIDs in one order, and shares keyed by UUID."""

from dataclasses import replace
from itertools import permutations

import pytest

from pytest_meshnet.hardware.inventory.device import GIB
from pytest_meshnet.hardware.pinning.environment import SplitError, in_order, pinned, shares
from pytest_meshnet.hardware.pinning.visibility import visible
from pytest_meshnet.tests.hardware.fakes import RTX3060, inventory, uuids

UNEVEN = inventory("uneven").devices
ROCM = inventory("rocm").devices


def test_an_nvidia_child_gets_full_uuids_and_the_order_of_the_bus():
    # faults row 178
    told = pinned(
        inventory("rtx3060").devices, {"PATH": "/bin", "CUDA_DEVICE_ORDER": "FASTEST_FIRST"}
    )
    assert told == {
        "PATH": "/bin",
        "CUDA_VISIBLE_DEVICES": RTX3060,
        "NVIDIA_VISIBLE_DEVICES": RTX3060,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }


def test_a_rocm_child_gets_uuids_and_counts_inside_them():
    base = {"CUDA_VISIBLE_DEVICES": "1", "GPU_DEVICE_ORDINAL": "1", "HIP_VISIBLE_DEVICES": "1"}
    assert pinned(ROCM, base) == {
        "ROCR_VISIBLE_DEVICES": ",".join(uuids(ROCM)),
        "HIP_VISIBLE_DEVICES": "0,1",
    }


@pytest.mark.parametrize("name", ["four", "uneven", "rocm", "a6000-pair", "fastest-first"])
def test_a_pinned_child_sees_exactly_its_devices_in_their_order(name):
    # faults rows 83 and 84
    found = inventory(name)
    for devices in permutations(found.devices, 2):
        assert list(visible(found, pinned(devices, {})).devices) == list(devices)


@pytest.mark.parametrize(
    "devices", [(), inventory("both-vendors").devices, [replace(ROCM[0], uuid=None)]]
)
def test_what_cannot_be_pinned_is_refused(devices):
    with pytest.raises(ValueError, match="cannot pin"):
        pinned(devices, {})


# Shares ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_shares_are_keyed_by_identity_and_do_not_depend_on_the_order_of_devices(order):
    # faults rows 9, 10 and 176: 24, 16, 24 GB split 3, 2, 3 fits in every order
    devices = [UNEVEN[place] for place in order]
    split = shares(64 * GIB, devices)
    assert split == {UNEVEN[0].uuid: 24 * GIB, UNEVEN[1].uuid: 16 * GIB, UNEVEN[2].uuid: 24 * GIB}
    assert in_order(split, devices) == tuple(one.memory_bytes for one in devices)


def test_a_positional_list_follows_the_order_of_the_environment():
    # faults rows 9 and 175
    first, second, _ = UNEVEN
    environment = pinned([second, first], {})
    assert environment["CUDA_VISIBLE_DEVICES"] == f"{second.uuid},{first.uuid}"
    assert in_order({first.uuid: 3, second.uuid: 2}, [second, first]) == (2, 3)


@pytest.mark.parametrize("keys", [[0], [0, 1, 2], [0, 2]])
def test_values_for_other_devices_are_refused(keys):
    with pytest.raises(SplitError, match="values are for"):
        in_order({UNEVEN[key].uuid: 1 for key in keys}, UNEVEN[:2])


def test_a_share_never_exceeds_a_declared_cap():
    # faults row 8
    first = UNEVEN[0].uuid
    split = shares(30 * GIB, UNEVEN, {first: 1 * GIB})
    assert split[first] <= 1 * GIB
    assert sum(split.values()) == 30 * GIB


@pytest.mark.parametrize("need", [1, 7, 10**9 + 7, 63 * GIB + 1, 64 * GIB])
def test_shares_sum_to_the_need_and_fit_every_device(need):
    # faults row 26: no share exceeds min(capacity, need), however large the memory
    huge = replace(UNEVEN[0], memory_bytes=10**15)
    for devices in (UNEVEN, [huge, *UNEVEN[1:]]):
        split = shares(need, devices)
        assert sum(split.values()) == need
        assert all(0 <= split[one.uuid] <= min(need, one.memory_bytes) for one in devices)


@pytest.mark.parametrize("need", [0, -1, 64 * GIB + 1])
def test_a_need_that_does_not_fit_is_refused(need):
    with pytest.raises(SplitError, match="do not go onto devices that can take"):
        shares(need, UNEVEN)


def test_a_device_of_unknown_memory_gets_no_share():
    # faults rows 8 and 44
    with pytest.raises(SplitError, match="Insufficient Permissions"):
        shares(GIB, inventory("memory-unknown").devices)
