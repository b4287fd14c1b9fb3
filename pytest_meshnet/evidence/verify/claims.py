"""What was claimed, told or configured, beside what was measured: one table for every reader."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_meshnet.evidence.documents import Start
from pytest_meshnet.evidence.recorded import Recorded
from pytest_meshnet.evidence.strict import Scalar
from pytest_meshnet.evidence.summary import STANDING
from pytest_meshnet.evidence.verify.conduct import SIMULATED


@dataclass(frozen=True, slots=True)
class Claim:
    """One statement about the target; `standing` says what it is worth in words."""

    name: str
    value: Scalar
    standing: str
    proven: bool


def claims(start: Start | None, recorded: Recorded) -> tuple[Claim, ...]:
    """Return every fact, claim, configured artifact and device of a run, with its standing."""
    told = {**recorded.first_claims(), **recorded.facts()}
    rows = [
        Claim(name, fact.value, STANDING[fact.source], fact.source == "observed")
        for name, fact in sorted(told.items())
    ]
    for one in start.artifacts if start else ():
        rows.append(Claim(f"artifact {one.name}", one.digest, STANDING["descriptor"], False))
    for device in recorded.devices:
        simulated = device["observed"].get("provider") == SIMULATED
        standing = "simulated: proves nothing" if simulated else STANDING["observed"]
        label = f"device of {device['test'] or 'the run'}"
        rows.append(Claim(label, device["observed"].get("uuid"), standing, not simulated))
    return tuple(rows)
