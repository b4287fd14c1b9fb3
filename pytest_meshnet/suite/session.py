"""The course of a run: its beginning, what it collected, what became of its workers, its end."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import pytest

from pytest_meshnet import options
from pytest_meshnet.evidence.bundle import BundleError
from pytest_meshnet.hardware.fixtures import device_lane
from pytest_meshnet.ledger.applicability import Fact
from pytest_meshnet.ledger.expected import ExpectedFailures, ExpectedFailuresError
from pytest_meshnet.ledger.status import FOUND, STALE_EXPECTATION, Judgement, PlannedTest, Status
from pytest_meshnet.ledger.verdict import INCOMPLETE, REFUSED
from pytest_meshnet.suite import certificate, evidence
from pytest_meshnet.suite import run as runs
from pytest_meshnet.suite import target as targets
from pytest_meshnet.suite.run import Run

_OUTPUT = "meshnet"


class Gateway(Protocol):
    """What is used of an execnet gateway: its name, such as `gw0`."""

    id: str


class Worker(Protocol):
    """What is used of a worker of xdist as its controller sees it."""

    config: pytest.Config
    gateway: Gateway
    workerinput: dict[str, Any]


def begin(session: pytest.Session) -> None:
    """Begin a run that was asked for: check it, choose what to collect, start the evidence."""
    from pytest_meshnet.suite import collection

    config = session.config
    settings = options.settings(config)
    if settings.certificate and not _is_worker(config):
        certificate.check_configuration(config)
    if settings.certificate:
        from pytest_meshnet.protocol.heap import keep_heap

        keep_heap()  # this process is the suite's own
    run = ensure(config)
    run.whole = collection.address(config, settings.suites) and bool(settings.suites)
    if not config.getoption("collectonly"):
        run.feed = evidence.open_feed(config, run)


def ensure(config: pytest.Config) -> Run:
    """Return the run of this process; the first call begins it and registers its hooks."""
    run = runs.active(config)
    if run is None:
        from pytest_meshnet.suite.hooks import RunHooks

        run = runs.start(config)
        config.pluginmanager.register(RunHooks(config, run), "meshnet-run")
    return run


# Collection ------------------------------------------------------------------------------------


def note_collection_error(report: pytest.CollectReport, run: Run) -> None:
    """Note a module of a suite that cannot be collected."""
    if report.nodeid.startswith(options.SUITE_PREFIXES):
        run.errors.setdefault(report.nodeid, report.longreprtext)


def note_deselected(items: Iterable[pytest.Item], run: Run) -> None:
    """Note tests of a suite that a person or a plugin left out."""
    run.deselected.update((one.test, one) for one in _planned(items))


def note_collected(session: pytest.Session, run: Run) -> None:
    """Take the tests of the suites as the plan of this process."""
    run.planned.update((one.test, one) for one in _planned(session.items))
    lanes = {_id(item): device_lane(item) for item in session.items if _id(item) in run.planned}
    evidence.write_collection(
        session.config, run, {test: lane for test, lane in lanes.items() if lane}
    )
    if not _is_worker(session.config):
        _check_expected([*run.planned, *run.deselected], run)
    if run.settings.certificate:
        certificate.check_collection(session, run)


def _planned(items: Iterable[pytest.Item]) -> Iterator[PlannedTest]:
    from pytest_meshnet.suite import collection, recording

    return (recording.planned(item) for item in items if collection.contains(item))


def _id(item: pytest.Item) -> str:
    from pytest_meshnet.suite import collection

    return collection.test_id(item)


def _check_expected(tests: Iterable[str], run: Run) -> None:
    if run.whole:
        try:
            run.expected.check(tests)
        except ExpectedFailuresError as error:
            pytest.exit(f"refused: {error}", returncode=REFUSED)


@contextmanager
def disk_errors_end_with_three(config: pytest.Config, run: Run) -> Iterator[None]:
    """End the run with one line when its evidence cannot be written: it would prove nothing."""
    try:
        yield
    except (OSError, BundleError) as error:
        note_unwritten(error, run)
        session = config.pluginmanager.get_plugin("session")
        if _is_worker(config) and isinstance(session, pytest.Session):
            # Exiting here would look like a crash to the controller, and be tried again.
            session.shouldstop = run.unsealed
        else:
            pytest.exit(f"the evidence cannot be written: {error}", returncode=INCOMPLETE)


def note_unwritten(error: Exception, run: Run) -> None:
    """Note that the evidence ends here; the journal cannot be told any more."""
    run.unsealed = run.unsealed or str(error)
    run.lost = run.lost or f"the evidence cannot be written: {error}"
    run.losses.append(run.lost)


# Workers of xdist ------------------------------------------------------------------------------


def invite(node: Worker, run: Run) -> None:
    """Give a worker what it needs to write a journal of its own."""
    if run.feed is not None and run.feed.bundle is not None:
        node.workerinput[evidence.TICKET] = run.feed.bundle.ticket()


def note_worker_collected(node: Worker, ids: Sequence[str], run: Run) -> None:
    """Take what a worker collected as the plan of the run."""
    evidence.take_plan_of(node.config, run, node.gateway.id)
    _check_expected((one.partition("@")[0] for one in ids), run)


def note_worker_down(node: Worker, error: object | None, run: Run) -> None:
    """Take over what a worker knew, or note that it crashed."""
    output: dict[str, Any] = getattr(node, "workeroutput", {}).get(_OUTPUT, {})
    for kind, known in (("planned", run.planned), ("deselected", run.deselected)):
        for test, (requirements, testee) in output.get(kind, {}).items():
            known.setdefault(test, PlannedTest(test, tuple(requirements), testee))
    for name, (value, source) in output.get("facts", {}).items():
        run.facts.setdefault(name, Fact(value, source))
    run.refusal = run.refusal or output.get("refusal")
    if output.get("lost"):
        run.lost = run.lost or output["lost"]
        run.losses.append(output["lost"])
    if error:
        _lose_worker(node.gateway.id, f"worker {node.gateway.id} crashed: {error}", run)


def _lose_worker(process: str, message: str, run: Run) -> None:
    run.losses.append(message)
    if run.feed is not None:
        run.feed.recorder.worker_lost(process, None, message)


def _told(plan: Mapping[str, PlannedTest]) -> dict[str, tuple[list[str], bool]]:
    return {test: (list(one.requirements), one.testee) for test, one in plan.items()}


def _output(run: Run) -> dict[str, Any]:
    return {
        "planned": _told(run.planned),
        "deselected": _told(run.deselected),
        "facts": {name: [fact.value, fact.source] for name, fact in run.facts.items()},
        "refusal": run.refusal,
        "lost": run.lost,
    }


# The end ---------------------------------------------------------------------------------------


def note_internal_error(text: str, run: Run) -> None:
    """Note that pytest or a plugin of it broke: no test after that is to be trusted."""
    try:
        _lose_worker("main", f"internal error: {text.strip().splitlines()[-1]}", run)
    except OSError as error:
        note_unwritten(error, run)


def finish(session: pytest.Session, exit_status: int, run: Run) -> None:
    """Stop the target, judge the run, set pytest's exit code and seal the evidence."""
    with _engine_errors_end_with_three():
        if run.reached_out:
            _keep_logs(session, run)
            _note_late_grants(session.config, run)
            if crash := targets.disconnect(session.config):
                run.lose(f"the runtime crashed after the last test: {crash}")
        if _is_worker(session.config):
            _end_worker(session, exit_status, run)
            return
        if session.config.getoption("collectonly"):
            return
        run.outcome = _outcome(run)
        session.exitstatus = _exit_code(exit_status, run, run.outcome)
        _seal(session, run)
        _write_expected(run, run.outcome)


