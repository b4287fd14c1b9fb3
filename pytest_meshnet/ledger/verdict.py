"""The verdict of a run: one word and one exit code from the judgements of its tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from pytest_meshnet.ledger.requirements import Ledger, Requirement
from pytest_meshnet.ledger.status import STALE_EXPECTATION, Judgement, Status

Word = Literal["CERTIFIED", "NOT CERTIFIED", "NOT CONFORMANT", "INCOMPLETE", "REFUSED"]

CERTIFIED, NOT_CONFORMANT, REFUSED, INCOMPLETE = 0, 1, 2, 3
"""Exit codes of a certificate run."""

NO_TEST_YET = "no test yet"

_EXECUTED = (Status.PASSED, Status.FAILED, Status.KNOWN_FAILURE)
_SEVEREST_FIRST = (
    Status.ENGINE_ERROR,
    Status.FAILED,
    Status.NOT_RUN,
    Status.KNOWN_FAILURE,
    Status.PASSED,
    Status.NOT_APPLICABLE,
    Status.NOT_CLAIMED,
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a run says about its target.

    `counts` holds all seven statuses; `by_requirement` the severest status among the tests of
    each claimed requirement; `missing` the claimed MUST ids that no test can speak for;
    `blocking` one line for everything that stands against a certificate.
    """

    word: Word
    exit_code: int
    counts: Mapping[Status, int]
    by_requirement: Mapping[str, Status]
    missing: tuple[str, ...]
    blocking: tuple[str, ...]


def judge_run(
    judgements: Iterable[Judgement],
    ledger: Ledger,
    claimed: frozenset[str],
    *,
    refusal: str | None = None,
    lost: str | None = None,
) -> Verdict:
    """Judge a run from its tests. `claimed` holds profile names.

    `refusal` says why the run could not start, `lost` which target or worker was lost during it.
    Raises UnknownProfile for a name that the ledger does not know.
    """
    judged = list(judgements)
    claims = ledger.claims(claimed)
    severest = by_requirement(judged, claims)
    missing = _missing(judged, claims)
    gaps = [f"{Status.NOT_RUN} {name}: {NO_TEST_YET}" for name in missing]
    gaps += [f"{name}: no applicable test" for name in _never_applied(severest, claims)]
    if lost is not None:
        gaps.append(f"lost: {lost}")
    if not any(one.status in _EXECUTED for one in judged):
        gaps.append("no test was executed")
    must = frozenset(one.id for one in claims if one.level == "MUST")
    word, exit_code, blocking = _decide(judged, must, gaps, refusal)
    counts = Counter(one.status for one in judged)
    every_count = {status: counts[status] for status in Status}
    return Verdict(word, exit_code, every_count, severest, missing, tuple(blocking))


class Speaking(Protocol):
    """What speaks for requirements: a judgement, or a test as a report shows it."""

    @property
    def requirements(self) -> tuple[str, ...]:
        """The ids of the requirements."""

    @property
    def status(self) -> Status:
        """What it came to."""


def by_requirement(judged: Iterable[Speaking], claims: Iterable[Requirement]) -> dict[str, Status]:
    """Return the severest status among the tests of each requirement, not-run where none is."""
    found: dict[str, list[Status]] = {}
    for one in judged:
        for name in one.requirements:
            found.setdefault(name, []).append(one.status)
    return {
        one.id: min(found.get(one.id, [Status.NOT_RUN]), key=_SEVEREST_FIRST.index)
        for one in claims
    }


def _missing(judged: Iterable[Speaking], claims: Sequence[Requirement]) -> tuple[str, ...]:
    tested = {name for one in judged for name in one.requirements}
    return tuple(one.id for one in claims if one.level == "MUST" and one.id not in tested)


def _never_applied(severest: Mapping[str, Status], claims: Sequence[Requirement]) -> list[str]:
    """MUSTs without needs whose every test needs a fact for another of its requirements."""
    return [
        one.id
        for one in claims
        if one.level == "MUST"
        and not one.needs
        and severest[one.id] in (Status.NOT_APPLICABLE, Status.NOT_CLAIMED)
    ]


def _decide(
    judged: Sequence[Judgement],
    must: frozenset[str],
    gaps: Sequence[str],
    refusal: str | None,
) -> tuple[Word, int, list[str]]:
    if refusal is not None:
        return "REFUSED", REFUSED, [f"refused: {refusal}"]
    binding = [one for one in judged if must.intersection(one.requirements)]
    broken = _lines(judged, Status.ENGINE_ERROR)
    failed = _lines(binding, Status.FAILED) + [
        _line(one) for one in judged if one.reason == STALE_EXPECTATION and one not in binding
    ]
    unfinished = _lines(binding, Status.NOT_RUN) + list(gaps)
    known = _lines(binding, Status.KNOWN_FAILURE)
    blocking = broken + failed + unfinished + known
    if broken:
        return "INCOMPLETE", INCOMPLETE, blocking
    if failed:
        return "NOT CONFORMANT", NOT_CONFORMANT, blocking
    if unfinished:
        return "INCOMPLETE", INCOMPLETE, blocking
    return ("NOT CERTIFIED" if known else "CERTIFIED"), CERTIFIED, blocking


def _lines(judged: Iterable[Judgement], status: Status) -> list[str]:
    return [_line(one) for one in judged if one.status is status]


def _line(one: Judgement) -> str:
    return f"{one.status} {one.test}: {one.reason}"
