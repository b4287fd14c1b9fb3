"""Which devices the environment leaves visible, by the rules of CUDA and of ROCm.

The rules of CUDA_VISIBLE_DEVICES are those that PyTorch's own reader of the variable follows:
an invalid entry silently ends the list, and an entry given twice empties it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pytest_meshnet.hardware.inventory import Inventory
from pytest_meshnet.hardware.inventory.device import Device

CUDA_MASK, CUDA_ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
ROCR_MASK, HIP_MASK = "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"
CONTAINER_MASK = "NVIDIA_VISIBLE_DEVICES"

MASKS = (CUDA_MASK, CUDA_ORDER, CONTAINER_MASK, ROCR_MASK, HIP_MASK, "GPU_DEVICE_ORDINAL")
"""Every variable that decides which device a process gets, or in which order."""


class MaskError(ValueError):
    """A mask names devices by an order that nobody here knows."""


@dataclass(frozen=True, slots=True)
class View:
    """What the environment leaves of an inventory, in its order, with notes on what it hides.

    `masked` names the variables that took part.
    """

    devices: tuple[Device, ...]
    notes: tuple[str, ...] = ()
    masked: tuple[str, ...] = ()

    def of(self, vendor: str) -> tuple[Device, ...]:
        """Return the visible devices of one vendor."""
        return tuple(one for one in self.devices if one.vendor == vendor)


def visible(inventory: Inventory, environment: Mapping[str, str]) -> View:
    """Return what a process with this environment could use.

    A GPU in MIG mode is never in it, its instances are. NVIDIA_VISIBLE_DEVICES takes no part: it
    speaks to a container's start, and under CDI to nobody. Raises MaskError.
    """
    nvidia = [one for one in inventory.devices if one.vendor == "nvidia"]
    amd = [one for one in inventory.devices if one.vendor == "amd"]
    chosen, notes = _cuda(nvidia, environment)
    more, more_notes = _rocm(amd, environment)
    names = (CUDA_MASK, ROCR_MASK, HIP_MASK)
    return View(
        (*chosen, *more),
        (*notes, *more_notes, *_container_notes(environment)),
        tuple(name for name in names if name in environment),
    )


def _container_notes(environment: Mapping[str, str]) -> tuple[str, ...]:
    value = environment.get(CONTAINER_MASK)
    if value in (None, "all"):
        return ()
    return (f"{CONTAINER_MASK}={value!r} hides nothing here: only a container's start reads it",)


# CUDA ------------------------------------------------------------------------------------------


def _cuda(
    devices: Sequence[Device], environment: Mapping[str, str]
) -> tuple[list[Device], list[str]]:
    mask = environment.get(CUDA_MASK)
    if mask is None:
        return [one for one in devices if not one.split], []
    if mask.startswith(("GPU-", "MIG-")):
        listed = _Listing(CUDA_MASK, mask, repeated_entry_empties=True)
        prefix = mask[:4]
        return listed.read(lambda entry: _by_prefix(entry, prefix, devices))
    ordered: list[list[Device]] = []

    def by_index(entry: str) -> Device | None:
        # Like strtoul: "1x" is 1, and what does not begin with digits is no index.
        digits = re.match(r"\s*\+?(\d+)", entry)
        if digits is None or int(digits[1]) >= sum(one.mig is None for one in devices):
            return None
        if not ordered:
            ordered.append(_cuda_order(devices, environment))
        return ordered[0][int(digits[1])]

    return _Listing(CUDA_MASK, mask, repeated_entry_empties=True).read(by_index)


def _by_prefix(entry: str, prefix: str, devices: Sequence[Device]) -> Device | None:
    if not entry.startswith(prefix):
        return None
    found = [one for one in devices if any(name.startswith(entry) for name in one.spellings)]
    return found[0] if len(found) == 1 else None


def _cuda_order(devices: Sequence[Device], environment: Mapping[str, str]) -> list[Device]:
    """Return the GPUs as CUDA numbers them: fastest first, unless told to go by bus."""
    gpus = [one for one in devices if one.mig is None]
    if environment.get(CUDA_ORDER) == "PCI_BUS_ID" or len(gpus) == 1:
        if len(gpus) > 1 and any(one.pci is None for one in gpus):
            raise MaskError(f"{CUDA_MASK} holds indices, but a PCI bus id is unknown: give UUIDs")
        return gpus
    if any(one.runtime_index is None for one in gpus):
        raise MaskError(
            f"{CUDA_MASK}={environment[CUDA_MASK]!r} counts fastest-first, and CUDA's order is not "
            f"known here: set {CUDA_ORDER}=PCI_BUS_ID, or give UUIDs"
        )
    return sorted(gpus, key=lambda one: one.runtime_index or 0)


# ROCm ------------------------------------------------------------------------------------------


def _rocm(
    devices: Sequence[Device], environment: Mapping[str, str]
) -> tuple[list[Device], list[str]]:
    inside = list(devices)
    notes: list[str] = []
    mask = environment.get(ROCR_MASK)
    if mask is not None and devices:
        # The runtime upper-cases the entries, takes unique UUID prefixes and mixes kinds.
        listed = _Listing(ROCR_MASK, mask, repeated_entry_empties=False)
        inside, notes = listed.read(lambda entry: _rocr_entry(entry, devices))
    elif HIP_MASK in environment or CUDA_MASK in environment:
        inside = _hip_order(devices)
    for name in (HIP_MASK, CUDA_MASK):
        if name in environment and devices:
            # HIP reads CUDA's variable where its own is absent; both count inside ROCr's list.
            listed = _Listing(name, environment[name], repeated_entry_empties=False)
            inside, more = listed.read(partial(_at, devices=inside))
            return inside, [*notes, *more]
    return inside, notes


def _rocr_entry(entry: str, devices: Sequence[Device]) -> Device | None:
    text = entry.strip().upper()
    if not text.startswith("GPU-"):
        return _at(text, _hip_order(devices))
    found = [one for one in devices if one.uuid and one.uuid.upper().startswith(text)]
    return found[0] if len(found) == 1 and len(text) > len("GPU-") else None


def _at(entry: str, devices: Sequence[Device]) -> Device | None:
    text = entry.strip()
    if not text.isdecimal() or int(text) >= len(devices):
        return None
    return devices[int(text)]


def _hip_order(devices: Sequence[Device]) -> list[Device]:
    if len(devices) > 1 and any(one.runtime_index is None for one in devices):
        raise MaskError(
            f"a mask holds indices, and HIP's order of the devices is not known: "
            f"give {ROCR_MASK} full UUIDs"
        )
    return sorted(devices, key=lambda one: one.runtime_index or 0)


# One list --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Listing:
    """One variable as its runtime reads it: entry by entry, up to the first that is invalid."""

    variable: str
    text: str
    repeated_entry_empties: bool

    def read(self, find: Callable[[str], Device | None]) -> tuple[list[Device], list[str]]:
        """Return the devices, and what a person should know about the list."""
        chosen: list[Device] = []
        notes: list[str] = []
        if not self.text:
            return [], [f"{self.variable} is empty and hides every device"]
        for number, entry in enumerate(self.text.split(","), start=1):
            device = find(entry)
            if device is None:
                what = "is no visible device and ends the list"
                return chosen, [*notes, self._says(number, entry, what)]
            if device in chosen:
                if self.repeated_entry_empties:
                    what = "is there twice, for which CUDA shows no device at all"
                    return [], [self._says(number, entry, what)]
                return chosen, [
                    *notes,
                    self._says(number, entry, "is there twice and ends the list"),
                ]
            if device.split:
                what = "is a GPU in MIG mode: name one of its instances by UUID"
                notes.append(self._says(number, entry, what))
                continue
            chosen.append(device)
        return chosen, notes

    def _says(self, number: int, entry: str, what: str) -> str:
        return f"{self.variable}={self.text!r}: entry {number}, {entry!r}, {what}"
