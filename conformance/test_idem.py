"""Repeated and old step numbers: answered as duplicates and never applied."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.exchange import Exchange
from pytest_meshnet.protocol.tensors import Tensor
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.results import joined, rows_of
from pytest_meshnet.runtime.session import Session
from pytest_meshnet.runtime.shard import ShardUnderTest

FULL_FORM = pytest.mark.parametrize("full", [False, True], ids=["decode-step", "full-form"])


def check_duplicate(exchange: Exchange, past_len: int) -> None:
    """Require the answer to a duplicate: an ack that says so, with the position held now."""
    if exchange.status is not None or exchange.ack is None or not exchange.ack.duplicate:
        came = "a status" if exchange.status is not None else "an ack of new work"
        raise Nonconformance(
            f"step {exchange.step} answered by an ack with duplicate true",
            came,
            "look at the step number before the cache expectation",
        )
    found = exchange.ack.cache_result.past_len
    if found != past_len:
        raise Nonconformance(
            f"past_len {past_len} in the ack of duplicate step {exchange.step}", f"{found}"
        )


def repeated(session: Session, exchange: Exchange) -> Exchange:
    """Send the very message of an applied unit again."""
    return session.exchange(exchange.request)


@pytest.mark.requirement("IDEM-01")
@FULL_FORM
@pytest.mark.parametrize("times", [1, 3], ids=["once", "three-times"])
def test_a_repeated_decode_step_is_a_duplicate_and_the_next_step_is_undisturbed(
    shard: ShardUnderTest, times: int, full: bool
) -> None:
    """The repetition expects a length held no more; only its step number tells what it is."""
    tokens = shard.tokens(5)
    prompt, steps = tokens.rows(0, 3), (tokens.rows(3, 4), tokens.rows(4, 5))
    expected = shard.undisturbed(prompt, *steps)
    with shard.session() as session:
        session.prefill(prompt)
        first = session.exchange(session.client.decode(steps[0], full=full))
        rows = rows_of([session.applied(first)])
        for _ in range(times):
            check_duplicate(repeated(session, first), past_len=4)
        rows = joined(rows, session.decode(steps[1], full=full))
    shard.check_equal(rows, expected[-2:], "the steps around a duplicate")


@pytest.mark.requirement("IDEM-02")
@pytest.mark.parametrize("repeat", ["first", "last"])
@pytest.mark.parametrize("chunks", [[4], [1, 3], [2, 1, 1]], ids=["one", "two", "three"])
def test_a_repeated_prefill_chunk_is_a_duplicate_and_the_next_step_is_undisturbed(
    shard: ShardUnderTest, chunks: list[int], repeat: str
) -> None:
    """The first chunk expects 0 and would start afresh, if it were looked at before its step."""
    tokens = shard.tokens(5)
    prompt, step = tokens.rows(0, 4), tokens.rows(4, 5)
    expected = shard.undisturbed(prompt, step)
    with shard.session() as session:
        sent = session.send_chunks(prompt, chunks)
        applied = [session.applied(session.wait(exchange)) for exchange in sent]
        again = applied[0] if repeat == "first" else applied[-1]
        check_duplicate(repeated(session, again), past_len=4)
        rows = joined(rows_of(applied), session.decode(step))
    shard.check_equal(rows, expected, "a prefill with a repeated chunk and the step after it")


@pytest.mark.requirement("IDEM-02")
def test_a_chunk_repeated_in_mid_prefill_does_not_restart_the_prefill(
    shard: ShardUnderTest,
) -> None:
    """Two of three chunks are in; the first comes again, then the third."""
    # One token each, which is as many as any bound on chunks allows.
    tokens = shard.tokens(3)
    expected = shard.undisturbed(tokens)
    with shard.session() as session:
        parts = [tokens.rows(at, at + 1) for at in range(3)]
        first = session.applied(session.exchange(session.client.chunk([parts[0]], final=False)))
        second = session.applied(session.exchange(session.client.chunk([parts[1]], final=False)))
        check_duplicate(repeated(session, first), past_len=2)
        third = session.applied(session.exchange(session.client.chunk([parts[2]])))
        rows = rows_of([first, second, third])
    shard.check_equal(rows[-1:], expected[-1:], "the last row of a prefill with a repeated chunk")


@pytest.mark.requirement("IDEM-03")
@pytest.mark.parametrize("form", ["decode-step", "full-form", "chunk", "corrupt"])
def test_a_repeated_step_with_other_bytes_is_a_duplicate_and_not_applied(
    shard: ShardUnderTest, form: str
) -> None:
    """The number of an applied step comes again with another token, or a broken payload."""
    # faults.md 156: a duplicate and no conflict, by protocol.md
    tokens = shard.tokens(5)
    prompt, steps = tokens.rows(0, 3), (tokens.rows(3, 4), tokens.rows(4, 5))
    expected = shard.undisturbed(prompt, *steps)
    with shard.session() as session:
        session.prefill(prompt)
        first = session.applied(session.exchange(session.client.decode(steps[0])))
        message = _other_bytes(session, shard.tokens(1, key=9), form, first)
        check_duplicate(session.exchange(message), past_len=4)
        rows = joined(rows_of([first]), session.decode(steps[1]))
    shard.check_equal(rows, expected[-2:], "the steps around a duplicate with other bytes")


def _other_bytes(session: Session, other: Tensor, form: str, first: Exchange) -> pb.SessionRequest:
    again = {"step": first.step, "work_id": first.work_id}
    if form == "chunk":
        return session.client.chunk([other], fresh=True, **again)  # type: ignore[arg-type]
    message = session.client.decode(other, full=form == "full-form", expected=3, **again)  # type: ignore[arg-type]
    if form == "corrupt":
        message.decode.tensor.checksum.value = bytes(4)
    return message


@pytest.mark.requirement("IDEM-04")
@FULL_FORM
@pytest.mark.parametrize("copies", [2, 4])
def test_copies_sent_back_to_back_are_applied_once(
    shard: ShardUnderTest, copies: int, full: bool
) -> None:
    """Nobody waits for an answer between the copies, so that they meet in the worker's queue."""
    # faults.md 157
    tokens = shard.tokens(5)
    prompt, steps = tokens.rows(0, 3), (tokens.rows(3, 4), tokens.rows(4, 5))
    expected = shard.undisturbed(prompt, *steps)
    with shard.session() as session:
        session.prefill(prompt)
        message = session.client.decode(steps[0], full=full)
        sent = [session.send_unit(message) for _ in range(copies)]
        answered = [session.wait(exchange) for exchange in sent]
        applied = [exchange for exchange in answered if exchange.applied]
        if len(applied) != 1:
            raise Nonconformance(f"one of {copies} copies applied", f"{len(applied)} applied")
        for exchange in answered:
            if exchange is not applied[0]:
                check_duplicate(exchange, past_len=4)
        rows = joined(rows_of(applied), session.decode(steps[1]))
    shard.check_equal(rows, expected[-2:], "the steps around copies in flight")