def _write_expected(run: Run, outcome: runs.Outcome) -> None:
    """Write what failed as a list of known failures; what is known already keeps its reason."""
    path = run.settings.write_expect
    if path is None or run.refusal is not None:
        return
    kept = [one.test for one in outcome.judgements if one.status is Status.KNOWN_FAILURE]
    known = ExpectedFailures({test: run.expected.entries[test] for test in kept})
    text = known.with_failures(
        # A listed test that failed otherwise has the new message behind this word.
        (one.test, one.reason.rpartition(FOUND)[2])
        for one in outcome.judgements
        if one.status is Status.FAILED and one.reason != STALE_EXPECTATION
    )
    with path.open("x", encoding="utf-8") as stream:
        stream.write(text)


def _keep_logs(session: pytest.Session, run: Run) -> None:
    try:
        evidence.attach_logs(run, targets.logs(session.config))
    except OSError as error:
        note_unwritten(error, run)


def _note_late_grants(config: pytest.Config, run: Run) -> None:
    """Lose a run that left out the tests of grants, and saw one: a look is not the whole run."""
    seen = run.facts.get("grants")
    if seen is None or seen.value or not targets.granted(config):
        return
    planned = {name for one in run.planned.values() for name in one.requirements}
    claims = run.ledger.claims(run.claimed)
    left_out = [one.id for one in claims if "grants" in one.needs and one.id in planned]
    if left_out:
        run.lose(
            f"{', '.join(left_out)} was left out, for no grant came in the look before the first "
            "test, and one came later: no run that examines it is complete"
        )


def _end_worker(session: pytest.Session, exit_status: int, run: Run) -> None:
    try:
        evidence.close_feed(run, exit_status)
    except OSError as error:
        note_unwritten(error, run)
    output: dict[str, Any] = session.config.workeroutput  # type: ignore[attr-defined]
    output[_OUTPUT] = _output(run)


def _outcome(run: Run) -> runs.Outcome:
    try:
        return evidence.judge_journals(run) or run.conclude()
    except BundleError as error:
        run.unsealed = str(error)
        return run.conclude()


def _exit_code(exit_status: int, run: Run, outcome: runs.Outcome) -> int:
    if run.settings.certificate:
        broken = exit_status == pytest.ExitCode.INTERNAL_ERROR
        return INCOMPLETE if broken else outcome.verdict.exit_code
    if run.lost is not None:
        return INCOMPLETE
    if exit_status == pytest.ExitCode.OK and any(map(_is_bad, outcome.judgements)):
        return pytest.ExitCode.TESTS_FAILED  # somebody took the failure off the report
    if exit_status == pytest.ExitCode.OK and run.lacks_tests(outcome):
        return INCOMPLETE
    # A refusal interrupts pytest, which ends with 2 of its own accord.
    return exit_status


def _is_bad(judgement: Judgement) -> bool:
    return judgement.status in (Status.FAILED, Status.ENGINE_ERROR)


def _seal(session: pytest.Session, run: Run) -> None:
    try:
        evidence.close_feed(run, int(session.exitstatus))
    except BundleError as error:
        run.unsealed = str(error)
        session.exitstatus = INCOMPLETE


@contextmanager
def _engine_errors_end_with_three() -> Iterator[None]:
    """Keep a broken suite from ending with 1, which speaks about the runtime."""
    ended = False
    try:
        yield
        ended = True
    finally:
        if not ended:
            kind, error, _ = sys.exc_info()
            what = f"{kind.__name__}: {error}" if kind else "no reason is known"
            raise pytest.exit.Exception(
                f"the run could not be finished: {what}", returncode=INCOMPLETE
            )


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")
