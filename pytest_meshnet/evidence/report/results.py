"""The results of a run by group, requirement and test, as a page shows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pytest_meshnet.evidence.judged import Judged
from pytest_meshnet.evidence.report.findings import FRAMES, Frame, Told, frames, told
from pytest_meshnet.ledger.requirements import Requirement
from pytest_meshnet.ledger.status import WORST_FIRST, Judgement, Status
from pytest_meshnet.ledger.verdict import by_requirement

EXPLAINED = (Status.FAILED, Status.ENGINE_ERROR, Status.KNOWN_FAILURE)
SHOWN_TRACES = 100
"""Most tests whose frames are shown; the bundle holds those of all."""


@dataclass(frozen=True, slots=True)
class Case:
    """One test with its result. `anchor` is its place in links within the page.

    `testee` says that it examined the runtime's own codec.

    `traces` holds the frames of each failed attempt that attached some; `held_back` says that
    there are frames that only the bundle holds.
    """

    anchor: str
    test: str
    status: Status
    reason: str
    requirements: tuple[str, ...]
    testee: bool
    attempts: int
    seconds: float
    failures: tuple[Told, ...]
    traces: tuple[tuple[Frame, ...], ...]
    held_back: bool

    @property
    def function(self) -> str:
        """The name of the test function, without its module and its parameters."""
        return self.test.rpartition("::")[2].partition("[")[0] if "::" in self.test else self.test

    @property
    def parameters(self) -> str:
        """What stands in brackets behind the function's name; empty for most tests."""
        return self.test.rpartition("::")[2].partition("[")[2].removesuffix("]")


@dataclass(frozen=True, slots=True)
class Entry:
    """One requirement with its tests. `own` are those explained here, once in the whole page.

    `anchor` is its place in links: the id, or another where it stands for the runtime's codec.
    """

    id: str
    anchor: str
    level: str
    title: str
    statement: str
    status: Status
    cases: tuple[Case, ...]
    own: tuple[Case, ...]

    @property
    def seconds(self) -> float:
        """The duration of all its tests."""
        return sum(one.seconds for one in self.cases)

    @property
    def functions(self) -> Mapping[str, tuple[Case, ...]]:
        """Its tests by function, in the order in which they were planned."""
        found: dict[str, list[Case]] = {}
        for one in self.cases:
            found.setdefault(one.function, []).append(one)
        return {name: tuple(cases) for name, cases in found.items()}

    @property
    def counts(self) -> Mapping[Status, int]:
        """How many of its tests have each status, worst first."""
        return count(one.status for one in self.cases)


@dataclass(frozen=True, slots=True)
class Group:
    """The claimed requirements of one group such as DECODE that speak about one subject.

    A group of the suite's stands once more where they were examined on the runtime's own codec.
    """

    name: str
    entries: tuple[Entry, ...]
    seconds: float

    @property
    def status(self) -> Status:
        """The severest status of its requirements."""
        return min((one.status for one in self.entries), key=WORST_FIRST.index)

    @property
    def counts(self) -> Mapping[Status, int]:
        """How many of its requirements have each status, worst first."""
        return count(one.status for one in self.entries)


@dataclass(frozen=True, slots=True)
class Results:
    """Everything a run came to: about the runtime, about the suite, and about neither.

    `loose` are tests that speak for no claimed requirement and did not simply go unclaimed.
    """

    runtime: tuple[Group, ...]
    suite: tuple[Group, ...]
    loose: tuple[Case, ...]
    cases: tuple[Case, ...]
    unclaimed: tuple[str, ...]

    @property
    def counts(self) -> Mapping[Status, int]:
        """How many requirements about the runtime have each status, worst first."""
        return count(one.status for group in self.runtime for one in group.entries)


def count(statuses: Iterable[Status]) -> dict[Status, int]:
    """Return how many there are of each status that occurs, worst first."""
    found = Counter(statuses)
    return {status: found[status] for status in WORST_FIRST if found[status]}


def results(run: Judged) -> Results:
    """Sort the judgements of a run by what they speak about."""
    claims = run.ledger.claims(run.start.profiles)
    cases = tuple(_cases(run))
    on_codec = [one for one in cases if one.testee and one.status is not Status.NOT_APPLICABLE]
    others = [one for one in cases if not one.testee]
    examined = {name for one in on_codec for name in one.requirements}
    codec = [one for one in claims if one.id in examined]
    explained: set[str] = set()
    theirs = [one for one in claims if one.subject != "suite"]
    own = [one for one in claims if one.subject == "suite"]
    known = {one.id for one in claims}
    groups = {one.group: one for one in run.ledger.requirements}
    return Results(
        runtime=(
            *_groups(theirs, others, explained),
            *_groups(codec, on_codec, explained, ON_CODEC),
        ),
        suite=_groups(own, others, explained),
        loose=tuple(
            one
            for one in cases
            if known.isdisjoint(one.requirements) and one.status is not Status.NOT_CLAIMED
        ),
        cases=cases,
        unclaimed=tuple(name for name in groups if name not in {one.group for one in claims}),
    )


ON_CODEC = ", on the runtime's own codec"


def _groups(
    requirements: Sequence[Requirement],
    judged: Sequence[Case],
    explained: set[str],
    where: str = "",
) -> tuple[Group, ...]:
    entries: dict[str, list[Entry]] = {}
    statuses = by_requirement(judged, requirements)
    for one in requirements:
        cases = tuple(case for case in judged if one.id in case.requirements)
        own = tuple(c for c in cases if c.status in EXPLAINED and c.test not in explained)
        explained.update(case.test for case in own)
        anchor = f"{one.id}-codec" if where else one.id
        entries.setdefault(one.group, []).append(
            Entry(one.id, anchor, one.level, one.title, one.statement, statuses[one.id], cases, own)
        )
    return tuple(
        Group(name + where, tuple(members), _seconds(members)) for name, members in entries.items()
    )


def _seconds(entries: Iterable[Entry]) -> float:
    """The duration of the tests of some requirements; one that speaks for several counts once."""
    return sum({one.test: one.seconds for e in entries for one in e.cases}.values())


def _cases(run: Judged) -> Iterator[Case]:
    attached: dict[str, list[Mapping[str, object]]] = {}
    for one in run.recorded.attachments:
        if one["name"] == FRAMES and one["test"] is not None:
            attached.setdefault(one["test"], []).append(one)
    shown = 0
    for number, judgement in enumerate(run.summary.judgements):
        explain = judgement.status in EXPLAINED
        wanted = attached.get(judgement.test, []) if explain else []
        held_back = bool(wanted) and shown >= SHOWN_TRACES
        shown += bool(wanted)
        data = [] if held_back else [run.read(one) for one in wanted]
        yield _case(run, judgement, f"test-{number}", [one for one in data if one], held_back)


def _case(
    run: Judged, judgement: Judgement, anchor: str, traces: Sequence[bytes], held_back: bool
) -> Case:
    phases = run.recorded.phases.get(judgement.test, ())
    failed = (one for one in phases if one.outcome == "failed" or one.wasxfail is not None)
    return Case(
        anchor=anchor,
        test=judgement.test,
        status=judgement.status,
        reason=judgement.reason,
        requirements=judgement.requirements,
        testee=judgement.testee,
        attempts=run.recorded.attempts(judgement.test),
        seconds=sum(one.duration_ns for one in phases) / 1e9,
        failures=tuple(map(told, failed)) if judgement.status in EXPLAINED else (),
        traces=tuple(frames(one.decode("utf-8", "replace")) for one in traces),
        held_back=held_back,
    )
