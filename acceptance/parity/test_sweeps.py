"""PARITY-03, PARITY-04: tokens hold for every cut, chunking and number of sessions, for long."""

from __future__ import annotations

from math import isfinite

import pytest

from pytest_meshnet.parity.bench import ParityBench
from pytest_meshnet.parity.lanes import flips, production
from pytest_meshnet.parity.record import LEAST_SESSIONS
from pytest_meshnet.protocol.tensors import DType
from pytest_meshnet.runtime.errors import NotProvoked

from .judging import check

pytestmark = pytest.mark.timeout(900)

SESSIONS = 100
SHORT = 2
"""Greedy tokens of each of the hundred sessions between: enough for a decode step."""


@pytest.mark.requirement("PARITY-03")
def test_tokens_hold_for_every_cut_and_chunk_bound(parity: ParityBench) -> None:
    """Chunks of 1, 7 and 128 tokens at every cut, against an oracle that is chunked alike."""
    parity.check_gated()
    found = [
        f"{record.label}, chunks of {bound}: {line}"
        for record in parity.exact_records()
        for bound, comparisons in record.chunked.items()
        for line in flips(comparisons)
    ]
    check(found, "the oracle's tokens whatever the chunks", "look at masks and first positions")


@pytest.mark.requirement("PARITY-03")
def test_tokens_hold_for_one_two_and_four_sessions_at_once(parity: ParityBench) -> None:
    """Every session has a unit under way on each Shard while the others have theirs.

    A route that takes one session at a time shows nothing of that, one of two or three the half.
    """
    parity.check_gated()
    records = parity.exact_records()
    found = [
        f"{record.label}, {sessions} at once: {line}"
        for record in records
        for sessions, comparisons in record.together.items()
        for line in flips(comparisons)
    ]
    check(found, "each session's own tokens", "look for state that two sessions share")
    for record in records:
        if max(record.together, default=0) < LEAST_SESSIONS:
            raise NotProvoked(f"{record.label} takes no {LEAST_SESSIONS} sessions at once")


@pytest.mark.requirement("PARITY-04")
def test_parity_holds_right_after_a_start_and_again_after_a_hundred_sessions(
    parity: ParityBench,
) -> None:
    """A fresh route, the corpus, a hundred short sessions, the corpus again."""
    parity.check_gated()
    if parity.engine is not None:
        generator = parity.engine
    else:
        plan = parity.plans(parity.seam.spec.dtypes[0])[-1]
        parity.seam.forget(plan)
        generator = parity.route(plan)
    names = parity.fitting(generator)
    exactly = parity.is_whole or parity.seam.spec.dtypes[0] is DType.FLOAT32
    first = parity.compared(generator)
    found = flips(first) if exactly else production(first)
    found += [
        f"{name}: scores are not finite" for name in first if not isfinite(first[name].max_error)
    ]
    check(found, "the oracle's tokens right after a start, from finite scores")
    for number in range(SESSIONS):
        generator.generate(parity.corpus[names[number % len(names)]], SHORT)
    later = parity.compared(generator)
    found = flips(later) if exactly else []
    found += [
        f"{name}: largest logit error {later[name].max_error:.4g} after {SESSIONS} sessions, "
        f"{first[name].max_error:.4g} before"
        for name in first
        if not later[name].max_error <= 2 * first[name].max_error + 1e-4
    ]
    check(found, "the tokens and errors of a fresh start", "look for caches that outlive sessions")
