"""Stateless work: legal at any time, a fresh prefill in all but the state, which it leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.tensors import Tensor
from pytest_meshnet.runtime.errors import Nonconformance, NotProvoked
from pytest_meshnet.runtime.results import joined
from pytest_meshnet.runtime.session import Session
from pytest_meshnet.runtime.shard import ShardUnderTest

if TYPE_CHECKING:
    from pytest_meshnet.runtime.shard import Rows

PROMPT, HALF = 4, 2


def _stateless(session: Session, tensor: Tensor) -> Rows:
    """Do stateless work and require that it is acked as such."""
    message = session.client.chunk([tensor], mode=pb.CACHE_MODE_STATELESS)
    exchange = session.exchange(message)
    rows = session.result(exchange)
    assert exchange.ack is not None, "an applied unit has an ack"
    found = exchange.ack.cache_result.past_len
    if found != 0:
        raise Nonconformance("past_len 0 for stateless work", f"{found}")
    return rows


def _reach(session: Session, when: str, tokens: Tensor) -> tuple[Rows | None, int]:
    """Bring a session to where stateless work begins: its last rows, and tokens held."""
    if when == "first":
        return None, 0
    if when == "in-mid-prefill":
        session.prefill_chunks(tokens.rows(0, HALF), [HALF], finish=False)
        return None, HALF
    session.prefill(tokens.rows(0, PROMPT))
    if when == "after-decode":
        session.decode(tokens.rows(PROMPT, PROMPT + 1))
        return None, PROMPT + 1
    if when == "after-release":
        session.send(session.client.release())
        return None, 0
    return None, PROMPT


WHEN = ["first", "in-mid-prefill", "after-prefill", "after-decode", "after-release"]


@pytest.mark.requirement("KV-09")
@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("counts", [[1], [3], [2, 1, 4]], ids=["one", "three", "several"])
def test_stateless_work_equals_a_fresh_prefill_and_leaves_held_state_alone(
    shard: ShardUnderTest, when: str, counts: Sequence[int]
) -> None:
    """It comes at each stage of a session, whose own tokens must not show in it, nor it in them."""
    tokens = shard.tokens(PROMPT + 2)
    steps = [tokens.rows(at, at + 1) for at in range(PROMPT, PROMPT + 2)]
    expected = shard.undisturbed(tokens.rows(0, PROMPT), *steps)
    with shard.session() as session:
        width = max(span.count for span in session.client.plan([shard.tokens(4)]))
    others = [shard.tokens(min(width, count), key=20 + n) for n, count in enumerate(counts)]
    fresh = [shard.undisturbed(other) for other in others]
    with shard.session() as session:
        held = _reach(session, when, tokens)[1]
        for other, wanted in zip(others, fresh, strict=True):
            rows = _stateless(session, other)
            shard.check_equal(rows, wanted, f"stateless work {when} against a fresh prefill")
        if held < PROMPT:
            session.prefill_chunks(tokens.rows(held, PROMPT), [PROMPT - held])
            held = PROMPT
        done = [session.decode(step) for step in steps[held - PROMPT :]]
    shard.check_equal(joined(*done), expected[-len(done) :], f"the session after work {when}")


@pytest.mark.requirement("KV-09")
def test_stateless_work_between_every_two_units_changes_none_of_them(
    shard: ShardUnderTest,
) -> None:
    """Chunks and steps in flight alternate with stateless work, as far as credit allows."""
    tokens = shard.tokens(6)
    steps = [tokens.rows(at, at + 1) for at in range(3, 6)]
    expected = shard.undisturbed(tokens.rows(0, 3), *steps)
    other = shard.tokens(1, key=30)
    fresh = shard.undisturbed(other)
    with shard.session() as session:
        own, between = [], []
        for at in range(6):
            row = tokens.rows(at, at + 1)
            message = session.client.chunk([row], final=at == 2)
            if at > 2:
                message = session.client.decode(row)
            own.append(session.send_unit(message))
            aside = session.client.chunk([other], mode=pb.CACHE_MODE_STATELESS)
            between.append(session.send_unit(aside))
        for exchange in between:
            shard.check_equal(session.result(exchange), fresh, "stateless work between units")
        rows = joined(*(session.result(exchange) for exchange in own))
    if shard.is_tail:
        rows = rows[-4:]
    shard.check_equal(rows, expected, "a session with stateless work between its units")


@pytest.mark.requirement("KV-09", "KV-08")
def test_stateless_work_is_accepted_with_a_full_context(small_shard: ShardUnderTest) -> None:
    """It takes no room: a session whose context is filled does it all the same.

    KV-08 says whose context can be filled.
    """
    shard = small_shard
    context = shard.report.max_context_tokens
    if not 1 <= context <= 4096:
        raise NotProvoked(f"a context of {context} tokens is not told or takes too long to fill")
    other = shard.tokens(1, key=31)
    fresh = shard.undisturbed(other)
    with shard.session() as session:
        session.prefill(shard.tokens(context))
        shard.check_equal(_stateless(session, other), fresh, "stateless work beside a full context")


@pytest.mark.requirement("KV-09")
@pytest.mark.parametrize("when", WHEN)
def test_stateless_work_that_is_not_final_is_refused_and_leaves_held_state_alone(
    shard: ShardUnderTest, when: str
) -> None:
    """One final chunk is all that it can be: one that more should follow would need state."""
    tokens = shard.tokens(PROMPT + 2)
    steps = [tokens.rows(at, at + 1) for at in range(PROMPT, PROMPT + 2)]
    expected = shard.undisturbed(tokens.rows(0, PROMPT), *steps)
    other = shard.tokens(1, key=32)
    with shard.session() as session:
        held = _reach(session, when, tokens)[1]
        message = session.client.chunk([other], mode=pb.CACHE_MODE_STATELESS, final=False)
        session.refused(session.exchange(message))
        if held < PROMPT:
            session.prefill_chunks(tokens.rows(held, PROMPT), [PROMPT - held])
            held = PROMPT
        done = [session.decode(step) for step in steps[held - PROMPT :]]
    shard.check_equal(joined(*done), expected[-len(done) :], f"the session after a refusal {when}")
