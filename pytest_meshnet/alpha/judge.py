"""The verdict: a pure function of the locked target and a record. There are only two.

Every key of the contract has exactly one criterion; a key without one is an error of this suite and
never a pass. Nothing here reads a clock, a file or the network.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from pytest_meshnet.alpha.criteria import Criterion, criteria
from pytest_meshnet.alpha.reading import SOURCES, UNKNOWN, Reading

if TYPE_CHECKING:
    from pytest_meshnet.target.contract import Contract, Threshold
    from pytest_meshnet.target.documents import LockedTarget

Status = Literal["met", "not met", "no evidence"]
MET: Final = "met"
NOT_MET: Final = "not met"
NO_EVIDENCE: Final = "no evidence"
Word = Literal["alpha", "stop"]


class NoCriterion(LookupError):
    """The contract locks a key that nothing here can judge: this suite is the older one."""


@dataclass(frozen=True, slots=True)
class Line:
    """What became of one criterion.

    `reasons` are (code, text); a code begins with the id of its criterion. `source` is the weakest
    that was read: measured, reported, configured, or empty when nothing was.
    """

    id: str
    status: Status
    measured: Any
    unit: str
    threshold: Threshold
    source: str
    reasons: tuple[tuple[str, str], ...]
    note: str
    action: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer with one line for each criterion, in the order of the contract.

    `bottleneck` is the first criterion that a measurement fails, or the first that lacks one, and
    `action` the next narrow thing to do about it; both are empty for `alpha`.
    """

    word: Word
    lines: tuple[Line, ...]
    bottleneck: str
    action: str
    labels: Mapping[str, Any]
    contract_sha256: str

    @property
    def met(self) -> int:
        """How many criteria are met."""
        return sum(line.status == MET for line in self.lines)

    def to_dict(self) -> dict[str, Any]:
        """The verdict as JSON; thresholds are the contract's own values."""
        return asdict(self) | {"met": self.met, "criteria": len(self.lines)}


def judge(locked: LockedTarget, record: Mapping[str, Any]) -> Verdict:
    """Judge a record against the locked target.

    Raises NoCriterion when the contract has a key that nothing can judge. The record is read as it
    is: what is missing, told instead of measured, not finite or contradictory is not met.
    """
    lines = tuple(_line(one, locked, record) for one in every_criterion(locked.contract))
    failing = [line for line in lines if line.status != MET]
    measured = [line for line in failing if line.status == NOT_MET]
    first = (measured or failing)[0] if failing else None
    return Verdict(
        word="stop" if failing else "alpha",
        lines=lines,
        bottleneck=_bottleneck(first, record) if first else "",
        action=first.action if first else "",
        labels=_labels(record),
        contract_sha256=locked.contract.sha256,
    )


def every_criterion(contract: Contract) -> Iterator[Criterion]:
    """The criterion of each key of the contract, the target first. Raises NoCriterion."""
    known = criteria()
    document = contract.to_dict()
    keys = [("target", key) for key in document["target"]]
    keys += [(name, key) for name, section in contract.sections.items() for key in section]
    for place in keys:
        if place not in known:
            raise NoCriterion(
                f"{'.'.join(place)} is locked by {contract.contract_id} and has no criterion: "
                "update pytest-meshnet"
            )
        yield known[place]


def _line(one: Criterion, locked: LockedTarget, record: Mapping[str, Any]) -> Line:
    at = Reading(record, locked, one.section, one.key)
    one.judge(at)
    codes = {problem.code for problem in at.problems}
    status: Status = MET if not codes else NOT_MET
    if codes and codes <= UNKNOWN:
        status = NO_EVIDENCE
    told = [source for source in reversed(SOURCES) if source in at.sources]
    reasons = dict.fromkeys((f"{one.id}.{each.code}", each.text) for each in at.problems)
    return Line(
        id=one.id,
        status=status,
        measured=at.measured,
        unit=at.unit,
        threshold=at.threshold,
        source=told[0] if told else "",
        reasons=tuple(reasons),
        note=at.note,
        action=one.action,
    )


def _bottleneck(line: Line, record: Mapping[str, Any]) -> str:
    """The failing criterion in words; where speed fails, with the stage that takes the longest."""
    text = f"{line.id}: {line.reasons[0][1]}"
    if not line.id.startswith("performance."):
        return text
    times = {
        str(stage.get("host")): stage["compute"]["value"]
        for stage in record.get("performance", {}).get("stages", ())
        if isinstance(stage.get("compute"), Mapping)
        and isinstance(stage["compute"].get("value"), (int, float))
    }
    slowest = max(times, key=times.__getitem__, default="")
    return f"{text}; the slowest stage is {slowest}" if slowest else text


def _labels(record: Mapping[str, Any]) -> dict[str, Any]:
    labels = record.get("labels", {})
    return {
        name: claim.get("value") if isinstance(claim, Mapping) else None
        for name, claim in labels.items()
    }
