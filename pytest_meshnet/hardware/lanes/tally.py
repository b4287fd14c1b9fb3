"""A run that asked for hardware by name is green only when its tests ran on that hardware."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from pytest_meshnet.hardware import lanes


class Tally:
    """A plugin of the process that decides on the exit code; it hears of every test there."""

    def __init__(self, asked: frozenset[str], every_lane: Iterable[str]) -> None:
        """`asked` are the names of `-m`; `hardware` among them means any lane."""
        self._asked = asked
        self._every_lane = frozenset(every_lane)
        self._executed: set[str] = set()
        self._left: dict[str, frozenset[str]] = {}
        self._message = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note which lanes a test is in, and whether it ran."""
        of_test = (self._every_lane | {lanes.UMBRELLA}) & report.keywords.keys()
        if report.outcome == "skipped":
            self._left[report.nodeid] = frozenset(of_test)
        elif report.when == "call":
            self._executed |= of_test

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Turn a green run into a failed one when what was asked for did not run, or not all."""
        left = [test for test, of_test in self._left.items() if of_test & self._asked]
        idle = sorted(self._asked - self._executed)
        if exitstatus != pytest.ExitCode.OK or not (left or idle):
            return
        if idle:
            self._message = f"no test of {', '.join(idle)} was executed, and -m asks for them"
        else:
            self._message = f"{len(left)} tests that -m asks for did not run, {left[0]} first"
        session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say why the run failed."""
        if self._message:
            terminalreporter.write_line(f"FAILED hardware lanes: {self._message}", red=True)
