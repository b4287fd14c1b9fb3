"""A campaign's part of a bundle's report, made from the run.json that the bundle holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytest_meshnet.campaign.documents import loads
from pytest_meshnet.evidence.report.sections import (
    Attached,
    Bar,
    Bars,
    Block,
    Paragraph,
    Section,
    SectionError,
    Table,
)

MEDIA_TYPE = "application/vnd.pytest-meshnet.campaign+json"
"""What the run.json of a campaign is attached as."""


class Campaign:
    """Shows headline, reasons and the decode rates of each arm by itself."""

    media_type = MEDIA_TYPE

    def sections(self, attachments: Sequence[Attached]) -> Iterator[Section]:
        """Yield one section for each campaign of the run. Raises SectionError."""
        for number, attached in enumerate(attachments):
            try:
                told = loads(attached.data)
                blocks = tuple(_blocks(told))
                title = f"Campaign {told['intent']['session_id']}"
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise SectionError(f"{attached.name}: {type(error).__name__} {error}") from error
            yield Section(f"campaign-{number}", title, blocks)


def _blocks(told: Mapping[str, Any]) -> Iterator[Block]:
    observed, expected = told["protocol"]["observed"], told["protocol"]["expected"]
    yield Paragraph(
        f"{told['headline']}: execution {told['execution_status']}, {observed} of {expected} "
        f"requests; validity {told['validity']}."
    )
    if told["blockers"]:
        rows = tuple((one,) for one in told["blockers"])
        yield Table("Why it is not canonical", ("Reason",), rows)
    if told["codes"]:
        counts = tuple((code, f"{count}") for code, count in told["codes"].items())
        yield Table("What invalidates it", ("Code", "Times"), counts)
    for arm in told["protocol"]["arms"]:
        bars = tuple(_bars(told["blocks"], arm))
        if bars:
            yield Bars(f"{arm}: median decode rate of each class, in tok/s", bars)


def _bars(blocks: Sequence[Mapping[str, Any]], arm: str) -> Iterator[Bar]:
    for one in blocks:
        figures = one["decode_tok_s"]
        if one["arm_id"] == arm and figures is not None:
            low, high = figures["min"], figures["max"]
            shown = f"{figures['median']:.2f} ({low:.2f} to {high:.2f}, n = {figures['n']})"
            yield Bar(one["class_id"], float(figures["median"]), shown)
