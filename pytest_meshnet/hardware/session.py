"""The hardware of one run in one process: looked at once, on the first question."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from pytest_meshnet.hardware.inventory import DriverError, Inventory, InventoryError, read
from pytest_meshnet.hardware.lanes import Lane, LaneError, Need
from pytest_meshnet.hardware.lanes.matching import Machine, Match, check_present, match
from pytest_meshnet.hardware.pinning.lease import Desk, LeaseError
from pytest_meshnet.hardware.pinning.selector import SelectorError, select
from pytest_meshnet.hardware.pinning.visibility import CUDA_MASK, MaskError, visible
from pytest_meshnet.hardware.placement import senses as looks
from pytest_meshnet.hardware.placement.gpu import Gpu, Placement
from pytest_meshnet.hardware.placement.senses import Senses

WAIT_S = 600.0
"""How long a test waits for a device that others hold, when nothing else is said."""


class Unmeasured(Exception):
    """Whether the machine has what a test needs cannot be told, or it cannot be had."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the options say: a selector, an invented inventory, host facts, seconds to wait."""

    selector: str | None = None
    inventory: Path | None = None
    present: tuple[str, ...] = ()
    wait_s: float = WAIT_S


class Hardware:
    """Answers what a test can have here, and gives it out.

    `leases` is the folder of the locks, shared by all processes that must not share a device.
    """

    def __init__(
        self,
        table: Mapping[str, Lane],
        wishes: Wishes,
        leases: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.table = table
        self.wishes = wishes
        self._leases = leases
        self._environment = dict(os.environ if environment is None else environment)

    @cached_property
    def senses(self) -> Senses:
        """What looks at the machine. Raises Unmeasured for an unusable inventory file."""
        if self.wishes.inventory is None:
            return looks.real()
        try:
            return looks.simulated(self.wishes.inventory)
        except InventoryError as error:
            raise Unmeasured(str(error)) from None

    @cached_property
    def machine(self) -> Machine:
        """Look at the machine. Raises Unmeasured when a mask or the selector cannot be followed."""
        return look(self.senses, self.wishes, self._environment)

    def match(self, needs: Sequence[Need]) -> Match:
        """Say whether a test with these needs can run. Raises Unmeasured."""
        return match(needs, self.machine)

    def evidence(self) -> tuple[str, tuple[dict[str, str | int | bool | None], ...]]:
        """Return (how the list came about, facts of every device) for the start of a bundle."""
        inventory = read(self.senses.drivers)
        by = ", ".join(driver.provider for driver in self.senses.drivers)
        told = [f"asked {by}", *inventory.problems, *inventory.notes]
        return "; ".join(told), tuple(one.facts() for one in inventory.devices)

    @contextmanager
    def lend(
        self, found: Match, holder: str, journal: Callable[[Placement], None]
    ) -> Iterator[Gpu]:
        """Hold devices of a match for one test. Raises Unmeasured when none became free."""
        try:
            desk = self._desk
            lease = desk.lease(
                found.candidates, found.count, timeout_s=self.wishes.wait_s, holder=holder
            )
            with lease as held:
                yield Gpu(
                    held.devices, self.machine.inventory, self.senses, self._environment, journal
                )
        except LeaseError as error:
            raise Unmeasured(str(error)) from None

    @cached_property
    def _desk(self) -> Desk:
        return Desk(self._leases)


def look(senses: Senses, wishes: Wishes, environment: Mapping[str, str]) -> Machine:
    """Put inventory, masks, selector and host facts together. Raises Unmeasured."""
    try:
        inventory = _with_cuda_order(read(senses.drivers), senses, environment)
        view = visible(inventory, environment)
        selection = None if wishes.selector is None else select(wishes.selector, inventory, view)
        return Machine(inventory, view, selection, check_present(wishes.present))
    except (InventoryError, MaskError, SelectorError, LaneError) as error:
        raise Unmeasured(str(error)) from None


def _with_cuda_order(
    inventory: Inventory, senses: Senses, environment: Mapping[str, str]
) -> Inventory:
    """Learn from CUDA itself in which order it counts, where a mask makes that matter."""
    gpus = [one for one in inventory.devices if one.vendor == "nvidia" and one.mig is None]
    if len(gpus) < 2 or CUDA_MASK not in environment or gpus[0].runtime_index is not None:
        return inventory
    bare = {name: value for name, value in environment.items() if name != CUDA_MASK}
    try:
        _, seen = senses.inside(bare, "nvidia")
    except DriverError:
        return inventory
    order = [inventory.find(uuid=one.uuid, pci=one.pci) for one in seen]
    return replace(
        inventory,
        devices=tuple(
            replace(one, runtime_index=order.index(one)) if one in order else one
            for one in inventory.devices
        ),
    )


def machine_wide_leases() -> Path:
    """Return the folder in which all runs of this user on this machine lock devices."""
    return Path(tempfile.gettempdir()) / f"pytest-meshnet-gpu-leases-{os.getuid()}"
