"""The whole matrix as one page: every criterion at a glance, then each with its reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_meshnet.alpha.judge import MET, NO_EVIDENCE, Line, Verdict
from pytest_meshnet.alpha.text import value
from pytest_meshnet.evidence.report.html import page_of

_TEMPLATES = Path(__file__).parent / "templates"
_LOOKS = {MET: "passed", NO_EVIDENCE: "not-run"}


@dataclass(frozen=True, slots=True)
class Shown:
    """One criterion as the page shows it; `look` is the status whose colour and sign it takes."""

    key: str
    anchor: str
    look: str
    status: str
    found: str
    asked: str
    source: str
    reasons: tuple[tuple[str, str], ...]
    note: str
    action: str


@dataclass(frozen=True, slots=True)
class Part:
    """One section of the contract with its criteria."""

    name: str
    met: int
    lines: tuple[Shown, ...]


def page(verdict: Verdict, record: Mapping[str, Any]) -> bytes:
    """Return the page as UTF-8 HTML; `record` gives who took it and when."""
    names = dict.fromkeys(line.id.partition(".")[0] for line in verdict.lines)
    parts = tuple(_part(name, verdict) for name in names)
    counts = dict.fromkeys((MET, "not met", NO_EVIDENCE), 0)
    for line in verdict.lines:
        counts[line.status] += 1
    return page_of(
        _TEMPLATES,
        "alpha.html.j2",
        verdict=verdict,
        sections=parts,
        counts={_look(status): number for status, number in counts.items()},
        words={_look(status): status for status in counts},
        taken=record["taken"],
        hardware=value(verdict.labels.get("hardware") or "unknown hardware"),
        topology=value(verdict.labels.get("topology") or "unknown topology"),
    )


def _part(name: str, verdict: Verdict) -> Part:
    lines = tuple(_shown(one) for one in verdict.lines if one.id.partition(".")[0] == name)
    return Part(name.replace("_", " "), sum(one.status == MET for one in lines), lines)


def _shown(line: Line) -> Shown:
    found = "unknown" if line.measured is None else f"{value(line.measured)} {line.unit}".rstrip()
    return Shown(
        key=line.id.partition(".")[2].replace("_", " "),
        anchor=line.id.replace(".", "-"),
        look=_look(line.status),
        status=line.status,
        found=found,
        asked=value(line.threshold),
        source=line.source or "measured by nobody",
        reasons=line.reasons,
        note=line.note,
        action=line.action,
    )


def _look(status: str) -> str:
    return _LOOKS.get(status, "failed")
