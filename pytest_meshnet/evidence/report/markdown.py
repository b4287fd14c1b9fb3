"""Rendering to Markdown for the summary of a CI job; whatever a run wrote is shown as code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pytest_meshnet.evidence.report.matrix import Cell, Matrix
from pytest_meshnet.evidence.report.page import Page, duration
from pytest_meshnet.evidence.report.results import Entry, Group
from pytest_meshnet.evidence.report.sections import Bars, Block, Section, Table
from pytest_meshnet.evidence.shown import md_block, md_code, md_prose
from pytest_meshnet.ledger.status import Status

SHOWN = 10
"""Most lines of one kind and most failures told in full; a job's summary has its own limit."""

_SIGNS: Mapping[Status, str] = {
    Status.PASSED: "✅",
    Status.FAILED: "❌",
    Status.KNOWN_FAILURE: "⚠️",
    Status.NOT_RUN: "⭕",
    Status.NOT_APPLICABLE: "➖",
    Status.NOT_CLAIMED: "➖",
    Status.ENGINE_ERROR: "💥",
}
_HERE = "   <== here it broke"
_TONES = {"good": "✅", "warn": "⚠️", "bad": "❌"}


def page_markdown(page: Page) -> str:
    """Return the page of one run."""
    parts = (_head, _against, _findings, _failures, _groups, _sections, _claims, _limits)
    return "\n".join(line for part in parts for line in part(page)) + "\n"


def matrix_markdown(matrix: Matrix) -> str:
    """Return the compatibility matrix of several runs."""
    return "\n".join(_matrix(matrix)) + "\n"


def _head(page: Page) -> Iterator[str]:
    yield f"# {_TONES[page.headline.tone]} {page.headline.word}: {md_code(page.title)}"
    yield from ("", md_prose(page.headline.sentence), "")
    yield f"- Signed by {_signer(page)}"
    if page.checked is None:
        command = md_code(f"pytest-meshnet verify {page.run_id}")
        yield f"- Not verified by this page, which was written with the run. Do: {command}"
    else:
        yield f"- Verified: {page.checked.result}, {md_prose(page.checked.meaning)}"
    yield f"- Run {md_code(page.run_id)}, {page.when}"
    counts = [f"{number} {status}" for status, number in page.test_counts.items()]
    if counts:
        yield f"- Tests: {', '.join(counts)}"
    badges = [f"{one.profile} {one.passed} of {one.total}" for one in page.badges]
    if badges:
        yield f"- Profiles, with requirements passed: {md_prose(', '.join(badges))}"


def _signer(page: Page) -> str:
    signer = page.signer
    if signer is None:
        return "nobody: the start of the run cannot be read"
    name = "an ephemeral key" if signer.ephemeral else "a key without a name here"
    if page.checked is not None and page.checked.signer_name:
        name = md_code(page.checked.signer_name)
    return f"{name}, keyid {md_code(signer.keyid)}, raw key {md_code(signer.raw_sha256)}"


def _against(page: Page) -> Iterator[str]:
    if page.against:
        yield from ("", "## What stands against it", "")
    for one in page.against[:SHOWN]:
        status = f"{_SIGNS[one.status]} {one.status} " if one.status else ""
        detail = f" ({md_code(one.detail)})" if one.detail else ""
        yield f"- {status}{md_code(one.label)}{detail}"
    if len(page.against) > SHOWN:
        yield f"- and {len(page.against) - SHOWN} more"


def _findings(page: Page) -> Iterator[str]:
    if page.checked is None or not page.checked.findings:
        return
    yield from ("", "## What the verification found", "")
    for check, one in page.checked.findings:
        hint = f" Do: {md_code(one.hint)}" if one.hint else ""
        yield f"- **{one.severity}** {md_code(one.message)} ({check}: {one.code}).{hint}"


def _failures(page: Page) -> Iterator[str]:
    explained = [entry for entry in _entries(page) if entry.own]
    if explained:
        yield from ("", "## Failures")
    for entry in explained[:SHOWN]:
        yield from _failure(entry)
    if len(explained) > SHOWN:
        yield from ("", f"And {len(explained) - SHOWN} more requirements, in report.html.")


