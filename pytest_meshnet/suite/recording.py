"""From what pytest saw of a test to what the ledger judges: phases, kinds and statuses.

What a phase came to travels on its report, so that an xdist controller knows what its worker knew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace

import pytest
from _pytest.outcomes import Skipped

from pytest_meshnet import markers
from pytest_meshnet.ledger.status import (
    Judgement,
    Kind,
    Outcome,
    PhaseRecord,
    PlannedTest,
    Status,
    When,
    excused,
)
from pytest_meshnet.runtime.errors import Nonconformance, NotProvoked, Refusal, TargetLost
from pytest_meshnet.suite import collection, limits
from pytest_meshnet.suite import target as targets
from pytest_meshnet.suite.run import Finding, Run

FRAMES = "meshnet frames"
"""The title of the report section with the last frames of a test."""

MESSAGE_LIMIT = 16 * 1024

_ATTEMPT = pytest.StashKey[list[PhaseRecord]]()


class Excused(Skipped):
    """The test must not run; `kind` says why in the words of the phase records."""

    def __init__(self, kind: Kind, reason: str) -> None:
        super().__init__(reason)
        self.kind: Kind = kind


def planned(item: pytest.Item) -> PlannedTest:
    """Return the plan's entry of a test."""
    return PlannedTest(
        collection.test_id(item), markers.requirements_of(item), _examines_testee(item)
    )


TESTEE = "codec_testee"
"""The fixture that hands a test the runtime's own codec: whoever asks for it, examines that."""


def _examines_testee(item: pytest.Item) -> bool:
    return TESTEE in getattr(item, "fixturenames", ())


# Before a test ---------------------------------------------------------------------------------


def begin_attempt(item: pytest.Item, run: Run) -> None:
    """Open an attempt of a test, and raise Excused when it must not run."""
    _open_attempt(item, run)
    ended = f"refused: {_first_line(run.refusal)}" if run.refusal else run.lost
    if ended:
        raise Excused("not-run", ended)
    _excuse(item, run)
    if not run.connected:
        _connect(item, run)
        _excuse(item, run)


def _open_attempt(item: pytest.Item, run: Run) -> None:
    test = collection.test_id(item)
    run.attempts[test] = run.attempts.get(test, 0) + 1
    item.stash[_ATTEMPT] = []
    if run.feed is not None:
        run.feed.recorder.attempt(test)


def _excuse(item: pytest.Item, run: Run) -> None:
    named = [run.ledger.get(one) for one in markers.requirements_of(item)]
    profile = markers.profile_of(item)
    if not named and profile is not None and profile not in run.claimed:
        raise Excused("not-claimed", f"profile {profile} is not claimed")
    excuse = excused(
        named,
        ledger=run.ledger,
        claimed=run.claimed,
        facts=run.facts,
        testee=_examines_testee(item),
    )
    if excuse is not None:
        status, reason = excuse
        raise Excused("not-claimed" if status is Status.NOT_CLAIMED else "not-applicable", reason)


def _connect(item: pytest.Item, run: Run) -> None:
    # What it raises ends the setup like any exception of the test, and is noted in `annotate`.
    run.reached_out = True
    with limits.suspended(item):
        run.tell(targets.connect(item.config, run.claimed))
    if run.feed is not None:
        run.feed.recorder.claims(targets.claims(item.config))
    run.connected = True


# After a phase ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ending:
    """How a phase ended, from its exception alone: a plugin may have rewritten the report."""

    outcome: Outcome
    kind: Kind
    reason: str
    message: str


def classify(excinfo: pytest.ExceptionInfo[BaseException] | None) -> Ending:
    """Say how a phase ended, and whom its exception speaks about."""
    if excinfo is None:
        return Ending("passed", "", "", "")
    leaves = list(_leaves(excinfo.value))
    for kind in (_engine_error, _nonconformance, _not_provoked):
        ending = next(filter(None, map(kind, leaves)), None)
        if ending is not None:
            message = "\n".join(filter(None, [ending.message, _notes(excinfo)]))
            return replace(ending, message=message[:MESSAGE_LIMIT])
    skipped = leaves[0]
    return Ending("skipped", getattr(skipped, "kind", ""), str(skipped), "")


