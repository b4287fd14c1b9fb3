"""What masks leave visible, by the rules of the runtimes that read them."""

import pytest

from pytest_meshnet.hardware.pinning.visibility import MaskError, visible
from pytest_meshnet.tests.hardware.fakes import RTX3060, inventory, uuids

A, B, C, D = uuids(inventory("four").devices)
GEFORCE3090, GEFORCE4090 = uuids(inventory("fastest-first").devices)
RADEON, INSTINCT = uuids(inventory("rocm").devices)
WHOLE, MIG1, MIG2, OTHER = uuids(inventory("mig").devices)
PCI = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def left(name, environment):
    return uuids(visible(inventory(name), environment).devices)


CUDA = [
    # An index, a list, and everything.
    ("0", [A]),
    ("2,0", [C, A]),
    ("0,1,2,3", [A, B, C, D]),
    # An invalid entry silently ends the list.
    ("1,9,0", [B]),
    ("1,-1,0", [B]),
    ("-1", []),
    ("1,,0", [B]),
    ("1,x,0", [B]),
    ("NoDevFiles", []),
    ("", []),
    # Like strtoul: leading blanks and trailing letters are passed over.
    ("1gpu2,2ampere", [B, C]),
    (" 1, 2", [B, C]),
    # An entry given twice empties the list: faults row 84.
    ("0,0", []),
    ("1,2,1", []),
    # UUIDs in full, and prefixes, which are legal to CUDA.
    (A, [A]),
    (f"{C},{A}", [C, A]),
    ("GPU-3,GPU-1", [C, A]),
    (f"{A},{A}", []),
    (f"{A},GPU-1", []),
    # A prefix of several, of none, or without digits is invalid.
    ("GPU-", []),
    ("GPU-3,GPU-9,GPU-1", [C]),
    # An index among UUIDs ends the list, and the other way round.
    (f"{B},0", [B]),
    (f"1,{A}", [B]),
    # CUDA compares letters as they are.
    ("gpu-11111111", []),
    ("Gpu-11111111", []),
]


@pytest.mark.parametrize(("mask", "expected"), CUDA, ids=[repr(mask) for mask, _ in CUDA])
def test_cuda_visible_devices_is_read_as_cuda_reads_it(mask, expected):
    # faults row 42
    assert left("four", {"CUDA_VISIBLE_DEVICES": mask, **PCI}) == expected


@pytest.mark.parametrize(
    ("mask", "said"),
    [
        ("1,x,0", "entry 2, 'x', is no visible device and ends the list"),
        ("0,0", "entry 2, '0', is there twice, for which CUDA shows no device at all"),
        ("", "is empty and hides every device"),
        ("MIG-377e0049-0000", "entry 1, 'MIG-377e0049-0000', is no visible device"),
    ],
)
def test_a_note_names_the_entry_that_hides_devices(mask, said):
    # faults row 42
    (note,) = visible(inventory("four"), {"CUDA_VISIBLE_DEVICES": mask, **PCI}).notes
    assert said in note
    assert "CUDA_VISIBLE_DEVICES" in note


@pytest.mark.parametrize(
    ("order", "mask", "expected"),
    [
        (None, "0", GEFORCE4090),
        (None, "1", GEFORCE3090),
        ("FASTEST_FIRST", "0", GEFORCE4090),
        ("PCI_BUS_ID", "0", GEFORCE3090),
        ("PCI_BUS_ID", "1", GEFORCE4090),
    ],
)
def test_an_index_counts_fastest_first_unless_the_order_says_by_bus(order, mask, expected):
    # faults rows 85 and 178
    environment = {"CUDA_VISIBLE_DEVICES": mask}
    if order:
        environment["CUDA_DEVICE_ORDER"] = order
    assert left("fastest-first", environment) == [expected]


def test_an_index_in_an_order_that_nobody_knows_is_refused():
    # faults row 178
    with pytest.raises(MaskError, match="set CUDA_DEVICE_ORDER=PCI_BUS_ID, or give UUIDs"):
        visible(inventory("a6000-pair"), {"CUDA_VISIBLE_DEVICES": "1"})


def test_uuids_need_no_order():
    second = inventory("a6000-pair").devices[1].uuid
    assert left("a6000-pair", {"CUDA_VISIBLE_DEVICES": second}) == [second]


