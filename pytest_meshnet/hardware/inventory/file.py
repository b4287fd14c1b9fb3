"""An invented inventory from a JSON file: for tests of rules, never evidence of hardware."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from pytest_meshnet.hardware.inventory import DriverError, InventoryError, Reading
from pytest_meshnet.hardware.inventory.device import (
    SIMULATED,
    Device,
    MigInstance,
    PciAddress,
    Provider,
    Vendor,
    known_memory,
    uuid_body,
)

SCHEMA = "meshnet-inventory/1"

_TOP: Mapping[str, type] = {
    "schema": str,
    "about": str,
    "devices": list,
    "problems": list,
    "notes": list,
    "processes": str,
    "process_error": str,
}
_DEVICE: Mapping[str, type] = {
    "vendor": str,
    "uuid": str,
    "pci_bus_id": str,
    "name": str,
    "index": int,
    "runtime_index": int,
    "compute_capability": str,
    "gfx": str,
    "memory_bytes": int,
    "driver": str,
    "mig_mode": bool,
    "mig": dict,
    "unknown": dict,
}
_MIG: Mapping[str, type] = {"parent": str, "gpu_instance": int, "compute_instance": int}


class FileDriver:
    """The devices of a file, and the processes that a simulated runtime notes in a folder.

    `processes` in the file names a folder beside it; a file there is named by the process id and
    holds the UUIDs of the devices that the process computes on, one a line.
    """

    provider: Provider = SIMULATED
    counts_host_pids = False

    def __init__(self, path: Path) -> None:
        """Read the file. Raises InventoryError."""
        self._path = path
        self._load()

    def read(self) -> Reading:
        """Read the file again: a device may have changed meanwhile, as real ones do."""
        try:
            return self._load()
        except InventoryError as error:
            return Reading(problems=(str(error),))

    def processes(self, device: Device) -> tuple[int, ...]:
        """Return the ids of the processes that the folder places on a device."""
        told = _parse(self._path)
        if "process_error" in told:
            raise DriverError(told["process_error"])
        if "processes" not in told or device.uuid is None:
            return ()
        folder = self._path.parent / told["processes"]
        wanted = uuid_body(device.uuid)
        return tuple(
            int(one.name)
            for one in sorted(folder.glob("[0-9]*"))
            if wanted in map(uuid_body, _words(one))
        )

    def _load(self) -> Reading:
        told = _parse(self._path)
        try:
            devices = tuple(_device(one) for one in told.get("devices", ()))
        except ValueError as error:
            raise InventoryError(f"{self._path}: {error}") from None
        return Reading(devices, tuple(told.get("problems", ())), tuple(told.get("notes", ())))


def _words(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").split()
    except FileNotFoundError:
        # The process ended while the folder was read.
        return []


def _parse(path: Path) -> dict[str, Any]:
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InventoryError(f"{path} is no readable inventory: {error}") from None
    if not isinstance(told, dict) or told.get("schema") != SCHEMA:
        raise InventoryError(f'{path} is no inventory: expected "schema": "{SCHEMA}"')
    try:
        _check(told, _TOP, "the file")
    except ValueError as error:
        raise InventoryError(f"{path}: {error}") from None
    return told


def _device(told: Any) -> Device:
    if not isinstance(told, dict):
        raise ValueError(f"a device is {told!r}: expected an object")
    _check(told, _DEVICE, "a device")
    vendor: Vendor | None = next(
        (one for one in get_args(Vendor) if one == told.get("vendor")), None
    )
    if vendor is None:
        raise ValueError(f"vendor is {told.get('vendor')!r}: expected one of {get_args(Vendor)}")
    bus, mig = told.get("pci_bus_id"), told.get("mig")
    if mig is not None:
        _check(mig, _MIG, "mig")
    device = Device(
        provider=SIMULATED,
        vendor=vendor,
        uuid=told.get("uuid"),
        pci=None if bus is None else PciAddress.parse(bus),
        name=told.get("name"),
        index=told.get("index"),
        runtime_index=told.get("runtime_index"),
        capability=_capability(told.get("compute_capability")),
        gfx=told.get("gfx"),
        memory_bytes=told.get("memory_bytes"),
        driver=told.get("driver"),
        mig_mode=told.get("mig_mode"),
        mig=None if mig is None else MigInstance(**mig),
        unknown=dict(told.get("unknown", {})),
    )
    memory, why = known_memory(device.memory_bytes)
    if memory is None:
        device = replace(device, memory_bytes=None, unknown={"memory_bytes": why, **device.unknown})
    return device


def _capability(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    major, _, minor = text.partition(".")
    if not (major.isdecimal() and minor.isdecimal()):
        raise ValueError(f"compute_capability is {text!r}: expected a form like 8.6")
    return int(major), int(minor)


def _check(told: Mapping[str, Any], shape: Mapping[str, type], what: str) -> None:
    for key, value in told.items():
        if key not in shape:
            raise ValueError(f"{what} has the unknown key {key!r}: expected {', '.join(shape)}")
        if type(value) is not shape[key]:
            raise ValueError(f"{key} is {value!r}: expected {shape[key].__name__}")
