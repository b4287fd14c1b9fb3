"""Sections that other rooms add to a page, made from what a run attached.

A section is data and no markup, so that one renderer escapes it for HTML and for Markdown, and no
provider can inject anything. A provider is fed with every stored attachment of its media type:

    class Parity:
        media_type = "application/vnd.pytest-meshnet.parity+json"

        def sections(self, attachments):
            yield Section("parity", "Parity", (Table(...), Bars(...)))

`pytest_meshnet.suite.sections` lists the providers of every room.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from pytest_meshnet.evidence.judged import Judged


class SectionError(ValueError):
    """An attachment is not what its media type says; the page shows the message instead."""


@dataclass(frozen=True, slots=True)
class Attached:
    """An attachment with its bytes; `test` is None for one of the whole run."""

    test: str | None
    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A few sentences."""

    text: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table. Every row has as many cells as there are columns."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: its label, its length in the unit of the chart, and how to write that."""

    label: str
    value: float
    shown: str


@dataclass(frozen=True, slots=True)
class Bars:
    """A chart of non-negative numbers that share a unit; the longest bar fills the width."""

    caption: str
    bars: tuple[Bar, ...]

    def share(self, bar: Bar) -> float:
        """Return the length of a bar in percent of the longest."""
        longest = max((one.value for one in self.bars), default=0.0)
        return round(100 * bar.value / longest, 2) if longest > 0 else 0.0


Block = Paragraph | Table | Bars


@dataclass(frozen=True, slots=True)
class Section:
    """A titled part of the page. `name` is its place in links: letters, digits and dashes."""

    name: str
    title: str
    blocks: tuple[Block, ...]


class Provider(Protocol):
    """Makes sections from the attachments of one media type."""

    @property
    def media_type(self) -> str:
        """The media type of the attachments that it reads."""
        ...

    def sections(self, attachments: Sequence[Attached]) -> Iterable[Section]:
        """Return the sections for a run's attachments, of which there is at least one.

        Raises SectionError for an attachment that is not what its media type says.
        """
        ...


def collect(run: Judged, providers: Iterable[Provider]) -> Iterator[Section]:
    """Yield what each provider makes of the attachments of a run."""
    for number, provider in enumerate(providers):
        found = [
            Attached(one["test"], one["name"], data)
            for one in run.recorded.attachments
            if one["media_type"] == provider.media_type and (data := run.read(one)) is not None
        ]
        if not found:
            continue
        try:
            yield from tuple(provider.sections(found))
        except SectionError as error:
            text = f"The attachments of type {provider.media_type} cannot be shown: {error}"
            yield Section(f"unreadable-{number}", "Not shown", (Paragraph(text),))
