"""Several runs side by side: runtimes by requirement groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pytest_meshnet.evidence.report.page import Page
from pytest_meshnet.evidence.report.results import Entry
from pytest_meshnet.ledger.status import WORST_FIRST, Status


@dataclass(frozen=True, slots=True)
class Cell:
    """What one run came to in one group; without a claim there is nothing to show."""

    status: Status
    passed: int
    claimed: int


@dataclass(frozen=True, slots=True)
class Row:
    """One group of requirements over all runs; None where a run could not be judged."""

    group: str
    cells: tuple[Cell | None, ...]


@dataclass(frozen=True, slots=True)
class Fallen:
    """A requirement that a run did not pass: its status in each, None where not judged."""

    id: str
    title: str
    statuses: tuple[Status | None, ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    """The runs, one a column, and what they claimed, one group a row.

    Self-checks of the suite are no runtime's merit and are left out.
    """

    pages: tuple[Page, ...]
    rows: tuple[Row, ...]
    fallen: tuple[Fallen, ...]


_SILENT = {Status.PASSED, Status.NOT_APPLICABLE, Status.NOT_CLAIMED, None}


def matrix(pages: Sequence[Page]) -> Matrix:
    """Lay the pages of several runs side by side, in the order in which they are given."""
    entries = [_entries(page) for page in pages]
    titles = {name: one.title for found in entries if found for name, one in found.items()}
    groups = dict.fromkeys(name.partition("-")[0] for name in titles)
    statuses = [None if one is None else _statuses(one, titles) for one in entries]
    rows = [
        Row(group, tuple(None if one is None else _cell(group, one) for one in statuses))
        for group in groups
    ]
    lines = [
        Fallen(name, title, tuple(None if one is None else one[name] for one in statuses))
        for name, title in titles.items()
    ]
    fallen = tuple(one for one in lines if not _SILENT.issuperset(one.statuses))
    return Matrix(tuple(pages), tuple(rows), fallen)


def _entries(page: Page) -> dict[str, Entry] | None:
    if page.results is None:
        return None
    return {one.id: one for group in page.results.runtime for one in group.entries}


def _statuses(entries: Mapping[str, Entry], names: Iterable[str]) -> dict[str, Status]:
    return {name: entries[name].status if name in entries else Status.NOT_CLAIMED for name in names}


def _cell(group: str, statuses: Mapping[str, Status]) -> Cell:
    own = [one for name, one in statuses.items() if name.partition("-")[0] == group]
    claimed = [one for one in own if one is not Status.NOT_CLAIMED]
    worst = min(claimed, key=WORST_FIRST.index, default=Status.NOT_CLAIMED)
    return Cell(worst, claimed.count(Status.PASSED), len(claimed))
