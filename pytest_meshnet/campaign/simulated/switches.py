"""How a simulated FreeToken is told to go wrong: a switch for every code that it can provoke.

A switch has the name of the code. The codes that no runtime can provoke are brought about by the
invented rig around it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

FLAG = "--simulate"
"""Comes before the command of a simulated `ft`, with its switches and a folder to write to."""

OF_THE_RIG = frozenset(
    {
        "bench_bw.skipped",
        "provenance.model_revision_mismatch",
        "provenance.model_repository_mismatch",
        "provenance.dirty_working_tree",
        "provenance.missing_required",
    }
)
"""Switches that change what the campaign is told, and not what the runtime does."""

GPU_NAME = "NVIDIA GeForce RTX 3060"
"""The card that a simulated runtime says it computes on."""

OTHER_GPU = "GPU-00000000-dead-beef-0000-000000000000"


def words(switches: Iterable[str], folder: Path) -> tuple[str, ...]:
    """Return what tells a simulated `ft` its switches and its folder."""
    return FLAG, ",".join(switches), str(folder)


def split(arguments: list[str]) -> tuple[frozenset[str], Path, list[str]]:
    """Return the switches, the folder and the arguments after them."""
    if arguments[:1] != [FLAG]:
        return frozenset(), Path(), arguments
    return frozenset(filter(None, arguments[1].split(","))), Path(arguments[2]), arguments[3:]
