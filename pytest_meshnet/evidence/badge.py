"""The badge beside a bundle: JSON for the endpoint badge of shields.io, no part of the evidence.

Its words are those of the verdict and never more. It names the certified profiles only for the
word CERTIFIED, and says so in the label when the target was only an endpoint. Only the bundle
proves anything: a badge should link to it.

Source of the format: https://shields.io/badges/endpoint-badge.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_meshnet.evidence.recorder import replace_with
from pytest_meshnet.evidence.summary import Summary
from pytest_meshnet.ledger.status import Status
from pytest_meshnet.ledger.verdict import Verdict, Word

NAME = "badge.json"
LABEL = "meshnet"

_COLOURS: Mapping[Word, str] = {
    "CERTIFIED": "brightgreen",
    "NOT CERTIFIED": "orange",
    "NOT CONFORMANT": "red",
    "INCOMPLETE": "lightgrey",
    "REFUSED": "lightgrey",
}


def badge(summary: Summary, profiles: Sequence[str]) -> dict[str, Any]:
    """Return the badge of a certificate run that claimed `profiles`."""
    launched = summary.facts.get("launch")
    proven = launched is not None and launched.value is True
    return {
        "schemaVersion": 1,
        "label": LABEL if proven else f"{LABEL} endpoint-only",
        "message": _message(summary.verdict, profiles),
        "color": _COLOURS[summary.verdict.word],
    }


def _message(verdict: Verdict, profiles: Sequence[str]) -> str:
    if verdict.word == "CERTIFIED":
        return f"certified {', '.join(sorted(profiles))}"
    if verdict.word == "NOT CERTIFIED":
        return f"not certified, {verdict.counts[Status.KNOWN_FAILURE]} known failures"
    return verdict.word.lower()


def write_badge(out: Path, run_id: str, summary: Summary, profiles: Sequence[str]) -> None:
    """Write `OUT/badge.json`, whole or not at all. Raises OSError."""
    text = json.dumps(badge(summary, profiles), indent=2) + "\n"
    replace_with(out / NAME, text.encode(), f".{NAME}.{run_id}")


def forget_badge(out: Path) -> None:
    """Take away what an earlier run said: a run that never ends must not keep its words."""
    (out / NAME).unlink(missing_ok=True)