@pytest.mark.requirement("IDEM-05")
@given(highest=st.integers(2, 2**40), old=st.data(), chunk=st.booleans())
@example(highest=2, old=None, chunk=False)
@settings(max_examples=15)
def test_a_step_number_below_the_last_applied_is_a_duplicate_even_if_never_used(
    shard: ShardUnderTest, highest: int, old: st.DataObject | None, chunk: bool
) -> None:
    """A decode at step `highest`, then one under a lower number that nobody used before."""
    # faults.md 159, 185
    below = 1 if old is None else old.draw(st.integers(1, highest - 1))
    tokens = shard.tokens(3)
    prompt, steps = tokens.rows(0, 1), (tokens.rows(1, 2), tokens.rows(2, 3))
    expected = shard.undisturbed(prompt, *steps)
    with shard.session() as session:
        client = session.client
        applied = session.exchange(client.chunk([prompt], step=0))
        session.applied(applied)
        rows = rows_of([session.applied(session.exchange(client.decode(steps[0], step=highest)))])
        message = (
            client.chunk([steps[1]], fresh=True, step=below)
            if chunk
            else client.decode(steps[1], step=below)
        )
        check_duplicate(session.exchange(message), past_len=2)
        rows = joined(rows, session.decode(steps[1]))
    shard.check_equal(rows, expected[-2:], "the steps around an old step number")


