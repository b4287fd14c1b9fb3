"""The seven statuses of a test, judged from its raw phase records by a pure function."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import Literal

from pytest_meshnet.ledger.applicability import CODEC_TESTEE, Fact, unmet
from pytest_meshnet.ledger.expected import ExpectedFailure, ExpectedFailures
from pytest_meshnet.ledger.requirements import Ledger, Requirement

When = Literal["setup", "call", "teardown"]
Outcome = Literal["passed", "failed", "skipped"]
Kind = Literal["", "nonconformance", "not-run", "not-applicable", "not-claimed", "engine-error"]


class Status(StrEnum):
    """What a test says in the end; exactly these seven words."""

    PASSED = "passed"
    FAILED = "failed"
    KNOWN_FAILURE = "known-failure"
    NOT_CLAIMED = "not-claimed"
    NOT_APPLICABLE = "not-applicable"
    NOT_RUN = "not-run"
    ENGINE_ERROR = "engine-error"


@dataclass(frozen=True, slots=True)
class PhaseRecord:
    """One phase of one attempt of a test, as the process that ran it saw it.

    `kind` says what the phase ended with: "" for pytest's own outcome, "nonconformance" for a
    failed assertion (timeouts included), "engine-error" for any other exception. `duration_ns`
    is in nanoseconds; `wasxfail` is the reason when an xfail mark touched the outcome.
    """

    test: str
    attempt: int
    when: When
    outcome: Outcome
    kind: Kind
    reason: str
    message: str
    wasxfail: str | None
    duration_ns: int


@dataclass(frozen=True, slots=True)
class PlannedTest:
    """A collected test and the ids of the requirements it speaks for.

    `testee` says that it examines the runtime's own codec: its result is then the runtime's,
    whatever the subject of its requirements, and it needs CODEC_TESTEE besides theirs.
    """

    test: str
    requirements: tuple[str, ...]
    testee: bool = False


@dataclass(frozen=True, slots=True)
class Judgement:
    """The status of a test, why, and as in its plan what it speaks for and whom it examines."""

    test: str
    status: Status
    reason: str
    requirements: tuple[str, ...] = ()
    testee: bool = False


STALE_EXPECTATION = "expected to fail, passed: remove the entry"
FOUND = ", found: "
"""Stands in a reason before the message of a listed test that failed otherwise."""

WORST_FIRST = (
    Status.ENGINE_ERROR,
    Status.FAILED,
    Status.NOT_RUN,
    Status.KNOWN_FAILURE,
    Status.PASSED,
    Status.NOT_APPLICABLE,
    Status.NOT_CLAIMED,
)
"""Every status, the one that says most against a runtime first."""

_OUTCOMES: Mapping[Kind, tuple[Outcome, ...]] = {
    "nonconformance": ("failed",),
    "engine-error": ("failed",),
    "not-run": ("failed", "skipped"),
    "not-applicable": ("skipped",),
    "not-claimed": ("skipped",),
}
"""The raw outcomes a kind can go with; any other pair was not written by the plugin."""

_Answer = tuple[Status, str]


def judge(
    planned: PlannedTest,
    phases: Iterable[PhaseRecord],
    *,
    ledger: Ledger,
    claimed: frozenset[str],
    facts: Mapping[str, Fact],
    expected: ExpectedFailures,
    lost: str | None,
) -> Judgement:
    """Judge one planned test from the phases recorded for it, in recorded order.

    `claimed` holds profile names; `lost` is the recorded loss of the target, or of the process
    that should have run the test. Raises UnknownRequirement for a plan of another ledger.
    """
    requirements = [ledger.get(name) for name in planned.requirements]
    records = list(phases)
    excuse = excused(
        requirements, ledger=ledger, claimed=claimed, facts=facts, testee=planned.testee
    )
    if not requirements and records and records[0].kind == "not-claimed":
        # It speaks for no requirement, so only its own profile mark, which is not in the plan,
        # could excuse it; it binds no verdict either way.
        excuse = Status.NOT_CLAIMED, records[0].reason
    if excuse is not None:
        status, reason = _excused_answer(excuse, records)
    else:
        entry = expected.get(planned.test)
        attempts = _attempts(records)
        # On the runtime's own codec a failure speaks about the runtime, never about the suite.
        own = [] if planned.testee else [one.id for one in requirements if one.subject == "suite"]
        answers = [_judge_attempt(one, own, entry, lost) for one in attempts]
        status, reason = _worst(answers) if answers else (Status.NOT_RUN, lost or "never started")
    return Judgement(planned.test, status, reason, planned.requirements, planned.testee)


def excused(
    requirements: Sequence[Requirement],
    *,
    ledger: Ledger,
    claimed: frozenset[str],
    facts: Mapping[str, Fact],
    testee: bool = False,
) -> _Answer | None:
    """Return why a test must not run: not claimed, or a need that the facts contradict.

    A test that speaks for no requirement is never excused here, unless it is one of a `testee`
    where there is none.
    """
    if requirements and not any(ledger.is_claimed(one, claimed) for one in requirements):
        profiles = dict.fromkeys(one.profile for one in requirements)
        return Status.NOT_CLAIMED, f"profile {', '.join(profiles)} is not claimed"
    needs = [need for one in requirements for need in one.needs] + [CODEC_TESTEE] * testee
    need = unmet(needs, facts)
    if need is not None:
        return Status.NOT_APPLICABLE, f"needs {need}: {ledger.needs.get(need, need)}"
    return None


def _excused_answer(excuse: _Answer, records: Sequence[PhaseRecord]) -> _Answer:
    status, reason = excuse
    if any(one.when == "call" for one in records):
        return Status.ENGINE_ERROR, f"it ran although it is {status}: {reason}"
    return excuse


def _attempts(records: Sequence[PhaseRecord]) -> list[list[PhaseRecord]]:
    ordered = sorted(records, key=lambda one: one.attempt)
    return [list(group) for _, group in groupby(ordered, key=lambda one: one.attempt)]


def _worst(answers: Sequence[_Answer]) -> _Answer:
    return min(answers, key=lambda answer: WORST_FIRST.index(answer[0]))


def _judge_attempt(
    phases: Sequence[PhaseRecord],
    suite: Sequence[str],
    entry: ExpectedFailure | None,
    lost: str | None,
) -> _Answer:
    """Judge one attempt; `suite` are the requirements by which it examines the suite itself."""
    answer = _engine_error(phases) or _failed(phases, suite, entry)
    answer = answer or _stopped(phases, lost)
    if answer is not None:
        return answer
    return (Status.FAILED, STALE_EXPECTATION) if entry else (Status.PASSED, "")


def _engine_error(phases: Sequence[PhaseRecord]) -> _Answer | None:
    for one in phases:
        if one.wasxfail is not None:
            return Status.ENGINE_ERROR, f"xfail is no verdict: {one.wasxfail}"
        if one.kind in ("not-claimed", "not-applicable"):
            return Status.ENGINE_ERROR, f"{one.when} says {one.kind}, the ledger does not"
        if one.kind and one.outcome not in _OUTCOMES[one.kind]:
            return Status.ENGINE_ERROR, f"{one.when}: {one.outcome} contradicts {one.kind}"
        plain_failure = one.outcome == "failed" and one.kind == "" and one.when != "call"
        if one.kind == "engine-error" or plain_failure:
            return Status.ENGINE_ERROR, f"{one.when}: {one.reason or one.message}"
    return None


def _failed(
    phases: Sequence[PhaseRecord], suite: Sequence[str], entry: ExpectedFailure | None
) -> _Answer | None:
    failures = [one for one in phases if one.outcome == "failed" and one.kind != "not-run"]
    if not failures:
        return None
    message = failures[0].message
    first_line = message.strip().partition("\n")[0]
    if suite:
        return Status.ENGINE_ERROR, f"the suite breaks {', '.join(suite)}: {first_line}"
    if entry is None:
        return Status.FAILED, first_line
    if entry.message in message:
        return Status.KNOWN_FAILURE, entry.reason
    return Status.FAILED, f"expected {entry.message!r} in the message{FOUND}{first_line}"


def _stopped(phases: Sequence[PhaseRecord], lost: str | None) -> _Answer | None:
    """An attempt that was skipped, gave up, or was cut off by the end of its process."""
    stopped = next((one for one in phases if one.outcome != "passed"), None)
    if stopped is not None:
        plain = f"skipped: {stopped.reason or stopped.message}"
        return Status.NOT_RUN, stopped.reason if stopped.kind == "not-run" else plain
    # Each subtest reports a call of its own, before that of its test.
    if [when for when, _ in groupby(one.when for one in phases)] == ["setup", "call", "teardown"]:
        return None
    if lost:
        return Status.NOT_RUN, lost
    ran = ", ".join(one.when for one in phases)
    return Status.ENGINE_ERROR, f"its process ended in mid-test (recorded: {ran})"
