"""The release question's part of a run's report, judged anew from the record that is attached."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_meshnet.alpha.judge import Line, Verdict, judge
from pytest_meshnet.alpha.record import RecordRefused, check
from pytest_meshnet.alpha.text import amount, value
from pytest_meshnet.evidence.report.sections import (
    Attached,
    Block,
    Paragraph,
    Section,
    SectionError,
    Table,
)
from pytest_meshnet.identity.canonical import DocumentRefused, load_strict
from pytest_meshnet.target.documents import LockedTarget

MEDIA_TYPE = "application/vnd.pytest-meshnet.alpha+json"
"""What an acceptance record is attached as."""
_REASONS = 3
"""Reasons told of one criterion; `alpha judge` tells all of them."""


class Alpha:
    """Shows verdict, bottleneck and matrix. What a record says of its own verdict is not read."""

    media_type = MEDIA_TYPE

    def sections(self, attachments: Sequence[Attached]) -> Iterator[Section]:
        """Yield one section for each record of the run. Raises SectionError."""
        locked = LockedTarget.load()
        for number, attached in enumerate(attachments):
            try:
                record = load_strict(attached.data, attached.name)
                check(record)
            except (DocumentRefused, RecordRefused) as error:
                raise SectionError(f"{attached.name}: {error.message}") from error
            blocks = tuple(_blocks(judge(locked, record)))
            yield Section(f"alpha-{number}", "Release question of the locked target", blocks)


def _blocks(verdict: Verdict) -> Iterator[Block]:
    hardware = value(verdict.labels.get("hardware") or "unknown hardware")
    text = f"{verdict.word}: {verdict.met} of {len(verdict.lines)} criteria are met"
    if verdict.bottleneck:
        text += f"; first bottleneck {verdict.bottleneck}; next action: {verdict.action}"
    yield Paragraph(f"{text}. Measured on {hardware}, and on nothing else.")
    yield Paragraph(
        "Judged from the record alone; `pytest-meshnet alpha judge` holds the files beside it to "
        "their digests as well."
    )
    for name in dict.fromkeys(line.id.partition(".")[0] for line in verdict.lines):
        lines = [line for line in verdict.lines if line.id.partition(".")[0] == name]
        rows = tuple(_row(line) for line in lines)
        yield Table(name.replace("_", " "), ("Criterion", "Found and asked", "Status", "Why"), rows)


def _row(line: Line) -> tuple[str, str, str, str]:
    told = [text for _, text in line.reasons]
    more = [f"and {len(told) - _REASONS} more"] if len(told) > _REASONS else []
    key = line.id.partition(".")[2].replace("_", " ")
    return key, amount(line), line.status, "; ".join(told[:_REASONS] + more)
