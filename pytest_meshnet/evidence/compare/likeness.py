"""What two runs must have in common before a difference between them means anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from pytest_meshnet.evidence.judged import Judged


def _device(run: Judged) -> str:
    seen = {str(one["observed"].get("uuid")) for one in run.recorded.devices}
    if seen:
        return ", ".join(sorted(seen))
    # Without a device that was seen in process, the machine is all there is to go by.
    return f"no GPU, host {run.start.host.get('host_id', 'unknown')}"


def _driver(run: Judged) -> str:
    seen = {str(one["observed"].get("driver")) for one in run.recorded.devices}
    return ", ".join(sorted(seen)) or "none"


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
    """A kind in which two runs differ, and what each of them is."""

    kind: str
    before: str
    after: str


def unlike(before: Judged, after: Judged) -> Iterator[Unlike]:
    """Yield every kind in which two runs differ."""
    for kind, say in KINDS.items():
        one, other = say(before), say(after)
        if one != other:
            yield Unlike(kind, one, other)
