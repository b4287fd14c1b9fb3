"""Deadlines in the frames: absolute, zero for none, and never half applied.

Clocks of two machines differ, so a deadline that must have passed lies minutes back, and one that
must hold lies minutes ahead.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.tensors import Tensor
from pytest_meshnet.runtime.errors import Nonconformance, NotProvoked
from pytest_meshnet.runtime.results import joined
from pytest_meshnet.runtime.session import Session
from pytest_meshnet.runtime.shard import ShardUnderTest

MINUTE = 60 * 1_000_000_000
MILLISECOND = 1_000_000

Unit = Callable[[Session, Tensor, int], pb.SessionRequest]

UNITS: dict[str, Unit] = {
    "decode-step": lambda one, token, when: one.client.decode(token, deadline=when),
    "full-form": lambda one, token, when: one.client.decode(token, full=True, deadline=when),
    "append": lambda one, token, when: one.client.chunk([token], deadline=when),
    "stateless": lambda one, token, when: one.client.chunk(
        [token], mode=pb.CACHE_MODE_STATELESS, deadline=when
    ),
}
EVERY_UNIT = pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)


def check_expired(shard: ShardUnderTest, unit: Unit, ago: int) -> None:
    """Send a unit that expired `ago` nanoseconds before; then the state must be as it was."""
    tokens = shard.tokens(3)
    prompt, step = tokens.rows(0, 2), tokens.rows(2, 3)
    expected = shard.undisturbed(prompt, step)
    with shard.session() as session:
        rows = session.prefill(prompt)
        message = unit(session, shard.tokens(1, key=9), time.time_ns() - ago)
        session.refused(session.exchange(message), pb.ERROR_CODE_DEADLINE_EXCEEDED)
        rows = joined(rows, session.decode(step))
    shard.check_equal(rows, expected, "a session around an expired unit")


@pytest.mark.requirement("DEADLINE-01")
@EVERY_UNIT
@pytest.mark.parametrize("minutes", [5, 60 * 24 * 365], ids=["minutes", "a-year"])
def test_a_unit_that_expired_before_it_arrived_is_refused_and_not_executed(
    shard: ShardUnderTest, unit: Unit, minutes: int
) -> None:
    """The expired unit carries another token, so that a trace of it shows in the next result."""
    check_expired(shard, unit, minutes * MINUTE)


@pytest.mark.requirement("DEADLINE-01")
def test_an_expired_first_chunk_leaves_no_state(shard: ShardUnderTest) -> None:
    """A prefill that expired is refused; the decode that relies on it is missed at 0."""
    tokens = shard.tokens(3)
    with shard.session() as session:
        message = session.client.chunk([tokens.rows(0, 2)], deadline=time.time_ns() - 5 * MINUTE)
        session.refused(session.exchange(message), pb.ERROR_CODE_DEADLINE_EXCEEDED)
        message = session.client.decode(tokens.rows(2, 3), expected=2)
        status = session.refused(session.exchange(message), pb.ERROR_CODE_CACHE_MISS)
    if status.error.actual_past_len != 0:
        raise Nonconformance(
            "actual_past_len 0 after an expired prefill", f"{status.error.actual_past_len}"
        )


# Some long gone, some far away, and some around now, which may go either way.
OFFSETS = [
    10 * MINUTE,
    -10 * MINUTE,
    0,
    MILLISECOND,
    -MILLISECOND,
    5 * MILLISECOND,
    -5 * MINUTE,
    20 * MILLISECOND,
    30 * MINUTE,
]


@pytest.mark.requirement("DEADLINE-02")
@pytest.mark.parametrize("form", ["decode-step", "append"])
def test_each_unit_is_acked_or_expired_and_past_len_is_the_acked_sum(
    shard: ShardUnderTest, form: str
) -> None:
    """Units with deadlines around now, one after the other; the client follows what was acked."""
    # faults.md 96, 102
    offsets = OFFSETS[: shard.length(len(OFFSETS) + 1) - 1]
    tokens = shard.tokens(1 + len(offsets))
    held = [tokens.rows(0, 1)]
    with shard.session() as session:
        session.prefill(held[0])
        for index, offset in enumerate(offsets, start=1):
            token = tokens.rows(index, index + 1)
            message = UNITS[form](session, token, time.time_ns() + offset)
            exchange = session.exchange(message)
            if exchange.status is None:
                session.applied(exchange)
                held.append(token)
            else:
                session.refused(exchange, pb.ERROR_CODE_DEADLINE_EXCEEDED)
            if session.client.past_len != len(held):
                raise Nonconformance(
                    f"past_len {len(held)}, the sum of what was acked",
                    f"past_len {session.client.past_len}",
                )
        rows = session.decode(shard.tokens(1, key=9))
    expected = shard.undisturbed(held[0], *held[1:], shard.tokens(1, key=9))
    shard.check_equal(rows, expected[-1:], "a step after units with deadlines around now")


@pytest.mark.requirement("DEADLINE-03")
@EVERY_UNIT
def test_a_zero_deadline_never_expires(shard: ShardUnderTest, unit: Unit) -> None:
    """Zero is no time long ago: the unit is applied."""
    with shard.session() as session:
        session.prefill(shard.tokens(2))
        session.result(session.send_unit(unit(session, shard.tokens(1, key=9), 0)))


@pytest.mark.requirement("DEADLINE-04")
@EVERY_UNIT
def test_the_deadline_in_the_frame_holds_on_a_stream_without_one(
    shard: ShardUnderTest, unit: Unit
) -> None:
    """The suite's streams have no transport deadline: what is in the frame is all there is."""
    check_expired(shard, unit, 5 * MINUTE)
    with shard.session() as session:
        session.prefill(shard.tokens(2))
        message = unit(session, shard.tokens(1, key=9), time.time_ns() + 10 * MINUTE)
        session.result(session.send_unit(message))


@pytest.mark.requirement("DEADLINE-05")
def test_a_deadline_that_passes_while_work_waits_is_exceeded(
    another_shard: Callable[..., ShardUnderTest],
) -> None:
    """Each unit takes 400 ms; behind the first waits one that expires after 100 ms."""
    shard = another_shard(MESHNET_TEST_STALL_MS="400")
    tokens = shard.tokens(4)
    with shard.session() as session:
        session.prefill(tokens.rows(0, 2))
        if session.client.credit < 2:
            raise NotProvoked("there is credit for one unit only, so that none waits")
        first = session.send_unit(session.client.decode(tokens.rows(2, 3)))
        late = time.time_ns() + 100 * MILLISECOND
        waiting = session.send_unit(session.client.decode(tokens.rows(3, 4), deadline=late))
        session.result(first)
        session.refused(session.wait(waiting), pb.ERROR_CODE_DEADLINE_EXCEEDED)
        session.decode(tokens.rows(3, 4))
