"""What became of a mutant or a variant, judged from how the tests ended on it.

A mutant is killed by a finding: a test of its requirement that fails by an assertion. One that only
makes a test break is flagged, because a crash proves little about what the test looks at; and one
that only tests of other requirements notice is not killed, because its own tests say nothing. A
variant is an honest worker: every test of a runtime must pass it, and a MUST that could not be
examined on it would stand against its certificate.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pytest_meshnet.ledger.requirements import Ledger
    from pytest_meshnet.ledger.status import PlannedTest
    from pytest_meshnet.reference.catalogue import Entry

Fate = Literal[
    "killed",
    "only crashed",
    "only by others",
    "SURVIVED",
    "no test",
    "passed",
    "VARIANT FAILED",
    "NOT EXAMINED",
]

GOOD: frozenset[Fate] = frozenset({"killed", "passed"})
"""What must become of every mutant and of every variant."""

VARIANTS = ("variant", "testee-variant")
_ON_TESTEE = ("testee-mutant", "testee-variant")

_NOT_EXAMINED = ("not-claimed", "not-applicable", "not-run")


@dataclass(frozen=True, slots=True)
class Ending:
    """How one test ended on a mutant: `kind` as in the phase records, "passed" when it passed."""

    test: str
    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class Bite:
    """What became of one mutant or variant, and which tests did it.

    `killers` are the tests of its requirement that a mutant fails, or any that a variant fails;
    `others` the tests of other requirements that fail too; `ran` counts all tests that examined it.
    """

    mutant: str
    requirement: str
    fate: Fate
    killers: tuple[str, ...]
    others: tuple[str, ...]
    ran: int
    message: str
    seconds: float


def judged(
    mutant: Entry, endings: Sequence[Ending], designated: Collection[str], seconds: float
) -> Bite:
    """Say what became of a mutant, or of a variant, from how its tests ended.

    `designated` are the tests of its requirement; of a variant all that must pass it, and those
    among them that examine no MUST are not asked to have run.
    """
    ran = [one for one in endings if one.kind not in _NOT_EXAMINED]
    failing = [one for one in ran if one.kind != "passed"]
    own = [one for one in failing if one.test in designated]
    found = [one for one in own if one.kind == "nonconformance"]
    if mutant.kind in VARIANTS:
        return _variant(mutant, endings, ran, designated, seconds)
    fate: Fate = "SURVIVED" if ran else "no test"
    if failing:
        fate = "killed" if found else "only crashed" if own else "only by others"
    decisive = found or own
    return Bite(
        mutant.name,
        mutant.requirement,
        fate,
        tuple(one.test for one in decisive),
        tuple(one.test for one in failing if one.test not in designated),
        len(ran),
        (decisive or failing)[0].message if failing else "",
        seconds,
    )


def _variant(
    variant: Entry,
    endings: Sequence[Ending],
    ran: Sequence[Ending],
    must: Collection[str],
    seconds: float,
) -> Bite:
    failing = [one for one in ran if one.kind != "passed"]
    missing = [one for one in endings if one.kind == "not-run" and one.test in must]
    fate: Fate = "VARIANT FAILED" if failing else "NOT EXAMINED" if missing else "passed"
    decisive = failing or missing
    return Bite(
        variant.name,
        "",
        fate if ran else "no test",
        tuple(one.test for one in decisive),
        (),
        len(ran),
        decisive[0].message if decisive else "",
        seconds,
    )


def designated(mutant: Entry, tests: Iterable[PlannedTest], ledger: Ledger) -> list[str]:
    """The tests that must kill a mutant, one of a testee on the testee and any other elsewhere.

    Of a variant: those of every MUST of a runtime, or of a codec testee.
    """
    if mutant.kind == "testee-variant":
        return [one.test for one in tests if one.testee]
    if mutant.kind == "variant":
        return [one.test for one in tests if _of_runtimes(one, ledger) and _of_a_must(one, ledger)]
    return [
        one.test
        for one in tests
        if mutant.requirement in one.requirements and one.testee == (mutant.kind in _ON_TESTEE)
    ]


def bystanders(mutant: Entry, tests: Iterable[PlannedTest], ledger: Ledger) -> list[str]:
    """The other tests of a mutant's profile that look at what it breaks, runtime or suite.

    Long ones are left out: they do at length what the others do, and took half of the time.
    Of a variant: the tests of a runtime that speak for no MUST.
    """
    if mutant.kind == "testee-variant":
        return []
    if mutant.kind == "variant":
        return [
            one.test for one in tests if _of_runtimes(one, ledger) and not _of_a_must(one, ledger)
        ]
    broken = ledger.get(mutant.requirement)
    return [
        one.test
        for one in tests
        if mutant.requirement not in one.requirements
        and not is_long(one, ledger)
        and one.testee == (mutant.kind in _ON_TESTEE)
        and any(
            (other.profile, other.subject) == (broken.profile, broken.subject)
            for other in map(ledger.get, one.requirements)
        )
    ]


def is_long(test: PlannedTest, ledger: Ledger) -> bool:
    """Whether a test goes through thousands of messages, or through whole routes."""
    examined = [ledger.get(one) for one in test.requirements]
    return any(one.group == "ROBUST" or one.subject == "route" for one in examined)


def _of_runtimes(test: PlannedTest, ledger: Ledger) -> bool:
    """Whether a test looks at a Shard or a route, and not at a codec or the suite itself."""
    own = not test.testee
    return own and any(ledger.get(one).subject != "suite" for one in test.requirements)


def _of_a_must(test: PlannedTest, ledger: Ledger) -> bool:
    return any(ledger.get(one).level == "MUST" for one in test.requirements)
