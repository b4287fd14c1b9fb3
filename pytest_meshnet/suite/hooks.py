"""The hooks of a run in which a suite takes part; registered only for such a run."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING

import pytest

from pytest_meshnet.suite import collection, hardware, limits, recording, summary
from pytest_meshnet.suite import session as sessions

if TYPE_CHECKING:
    from pytest_meshnet.hardware.placement.gpu import Placement
    from pytest_meshnet.suite.run import Run
    from pytest_meshnet.suite.session import Worker

Words = tuple[str, str, str | tuple[str, Mapping[str, bool]]]


class RunHooks:
    """One instance a process, bound to its run."""

    def __init__(self, config: pytest.Config, run: Run) -> None:
        self._config = config
        self._run = run

    def pytest_report_header(self) -> str:
        return summary.header(self._run)

    # Collection

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            sessions.note_collection_error(report, self._run)

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        if collection.contains(item):
            self._run.seen.add(collection.test_id(item))

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        collection.drop_doubles(items)

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        sessions.note_deselected(items, self._run)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        with sessions.disk_errors_end_with_three(self._config, self._run):
            sessions.note_collected(session, self._run)

    # Tests

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if collection.contains(item):
            recording.begin_attempt(item, self._run)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if collection.contains(item):
            with sessions.disk_errors_end_with_three(self._config, self._run):
                recording.annotate(item, call, report, self._run)
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(
        self, report: pytest.TestReport | pytest.CollectReport
    ) -> Words | None:
        return recording.status_words(report) if recording.is_told(report) else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        with sessions.disk_errors_end_with_three(self._config, self._run):
            recording.take(report, self._run)

    @pytest.hookimpl(optionalhook=True)
    def pytest_meshnet_placement(self, item: pytest.Item, placement: Placement) -> None:
        hardware.note_placement(item, placement, self._run)

    # Their limits

    @pytest.hookimpl(optionalhook=True)
    def pytest_timeout_set_timer(self, item: pytest.Item, settings: object) -> None:
        limits.note_set(item, settings)

    @pytest.hookimpl(optionalhook=True)
    def pytest_timeout_cancel_timer(self, item: pytest.Item) -> None:
        limits.note_cancelled(item)

    # Workers of xdist

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Worker) -> None:
        sessions.invite(node, self._run)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Worker, ids: Sequence[str]) -> None:
        sessions.note_worker_collected(node, ids, self._run)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Worker, error: object | None) -> None:
        sessions.note_worker_down(node, error, self._run)

    # The end

    def pytest_internalerror(self, excrepr: object) -> None:
        sessions.note_internal_error(str(excrepr), self._run)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        sessions.finish(session, int(exitstatus), self._run)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._run.outcome is not None:
            summary.write(terminalreporter, self._run, self._run.outcome)
