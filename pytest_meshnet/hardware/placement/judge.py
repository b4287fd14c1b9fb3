"""The verdict on a placement: a pure function from what was seen to proven or not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pytest_meshnet.hardware.inventory import Inventory
from pytest_meshnet.hardware.inventory.device import Device, PciAddress
from pytest_meshnet.hardware.placement.processes import ProcessId

Verdict = Literal["proven", "contradicted", "unobservable"]
"""Tools of the field say ok, mismatch and unknown for the same three."""

Source = Literal["in-process", "driver"]


@dataclass(frozen=True, slots=True)
class Seen:
    """A device as a process sees it. A place in a list is no identity and cannot be given."""

    uuid: str | None = None
    pci: PciAddress | None = None


@dataclass(frozen=True, slots=True)
class Sighting:
    """One look at one process: the labels of the devices it computes on.

    `visible` lists, in its order, all devices that the process could use; None when only a
    driver's process list was read. `rank` is the place of the process among several that share
    the requested devices, one each.
    """

    source: Source
    pid: int
    devices: tuple[str, ...]
    visible: tuple[str, ...] | None = None
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict with the labels of the devices where something was seen, and why."""

    verdict: Verdict
    observed: tuple[str, ...]
    reasons: tuple[str, ...]


def judge(requested: Sequence[str], sightings: Iterable[Sighting], blind: Sequence[str]) -> Judged:
    """Judge where processes were by the labels of the requested devices, in their order.

    `blind` says why something could not be looked at. One contradiction outweighs any proof, and
    what nobody looked at is never proven.
    """
    seen = list(sightings)
    observed = tuple(dict.fromkeys(label for one in seen for label in _places(one)))
    against = [reason for one in seen for reason in _contradictions(requested, one)]
    if against:
        return Judged("contradicted", observed, tuple(against))
    used = {label for one in seen for label in one.devices}
    missing = [label for label in requested if label not in used]
    if requested and not missing:
        sources = sorted({one.source for one in seen if one.devices})
        return Judged("proven", observed, (f"seen {' and '.join(sources)}",))
    nothing = () if blind else ("no process of the test was seen on a device",)
    reasons = (*blind, *nothing, *(f"nothing was seen on {label}" for label in missing if seen))
    return Judged("unobservable", observed, reasons)


def _places(one: Sighting) -> tuple[str, ...]:
    return (*one.devices, *(one.visible or ()))


def _contradictions(requested: Sequence[str], one: Sighting) -> Iterator[str]:
    allowed = list(requested)
    if one.rank is not None:
        if not 0 <= one.rank < len(requested):
            yield f"process {one.pid} says it is rank {one.rank} of {len(requested)} devices"
            return
        allowed = [requested[one.rank]]
    strays = [label for label in one.devices if label not in allowed]
    if one.visible is not None and sorted(one.visible) != sorted(allowed):
        yield (
            f"process {one.pid} sees {', '.join(one.visible) or 'no device'}, requested "
            f"{', '.join(allowed)}: the pin has no effect"
        )
    elif one.visible is not None and list(one.visible) != allowed:
        yield f"process {one.pid} sees {', '.join(one.visible)}, requested in another order"
    elif strays:
        yield f"process {one.pid} is on {', '.join(strays)}, requested {', '.join(allowed)}"


# From raw looks to labels ----------------------------------------------------------------------


def resolve(
    seen: Seen, inventory: Inventory, requested: Sequence[Device]
) -> tuple[str | None, str]:
    """Return (label, "") of what a process saw, or (None, why it says nothing)."""
    found = inventory.find(uuid=seen.uuid, pci=seen.pci)
    if seen.uuid is None and seen.pci is None:
        return None, "a device was told by neither UUID nor PCI bus id"
    if found is None:
        return f"{seen.uuid or seen.pci} (in no inventory)", ""
    parents = [one for one in requested if one.mig and one.mig.parent == found.uuid]
    if parents:
        # The older call and the bus id name the GPU, not the instance of it.
        return None, f"{found.label} was seen, which instance of it was not"
    return found.label, ""


@dataclass(frozen=True, slots=True)
class Foreign:
    """A process on a requested device that is none of the test's."""

    device: str
    pid: int


@dataclass(frozen=True, slots=True)
class Listing:
    """What drivers list: process ids by label of a device, and why a list could not be had.

    `comparable` says whether these pids are counted as the pids of this process are.
    """

    pids: Mapping[str, tuple[int, ...]]
    errors: tuple[str, ...] = ()
    comparable: bool | None = True


def attribute(
    listing: Listing, family: frozenset[ProcessId], own: frozenset[int], requested: Sequence[str]
) -> tuple[list[Sighting], list[Foreign], list[str]]:
    """Return (sightings, strangers on requested devices, what was not seen).

    `family` are the processes of the runtime. `own` are all processes of the test: one that is no
    runtime proves nothing by being on a requested device, and is astray on any other.
    """
    blind = list(listing.errors)
    if not listing.comparable:
        blind.append(
            "the driver counts pids of the host, this process is in a pid namespace of its own: "
            "equal numbers are no proof"
        )
        return [], _unexplained(listing, family, requested), blind
    pids = {one.pid for one in family}
    sightings = []
    for pid in sorted(pids | own):
        places = [label for label, listed in listing.pids.items() if pid in listed]
        if pid not in pids:
            places = [label for label in places if label not in requested]
        if places:
            sightings.append(Sighting("driver", pid, tuple(places)))
    foreign = [
        Foreign(label, pid)
        for label in requested
        for pid in listing.pids.get(label, ())
        if pid not in pids and pid not in own
    ]
    if pids and not pids & {one.pid for one in sightings} and not blind:
        blind.append(f"the driver lists process {min(pids)} and its children on no device")
    return sightings, foreign, blind


def _unexplained(
    listing: Listing, family: frozenset[ProcessId], requested: Sequence[str]
) -> list[Foreign]:
    """Whose pids these are cannot be told: more of them than the family has are strangers."""
    listed = [(label, pid) for label in requested for pid in listing.pids.get(label, ())]
    if len({pid for _, pid in listed}) <= len(family):
        return []
    return [Foreign(label, pid) for label, pid in listed]