@pytest.mark.parametrize("value", ["0", "1", "all", "void", "GPU-nowhere"])
def test_nvidia_visible_devices_hides_nothing_from_a_process(value):
    # faults row 86
    view = visible(inventory("four"), {"NVIDIA_VISIBLE_DEVICES": value})
    assert uuids(view.devices) == [A, B, C, D]
    assert bool(view.notes) == (value != "all")


MIG = [
    (None, [MIG1, MIG2, OTHER]),
    (MIG1, [MIG1]),
    (f"{MIG1},{MIG2}", [MIG1, MIG2]),
    ("MIG-377e0049-5", [MIG1]),
    ("MIG-377e0049", []),
    (f"MIG-{WHOLE}/2/0", [MIG2]),
    (f"MIG-{WHOLE}", []),
    (OTHER, [OTHER]),
    (f"{MIG1},{OTHER}", [MIG1]),
    # The GPU itself runs nothing; which instance an index means is not told.
    (WHOLE, []),
    ("0,1", [OTHER]),
]


@pytest.mark.parametrize(("mask", "expected"), MIG, ids=[str(mask) for mask, _ in MIG])
def test_mig_instances_are_named_by_their_own_uuids(mask, expected):
    # faults row 42
    environment = {} if mask is None else {"CUDA_VISIBLE_DEVICES": mask, **PCI}
    assert left("mig", environment) == expected


ROCM = [
    ({}, [RADEON, INSTINCT]),
    ({"ROCR_VISIBLE_DEVICES": "0"}, [INSTINCT]),
    ({"ROCR_VISIBLE_DEVICES": "1,0"}, [RADEON, INSTINCT]),
    ({"ROCR_VISIBLE_DEVICES": RADEON}, [RADEON]),
    ({"ROCR_VISIBLE_DEVICES": "gpu-73f8"}, [RADEON]),
    ({"ROCR_VISIBLE_DEVICES": f"0,{RADEON}"}, [INSTINCT, RADEON]),
    ({"ROCR_VISIBLE_DEVICES": f"{RADEON},7,0"}, [RADEON]),
    ({"ROCR_VISIBLE_DEVICES": f"{RADEON},1,0"}, [RADEON]),
    ({"ROCR_VISIBLE_DEVICES": "GPU-"}, []),
    ({"ROCR_VISIBLE_DEVICES": ""}, []),
    ({"HIP_VISIBLE_DEVICES": "0"}, [INSTINCT]),
    ({"HIP_VISIBLE_DEVICES": "1"}, [RADEON]),
    # HIP counts inside what ROCr leaves.
    ({"ROCR_VISIBLE_DEVICES": RADEON, "HIP_VISIBLE_DEVICES": "0"}, [RADEON]),
    ({"ROCR_VISIBLE_DEVICES": RADEON, "HIP_VISIBLE_DEVICES": "1"}, []),
    ({"ROCR_VISIBLE_DEVICES": "1,0", "HIP_VISIBLE_DEVICES": "1"}, [INSTINCT]),
    # HIP reads CUDA's variable where its own is absent.
    ({"CUDA_VISIBLE_DEVICES": "1"}, [RADEON]),
    ({"CUDA_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "0"}, [INSTINCT]),
]


@pytest.mark.parametrize(("environment", "expected"), ROCM, ids=[str(one) for one, _ in ROCM])
def test_the_rocm_pair_is_read_as_rocr_and_hip_read_it(environment, expected):
    assert left("rocm", environment) == expected


def test_a_view_says_which_variables_took_part():
    view = visible(inventory("both-vendors"), {"CUDA_VISIBLE_DEVICES": RTX3060})
    assert view.masked == ("CUDA_VISIBLE_DEVICES",)
    assert uuids(view.of("nvidia")) == [RTX3060]
    assert view.of("amd") == (), "HIP reads the same variable and finds no index in it"


def test_without_a_mask_the_order_is_that_of_the_bus_in_every_mode():
    # faults row 176
    every = left("uneven", PCI)
    one_by_one = [left("uneven", {"CUDA_VISIBLE_DEVICES": str(place), **PCI}) for place in range(3)]
    assert [[one] for one in every] == one_by_one
