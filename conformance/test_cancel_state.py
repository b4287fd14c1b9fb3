"""What a cancel leaves: other sessions untouched, a true position, and nothing held for it."""

from __future__ import annotations

import pytest

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.exchange import Exchange
from pytest_meshnet.protocol.tensors import Tensor
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.results import joined, rows_of
from pytest_meshnet.runtime.session import Session
from pytest_meshnet.runtime.shard import ShardUnderTest

from .in_flight import (
    PROMPT,
    back_to,
    cancel,
    check_alive,
    check_goes_on,
    check_silent,
    covered_steps,
    drawn,
    expected_rows,
    outcomes,
    position,
    take_off,
    unary_cancel,
)

HOW = pytest.mark.parametrize("how", ["in-band", "unary"])


@pytest.mark.requirement("CANCEL-05")
@HOW
@pytest.mark.parametrize("which", ["all", "one"])
@pytest.mark.parametrize("busy", [False, True], ids=["beside-idle", "beside-busy"])
def test_a_cancel_never_changes_the_results_of_another_session(
    slow_shard: ShardUnderTest, shard: ShardUnderTest, busy: bool, which: str, how: str
) -> None:
    """Two sessions use the same work ids and one cancels; the other has them in flight or done."""
    tokens = drawn(shard, 2)
    expected = expected_rows(shard, tokens)
    with slow_shard.session() as other, slow_shard.session() as session:
        count = min(covered_steps(one, slow_shard, 2) for one in (other, session))
        theirs = take_off(other, slow_shard, tokens, count)
        if not busy:
            outcomes(theirs)
        flight = take_off(session, slow_shard, tokens, count)
        doomed = flight.exchanges if which == "all" else flight.exchanges[-1:]
        cancel(flight, how, "" if which == "all" else doomed[0].work_id)
        outcomes(flight, cancelled=doomed)
        outcomes(theirs)
        at = PROMPT + count
        rows = joined(rows_of(theirs.exchanges), other.decode(tokens.rows(at, at + 1)))
    check_silent(other)
    shard.check_equal(rows, expected[: count + 1], "the session beside a cancelled one")


@pytest.mark.requirement("CANCEL-06")
@HOW
@pytest.mark.parametrize("which", ["all", "first", "last"])
def test_after_a_cancel_the_session_goes_on_from_its_true_position(
    slow_shard: ShardUnderTest, shard: ShardUnderTest, which: str, how: str
) -> None:
    """It is asked where it stands, and its next result must be that of exactly that prefix."""
    tokens = drawn(shard, 3)
    expected = expected_rows(shard, tokens)
    with slow_shard.session() as session:
        flight = take_off(session, slow_shard, tokens, covered_steps(session, slow_shard, 3))
        units = flight.exchanges
        doomed = {"all": units, "first": units[:1], "last": units[-1:]}[which]
        cancel(flight, how, "" if which == "all" else doomed[0].work_id)
        applied = outcomes(flight, cancelled=doomed)
        check_goes_on(flight, tokens, expected, applied)
    check_silent(session)


@pytest.mark.requirement("CANCEL-06")
@pytest.mark.parametrize("applied", [0, 1, 2])
def test_a_cancel_behind_applied_steps_leaves_what_they_made(
    slow_shard: ShardUnderTest, shard: ShardUnderTest, applied: int
) -> None:
    """Some steps are answered before the cancel: what they gave stays, the rest leaves no trace."""
    tokens = drawn(shard, 3)
    expected = expected_rows(shard, tokens)
    with slow_shard.session() as session:
        flight = take_off(session, slow_shard, tokens, covered_steps(session, slow_shard, 3))
        for exchange in flight.exchanges[:applied]:
            session.result(exchange)
        unary_cancel(slow_shard, session)
        done = outcomes(flight, cancelled=flight.exchanges)
        rows = rows_of([one for one in flight.exchanges if one.applied])
        if done:
            shard.check_equal(rows, expected[:done], "the steps before a cancel")
        check_goes_on(flight, tokens, expected, done)
    check_silent(session)