def _failure(entry: Entry) -> Iterator[str]:
    """One requirement with its first failing test in full, and the names of the others."""
    case, *others = entry.own
    yield from ("", f"### {_SIGNS[case.status]} {md_prose(entry.id)}: {md_prose(entry.title)}")
    yield from ("", md_prose(entry.statement), "", f"Test: {md_code(case.test)}", "")
    for told in case.failures:
        expected = f"expected: {told.expected}\n" if told.expected else ""
        yield md_block(f"{expected}actual:   {told.actual}")
    for frames in case.traces:
        arrows = {"sent": "->", "received": "<-", "note": "  "}
        lines = (f"{arrows[one.way]} {one.text}{_HERE * one.broken}" for one in frames)
        text = "\n".join(lines)
        yield from ("<details><summary>On the wire</summary>", "", md_block(text), "", "</details>")
    if others:
        yield from ("", "Against it as well:", "")
        yield from (f"- {_SIGNS[one.status]} {md_code(one.test)}" for one in others[:SHOWN])
    if len(others) > SHOWN:
        yield f"- and {len(others) - SHOWN} more"


def _groups(page: Page) -> Iterator[str]:
    if page.results is None:
        return
    subjects = (
        ("Requirements", page.results.runtime),
        ("Self-checks of the suite, not the runtime's merit", page.results.suite),
    )
    for title, groups in subjects:
        yield from ("", f"## {title}", "")
        yield from _table(("Group", "Requirements", "Duration"), map(_group_row, groups))


def _group_row(group: Group) -> tuple[str, ...]:
    counts = ", ".join(f"{_SIGNS[status]} {n} {status}" for status, n in group.counts.items())
    return md_prose(group.name), counts, duration(group.seconds)


def _sections(page: Page) -> Iterator[str]:
    for section in page.sections:
        yield from _section(section)


def _section(section: Section) -> Iterator[str]:
    yield from ("", f"## {md_prose(section.title)}")
    for block in section.blocks:
        yield ""
        yield from _block(block)


def _block(block: Block) -> Iterator[str]:
    if isinstance(block, Table):
        yield from (md_prose(block.caption), "")
        rows = (tuple(map(md_code, row)) for row in block.rows)
        yield from _table(tuple(map(md_prose, block.columns)), rows)
    elif isinstance(block, Bars):
        yield from (md_prose(block.caption), "")
        rows = ((md_code(one.label), md_code(one.shown)) for one in block.bars)
        yield from _table(("", ""), rows)
    else:
        yield md_prose(block.text)


def _claims(page: Page) -> Iterator[str]:
    if page.claims:
        yield from ("", "## Claimed and proven", "")
        rows = (
            (md_code(one.name), md_code(str(one.value)), md_prose(one.standing))
            for one in page.claims
        )
        yield from _table(("Fact", "Value", "Standing"), rows)


def _limits(page: Page) -> Iterator[str]:
    yield from ("", "## What a signature cannot show", "")
    yield from (f"- {md_prose(one)}" for one in page.limits)


def _entries(page: Page) -> Iterator[Entry]:
    if page.results is not None:
        for group in (*page.results.runtime, *page.results.suite):
            yield from group.entries


def _table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)


def _matrix(matrix: Matrix) -> Iterator[str]:
    yield from ("# Compatibility matrix", "")
    runs = (
        (
            md_code(page.title),
            f"{_TONES[page.headline.tone]} {page.headline.word}",
            page.checked.result if page.checked else "not verified",
            _signer(page),
        )
        for page in matrix.pages
    )
    yield from _table(("Runtime", "Verdict", "Verified", "Signed by"), runs)
    names = tuple(md_code(page.title) for page in matrix.pages)
    yield from ("", "## Requirement groups", "")
    rows = ((md_prose(row.group), *map(_cell, row.cells)) for row in matrix.rows)
    yield from _table(("Group", *names), rows)
    if matrix.fallen:
        yield from ("", "## Requirements that a run did not pass", "")
        lines = (
            (f"{md_prose(one.id)}: {md_prose(one.title)}", *map(_status, one.statuses))
            for one in matrix.fallen
        )
        yield from _table(("Requirement", *names), lines)
    yield from _limits(matrix.pages[0])


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return _status(None)
    if not cell.claimed:
        return _status(cell.status)
    return f"{_SIGNS[cell.status]} {cell.status}, {cell.passed} of {cell.claimed}"


def _status(status: Status | None) -> str:
    return "not judged" if status is None else f"{_SIGNS[status]} {status}"