@pytest.mark.requirement("IDEM-06")
@given(gaps=st.lists(st.integers(1, 2**56), min_size=2, max_size=4))
@example(gaps=[2, 1000, 2**62])
@settings(max_examples=12)
def test_a_step_number_that_jumps_ahead_is_accepted(shard: ShardUnderTest, gaps: list[int]) -> None:
    """Prefill and steps whose numbers leave gaps of any size, up to the largest that fits."""
    count = len(gaps)
    tokens = shard.tokens(1 + count)
    prompt = tokens.rows(0, 1)
    steps = [tokens.rows(1 + index, 2 + index) for index in range(count)]
    expected = shard.undisturbed(prompt, *steps)
    number = 1
    with shard.session() as session:
        rows = rows_of([session.applied(session.exchange(session.client.chunk([prompt])))])
        for gap, step in zip(gaps, steps, strict=True):
            number += gap
            message = session.client.decode(step, step=number)
            rows = joined(rows, rows_of([session.applied(session.exchange(message))]))
    shard.check_equal(rows, expected, "steps with gaps in their numbers")


Spoil = Callable[[Session, Tensor], pb.SessionRequest]


def _corrupt(session: Session, token: Tensor) -> pb.SessionRequest:
    message = session.client.decode(token)
    message.decode.tensor.checksum.value = bytes(4)
    return message


def _missed(session: Session, token: Tensor) -> pb.SessionRequest:
    return session.client.decode(token, expected=session.client.past_len + 1)


def _misplaced(session: Session, token: Tensor) -> pb.SessionRequest:
    return session.client.decode(token, position=session.client.past_len + 1)


@pytest.mark.requirement("IDEM-07")
@FULL_FORM
@pytest.mark.parametrize("spoil", [_corrupt, _missed, _misplaced], ids=lambda f: f.__name__[1:])
def test_a_refused_step_may_come_again_correct_under_its_number(
    shard: ShardUnderTest, spoil: Spoil, full: bool
) -> None:
    """A decode step is refused, then sent correctly with the same step number and work id."""
    # faults.md 162
    tokens = shard.tokens(4)
    prompt, step = tokens.rows(0, 3), tokens.rows(3, 4)
    expected = shard.undisturbed(prompt, step)
    with shard.session() as session:
        session.prefill(prompt)
        bad = session.exchange(spoil(session, step))
        session.refused(bad)
        message = session.client.decode(step, full=full, step=bad.step, work_id=bad.work_id)
        rows = rows_of([session.applied(session.exchange(message))])
    shard.check_equal(rows, expected[-1:], "the corrected step under the number of a refused one")


@pytest.mark.requirement("IDEM-08")
@pytest.mark.parametrize("what", ["decode-step", "chunk", "other-bytes"])
def test_a_duplicate_brings_no_result_or_the_original_one(shard: ShardUnderTest, what: str) -> None:
    """Whatever comes for a repeated step until the stream ends is held against the first result."""
    tokens = shard.tokens(3)
    prompt, steps = tokens.rows(0, 1), (tokens.rows(1, 2), tokens.rows(2, 3))
    with shard.session() as session:
        client = session.client
        first = session.applied(session.exchange(client.chunk([prompt])))
        if what != "chunk":
            first = session.applied(session.exchange(client.decode(steps[0])))
        message = first.request
        if what == "other-bytes":
            message = client.decode(steps[1], step=first.step, work_id=first.work_id, expected=1)
        again = session.exchange(message)
        check_duplicate(again, past_len=client.past_len)
    original = rows_of([first])
    for envelope, tensors in [*first.results[1:], *again.results]:
        if envelope.idempotency_step != first.step or not tensors:
            raise Nonconformance(
                f"the result of step {first.step}", f"one of step {envelope.idempotency_step}"
            )
        rows = tensors[0].to_float32().reshape(original.shape)
        shard.check_equal(rows, original, "the result sent again for a duplicate")
