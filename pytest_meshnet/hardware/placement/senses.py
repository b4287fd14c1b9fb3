"""Everything that looks at this machine, real or simulated."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_meshnet.hardware.inventory import Driver, DriverError, read
from pytest_meshnet.hardware.inventory.amd_smi import AmdSmiDriver
from pytest_meshnet.hardware.inventory.device import PciAddress
from pytest_meshnet.hardware.inventory.file import FileDriver
from pytest_meshnet.hardware.inventory.nvml import NvmlDriver
from pytest_meshnet.hardware.pinning.visibility import visible
from pytest_meshnet.hardware.placement import inside
from pytest_meshnet.hardware.placement.judge import Seen
from pytest_meshnet.hardware.placement.processes import ProcFs

Inside = Callable[[Mapping[str, str], str], tuple[int, tuple[Seen, ...]]]
"""Returns the pid of a probe and the devices it sees with an environment, by vendor.

Raises DriverError.
"""

PROBE_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Senses:
    """The drivers to ask, a probe for what a runtime library shows, and the process table."""

    drivers: tuple[Driver, ...]
    inside: Inside
    procfs: ProcFs


def real() -> Senses:
    """Return the senses of this machine. No driver library is loaded before a question."""
    return Senses((NvmlDriver(), AmdSmiDriver()), look_inside, ProcFs())


def simulated(path: Path) -> Senses:
    """Return the senses of an invented machine. Raises InventoryError for a bad file."""
    driver = FileDriver(path)

    def see(environment: Mapping[str, str], vendor: str) -> tuple[int, tuple[Seen, ...]]:
        view = visible(read([driver]), environment)
        found = view.of(vendor)
        if not view.masked:
            if any(one.runtime_index is None for one in found):
                raise DriverError(
                    f"{path.name} does not tell the order in which devices are listed"
                )
            found = tuple(sorted(found, key=lambda one: one.runtime_index or 0))
        return os.getpid(), tuple(Seen(one.uuid, one.pci) for one in found)

    return Senses((driver,), see, ProcFs())


def look_inside(environment: Mapping[str, str], vendor: str) -> tuple[int, tuple[Seen, ...]]:
    """Ask a child process what its runtime library shows it. Raises DriverError."""
    command = [sys.executable, "-I", str(Path(inside.__file__)), vendor]
    try:
        done = subprocess.run(
            command,
            env=dict(environment),
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise DriverError(f"the probe took more than {PROBE_TIMEOUT_S:.0f} s") from None
    try:
        told = json.loads(done.stdout)
    except ValueError:
        said = done.stderr.strip() or "nothing"
        raise DriverError(f"the probe ended with {done.returncode} and said: {said}") from None
    if "error" in told:
        raise DriverError(f"the probe cannot ask the {vendor} runtime: {told['error']}")
    seen = (Seen(one["uuid"], PciAddress.parse(one["pci_bus_id"])) for one in told["devices"])
    return told["pid"], tuple(seen)