def send_chunks(session: Session, shard: ShardUnderTest, wanted: int) -> list[Exchange]:
    """Send the open chunks of a fresh prefill, two tokens each, as many as credit covers."""
    client = session.client
    size = min(2, client.limits.prefill_tokens)
    count = max(1, min(client.credit, client.limits.inflight, wanted, shard.length(8) // size))
    tokens = shard.tokens(size * count, key=5)
    sent = []
    for index in range(count):
        part = tokens.rows(index * size, (index + 1) * size)
        message = client.chunk([part], final=False, fresh=index == 0, place=(index, count + 1))
        exchange = session.send(message)
        assert exchange is not None, "a chunk is a unit"
        sent.append(exchange)
    return sent


def await_chunks(session: Session, sent: list[Exchange]) -> None:
    """Wait for chunks that may have been cancelled: applied ones first, then none.

    One that was read behind its cancel continues nothing, where that gave the prefill up.
    """
    broken = False
    for exchange in sent:
        session.wait(exchange)
        if exchange.ack is not None and not broken:
            session.applied(exchange)
            continue
        continues = broken or exchange.first_position > 0
        codes = [pb.ERROR_CODE_CANCELLED, *([pb.ERROR_CODE_CACHE_MISS] if continues else [])]
        session.refused(exchange, *codes)
        broken = True
    check_alive(session)


@pytest.mark.requirement("CANCEL-07")
@HOW
@pytest.mark.parametrize("acked", [0, 1, 2])
def test_a_cancelled_prefill_gives_everything_back_and_can_start_afresh(
    slow_shard: ShardUnderTest, shard: ShardUnderTest, acked: int, how: str
) -> None:
    """Faults rows 91 and 119: again and again chunks are cancelled behind others that were acked.

    A prefill from token zero must then give its results, and hold no more than it ever does.
    """
    tokens = shard.tokens(3)
    prompt, step = tokens.rows(0, 2), tokens.rows(2, 3)
    expected = shard.undisturbed(prompt, step)
    baseline = slow_shard.health()
    with slow_shard.session() as session:
        session.prefill(prompt)
        session.decode(step)
        alone = slow_shard.health()
        for _ in range(2):
            sent = send_chunks(session, slow_shard, acked + 2)
            for exchange in sent[:acked]:
                session.applied(session.wait(exchange))
            cancel_all(session, slow_shard, how)
            await_chunks(session, sent)
        rows = joined(session.prefill(prompt, fresh=True), session.decode(step))
        back_to(slow_shard, alone, "of a session that was never cancelled")
    check_silent(session)
    back_to(slow_shard, baseline, "after a session whose prefills were cancelled")
    shard.check_equal(rows, expected, "a fresh prefill after cancelled ones")


@pytest.mark.requirement("CANCEL-07")
@HOW
@pytest.mark.parametrize("flying", [0, 1, 2])
def test_a_cancel_between_chunks_keeps_the_kv_of_the_position_it_leaves_and_no_more(
    slow_shard: ShardUnderTest, how: str, flying: int
) -> None:
    """A prefill is cancelled behind its first chunks, with none or some more in flight.

    What was acked may stay or go. Health must count as much as a prefill that has come as far as
    the position that is told, and a prefill behind it as much as one that was never cancelled.
    """
    tokens = slow_shard.tokens(PROMPT + 3, key=6)
    with slow_shard.session() as session:
        counted = _counted_at_each_length(session, slow_shard, tokens)
        for _ in range(2):
            session.prefill_chunks(tokens.rows(0, PROMPT), [PROMPT], fresh=True, finish=False)
            sent = []
            room = min(session.client.credit, session.client.limits.inflight)
            for at in range(PROMPT, PROMPT + min(flying, room)):
                exchange = session.send(
                    session.client.chunk([tokens.rows(at, at + 1)], final=False)
                )
                assert exchange is not None, "a chunk is a unit"
                sent.append(exchange)
            cancel_all(session, slow_shard, how)
            await_chunks(session, sent)
            done = PROMPT + sum(one.applied for one in sent)
            told = position(session, tokens)
            if told not in (0, done):
                raise Nonconformance(f"0 or {done} tokens held after the cancel", f"{told}")
            back_to(slow_shard, counted[told], f"of {told} tokens, after a cancelled prefill")
        session.prefill(tokens, fresh=True)
        back_to(slow_shard, counted[tokens.shape[1]], "of a prefill that was never cancelled")
    check_silent(session)


def _counted_at_each_length(
    session: Session, shard: ShardUnderTest, tokens: Tensor
) -> dict[int, pb.HealthReport]:
    """What Health counts when an undisturbed prefill holds nothing, a prompt, and each token more.

    Where the prefill is over, what is in flight has come to rest.
    """
    counted = {0: shard.health()}
    for at in range(PROMPT, tokens.shape[1] + 1):
        start = 0 if at == PROMPT else at - 1
        rows = tokens.rows(start, at)
        session.prefill_chunks(rows, [at - start], fresh=not start, finish=False)
        counted[at] = shard.health()
    return counted


def cancel_all(session: Session, shard: ShardUnderTest, how: str) -> None:
    """Cancel every unit of a session, in band or by the unary call."""
    if how == "in-band":
        session.send(session.client.cancel())
    else:
        unary_cancel(shard, session)


@pytest.mark.requirement("CANCEL-07")
@HOW
def test_a_cancel_with_no_chunk_in_flight_lets_the_prefill_start_afresh(
    shard: ShardUnderTest, how: str
) -> None:
    """The first chunk is acked, the second not sent yet: the client cancels and begins again."""
    tokens = shard.tokens(3)
    prompt, step = tokens.rows(0, 2), tokens.rows(2, 3)
    expected = shard.undisturbed(prompt, step)
    with shard.session() as session:
        session.prefill_chunks(shard.tokens(2, key=5), [1, 1], finish=False)
        if how == "in-band":
            session.send(session.client.cancel())
        elif unary_cancel(shard, session):
            raise Nonconformance("nothing in flight between two chunks", "a unit was cancelled")
        rows = joined(session.prefill(prompt, fresh=True), session.decode(step))
    check_silent(session)
    shard.check_equal(rows, expected, "a fresh prefill after a cancel between chunks")
