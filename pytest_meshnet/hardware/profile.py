"""What machine a figure was measured on: for diagnosis, never part of an end-to-end claim."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pytest_meshnet.hardware.inventory import Device, DriverError, Inventory
from pytest_meshnet.hardware.inventory.nvml import Asking, Nvml, NvmlDriver

TOPOLOGY = {
    0: "one board",
    10: "one PCIe switch",
    20: "several PCIe switches",
    30: "one host bridge",
    40: "one NUMA node",
    50: "across NUMA nodes",
}
"""What two GPUs share, by the levels of nvmlGpuTopologyLevel_t, nearest first."""


@dataclass(frozen=True, slots=True)
class Link:
    """The PCIe link of a device. An idle link often runs slower than it can; None is unknown."""

    generation: int | None = None
    generation_max: int | None = None
    width: int | None = None
    width_max: int | None = None
    numa_node: int | None = None
    unknown: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pair:
    """What the way between two devices shares, None when unknown."""

    one: str
    other: str
    shared: str | None


@dataclass(frozen=True, slots=True)
class Host:
    """The machine around the devices; memory in bytes, None where it cannot be read."""

    cpu: str | None
    cpu_count: int | None
    memory_bytes: int | None
    os: str | None
    kernel: str


@dataclass(frozen=True, slots=True)
class Profile:
    """Devices with their links, the topology between them, and the host."""

    devices: tuple[Device, ...]
    links: Mapping[str, Link]
    topology: tuple[Pair, ...]
    host: Host

    def document(self) -> dict[str, Any]:
        """Return the profile as plain JSON values."""
        return {
            "devices": [
                one.facts() | {"pcie": asdict(self.links[one.label])} for one in self.devices
            ],
            "topology": [asdict(pair) for pair in self.topology],
            "host": asdict(self.host),
        }


def take(inventory: Inventory, nvml: NvmlDriver | None = None, root: Path = Path("/")) -> Profile:
    """Take the profile of a machine. `root` is where proc, sys and etc are found.

    Links and topology come from NVML alone; for other devices they stay unknown, with a reason.
    """
    devices = tuple(one for one in inventory.devices if one.mig is None)
    told = [one for one in devices if one.provider == "nvml"]
    links = {one.label: _untold(one, root) for one in devices}
    pairs: list[Pair] = []
    if told and nvml is not None:
        try:
            with nvml.session() as library:
                links |= {one.label: _link(library, one, root) for one in told}
                pairs = _topology(library, told)
        except DriverError as error:
            links |= {one.label: Link(unknown={"all": str(error)}) for one in told}
    return Profile(devices, links, tuple(pairs), host(root))


def _untold(device: Device, root: Path) -> Link:
    why = f"{device.provider} does not tell of the PCIe link"
    return Link(numa_node=_numa_node(device, root), unknown={"link": why})


def _link(library: Nvml, device: Device, root: Path) -> Link:
    handle = library.nvmlDeviceGetHandleByUUID(str(device.uuid))
    ask = Asking(library)
    return Link(
        generation=ask("generation", library.nvmlDeviceGetCurrPcieLinkGeneration, handle),
        generation_max=ask("generation_max", library.nvmlDeviceGetMaxPcieLinkGeneration, handle),
        width=ask("width", library.nvmlDeviceGetCurrPcieLinkWidth, handle),
        width_max=ask("width_max", library.nvmlDeviceGetMaxPcieLinkWidth, handle),
        numa_node=_numa_node(device, root),
        unknown=ask.unknown,
    )


def _topology(library: Nvml, devices: Sequence[Device]) -> list[Pair]:
    handles = [library.nvmlDeviceGetHandleByUUID(str(one.uuid)) for one in devices]
    ask = Asking(library)
    pairs = []
    for place, (one, handle) in enumerate(zip(devices, handles, strict=True)):
        for other, far in zip(devices[place + 1 :], handles[place + 1 :], strict=True):
            level = ask("topology", library.nvmlDeviceGetTopologyCommonAncestor, handle, far)
            shared = None if level is None else TOPOLOGY.get(int(level), f"level {level}")
            pairs.append(Pair(one.label, other.label, shared))
    return pairs


def _numa_node(device: Device, root: Path) -> int | None:
    if device.pci is None:
        return None
    text = _read(root / "sys/bus/pci/devices" / str(device.pci) / "numa_node")
    # The kernel writes -1 where the firmware does not tell.
    return int(text) if text is not None and text.strip().isdecimal() else None


def host(root: Path = Path("/")) -> Host:
    """Return what the operating system tells of this machine."""
    memory = _found(r"^MemTotal:\s*(\d+) kB$", _read(root / "proc/meminfo"))
    return Host(
        cpu=_found(r"^model name\s*:\s*(.+)$", _read(root / "proc/cpuinfo")),
        cpu_count=os.cpu_count(),
        memory_bytes=None if memory is None else int(memory) * 1024,
        os=_found(r'^PRETTY_NAME="?([^"\n]+)"?$', _read(root / "etc/os-release")),
        kernel=f"{platform.system()} {platform.release()} {platform.machine()}",
    )


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _found(pattern: str, text: str | None) -> str | None:
    found = re.search(pattern, text or "", re.MULTILINE)
    return found[1].strip() if found else None
