"""How a prefill may be cut: chunking is invisible, and chunks that do not fit are refused."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_meshnet.protocol.flow import FlowLimits
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.results import joined
from pytest_meshnet.runtime.shard import ShardUnderTest

# Room in a message for everything but its tensor, generously.
FRAMING_BYTES = 16_384


@pytest.mark.requirement("PREFILL-04")
@given(counts=st.lists(st.integers(1, 8), min_size=1, max_size=5), key=st.integers(0, 2**16))
@example(counts=[1] * 6, key=1)
@example(counts=[3, 3], key=2)
@example(counts=[1, 4, 2], key=3)
@settings(max_examples=15)
def test_chunking_is_invisible(shard: ShardUnderTest, counts: list[int], key: int) -> None:
    """Any cuts against the fewest that the limits allow, then a decode step on what both left."""
    counts = shard.fitted(counts, spare=1)
    length = sum(counts)
    tokens = shard.tokens(length + 1, key)
    prompt, step = tokens.rows(0, length), tokens.rows(length, length + 1)
    whole = shard.undisturbed(prompt, step)
    with shard.session() as session:
        chunked = joined(session.prefill_chunks(prompt, counts), session.decode(step))
    shard.check_equal(chunked, whole, f"{length} tokens in chunks of {counts} against whole")


@pytest.mark.requirement("PREFILL-05")
@pytest.mark.parametrize("place", ["first", "continuing"])
@pytest.mark.parametrize("wanted", [1, 2, 5, None], ids=["1", "2", "5", "its-own"])
def test_a_chunk_above_the_token_bound_is_refused_and_not_computed(
    shard: ShardUnderTest, wanted: int | None, place: str
) -> None:
    """One token more than was settled; then the same tokens again in chunks that fit."""
    bound = largest_bound(shard) if wanted is None else min(wanted, largest_bound(shard))
    held = 1 if place == "continuing" else 0
    tokens = shard.tokens(held + bound + 1, key=bound)
    expected = shard.undisturbed(tokens)
    with shard.session(proposed=FlowLimits(prefill_tokens=bound)) as session:
        settled = session.client.limits.prefill_tokens
        before = session.prefill(tokens.rows(0, 1), finish=False) if held else joined()
        rest = tokens.rows(held, held + settled + 1)
        exchange = session.exchange(session.client.chunk([rest]))
        session.refused(
            exchange, pb.ERROR_CODE_FLOW_CONTROL_VIOLATION, pb.ERROR_CODE_RESOURCE_EXHAUSTED
        )
        after = session.prefill(tokens.rows(held, tokens.shape[1]))
    shard.check_equal(joined(before, after), expected, "prefill after a chunk that was too long")


def largest_bound(shard: ShardUnderTest) -> int:
    """The runtime's own token bound, or less where one token above it would break another limit."""
    limits = FlowLimits.from_proto(shard.report.flow_control)
    fitting = (limits.chunk_bytes - FRAMING_BYTES) // shard.tokens(1).size - 1
    bounds = [limits.prefill_tokens, fitting, shard.length(limits.prefill_tokens + 2) - 2]
    return max(1, min(bounds))


@pytest.mark.requirement("PREFILL-06")
@pytest.mark.parametrize("finish", [False, True], ids=["unfinished", "finished"])
@pytest.mark.parametrize("off", [-2, -1, 1, 4])
def test_a_chunk_that_leaves_a_gap_or_an_overlap_is_a_cache_miss(
    shard: ShardUnderTest, off: int, finish: bool
) -> None:
    """Three tokens are held and the next chunk expects more or fewer; then it comes in place."""
    tokens = shard.tokens(4)
    expected = shard.undisturbed(tokens)
    with shard.session() as session:
        before = session.prefill(tokens.rows(0, 3), finish=finish)
        chunk = tokens.rows(3, 4)
        for final in (False, True):
            message = session.client.chunk([chunk], expected=3 + off, final=final)
            status = session.refused(session.exchange(message), pb.ERROR_CODE_CACHE_MISS)
            check_actual(status, 3)
        after = session.prefill(chunk)
    shard.check_equal(after[-1:], expected[-1:], "the next chunk after the miss")
    if before.size and not shard.is_tail:
        shard.check_equal(before, expected[:3], "the rows before the miss")


@pytest.mark.requirement("PREFILL-06")
@pytest.mark.parametrize("expected_past_len", [1, 3])
def test_a_chunk_that_continues_nothing_is_a_cache_miss(
    shard: ShardUnderTest, expected_past_len: int
) -> None:
    """The first chunk of a new session claims that tokens came before it."""
    tokens = shard.tokens(2)
    expected = shard.undisturbed(tokens)
    with shard.session() as session:
        message = session.client.chunk([tokens.rows(0, 1)], expected=expected_past_len)
        status = session.refused(session.exchange(message), pb.ERROR_CODE_CACHE_MISS)
        check_actual(status, 0)
        shard.check_equal(session.prefill(tokens), expected, "a prefill from zero after the miss")


def check_actual(status: pb.ShardStatus, held: int) -> None:
    """Hold the reported position against what is held."""
    found = status.error.actual_past_len
    if found != held:
        raise Nonconformance(f"actual_past_len {held}", f"actual_past_len {found}")


@pytest.mark.requirement("PREFILL-03")
@pytest.mark.parametrize(
    ("held", "finish", "first"),
    [(0, False, 1), (0, False, 3), (2, False, 0), (2, False, 1), (2, False, 3), (2, True, 3)],
    ids=["fresh+1", "fresh+3", "at-0", "one-back", "one-ahead", "append-ahead"],
)
def test_a_chunk_that_begins_at_another_position_than_it_expects_is_refused(
    shard: ShardUnderTest, held: int, finish: bool, first: int
) -> None:
    """The expected length is the one held, the first position another: no past_len fits both."""
    tokens = shard.tokens(held + 1)
    expected = shard.undisturbed(tokens)
    with shard.session() as session:
        if held:
            session.prefill(tokens.rows(0, held), finish=finish)
        chunk = tokens.rows(held, held + 1)
        for final in (False, True):
            message = session.client.chunk([chunk], expected=held, first=first, final=final)
            session.refused(session.exchange(message))
        after = session.prefill(chunk)
    shard.check_equal(after[-1:], expected[-1:], "the chunk in its place after the refusal")


@pytest.mark.requirement("PREFILL-08")
@pytest.mark.parametrize("place", ["first", "continuing"])
@pytest.mark.parametrize("claimed", [0, 1, 3, 4])
def test_a_token_count_that_differs_from_the_tensor_is_refused(
    shard: ShardUnderTest, claimed: int, place: str
) -> None:
    """Two rows travel as fewer or more tokens; then they come again, counted right."""
    held = 1 if place == "continuing" else 0
    tokens = shard.tokens(held + 3)
    expected = shard.undisturbed(tokens.rows(0, held + 2), tokens.rows(held + 2, held + 3))
    with shard.session() as session:
        before = session.prefill(tokens.rows(0, 1), finish=False) if held else joined()
        rows = tokens.rows(held, held + 2)
        session.refused(session.exchange(session.client.chunk([rows], tokens=claimed)))
        after = session.prefill(rows), session.decode(tokens.rows(held + 2, held + 3))
    shard.check_equal(joined(before, *after), expected, "the prefill after a wrong token count")
