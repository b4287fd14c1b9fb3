"""What the machine says of itself before a run: GPU, checkout, runtime and host."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytest_meshnet.campaign.judging.facts import Provenance
from pytest_meshnet.campaign.plan.orders import Orders
from pytest_meshnet.evidence.host import host_facts, suite_version
from pytest_meshnet.hardware.inventory import Device, Inventory, InventoryError, read
from pytest_meshnet.hardware.placement import senses as looks
from pytest_meshnet.hardware.placement.senses import Senses
from pytest_meshnet.hardware.session import Unmeasured, Wishes, look

COMMAND_S = 60.0
"""How long git and `ft --version` may take."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The GPU that the campaign is for, or why it is none; all that is there, and what looks."""

    device: Device | None
    problem: str | None
    inventory: Inventory
    senses: Senses | None = None

    @property
    def simulated(self) -> bool:
        """Whether any of the machine is invented."""
        return self.inventory.simulated

    def facts(self) -> tuple[dict[str, Any], ...]:
        """Return every device for the start of a bundle."""
        return tuple(one.facts() for one in self.inventory.devices)


def machine(orders: Orders) -> Machine:
    """Look for the GPU that the selector names; several are as wrong as none."""
    try:
        senses = looks.simulated(orders.inventory) if orders.inventory else looks.real()
        found = read(senses.drivers)
    except InventoryError as error:
        return Machine(None, str(error), Inventory(()))
    if orders.gpu is None:
        return Machine(None, "no --gpu was given", found)
    try:
        seen = look(senses, Wishes(orders.gpu, orders.inventory), os.environ)
    except Unmeasured as error:
        return Machine(None, " ".join(str(error).split()), found)
    devices = () if seen.selection is None else seen.selection.devices
    if len(devices) != 1:
        return Machine(None, f"--gpu {orders.gpu} names {len(devices)} GPUs: name one", found)
    return Machine(devices[0], None, found, senses)


@dataclass(frozen=True, slots=True)
class Checkout:
    """A git working tree: its commit and its changed paths; None where git does not tell."""

    commit: str | None
    dirty_paths: tuple[str, ...] | None


def checkout(path: Path) -> Checkout:
    """Ask git about the working tree that `path` lies in."""
    head = _said(["git", "-C", str(path), "rev-parse", "HEAD"])
    commit = head and head.strip()
    status = _said(["git", "-C", str(path), "status", "--porcelain=v1", "-z"])
    if status is None:
        return Checkout(commit, None)
    return Checkout(commit, tuple(_paths(status)))


def _paths(status: str) -> Sequence[str]:
    """The paths of `git status -z`; a rename is followed by its old name as an entry of its own."""
    found: list[str] = []
    entries = iter([one for one in status.split("\0") if one])
    for entry in entries:
        found.append(entry[3:])
        if entry[0] in "RC":
            next(entries, None)
    return found


def provenance(orders: Orders, found: Machine, tree: Checkout) -> Provenance:
    """Gather where everything comes from; what cannot be found out stays None."""
    device = found.device
    version = _said([*orders.runtime, "--version"])
    return Provenance(
        model_repository=orders.repository,
        model_revision=orders.revision,
        model_path=orders.model,
        checkout_commit=tree.commit,
        checkout_commit_last=tree.commit,
        dirty_paths=tree.dirty_paths,
        runtime_version=version and version.strip(),
        suite_version=suite_version(),
        manifest_sha256=_digest(orders.manifest),
        gpu_uuid=device.uuid if device else None,
        gpu_name=device.name if device else None,
        gpu_memory_bytes=device.memory_bytes if device else None,
        driver=device.driver if device else None,
        host=host_facts(),
    )


def ended(told: Provenance, tree: Checkout) -> Provenance:
    """Add what git tells of the checkout at the end of a run; unknown is neither clean nor same."""
    dirty = None
    if told.dirty_paths is not None and tree.dirty_paths is not None:
        dirty = tuple(dict.fromkeys((*told.dirty_paths, *tree.dirty_paths)))
    return replace(told, dirty_paths=dirty, checkout_commit_last=tree.commit)


def _digest(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def _said(command: Sequence[str]) -> str | None:
    """What a command wrote, None when it failed or does not exist."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=COMMAND_S, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None
