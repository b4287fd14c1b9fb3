"""The devices of one test: what it may use, and the proof of what it used.

Nothing here knows of pytest; `fixtures.py` opens and closes a `Gpu` around a test.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pytest_meshnet.hardware import arch_gates
from pytest_meshnet.hardware.inventory import Device, DriverError, Inventory, read
from pytest_meshnet.hardware.pinning.environment import pinned
from pytest_meshnet.hardware.pinning.visibility import MASKS
from pytest_meshnet.hardware.placement.judge import (
    Foreign,
    Judged,
    Listing,
    Seen,
    Sighting,
    Verdict,
    attribute,
    judge,
    resolve,
)
from pytest_meshnet.hardware.placement.processes import ProcessId
from pytest_meshnet.hardware.placement.senses import Senses

Moment = Literal["before", "during", "after"]
Scalar = str | int | bool | None


class Misplaced(AssertionError):
    """A hardware test that did not prove that it ran on its devices, and alone where it must."""


class NativeKernelMissing(Exception):
    """A test about native kernels is on a device that has only a fallback, or nothing."""


@dataclass(frozen=True, slots=True)
class Placement:
    """One look around a test. Labels are UUIDs; `claimed` is the runtime's own word, no proof.

    `before` shows what a process with the test's environment sees, `during` where the runtime is,
    `after` whether the devices are still the same.
    """

    moment: Moment
    requested: tuple[str, ...]
    observed: tuple[str, ...]
    verdict: Verdict
    reasons: tuple[str, ...]
    claimed: tuple[str, ...]
    foreign: tuple[Foreign, ...]
    simulated: bool
    environment: Mapping[str, str]
    facts: Mapping[str, Mapping[str, Scalar]]

    def records(self) -> list[tuple[dict[str, Scalar], dict[str, Scalar]]]:
        """Return (requested, observed) for each requested device, for a journal of devices.

        An `observed` holds the facts of a device where a process was; none for what nobody saw.
        """
        if self.verdict == "unobservable":
            return []
        strays = [label for label in self.observed if label not in self.requested]
        pairs: list[tuple[dict[str, Scalar], dict[str, Scalar]]] = []
        for label in self.requested:
            seen = label if self.verdict == "proven" else next(iter(strays), label)
            pairs.append(({"uuid": label}, dict(self.facts.get(seen, {"uuid": seen}))))
        return pairs

    def document(self) -> dict[str, object]:
        """Return the placement as plain JSON values."""
        return {
            "moment": self.moment,
            "requested": list(self.requested),
            "observed": list(self.observed),
            "verdict": self.verdict,
            "reasons": list(self.reasons),
            "claimed": list(self.claimed),
            "foreign": [{"device": one.device, "pid": one.pid} for one in self.foreign],
            "simulated": self.simulated,
            "environment": dict(self.environment),
        }

    def __str__(self) -> str:
        lines = [
            f"placement {self.moment}: {self.verdict}: {'; '.join(self.reasons)}",
            f"  requested: {', '.join(self.requested)}",
            f"  observed:  {', '.join(self.observed) or 'nothing'}",
        ]
        if self.claimed:
            lines.append(f"  claimed:   {', '.join(self.claimed)} (the runtime's word)")
        if self.foreign:
            strangers = ", ".join(f"process {one.pid} on {one.device}" for one in self.foreign)
            lines.append(f"  foreign:   {strangers}")
        return "\n".join(lines)


class Gpu:
    """The leased devices of a test.

    `devices` are in the order in which `environment` shows them to a child process. A test starts
    its runtime with `environment`, and says with `watch` which process it is; without any look at
    a process on the devices the test fails as `unobservable`.
    """

    def __init__(
        self,
        devices: Sequence[Device],
        inventory: Inventory,
        senses: Senses,
        base: Mapping[str, str],
        journal: Callable[[Placement], None],
    ) -> None:
        self.devices = tuple(devices)
        self.environment = pinned(devices, base)
        self.must_be_alone = False
        self._inventory = inventory
        self._senses = senses
        self._journal = journal
        self._requested = tuple(one.label for one in devices)
        self._watched: list[ProcessId] = []
        self._sightings: list[Sighting] = []
        self._blind: list[str] = []
        self._claimed: list[str] = []
        self._foreign: dict[Foreign, None] = {}

    @property
    def device(self) -> Device:
        """The only device of the test, or the first of several."""
        return self.devices[0]

    def watch(self, pid: int) -> None:
        """Name the process of the runtime; its children count as it. Raises ProcessLookupError.

        Where it is, is looked up in the drivers' lists by `observe`, and when the test ends.
        """
        process = self._senses.procfs.identify(pid)
        if process is None:
            raise ProcessLookupError(f"there is no process {pid} to watch")
        self._watched.append(process)

    def report(
        self,
        pid: int,
        used: Sequence[Seen],
        *,
        visible: Sequence[Seen] | None = None,
        rank: int | None = None,
    ) -> None:
        """Take what code of the test measured inside a process: where it computes.

        `visible` are all devices that it could use, in its order. Only for what the process
        measured itself (cuDeviceGetUuid, torch device properties), never for a runtime's word.
        """
        places = self._labels(used)
        shown = None if visible is None else self._labels(visible)
        if visible is not None and shown is not None and len(shown) != len(visible):
            # A device that says nothing of itself is no proof that the pin has no effect.
            shown = None
        self._sightings.append(Sighting("in-process", pid, places, shown, rank))

    def claim(self, uuid: str) -> None:
        """Record where a runtime says it is, for example in its stats; it proves nothing."""
        self._claimed.append(uuid)

    def require_native(self, format: str, role: arch_gates.Role) -> None:
        """Raise NativeKernelMissing unless every device has native kernels for the format."""
        for one in self.devices:
            answer = arch_gates.ask(format, role, one.capability)
            if answer.word != "native":
                raise NativeKernelMissing(f"{answer.word} on {one.label}: {answer.reason}")

    # The looks ---------------------------------------------------------------------------------

    def before(self) -> Placement:
        """Look at what the pinned environment shows, before anything runs in it."""
        sightings, blind = [], []
        try:
            pid, seen = self._senses.inside(self.environment, self.device.vendor)
            resolved = [resolve(one, self._inventory, self.devices) for one in seen]
            blind = [why for label, why in resolved if label is None]
            shown = tuple(label for label, _ in resolved if label is not None)
            if not blind:
                sightings = [Sighting("in-process", pid, shown, shown)]
        except DriverError as error:
            blind = [str(error)]
        judged = judge(self._requested, sightings, blind)
        kin = [one for one in self._inventory.devices if one.vendor == self.device.vendor]
        alone = ("isolation not exercised: there is no other device",) if len(kin) == 1 else ()
        _, foreign, _ = self._driver_view(frozenset())
        return self._note("before", judged, foreign, alone)

    def observe(self) -> Placement:
        """Look where the watched processes are now; everything seen so far counts together."""
        family = frozenset(
            one for root in self._watched for one in self._senses.procfs.family(root)
        )
        sightings, foreign, blind = self._driver_view(family)
        self._sightings += sightings
        ended = [f"process {one.pid} has ended" for one in self._watched if one not in family]
        judged = judge(self._requested, self._sightings, [*self._blind, *blind, *ended])
        return self._note("during", judged, foreign)

    def after(self) -> Placement:
        """Look whether the devices are still what they were, and who is left on them."""
        now = read(self._senses.drivers)
        changes, blind = [], list(now.problems)
        for was in self.devices:
            found = now.find(uuid=was.uuid)
            if found is None and not blind:
                changes.append(f"{was.label} is gone")
            elif found is not None:
                changes += _changes(was, found)
        verdict: Verdict = "unobservable" if blind else "proven"
        judged = Judged(
            "contradicted" if changes else verdict,
            tuple(one.label for one in self.devices if now.find(uuid=one.uuid)),
            tuple(changes or blind or ("the devices are the same as before",)),
        )
        _, foreign, _ = self._driver_view(frozenset())
        return self._note("after", judged, foreign)

    def disturbance(self) -> str:
        """Return who else was on the devices at any look, empty for nobody."""
        return ", ".join(f"process {one.pid} on {one.device}" for one in self._foreign)

    # Helpers -----------------------------------------------------------------------------------

    def _driver_view(
        self, family: frozenset[ProcessId]
    ) -> tuple[list[Sighting], list[Foreign], list[str]]:
        procfs = self._senses.procfs
        pids: dict[str, tuple[int, ...]] = {}
        errors: list[str] = []
        comparable: bool | None = True
        for driver in self._senses.drivers:
            if driver.counts_host_pids:
                comparable = procfs.counts_as_the_host()
            for one in self._inventory.devices:
                if one.provider == driver.provider and not one.split:
                    try:
                        pids[one.label] = driver.processes(one)
                    except DriverError as error:
                        errors.append(f"processes on {one.label}: {error}")
        # A pid that was given away between the two looks would be another process by now.
        steady = frozenset(one for one in family if procfs.identify(one.pid) == one)
        me = procfs.identify(os.getpid())
        own = frozenset(one.pid for one in procfs.family(me)) if me else frozenset()
        listing = Listing(pids, tuple(errors), comparable)
        return attribute(listing, steady, own, self._requested)

    def _labels(self, seen: Sequence[Seen]) -> tuple[str, ...]:
        resolved = [resolve(one, self._inventory, self.devices) for one in seen]
        self._blind += [why for label, why in resolved if label is None]
        return tuple(label for label, _ in resolved if label is not None)

    def _note(
        self,
        moment: Moment,
        judged: Judged,
        foreign: Sequence[Foreign],
        notes: tuple[str, ...] = (),
    ) -> Placement:
        self._foreign.update(dict.fromkeys(foreign))
        placement = Placement(
            moment,
            self._requested,
            judged.observed,
            judged.verdict,
            (*judged.reasons, *notes),
            tuple(self._claimed),
            tuple(foreign),
            any(one.simulated for one in self.devices),
            {name: self.environment[name] for name in MASKS if name in self.environment},
            {one.label: one.facts() for one in self._inventory.devices},
        )
        self._journal(placement)
        return placement


def _changes(was: Device, now: Device) -> list[str]:
    """A value that became unreadable is not a change; an index is no property of a device."""
    before, after = was.facts(), now.facts()
    names = [name for name in before if name not in ("index", "unknown")]
    return [
        f"{was.label}: {name} was {before[name]} and is {after[name]}"
        for name in names
        if before[name] != after[name] and None not in (before[name], after[name])
    ]
