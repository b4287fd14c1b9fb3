"""What two runs must have in common before a difference between them means anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from pytest_meshnet.evidence.judged import Judged

UNKNOWN = "unknown"
"""What a run says of a machine that it could not look at."""
MACHINE = ("device", "driver")
"""Kinds of which two runs that do not know them have nothing in common."""


def _device(run: Judged) -> str:
    # Without a device that was seen in process, the machine is all there is to go by.
    return _seen(run, "uuid") or f"no GPU, host {run.start.host.get('host_id', UNKNOWN)}"


def _driver(run: Judged) -> str:
    return _seen(run, "driver") or "none"


def _seen(run: Judged, fact: str) -> str:
    """A fact of every device that was seen in process; empty when none was."""
    return ", ".join(
        sorted({str(one["observed"].get(fact) or UNKNOWN) for one in run.recorded.devices})
    )


def _artifact(run: Judged) -> str:
    configured = sorted(f"configured {one.digest}" for one in run.start.artifacts)
    return ", ".join([*configured, *_told(run, "artifact")]) or "none"


def _recipe(run: Judged) -> str:
    return ", ".join(_told(run, "recipe")) or "none"


def _told(run: Judged, beginning: str) -> list[str]:
    told = run.recorded.first_claims().items()
    return sorted(f"{name} {fact.value}" for name, fact in told if name.startswith(beginning))


KINDS: Mapping[str, Callable[[Judged], str]] = {
    "device": _device,
    "driver": _driver,
    "artifact": _artifact,
    "recipe": _recipe,
    "policy": lambda run: run.start.policy_digest or "none",
    "suite": lambda run: f"{run.start.suite.version} {run.start.suite.digest}",
    "ledger": lambda run: f"{run.start.ledger.version} {run.start.ledger.digest}",
    "profiles": lambda run: ", ".join(run.start.profiles),
}
"""What must be alike, by the word that `--allow` takes, and how a run says it.

`artifact` and `recipe` take in every claim whose name begins with that word; without devices,
`device` is the machine.
"""


@dataclass(frozen=True, slots=True)
class Unlike:
    """A kind in which two runs are not known to be alike, and what each of them is."""

    kind: str
    before: str
    after: str


def unlike(before: Judged, after: Judged) -> Iterator[Unlike]:
    """Yield every kind in which two runs differ, or of which their machines know nothing."""
    for kind, say in KINDS.items():
        one, other = say(before), say(after)
        if one != other or (kind in MACHINE and UNKNOWN in one):
            yield Unlike(kind, one, other)
