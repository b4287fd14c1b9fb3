"""The GPUs of this machine from every driver that can be asked, joined by identity."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pytest_meshnet.hardware.inventory.device import (
    Device,
    InventoryError,
    PciAddress,
    Provider,
    uuid_body,
)


class DriverError(Exception):
    """A driver did not answer; the text carries what it said, unchanged."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one driver told. `problems` may hide devices; `notes` explain an empty list."""

    devices: tuple[Device, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Driver(Protocol):
    """One way to ask about GPUs: NVML, amd-smi or a file."""

    @property
    def provider(self) -> Provider:
        """The name that its devices carry."""
        ...

    @property
    def counts_host_pids(self) -> bool:
        """Whether `processes` numbers processes as the host does, not as this container does."""
        ...

    def read(self) -> Reading:
        """Ask for the devices. Never raises: what went wrong is in the reading."""
        ...

    def processes(self, device: Device) -> tuple[int, ...]:
        """Return the ids of the processes that compute on a device. Raises DriverError."""
        ...


@dataclass(frozen=True, slots=True)
class Inventory:
    """The GPUs of a machine in the order of their PCI addresses, whoever listed them first.

    A `problem` is a device or a whole driver that could not be read: what is not in the list is
    then not known to be absent. A `note` says why a driver has nothing to tell.
    """

    devices: tuple[Device, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def simulated(self) -> bool:
        """Whether any device exists only in a file."""
        return any(device.simulated for device in self.devices)

    def find(self, *, uuid: str | None = None, pci: PciAddress | None = None) -> Device | None:
        """Return the device with this UUID, with or without prefix, or else with this bus id."""
        if uuid is not None:
            wanted = uuid_body(uuid)
            return next(
                (one for one in self.devices if one.uuid and uuid_body(one.uuid) == wanted), None
            )
        if pci is not None:
            return next((one for one in self.devices if one.pci == pci and one.mig is None), None)
        return None

    def instances_of(self, gpu: Device) -> tuple[Device, ...]:
        """Return the MIG instances of a GPU."""
        return tuple(one for one in self.devices if one.mig and one.mig.parent == gpu.uuid)

    def __str__(self) -> str:
        lines = [f"  {place(one)} {one}" for one in self.devices] or ["  no GPU"]
        lines += [f"  unreadable: {problem}" for problem in self.problems]
        if not self.devices:
            lines += [f"  {note}" for note in self.notes]
        return "\n".join(lines)

    @property
    def summary(self) -> str:
        """The inventory in one line, for reasons and messages."""
        told = "; ".join(str(one) for one in self.devices)
        count = len(self.devices)
        found = f"{count} device{'s' * (count != 1)} ({told})" if told else "no GPU"
        why = [*self.problems, *(() if self.devices else self.notes)]
        return f"{found}; {'; '.join(why)}" if why else found


def place(device: Device) -> str:
    """Return the index of a device as a person reads it."""
    return "[-]" if device.index is None else f"[{device.index}]"


def join(readings: Iterable[Reading]) -> Inventory:
    """Put readings together. Raises InventoryError when two devices claim one identity."""
    every = list(readings)
    devices = sorted((one for reading in every for one in reading.devices), key=_by_identity)
    _refuse_twins(devices)
    return Inventory(
        tuple(devices),
        tuple(problem for reading in every for problem in reading.problems),
        tuple(note for reading in every for note in reading.notes),
    )


def read(drivers: Sequence[Driver]) -> Inventory:
    """Ask every driver and join the answers. Raises InventoryError."""
    return join(driver.read() for driver in drivers)


def _by_identity(device: Device) -> tuple[bool, PciAddress, int, int, str]:
    mig = device.mig
    return (
        device.pci is None,
        device.pci or PciAddress(0, 0, 0),
        -1 if mig is None else mig.gpu_instance or 0,
        -1 if mig is None else mig.compute_instance or 0,
        device.label,
    )


def _refuse_twins(devices: Sequence[Device]) -> None:
    seen: dict[str, Device] = {}
    for one in devices:
        names = [uuid_body(one.uuid)] if one.uuid else []
        names += [str(one.pci)] if one.pci and one.mig is None else []
        for name in names:
            if name in seen:
                raise InventoryError(f"two devices are {name}: {seen[name]} and {one}")
            seen[name] = one


__all__ = [
    "Device",
    "Driver",
    "DriverError",
    "Inventory",
    "InventoryError",
    "Reading",
    "join",
    "place",
    "read",
]
