"""What stands against a run, told briefly: one line for the many tests of one requirement."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from pytest_meshnet.evidence.judged import Judged
from pytest_meshnet.evidence.report.results import Case, Results, count
from pytest_meshnet.ledger.status import Status
from pytest_meshnet.ledger.verdict import NO_TEST_YET


@dataclass(frozen=True, slots=True)
class Against:
    """One thing that stands against a certificate; `anchor` is where the page tells more."""

    status: Status | None
    label: str
    detail: str
    anchor: str


def against(run: Judged, found: Results) -> Iterator[Against]:
    """Yield everything that blocks the verdict, what is worst first."""
    verdict = run.summary.verdict
    if run.recorded.refusals:
        yield Against(None, verdict.blocking[0], "", "")
        return
    cases = {f"{one.status} {one.test}: {one.reason}": one for one in found.cases}
    missing = {f"{Status.NOT_RUN} {name}: {NO_TEST_YET}" for name in verdict.missing}
    yield from _tests([cases[line] for line in verdict.blocking if line in cases], found)
    for line in dict.fromkeys(verdict.blocking):
        if line not in cases and line not in missing:
            yield Against(None, line, "", "")
    if missing:
        names = ", ".join(verdict.missing)
        yield Against(Status.NOT_RUN, f"{NO_TEST_YET}: {names}", f"{len(missing)} MUST", "")


def _tests(blocking: Collection[Case], found: Results) -> Iterator[Against]:
    entries = [entry for group in (*found.runtime, *found.suite) for entry in group.entries]
    for status in count(one.status for one in blocking):
        waiting = {one.test: one for one in blocking if one.status is status}
        told: set[str] = set()
        for entry in entries:
            own = waiting.keys() & {one.test for one in entry.cases}
            if own and (entry.level == "MUST" or status is Status.ENGINE_ERROR):
                told |= own
                number = "1 test" if len(own) == 1 else f"{len(own)} tests"
                yield Against(status, f"{entry.id}: {entry.title}", number, entry.anchor)
        for test, case in waiting.items():
            if test not in told:
                yield Against(status, test, case.reason, "")