def _notes(excinfo: pytest.ExceptionInfo[BaseException]) -> str:
    """What hypothesis adds to an exception: the inputs that it found."""
    return "\n".join(getattr(excinfo.value, "__notes__", ()))


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _leaves(one)
    else:
        yield error


def _engine_error(error: BaseException) -> Ending | None:
    known = (AssertionError, pytest.fail.Exception, pytest.skip.Exception)
    if isinstance(error, (*known, NotProvoked, TargetLost, Refusal)):
        return None
    message = f"{type(error).__name__}: {error}"
    return Ending("failed", "engine-error", _first_line(message), message)


def _nonconformance(error: BaseException) -> Ending | None:
    if not isinstance(error, (AssertionError, pytest.fail.Exception)):
        return None
    message = str(error) or type(error).__name__
    # A hardware test whose device is not here fails when it was asked for, and still did not run.
    kind: Kind = getattr(error, "kind", "nonconformance")
    return Ending("failed", kind, _first_line(message), message)


def _not_provoked(error: BaseException) -> Ending | None:
    if isinstance(error, NotProvoked):
        return Ending("skipped", "not-run", f"not provoked: {error.reason}", "")
    if isinstance(error, TargetLost):
        return Ending("skipped", "not-run", error.reason, "")
    if isinstance(error, Refusal):
        return Ending("skipped", "not-run", f"refused: {_first_line(error.message)}", error.message)
    return None


def annotate(
    item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport, run: Run
) -> None:
    """Write on a report what the phase came to, and show pytest the status as an outcome."""
    if report.when == "setup" and item.stash.get(_ATTEMPT, None) != []:
        _open_attempt(item, run)  # a hook before ours ended the setup
    _note_loss(item, call.excinfo, run)
    ending = classify(call.excinfo)
    record = PhaseRecord(
        test=collection.test_id(item),
        attempt=run.attempts[collection.test_id(item)],
        when=report.when or "call",
        outcome=ending.outcome,
        kind=ending.kind,
        reason=ending.reason,
        message=ending.message,
        wasxfail=_xfail(call, report),
        duration_ns=round(call.duration * 1e9),
    )
    attempt = item.stash[_ATTEMPT]
    before = _so_far(item, attempt, run).status
    attempt.append(record)
    judged = _so_far(item, attempt, run)
    news = record.when == "call" or record.outcome == "failed" or judged.status is not before
    finding = _finding(item, call, report, run) if news and judged.status in _EXPLAINED else None
    if news:
        _rewrite(report, judged)
    report.__dict__[_ATTRIBUTE] = {
        "record": asdict(record),
        "requirements": list(judged.requirements),
        "testee": judged.testee,
        "status": str(judged.status) if news else "",
        "finding": asdict(finding) if finding else None,
    }


_ATTRIBUTE = "meshnet"
_EXPLAINED = (Status.FAILED, Status.KNOWN_FAILURE, Status.ENGINE_ERROR)
_PHASES: tuple[When, ...] = ("setup", "call", "teardown")


def _so_far(item: pytest.Item, attempt: list[PhaseRecord], run: Run) -> Judgement:
    """Judge an attempt as if what is still to come of it passed."""
    test = collection.test_id(item)
    skipped = any(one.outcome != "passed" for one in attempt)
    ended = _PHASES.index(attempt[-1].when) + 1 if attempt else 0  # subtests are calls as well
    to_come = [] if skipped else _PHASES[ended:]
    passed = [PhaseRecord(test, 1, when, "passed", "", "", "", None, 0) for when in to_come]
    return run.judge(planned(item), [*(replace(one, attempt=1) for one in attempt), *passed])


