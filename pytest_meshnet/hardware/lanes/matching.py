"""Whether this machine has what a test's lanes need: ready, absent, or not to be told."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from pytest_meshnet.hardware.inventory import Inventory
from pytest_meshnet.hardware.inventory.device import Device
from pytest_meshnet.hardware.lanes import LaneError, Need
from pytest_meshnet.hardware.pinning.selector import Selection
from pytest_meshnet.hardware.pinning.visibility import View

HOST_FACTS = ("real_target", "real_runtime:NAME", "machines:N")
"""What the ini and the option `present` may say of a host; nobody can measure it here."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What there is: the inventory, what masks leave of it, what was selected, and host facts."""

    inventory: Inventory
    view: View
    selection: Selection | None = None
    present: frozenset[str] = frozenset()

    @property
    def usable(self) -> tuple[Device, ...]:
        """The devices that a test may get, in the order in which they are tried."""
        return self.view.devices if self.selection is None else self.selection.devices


@dataclass(frozen=True, slots=True)
class Match:
    """`ready` with candidates of which the test gets `count`, or else why not.

    `unmeasured` means that a device may be there: what cannot be measured is not too small, and
    not absent.
    """

    word: Literal["ready", "absent", "unmeasured"]
    candidates: tuple[Device, ...] = ()
    count: int = 0
    reason: str = ""


def check_present(told: Iterable[str]) -> frozenset[str]:
    """Return host facts. Raises LaneError for one that no lane asks about."""
    found = frozenset(told)
    for one in found:
        name, _, value = one.partition(":")
        good = {
            "real_target": not value,
            "real_runtime": bool(value),
            "machines": value.isdecimal(),
        }
        if not good.get(name, False):
            raise LaneError(f"the host fact {one!r} is unknown: expected {', '.join(HOST_FACTS)}")
    return found


def match(needs: Sequence[Need], machine: Machine) -> Match:
    """Match all needs of one test; with several, one set of devices must fit them all."""
    asked = ", ".join(dict.fromkeys(need.lane for need in needs))
    missing = [need.fact for need in needs if need.fact and not _is_present(need, machine.present)]
    if missing:
        told = ", ".join(sorted(machine.present)) or "nothing"
        return Match("absent", reason=f"{asked}: {missing[0]} is not present; told: {told}")
    count = max((need.count for need in needs), default=0)
    if count == 0:
        return Match("ready")
    return _devices(asked, [need for need in needs if need.count], count, machine)


def _is_present(need: Need, present: frozenset[str]) -> bool:
    name, _, wanted = need.fact.partition(":")
    if name != "machines":
        return any(one == need.fact or one.partition(":")[0] == need.fact for one in present)
    counts = [int(one.partition(":")[2]) for one in present if one.startswith("machines:")]
    return max(counts, default=1) >= int(wanted or 2)


def _devices(asked: str, needs: Sequence[Need], count: int, machine: Machine) -> Match:
    fitting: list[Device] = []
    refused: list[str] = []
    unknown: list[str] = []
    for device in machine.usable:
        fits = [need.want.fits(device) for need in needs if need.want is not None]
        worst = next((fit for fit in fits if fit.value is False), None)
        worst = worst or next((fit for fit in fits if fit.value is None), None)
        if worst is None and device.uuid is None:
            unknown.append(f"{device.label}: no UUID ({device.unknown.get('uuid', 'not told')})")
        elif worst is None:
            fitting.append(device)
        else:
            where = refused if worst.value is False else unknown
            where.append(f"{device.label}: {worst.why}")
    groups = [tuple(one for one in fitting if one.vendor == vendor) for vendor in _vendors(fitting)]
    enough = next((group for group in groups if len(group) >= count), None)
    if enough is not None:
        return Match("ready", enough, count)
    unreadable = [*unknown, *machine.inventory.problems]
    parts = [
        f"{asked}: {count} device{'s' * (count != 1)} wanted, {len(fitting)} fit",
        f"found {machine.inventory.summary}",
    ]
    if machine.selection is not None:
        parts.append(f"selected by {machine.selection.written!r}")
    parts += [*machine.view.notes, *refused, *unknown]
    return Match("unmeasured" if unreadable else "absent", reason="; ".join(parts))


def _vendors(devices: Sequence[Device]) -> list[str]:
    return list(dict.fromkeys(one.vendor for one in devices))
