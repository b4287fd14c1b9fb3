"""Where tests asked to run and where they were seen: device records, and the looks behind them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_meshnet.evidence import strict
from pytest_meshnet.evidence.judged import Judged
from pytest_meshnet.evidence.strict import StrictError
from pytest_meshnet.evidence.verify.conduct import SIMULATED

LOOK = "placement "
"""How the names of attached looks at the devices begin; the moment follows."""

UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Device:
    """Where a test asked to run and where it was seen in process."""

    test: str
    requested: str
    observed: str
    name: str
    driver: str
    proof: str
    proven: bool


@dataclass(frozen=True, slots=True)
class Look:
    """One look around a test; `claimed` is where the runtime said it was, which proves nothing."""

    test: str
    moment: str
    verdict: str
    reasons: str
    requested: str
    observed: str
    claimed: str


def devices(run: Judged) -> tuple[Device, ...]:
    """Return every device that a run proves, or fails to."""
    return tuple(map(_device, run.recorded.devices))


def _device(record: Mapping[str, Any]) -> Device:
    requested, observed = record["requested"], record["observed"]
    simulated = observed.get("provider") == SIMULATED
    same = all(observed.get(name) == wanted for name, wanted in requested.items())
    proof = "the device that was asked for" if same else "another device than asked for"
    return Device(
        test=record["test"] or "the whole run",
        requested=_text(requested.get("uuid")),
        observed=_text(observed.get("uuid")),
        name=_text(observed.get("name")),
        driver=_text(observed.get("driver")),
        proof="simulated: proves nothing" if simulated else proof,
        proven=same and not simulated,
    )


def _text(value: object) -> str:
    return UNKNOWN if value is None else str(value)


def looks(run: Judged) -> Iterator[Look]:
    """Yield every attached look; one that cannot be read says so in place of its reasons."""
    for one in run.recorded.attachments:
        if one["name"].startswith(LOOK) and one["test"] is not None:
            yield _look(one["test"], one["name"].removeprefix(LOOK), run.read(one))


def _look(test: str, moment: str, data: bytes | None) -> Look:
    try:
        told = strict.loads(data or b"")
        verdict = told["verdict"]
        lists = {name: ", ".join(map(str, told[name])) for name in _LISTS}
    except (StrictError, LookupError, TypeError):
        return Look(test, moment, UNKNOWN, "the attachment cannot be read", "", "", "")
    return Look(test, moment, str(verdict), **lists)


_LISTS = ("reasons", "requested", "observed", "claimed")
