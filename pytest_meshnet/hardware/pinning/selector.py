"""The grammar of --meshnet-gpu: a list of indices, of UUIDs or of PCI bus ids, never a mixture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from pytest_meshnet.hardware.inventory import Inventory
from pytest_meshnet.hardware.inventory.device import Device, PciAddress
from pytest_meshnet.hardware.pinning.visibility import View

Kind = Literal["index", "uuid", "PCI bus id"]


class SelectorError(ValueError):
    """A selector cannot be followed; the message shows the inventory."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The devices that a person asked for, in the order given; `written` is only provenance."""

    devices: tuple[Device, ...]
    written: str


def select(text: str, inventory: Inventory, view: View) -> Selection:
    """Resolve a selector to devices, once and for all. Raises SelectorError.

    Where a mask is set, an index counts inside what the mask leaves, in its order.
    """
    try:
        return Selection(_resolve(text, inventory, view), text)
    except SelectorError as error:
        raise SelectorError(f"the GPU selector {text!r}: {error}; found:\n{inventory}") from None


def _resolve(text: str, inventory: Inventory, view: View) -> tuple[Device, ...]:
    items = [item.strip() for item in text.split(",")]
    if not all(items):
        raise SelectorError("an item is empty: give indices, UUIDs or PCI bus ids between commas")
    kinds = {_kind(item) for item in items}
    if len(kinds) > 1:
        raise SelectorError(f"it mixes {' and '.join(sorted(kinds))}: give all items in one kind")
    find = _FINDERS[kinds.pop()]
    chosen: list[Device] = []
    for item in items:
        device = find(item, inventory, view)
        _check(device, item, inventory, view)
        if device in chosen:
            raise SelectorError(f"{item} names {device.label} a second time: name it once")
        chosen.append(device)
    return tuple(chosen)


def _kind(item: str) -> Kind:
    if item.isascii() and item.isdecimal():
        return "index"
    if item[:4].upper() in ("GPU-", "MIG-"):
        return "uuid"
    try:
        PciAddress.parse(item)
    except ValueError:
        hint = ", without the cuda:" if item.lower().startswith("cuda:") else ""
        raise SelectorError(
            f"{item!r} is no index, UUID or PCI bus id: write 0, GPU-… or 0000:01:00.0{hint}"
        ) from None
    return "PCI bus id"


def _by_index(item: str, inventory: Inventory, view: View) -> Device:
    number = int(item)
    if view.masked:
        if number >= len(view.devices):
            masks = " and ".join(view.masked)
            raise SelectorError(f"{masks} leaves {len(view.devices)} devices, there is no {number}")
        return view.devices[number]
    found = [one for one in inventory.devices if one.index == number and one.mig is None]
    if len(found) > 1:
        raise SelectorError(
            f"index {number} is {' and '.join(one.label for one in found)}: give a UUID"
        )
    if not found:
        raise SelectorError(f"there is no index {number}")
    return found[0]


def _by_uuid(item: str, inventory: Inventory, _: View) -> Device:
    wanted = item.lower()
    if len(wanted) == len("gpu-"):
        raise SelectorError(f"{item!r} is only a prefix: add digits of the UUID")
    known = [one for one in inventory.devices if one.uuid]
    found = [one for one in known if (one.uuid or "").lower() == wanted] or [
        one for one in known if any(name.lower().startswith(wanted) for name in one.spellings)
    ]
    if len(found) > 1:
        raise SelectorError(f"{item!r} begins {len(found)} UUIDs: add digits")
    if not found:
        raise SelectorError(f"{item!r} begins no UUID")
    return found[0]


def _by_bus(item: str, inventory: Inventory, _: View) -> Device:
    address = PciAddress.parse(item)
    found = inventory.find(pci=address)
    if found is None:
        raise SelectorError(f"no device is at {address}")
    return found


_FINDERS: Mapping[Kind, Callable[[str, Inventory, View], Device]] = {
    "index": _by_index,
    "uuid": _by_uuid,
    "PCI bus id": _by_bus,
}


def _check(device: Device, item: str, inventory: Inventory, view: View) -> None:
    if device.split:
        names = ", ".join(one.label for one in inventory.instances_of(device)) or "there is none"
        raise SelectorError(f"{item} is a GPU in MIG mode: name one of its instances ({names})")
    if device not in view.devices:
        masks = " and ".join(view.masked) or "the environment"
        notes = "".join(f"; {note}" for note in view.notes)
        raise SelectorError(f"{item} is {device.label}, which {masks} hides{notes}")
    if device.uuid is None:
        why = device.unknown.get("uuid", "no driver tells it")
        raise SelectorError(f"{item} has no UUID ({why}), so nothing can be pinned to it")
