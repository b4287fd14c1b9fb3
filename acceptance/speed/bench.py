"""Floors and figures of one run, side by side, and the bounds that they must keep.

Each role of the codec runs in processes of its own, in turns, so that a slow second of the machine
meets all of them; of each role the best trip counts.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from .decode_steps import ROUNDS, STEPS, best_rate

TURNS = 7
MOST_RATIO = 2.0
LEAST_STEPS = 10_000
MOST_APPEND_RATIO = 10.0
MOST_APPEND_US = 100.0
MOST_VERIFY_RATIO = 8.0
MOST_VERIFY_MB = 200.0
VERIFY_TURNS = 3

_NAMES = {
    "floor": "2 CRC32C + 1 protobuf trip",
    "figure": "codec, heap kept",
    "plain": "codec, heap as glibc has it",
}
_TRIP = Path(__file__).with_name("codec_trip.py")
_EVIDENCE = Path(__file__).with_name("evidence_trip.py")


@dataclass(frozen=True, slots=True)
class Evidence:
    """What evidence costs: medians of a record in microseconds, seconds of a verification, MB."""

    append: float
    append_floor: float
    verify: float
    verify_floor: float
    megabytes: float

    def missed(self) -> list[str]:
        """The bounds that do not hold, in words."""
        append, verify = self.append / self.append_floor, self.verify / self.verify_floor
        lines = []
        if append > MOST_APPEND_RATIO:
            lines.append(
                f"a record takes {append:.1f} times its floor, at most {MOST_APPEND_RATIO}"
            )
        if self.append > MOST_APPEND_US:
            lines.append(f"a record takes {self.append:.0f} µs, at most {MOST_APPEND_US:.0f}")
        if verify > MOST_VERIFY_RATIO:
            lines.append(f"verify takes {verify:.1f} times its floor, at most {MOST_VERIFY_RATIO}")
        if self.megabytes > MOST_VERIFY_MB:
            lines.append(f"verify takes {self.megabytes:.0f} MB, at most {MOST_VERIFY_MB:.0f}")
        return lines

    def __str__(self) -> str:
        return (
            f"journal: a record in {self.append:.1f} µs, {self.append / self.append_floor:.1f} "
            f"times one write and one SHA-256\n"
            f"verify: 20,000 tests in {self.verify:.2f} s of processor time and "
            f"{self.megabytes:.0f} MB, {self.verify / self.verify_floor:.1f} times one SHA-256 "
            f"and one JSON parse of each line"
        )


def evidence() -> Evidence:
    """Measure the evidence layer; of each role of a verification the best turn counts."""
    with tempfile.TemporaryDirectory() as folder:
        append = _role("append", folder)
        bundle = _role("make", folder)["bundle"]
        floors = [_role("floor", bundle) for _ in range(VERIFY_TURNS)]
        whole = [_role("verify", bundle) for _ in range(VERIFY_TURNS)]
    return Evidence(
        append["figure"],
        append["floor"],
        min(one["seconds"] for one in whole),
        min(one["seconds"] for one in floors),
        max(one["megabytes"] for one in whole),
    )


def _role(name: str, path: str) -> Any:
    run = subprocess.run(
        [sys.executable, str(_EVIDENCE), name, path], stdout=subprocess.PIPE, check=True, text=True
    )
    return json.loads(run.stdout)


def trips() -> dict[str, dict[str, float]]:
    """The best turn of each role."""
    best: dict[str, dict[str, float]] = {}
    for _ in range(TURNS):
        for role in _NAMES:
            found = _one_process(role)
            if role not in best or found["best"] < best[role]["best"]:
                best[role] = found
    return best


def _one_process(role: str) -> dict[str, float]:
    run = subprocess.run(
        [sys.executable, str(_TRIP), role], stdout=subprocess.PIPE, check=True, text=True
    )
    return {name: float(value) for name, value in json.loads(run.stdout).items()}


def shown(best: dict[str, dict[str, float]]) -> Table:
    """Times, page faults and ratios of the roles."""
    table = Table(title="one [1, 128, 6144] bfloat16 tensor, encoded and decoded")
    for column in ("", "best µs", "median µs", "page faults", "ratio to floor"):
        table.add_column(column, justify="right" if column else "left")
    for role, name in _NAMES.items():
        found = best[role]
        table.add_row(
            name,
            f"{found['best']:.0f}",
            f"{found['median']:.0f}",
            f"{found['faults']:.0f}",
            f"{found['best'] / best['floor']['best']:.2f}",
        )
    return table


def missed(best: dict[str, dict[str, float]], rate: float) -> list[str]:
    """The bounds that do not hold, in words."""
    ratio = best["figure"]["best"] / best["floor"]["best"]
    lines = []
    if ratio > MOST_RATIO:
        lines.append(f"the codec takes {ratio:.2f} times its floor, at most {MOST_RATIO} allowed")
    if rate < LEAST_STEPS:
        lines.append(f"{rate:,.0f} DecodeSteps/s, at least {LEAST_STEPS:,} wanted")
    return lines


def main() -> int:
    """Measure, print, judge."""
    console = Console(highlight=False)
    best = trips()
    console.print(shown(best))
    rate = best_rate()
    console.print(
        f"SeamClient and Worker: {rate.by_processor:,.0f} DecodeSteps/s of processor time, "
        f"{rate.by_clock:,.0f} by the clock; best of {ROUNDS} x {STEPS:,}"
    )
    found = evidence()
    console.print(str(found))
    lines = missed(best, rate.by_clock) + found.missed()
    for line in lines:
        console.print(f"MISSED: {line}; run it again on a quiet machine before believing it")
    return 1 if lines else 0
