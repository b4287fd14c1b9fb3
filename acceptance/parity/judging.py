"""From findings of a lane to a failed test."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_meshnet.runtime.errors import Nonconformance

SHOWN = 12
"""Findings in one message; the rest is counted."""


def check(findings: Iterable[str], expected: str, hint: str = "") -> None:
    """Raise Nonconformance with the findings, when there are any."""
    found = list(findings)
    if not found:
        return
    rest = [f"and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
    raise Nonconformance(expected, "\n          ".join([*found[:SHOWN], *rest]), hint)
