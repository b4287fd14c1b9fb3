"""The state of one run of a suite in one process, and what it comes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from pytest_meshnet import options
from pytest_meshnet.ledger.applicability import Fact, FactError, check_facts
from pytest_meshnet.ledger.expected import ExpectedFailures, ExpectedFailuresError
from pytest_meshnet.ledger.requirements import Ledger
from pytest_meshnet.ledger.status import Judgement, PhaseRecord, PlannedTest, Status, judge
from pytest_meshnet.ledger.verdict import Verdict, judge_run
from pytest_meshnet.suite import target as targets

if TYPE_CHECKING:
    from pytest_meshnet.options import Settings
    from pytest_meshnet.runtime.descriptor import Descriptor
    from pytest_meshnet.suite.evidence import Feed

DESELECTED = "deselected"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a person needs to know about a test that did not pass; every text may be empty.

    `inputs` are those that a generator of inputs had found, `details` is pytest's own account of
    the failure, `frames` are the last frames on the wire.
    """

    expected: str
    actual: str
    hint: str
    inputs: str
    details: str
    frames: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The judgement of every planned test, and of the run."""

    judgements: tuple[Judgement, ...]
    verdict: Verdict


@dataclass(slots=True)
class Run:
    """One run of a suite as this process knows it; an xdist controller hears from its workers.

    `whole` says that every test of each suite was asked for, `reached_out` that the target was
    tried, `connected` that its facts are known. `losses` are targets and workers that went away,
    `lost` is the target of this very process. `seen` are all tests that were collected, before
    any was taken away; `unsealed` says why the evidence could not be finished, `unreported` why
    there is no report in it.
    """

    settings: Settings
    target: Descriptor
    ledger: Ledger
    claimed: frozenset[str]
    expected: ExpectedFailures
    whole: bool = False
    reached_out: bool = False
    connected: bool = False
    refusal: str | None = None
    lost: str | None = None
    losses: list[str] = field(default_factory=list)
    facts: dict[str, Fact] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    planned: dict[str, PlannedTest] = field(default_factory=dict)
    deselected: dict[str, PlannedTest] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    phases: dict[str, list[PhaseRecord]] = field(default_factory=dict)
    findings: dict[str, list[Finding]] = field(default_factory=dict)
    crashes: dict[str, str] = field(default_factory=dict)
    feed: Feed | None = None
    outcome: Outcome | None = None
    unsealed: str = ""
    unreported: str = ""

    def tell(self, facts: Mapping[str, Fact]) -> None:
        """Take facts about the target; the first to tell one wins.

        Raises FactError for an unknown fact, and for one that comes after tests were judged
        without it: the same test would then be judged in two ways.
        """
        check_facts(facts)
        late = sorted(facts.keys() - self.facts.keys()) if self.connected else []
        if late:
            raise FactError(f"the fact {late[0]} came after the first test: tell it in connect()")
        for name, fact in facts.items():
            self.facts.setdefault(name, fact)
        if self.feed is not None:
            self.feed.recorder.facts(facts)

    def lose(self, reason: str) -> None:
        """Note that the target of this process is gone: nothing more can be tested in it."""
        if self.lost is None:
            self.lost = reason
            self.losses.append(reason)
            if self.feed is not None:
                self.feed.recorder.target_lost(reason)

    def refuse(self, message: str) -> None:
        """Note that the run cannot go on, and why."""
        if self.refusal is None:
            self.refusal = message
            if self.feed is not None:
                self.feed.recorder.refusal(message)

    def judge(self, planned: PlannedTest, phases: list[PhaseRecord]) -> Judgement:
        """Judge one test from phases that need not be all of it."""
        return judge(
            planned,
            phases,
            ledger=self.ledger,
            claimed=self.claimed,
            facts=self.facts,
            expected=self.expected,
            lost=self._loss_of(planned.test),
        )

    def conclude(self) -> Outcome:
        """Judge the run from what this process saw or was told."""
        judged = [self.judge(one, self.phases.get(test, [])) for test, one in self.planned.items()]
        judged += [
            Judgement(test, Status.NOT_RUN, DESELECTED, one.requirements, one.testee)
            for test, one in self.deselected.items()
        ]
        judged += [
            Judgement(name, Status.ENGINE_ERROR, f"collection: {message}")
            for name, message in self.errors.items()
        ]
        lost = self.losses[0] if self.losses else None
        verdict = judge_run(judged, self.ledger, self.claimed, refusal=self.refusal, lost=lost)
        return Outcome(tuple(judged), verdict)

    def lacks_tests(self, outcome: Outcome) -> bool:
        """Whether tests are not-run in a run that was asked to be complete."""
        return self.settings.complete and outcome.verdict.counts[Status.NOT_RUN] > 0

    def _loss_of(self, test: str) -> str | None:
        if test in self.crashes:
            return self.crashes[test]
        if self.refusal is not None:
            return f"refused: {self.refusal.partition(chr(10))[0]}"
        return self.losses[0] if self.losses else None


_RUN = pytest.StashKey[Run]()


def active(config: pytest.Config) -> Run | None:
    """Return the run of a suite, or None while no suite takes part."""
    return config.stash.get(_RUN, None)


def start(config: pytest.Config) -> Run:
    """Return the run, begun on the first call. Raises pytest.UsageError for unusable settings."""
    if _RUN not in config.stash:
        config.stash[_RUN] = _begin(options.settings(config), targets.descriptor(config))
    return config.stash[_RUN]


def _begin(settings: Settings, target: Descriptor) -> Run:
    ledger = Ledger.load()
    claimed = settings.profiles or target.profiles
    try:
        ledger.check_profiles(claimed)
        expected = ExpectedFailures.load(settings.expect) if settings.expect else None
    except KeyError as error:
        raise pytest.UsageError(f"claimed profiles: {error}") from error
    except ExpectedFailuresError as error:
        raise pytest.UsageError(f"--meshnet-expect: {error}") from error
    return Run(settings, target, ledger, frozenset(claimed), expected or ExpectedFailures())
