"""What a GPU is: its identity first, and a value that nobody could read stays unknown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import total_ordering
from typing import Literal

Provider = Literal["nvml", "amd-smi", "file"]
Vendor = Literal["nvidia", "amd"]

SIMULATED: Provider = "file"
"""The provider whose devices are invented: what runs on them proves nothing about hardware."""

GIB = 1024**3
PLACEHOLDER_BYTES = 64 * 1024**2
"""No GPU has less memory than this; drivers and peers that say 0 or 1 byte mean "unknown"."""


class InventoryError(ValueError):
    """An inventory contradicts itself or cannot be read."""


@total_ordering
@dataclass(frozen=True, slots=True)
class PciAddress:
    """Where a GPU sits on the PCI bus. Sorts by number: as texts, `0a` and `9` would not."""

    domain: int
    bus: int
    device: int
    function: int = 0

    @classmethod
    def parse(cls, text: str) -> PciAddress:
        """Read any usual spelling: `01:00.0`, `0000:01:00.0`, `pci:00000000:01:00.0`, any case.

        Raises ValueError.
        """
        found = _PCI.fullmatch(text.strip().lower())
        if found is None:
            raise ValueError(f"{text!r} is no PCI bus id: expected a form like 0000:01:00.0")
        parts = (int(found[name] or "0", 16) for name in ("domain", "bus", "device", "function"))
        return cls(*parts)

    def __str__(self) -> str:
        return f"{self.domain:04x}:{self.bus:02x}:{self.device:02x}.{self.function:x}"

    def __lt__(self, other: PciAddress) -> bool:
        return self._key < other._key

    @property
    def _key(self) -> tuple[int, int, int, int]:
        return self.domain, self.bus, self.device, self.function


_PCI = re.compile(
    r"(?:pci:)?(?:(?P<domain>[0-9a-f]{1,8}):)?(?P<bus>[0-9a-f]{1,2})"
    r":(?P<device>[0-9a-f]{1,2})(?:\.(?P<function>[0-7]))?"
)


@dataclass(frozen=True, slots=True)
class MigInstance:
    """The part of a GPU that a MIG device is: the UUID of the GPU and the two instance ids."""

    parent: str
    gpu_instance: int | None = None
    compute_instance: int | None = None


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU, or one MIG instance of a GPU. None is unknown, with the reason in `unknown`.

    `index` is the place in the provider's own list and no identity. `runtime_index` is the place
    in which CUDA or HIP list the device when no variable says otherwise. `memory_bytes` counts
    bytes of device memory. `mig_mode` says that a GPU is split up: it then runs nothing itself.
    """

    provider: Provider
    vendor: Vendor
    uuid: str | None
    pci: PciAddress | None = None
    name: str | None = None
    index: int | None = None
    runtime_index: int | None = None
    capability: tuple[int, int] | None = None
    gfx: str | None = None
    memory_bytes: int | None = None
    driver: str | None = None
    mig_mode: bool | None = None
    mig: MigInstance | None = None
    unknown: Mapping[str, str] = field(default_factory=dict)

    @property
    def simulated(self) -> bool:
        """Whether the device exists only in a file."""
        return self.provider == SIMULATED

    @property
    def split(self) -> bool:
        """Whether the device is a GPU in MIG mode, of which only the instances can be used."""
        return self.mig is None and self.mig_mode is True

    @property
    def label(self) -> str:
        """The shortest text that still identifies the device."""
        return self.uuid or (str(self.pci) if self.pci else f"unidentified {self.vendor} device")

    @property
    def architecture(self) -> str | None:
        """`sm_86` or `gfx1100`, None when unknown."""
        if self.capability is not None:
            return f"sm_{self.capability[0]}{self.capability[1]}"
        return self.gfx

    @property
    def spellings(self) -> tuple[str, ...]:
        """The texts by which CUDA and HIP know the device; older drivers named MIG by parts."""
        if self.uuid is None:
            return ()
        if self.mig is None or self.mig.gpu_instance is None:
            return (self.uuid,)
        legacy = f"MIG-{self.mig.parent}/{self.mig.gpu_instance}/{self.mig.compute_instance}"
        return self.uuid, legacy

    def facts(self) -> dict[str, str | int | bool | None]:
        """Return the device for evidence: flat, integers and texts only, None for unknown."""
        return {
            "provider": self.provider,
            "vendor": self.vendor,
            "uuid": self.uuid,
            "pci_bus_id": str(self.pci) if self.pci else None,
            "name": self.name,
            "index": self.index,
            "architecture": self.architecture,
            "memory_bytes": self.memory_bytes,
            "driver": self.driver,
            "mig_mode": self.mig_mode,
            "mig_parent": self.mig.parent if self.mig else None,
            "unknown": "; ".join(f"{name}: {why}" for name, why in sorted(self.unknown.items())),
        }

    def __str__(self) -> str:
        memory = f"{self.memory_bytes / GIB:.1f} GiB" if self.memory_bytes else "memory unknown"
        parts = [
            self.label,
            self.name or "name unknown",
            self.architecture or "architecture unknown",
            memory,
            str(self.pci) if self.pci else "bus id unknown",
        ]
        if self.split:
            parts.append("in MIG mode")
        return ", ".join(parts)


def uuid_body(text: str) -> str:
    """Return a UUID without prefix, in lower case: CUDA tells it as bare bytes, NVML as text."""
    return text.strip().lower().removeprefix("gpu-").removeprefix("mig-")


def known_memory(told: int | None) -> tuple[int | None, str]:
    """Return (bytes or None, why it is unknown): a placeholder is not a small memory."""
    if told is None:
        return None, "the driver does not tell"
    if told < PLACEHOLDER_BYTES:
        return None, f"the driver tells {told} bytes, which no GPU has"
    return told, ""
