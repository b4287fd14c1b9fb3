"""What was measured on one route, kept so that several requirements are judged from one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_meshnet.parity.metrics import Comparison
from pytest_meshnet.runtime.generation import ShardWork

Comparisons = Mapping[str, Comparison]

CHUNK_BOUNDS = (1, 7, 128)
SESSIONS = (1, 2, 4)
"""What a sweep goes through: tokens a prefill chunk, and sessions at once."""

LEAST_SESSIONS = 2
"""Sessions at once without which nothing can be shared between them."""

SWEEP_TOKENS = 12
"""Greedy tokens of each generation of a sweep; the lanes compare more."""


@dataclass(frozen=True, slots=True)
class RouteRecord:
    """One route, or one engine, against the oracle.

    `whole` compares the corpus, prefilled as the Shards' limits allow; `chunked` and `together` are
    short sweeps by chunk bound, with an oracle in the same chunks, and by number of sessions,
    where the route takes so many.
    `work` is what each Shard reported over `whole`. `blind` are the layers of Shards whose result
    does not depend on what came before, looked for in the dtype that the route is used in.
    `corpus` counts all prompts: those that do not fit the context are not compared.
    """

    label: str
    ranges: tuple[tuple[int, int], ...]
    whole: Comparisons
    chunked: Mapping[int, Comparisons]
    together: Mapping[int, Comparisons]
    work: tuple[ShardWork, ...]
    epochs: int
    blind: tuple[tuple[int, int], ...]
    corpus: int