def _note_loss(
    item: pytest.Item, excinfo: pytest.ExceptionInfo[BaseException] | None, run: Run
) -> None:
    for error in _leaves(excinfo.value) if excinfo else ():
        if isinstance(error, TargetLost):
            run.lose(error.reason)
        elif isinstance(error, Refusal):
            run.refuse(error.message)
            item.session.shouldstop = f"refused: {_first_line(error.message)}"


def _xfail(call: pytest.CallInfo[None], report: pytest.TestReport) -> str | None:
    if hasattr(report, "wasxfail"):
        return str(report.wasxfail)
    # A strict xfail that passed is a failure that no exception made.
    return report.longreprtext if report.failed and call.excinfo is None else None


def _finding(
    item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport, run: Run
) -> Finding:
    leaves = _leaves(call.excinfo.value) if call.excinfo else ()
    told = next((one for one in leaves if isinstance(one, Nonconformance)), None)
    frames = targets.trace_text(item, told.broken if told else "")
    if frames:
        report.sections.append((FRAMES, frames))
        if run.feed is not None:
            run.feed.recorder.attach_text(collection.test_id(item), "frames", frames)
    return Finding(
        expected=told.expected if told else "",
        actual=told.actual if told else "",
        hint=told.hint if told else "",
        inputs=_notes(call.excinfo) if call.excinfo else "",
        details=report.longreprtext,
        frames=frames,
    )


def _rewrite(report: pytest.TestReport, judged: Judgement) -> None:
    """Give a report the outcome that pytest's exit code, counts and JUnit file should see."""
    if judged.status is Status.PASSED:
        return
    report.__dict__.pop("wasxfail", None)
    if judged.status in (Status.FAILED, Status.ENGINE_ERROR):
        if not report.failed:
            report.outcome = "failed"
            report.longrepr = f"{judged.status}: {judged.reason}"
        return
    path, line, _ = report.location
    report.outcome = "skipped"
    report.longrepr = (path, (line or 0) + 1, f"{judged.status}: {judged.reason}")


# On the process that reports -------------------------------------------------------------------


def take(report: pytest.TestReport, run: Run) -> None:
    """Add the report of a phase to the run, and to the journal of the process that ran it."""
    told = report.__dict__.get(_ATTRIBUTE)
    if told is None:
        if report.when == _CRASHED:
            run.crashes[report.nodeid] = str(report.longrepr)
        return
    record = PhaseRecord(**told["record"])
    plan = PlannedTest(record.test, tuple(told["requirements"]), told["testee"])
    run.planned.setdefault(record.test, plan)
    run.phases.setdefault(record.test, []).append(record)
    if told["finding"]:
        run.findings.setdefault(record.test, []).append(Finding(**told["finding"]))
    if run.feed is not None and not hasattr(report, "node"):
        run.feed.recorder.phase(record)


_CRASHED = "???"
"""What xdist writes for the phase in which a worker died."""


def is_told(report: pytest.TestReport | pytest.CollectReport) -> bool:
    """Say whether a report is about a test of a suite."""
    return _ATTRIBUTE in report.__dict__


_LETTERS: Mapping[Status, str] = {
    Status.PASSED: ".",
    Status.FAILED: "F",
    Status.KNOWN_FAILURE: "k",
    Status.NOT_CLAIMED: "-",
    Status.NOT_APPLICABLE: "/",
    Status.NOT_RUN: "n",
    Status.ENGINE_ERROR: "E",
}


def status_words(
    report: pytest.TestReport | pytest.CollectReport,
) -> tuple[str, str, str | tuple[str, Mapping[str, bool]]]:
    """Return category, letter and word for pytest's progress; the word names the requirements."""
    told = report.__dict__[_ATTRIBUTE]
    if not told["status"]:
        return "", "", ""
    status = Status(told["status"])
    word = " ".join([status.upper(), *told["requirements"]])
    return str(status), _LETTERS[status], (word, _COLOURS.get(status, {"yellow": True}))


_COLOURS: Mapping[Status, Mapping[str, bool]] = {
    Status.PASSED: {"green": True},
    Status.FAILED: {"red": True},
    Status.ENGINE_ERROR: {"red": True, "bold": True},
}


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
