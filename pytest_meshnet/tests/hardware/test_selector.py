"""The grammar of --meshnet-gpu: one kind of name, resolved once to UUIDs, or a clear refusal."""

from dataclasses import replace

import pytest

from pytest_meshnet.hardware.inventory import Inventory
from pytest_meshnet.hardware.pinning.selector import SelectorError, select
from pytest_meshnet.hardware.pinning.visibility import visible
from pytest_meshnet.tests.hardware.fakes import RTX3060, inventory, uuids
from pytest_meshnet.tests.hardware.test_inventory import SPELLINGS

A, B, C, D = uuids(inventory("four").devices)
WHOLE, MIG1, MIG2, OTHER = uuids(inventory("mig").devices)


def chosen(text, name="four", environment=None):
    found = inventory(name)
    return uuids(select(text, found, visible(found, environment or {})).devices)


GOOD = [
    ("four", "0", [A]),
    ("four", "3,1", [D, B]),
    ("four", " 1 , 2 ", [B, C]),
    ("four", A, [A]),
    ("four", A.lower(), [A]),
    ("four", "gpu-3", [C]),
    ("four", f"{D},{A}", [D, A]),
    ("four", "0000:02:00.0", [B]),
    ("four", "pci:00000000:02:00.0,00000000:01:00.0", [B, A]),
    ("mig", MIG2, [MIG2]),
    ("mig", "mig-377E0049-5", [MIG1]),
    ("mig", f"{MIG1},{OTHER}", [MIG1, OTHER]),
    ("mig", f"MIG-{WHOLE}/2/0", [MIG2]),
    ("mig", "1", [OTHER]),
    ("a6000-pair", "1,2", uuids(inventory("a6000-pair").devices[1:3])),
]


@pytest.mark.parametrize(("name", "text", "expected"), GOOD, ids=[text for _, text, _ in GOOD])
def test_a_selector_resolves_to_uuids_in_the_order_given(name, text, expected):
    # faults rows 42 and 175
    assert chosen(text, name) == expected


@pytest.mark.parametrize("text", SPELLINGS)
def test_every_spelling_of_a_bus_id_can_be_pinned(text):
    # faults row 25
    assert chosen(text, "rtx3060") == [RTX3060]


BAD = [
    ("four", "", "an item is empty"),
    ("four", "0,,1", "an item is empty"),
    ("four", "0,", "an item is empty"),
    ("four", "cuda:0", "without the cuda:"),
    ("four", "first", "is no index, UUID or PCI bus id"),
    ("four", "-1", "is no index, UUID or PCI bus id"),
    ("four", A.removeprefix("GPU-"), "is no index, UUID or PCI bus id"),
    ("four", f"0,{A}", "it mixes index and uuid"),
    ("four", f"{A},0000:02:00.0", "it mixes PCI bus id and uuid"),
    ("four", "0,0", "a second time"),
    ("four", "0,00", "a second time"),
    ("four", f"{A},GPU-1", "a second time"),
    ("four", "4", "there is no index 4"),
    ("four", "GPU-", "is only a prefix"),
    ("four", "GPU-9", "begins no UUID"),
    ("four", "MIG-1", "begins no UUID"),
    ("four", "0000:09:00.0", "no device is at 0000:09:00.0"),
    ("mig", "MIG-377e0049", "begins 2 UUIDs"),
    ("mig", WHOLE, "is a GPU in MIG mode: name one of its instances (MIG-"),
    ("mig", "0", "is a GPU in MIG mode"),
    ("mig", "0000:18:00.0", "is a GPU in MIG mode"),
    ("both-vendors", "0", "give a UUID"),
]


@pytest.mark.parametrize(("name", "text", "message"), BAD, ids=[repr(text) for _, text, _ in BAD])
def test_what_is_refused_shows_the_inventory(name, text, message):
    # faults row 25
    with pytest.raises(SelectorError) as caught:
        chosen(text, name)
    said = str(caught.value)
    assert message in said
    assert f"the GPU selector {text!r}" in said
    missing = [one for one in uuids(inventory(name).devices) if one not in said]
    assert not missing, f"the refusal does not name the candidates {missing}"


def test_an_index_counts_inside_a_mask():
    environment = {"CUDA_VISIBLE_DEVICES": f"{D},{B}"}
    assert chosen("0", environment=environment) == [D]
    assert chosen("1,0", environment=environment) == [B, D]
    with pytest.raises(SelectorError, match="CUDA_VISIBLE_DEVICES leaves 2 devices, there is no 2"):
        chosen("2", environment=environment)


def test_a_device_that_a_mask_hides_cannot_be_selected():
    with pytest.raises(SelectorError, match="which CUDA_VISIBLE_DEVICES hides"):
        chosen(A, environment={"CUDA_VISIBLE_DEVICES": B})


def test_the_refusal_of_a_hidden_device_names_the_entry_that_hides_it():
    # faults row 42
    with pytest.raises(SelectorError, match="entry 2, 'x', is no visible device and ends the list"):
        chosen(A, environment={"CUDA_VISIBLE_DEVICES": f"{B},x,{A}"})


def test_a_device_without_uuid_cannot_be_pinned():
    one = replace(inventory("rocm").devices[0], uuid=None, unknown={"uuid": "hip_uuid is 'N/A'"})
    found = Inventory((one,))
    with pytest.raises(SelectorError, match=r"has no UUID \(hip_uuid is 'N/A'\)"):
        select("0000:03:00.0", found, visible(found, {}))


def test_an_index_is_only_provenance():
    # faults row 178
    found = inventory("a6000-pair")
    selection = select("1", found, visible(found, {}))
    assert selection.written == "1"
    assert uuids(selection.devices) == [found.devices[1].uuid]
