"""Everything that the journals of one run say, folded into one record without judging it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_meshnet.evidence.journal import Collection, Plugin, Record, Replay
from pytest_meshnet.evidence.strict import StrictError, decode
from pytest_meshnet.ledger.applicability import Fact, FactError, check_facts
from pytest_meshnet.ledger.status import PhaseRecord

BREACH_LIMIT = 50
"""Most breaches that are kept; one is enough to refuse a run."""


@dataclass(frozen=True, slots=True)
class Breach:
    """A rule of the record that a journal breaks: `code` is a stable reason code."""

    code: str
    message: str


@dataclass(slots=True)
class JournalFacts:
    """What is known about one journal beside its records.

    `slowest` and `fastest` bound wall minus monotonic time, `backwards` is the first line whose
    monotonic time is before the line above; nanoseconds.
    """

    run_id: str = ""
    process: str = ""
    records: int = 0
    head: str = ""
    torn: bool = False
    first: int | None = None
    last: int = 0
    backwards: int | None = None
    slowest: int = 0
    fastest: int = 0
    exit_status: int | None = None
    fault: StrictError | None = None


@dataclass(slots=True)
class _Progress:
    attempt: int = 0
    stage: str = ""


@dataclass(slots=True)
class Recorded:
    """Everything that the journals of a run say, by test where it is about a test."""

    journals: dict[str, JournalFacts] = field(default_factory=dict)
    phases: dict[str, list[PhaseRecord]] = field(default_factory=dict)
    processes: dict[str, list[str]] = field(default_factory=dict)
    progress: dict[tuple[str, str], _Progress] = field(default_factory=dict)
    collections: dict[str, Collection] = field(default_factory=dict)
    told: list[tuple[int, str, Fact]] = field(default_factory=list)
    claims: list[tuple[int, str, Fact]] = field(default_factory=list)
    worker_losses: list[Mapping[str, Any]] = field(default_factory=list)
    target_losses: dict[str, str] = field(default_factory=dict)
    refusals: list[str] = field(default_factory=list)
    warnings: list[Mapping[str, Any]] = field(default_factory=list)
    attachments: list[Mapping[str, Any]] = field(default_factory=list)
    devices: list[Mapping[str, Any]] = field(default_factory=list)
    plugins: set[Plugin] = field(default_factory=set)
    breaches: list[Breach] = field(default_factory=list)
    first_attempt: int | None = None

    @property
    def in_flight(self) -> tuple[str, ...]:
        """Tests that had begun an attempt and not ended it."""
        return tuple(t for (t, _), one in self.progress.items() if one.stage != "teardown")

    def attempts(self, test: str) -> int:
        """How many attempts of a test were begun."""
        homes = self.processes.get(test, ())
        return max((self.progress[test, name].attempt for name in homes), default=0)

    def facts(self) -> dict[str, Fact]:
        """Return each fact that a need may be judged by, as its first writer told it."""
        return _first(self.told)

    def first_claims(self) -> dict[str, Fact]:
        """Return each claim as its first writer told it; claims are shown, never judged by."""
        return _first(self.claims)

    def loss(self) -> str | None:
        """Return the first recorded loss of a target or a worker."""
        losses = [*self.target_losses.values(), *(one["message"] for one in self.worker_losses)]
        return losses[0] if losses else None

    def loss_of(self, test: str) -> str | None:
        """Return the recorded loss that explains why a test has no complete result."""
        homes = self.processes.get(test)
        for one in self.worker_losses:
            if one["test"] == test or (homes and one["process"] in homes):
                return str(one["message"])
        if homes:
            return next((self.target_losses[p] for p in homes if p in self.target_losses), None)
        return self.loss()


def _first(told: Iterable[tuple[int, str, Fact]]) -> dict[str, Fact]:
    found: dict[str, Fact] = {}
    for _, name, fact in sorted(told, key=lambda one: one[0]):
        found.setdefault(name, fact)
    return found


def fold(journals: Iterable[tuple[str, Replay]]) -> Recorded:
    """Read every journal of a run; the name is the process (`main`, `gw0`, ...).

    A journal that is no legal journal keeps the records before the fault, and its fault.
    """
    recorded = Recorded()
    for process, replay in journals:
        facts = recorded.journals.setdefault(process, JournalFacts())
        try:
            for record in replay:
                _note_time(facts, record)
                _FOLD[record.type](recorded, process, record)
        except StrictError as error:
            facts.fault = error
        facts.records, facts.head, facts.torn = replay.records, replay.head, replay.torn
    _find_doubles(recorded)
    return recorded


def _note_time(facts: JournalFacts, record: Record) -> None:
    offset = record.t_wall - record.t_mono
    if facts.first is None:
        facts.first, facts.slowest, facts.fastest = record.t_mono, offset, offset
    elif record.t_mono < facts.last and facts.backwards is None:
        facts.backwards = record.line
    facts.last = record.t_mono
    facts.slowest = min(facts.slowest, offset)
    facts.fastest = max(facts.fastest, offset)


def _open(recorded: Recorded, process: str, record: Record) -> None:
    facts = recorded.journals[process]
    facts.run_id, facts.process = record.body["run_id"], record.body["process"]


def _facts(recorded: Recorded, _: str, record: Record) -> None:
    for name, told in record.body["facts"].items():
        fact = Fact(told["value"], told["source"])
        try:
            check_facts({name: fact})
        except FactError as error:
            raise StrictError("fact-unknown", f"line {record.line}: {error}") from error
        recorded.told.append((record.t_mono, name, fact))


def _claims(recorded: Recorded, _: str, record: Record) -> None:
    for name, told in record.body["claims"].items():
        recorded.claims.append((record.t_mono, name, Fact(told["value"], told["source"])))


def _collected(recorded: Recorded, process: str, record: Record) -> None:
    found = decode(Collection, record.body, "collected")
    if recorded.collections.setdefault(process, found) is not found:
        _breach(recorded, "collected-twice", f"{process} collected twice")


def _plugins(recorded: Recorded, _: str, record: Record) -> None:
    recorded.plugins.update(Plugin(**one) for one in record.body["plugins"])


def _attempt(recorded: Recorded, process: str, record: Record) -> None:
    test, number = record.body["test"], record.body["attempt"]
    first = recorded.first_attempt
    recorded.first_attempt = record.t_mono if first is None else min(first, record.t_mono)
    progress = recorded.progress.get((test, process))
    if progress is None:
        progress = recorded.progress[test, process] = _Progress(stage="teardown")
        recorded.processes.setdefault(test, []).append(process)
    if number != progress.attempt + 1:
        _breach(recorded, "attempt-gap", f"{test}: attempt {number} after {progress.attempt}")
    if progress.stage != "teardown":
        _breach(recorded, "phase-order", f"{test}: attempt {number} began inside another")
    progress.attempt, progress.stage = number, ""


_BEFORE: Mapping[str, tuple[str, ...]] = {
    "setup": ("",),
    "call": ("setup", "call"),  # subtests report several calls
    "teardown": ("setup", "call"),
}


def _phase(recorded: Recorded, process: str, record: Record) -> None:
    body = record.body
    test, when = body["test"], body["when"]
    progress = recorded.progress.get((test, process))
    if progress is None or body["attempt"] != progress.attempt:
        _breach(recorded, "attempt-gap", f"{test}: {when} outside a recorded attempt")
    elif progress.stage not in _BEFORE[when]:
        _breach(recorded, "phase-order", f"{test}: {when} after {progress.stage or 'nothing'}")
    if progress is not None:
        progress.stage = when
    phase = PhaseRecord(**{**body, "duration_ns": int(body["duration_ns"])})
    recorded.phases.setdefault(test, []).append(phase)


def _breach(recorded: Recorded, code: str, message: str) -> None:
    if len(recorded.breaches) < BREACH_LIMIT:
        recorded.breaches.append(Breach(code, message))


def _find_doubles(recorded: Recorded) -> None:
    lost = {one["process"] for one in recorded.worker_losses}
    for test, homes in recorded.processes.items():
        if sum(1 for name in homes if name not in lost) > 1:
            _breach(recorded, "ran-twice", f"{test} ran in {' and '.join(homes)}")


def _finish(recorded: Recorded, process: str, record: Record) -> None:
    recorded.journals[process].exit_status = record.body["exit_status"]


def _target_lost(recorded: Recorded, process: str, record: Record) -> None:
    recorded.target_losses.setdefault(process, record.body["reason"])


_Fold = Callable[[Recorded, str, Record], None]
_FOLD: Mapping[str, _Fold] = {
    "open": _open,
    "facts": _facts,
    "claims": _claims,
    "collected": _collected,
    "attempt": _attempt,
    "phase": _phase,
    "attachment": lambda recorded, _, record: recorded.attachments.append(record.body),
    "device": lambda recorded, _, record: recorded.devices.append(record.body),
    "plugins": _plugins,
    "worker-lost": lambda recorded, _, record: recorded.worker_losses.append(record.body),
    "target-lost": _target_lost,
    "refusal": lambda recorded, _, record: recorded.refusals.append(record.body["message"]),
    "warning": lambda recorded, _, record: recorded.warnings.append(record.body),
    "finish": _finish,
}
