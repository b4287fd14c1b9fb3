"""The verdict as text: the word first, then what stands against it, then the whole matrix."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pytest_meshnet.alpha.judge import MET, Line, Verdict
from pytest_meshnet.evidence.shown import printable

_HEX = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SIGNS = {"met": "ok", "not met": "NO", "no evidence": "??"}


def render(verdict: Verdict) -> str:
    """Return the whole verdict, one line a criterion, at most about 100 columns wide.

    Whatever the record says, no text in it ends a line or moves the cursor.
    """
    return "\n".join(map(printable, _lines(verdict))) + "\n"


def _lines(verdict: Verdict) -> Iterator[str]:
    yield f"{verdict.word}: {verdict.met} of {len(verdict.lines)} criteria are met"
    if verdict.bottleneck:
        yield f"bottleneck:  {verdict.bottleneck}"
        yield f"next action: {verdict.action}"
    hardware = verdict.labels.get("hardware")
    if hardware:
        yield f"measured on: {value(hardware)}; {verdict.labels.get('topology')}"
        yield "             and says nothing about any other hardware"
    yield f"contract:    {verdict.contract_sha256}"
    section = ""
    for line in verdict.lines:
        if line.id.partition(".")[0] != section:
            section = line.id.partition(".")[0]
            yield ""
            yield section
        yield from _line(line)


def _line(line: Line) -> Iterator[str]:
    key = line.id.partition(".")[2]
    yield f"  {_SIGNS[line.status]}  {key:<55} {amount(line)}"
    if line.note:
        yield f"      note: {line.note}"
    if line.status != MET:
        for code, text in line.reasons:
            yield f"      {code}: {text}"
        yield f"      next: {line.action}"


def amount(line: Line) -> str:
    """What was measured against what is asked, with the source when it is no measurement."""
    found = "unknown" if line.measured is None else f"{value(line.measured)} {line.unit}".rstrip()
    told = f" ({line.source})" if line.source not in ("measured", "") else ""
    return f"{found}{told}; asked: {value(line.threshold)}"


def value(found: Any) -> str:
    """A value for people: lists with commas, digests and commits shortened."""
    if isinstance(found, (list, tuple)):
        return ", ".join(map(str, found))
    if isinstance(found, bool):
        return "yes" if found else "no"
    text = str(found)
    return f"{text[:12]}..." if _HEX.fullmatch(text) else text
