"""Credit over a long and ugly life, messages too large, and sessions that must not stop others."""

from __future__ import annotations

import math
import random
import time

import pytest

from pytest_meshnet.protocol.flow import FlowLimits
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.exchange import Exchange
from pytest_meshnet.protocol.tensors import Tensor
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.results import joined
from pytest_meshnet.runtime.session import Session
from pytest_meshnet.runtime.shard import ShardUnderTest

from .in_flight import (
    PROMPT,
    check_silent,
    code_of,
    covered_steps,
    drawn,
    outcomes,
    take_off,
    unary_cancel,
)
from .test_flow import ANSWERED, BEYOND, ceiling, check_ceiling

SECONDS = 3.0
UNITS_IN_PROCESS = 3000
UNITS_ON_THE_WIRE = 400

# Credit over a long life -------------------------------------------------------------------------


class Life:
    """A session that sees everything that takes or returns a credit, in a random order."""

    def __init__(self, shard: ShardUnderTest, session: Session) -> None:
        self.shard, self.session = shard, session
        self.random = random.Random(shard.seed)
        self.tokens = drawn(shard, 11)
        self.token = self.tokens.rows(0, 1)
        self.units = 0
        self.restart()
        self.bound = ceiling(session)

    def restart(self) -> None:
        """Begin at token zero again, which bounds the length of the state."""
        self.session.prefill(self.tokens.rows(0, PROMPT), fresh=True)
        self.done = self.session.exchange(self.session.client.decode(self.token))
        self.session.applied(self.done)
        self.units += 2

    def live(self) -> None:
        """One thing that happens."""
        getattr(self, self.random.choice(["errors", "errors", "steps", "cancels", "burst"]))()
        if self.session.client.in_flight:
            raise Nonconformance("every unit answered", f"{self.session.client.in_flight} are not")

    def errors(self) -> None:
        """Duplicates and refused units, as many at once as credit allows."""
        sent = [self.spoiled() for _ in range(self.random.randint(1, self.bound))]
        for exchange in sent:
            self.check(self.session.wait(exchange))

    def spoiled(self) -> Exchange:
        """Send one that never moves the position."""
        self.units += 1
        spoil = ANSWERED[self.random.choice(sorted(ANSWERED.keys() - {"acked"}))]
        return self.session.send_unit(spoil(self.session, self.token, self.done))

    def steps(self) -> None:
        """Steps one behind the other, all applied."""
        count = covered_steps(self.session, self.shard, self.random.randint(1, self.bound))
        self.units += count + 1
        outcomes(take_off(self.session, self.shard, self.tokens, count))
        self.restart()

    def cancels(self) -> None:
        """Steps that are cancelled in band or by the unary call, or not in time."""
        count = covered_steps(self.session, self.shard, self.bound)
        self.units += count + 1
        flight = take_off(self.session, self.shard, self.tokens, count)
        if self.random.random() < 0.5:
            self.session.send(self.session.client.cancel())
        else:
            unary_cancel(self.shard, self.session)
        outcomes(flight, cancelled=flight.exchanges)
        self.restart()

    def burst(self) -> None:
        """More than the credit, so that a credit too many shows."""
        self.units += self.bound + BEYOND + 1
        check_ceiling(self.shard, self.session)
        self.restart()

    def check(self, exchange: Exchange) -> None:
        """A unit that had credit was not refused for lack of it."""
        if code_of(exchange) == pb.ERROR_CODE_FLOW_CONTROL_VIOLATION:
            raise Nonconformance(
                f"{self.bound} credits after {self.units} units",
                f"FLOW_CONTROL_VIOLATION for step {exchange.step}, which had credit",
                "follow the count of un-acked units over errors, cancels and duplicates",
            )


@pytest.mark.requirement("FLOW-05")
def test_credit_is_conserved_over_a_long_and_ugly_life(
    shard: ShardUnderTest, slow_shard: ShardUnderTest
) -> None:
    """Steps, errors, duplicates, cancels and bursts in a seeded order; then all credit is there.

    The order is that of the run's seed; how far it comes depends on the time there is.
    """
    in_process = slow_shard.unit_seconds == math.inf
    until = time.monotonic() + SECONDS
    wanted = UNITS_IN_PROCESS if in_process else UNITS_ON_THE_WIRE
    with shard.session() as session:
        life = Life(shard, session)
        while life.units < wanted and time.monotonic() < until:
            life.live()
        count = covered_steps(session, shard, life.bound)
        outcomes(take_off(session, shard, life.tokens, count))
        check_ceiling(shard, session)
    check_silent(session)


# Messages too large ------------------------------------------------------------------------------


def padded(message: pb.SessionRequest, size: int) -> pb.SessionRequest:
    """A message of a newer peer: a field that is unknown here adds `size` bytes and more."""
    padding = bytearray(b"\xfa\xff\x04")  # Number 10239, length-delimited.
    left = size
    while left > 0x7F:
        padding.append(left & 0x7F | 0x80)
        left >>= 7
    padding.append(left)
    message.MergeFromString(bytes(padding) + bytes(size))
    return message


@pytest.mark.requirement("FLOW-07")
@pytest.mark.parametrize("position", [1, 3], ids=["first", "third"])
@pytest.mark.parametrize("bound", [0, 64 * 1024], ids=["own-bound", "lower-bound"])
def test_a_message_above_the_bound_is_refused_and_the_worker_serves_on(
    shard: ShardUnderTest, bound: int, position: int
) -> None:
    """Faults rows 98 and 99: oversized by what an unknown field adds, as the first or third unit.

    The transport may refuse it by ending the stream; a status leaves the session where it was.
    """
    tokens = shard.tokens(3)
    expected = shard.undisturbed(tokens.rows(0, 1), tokens.rows(1, 2), tokens.rows(2, 3))
    with shard.session(proposed=FlowLimits(chunk_bytes=bound)) as session:
        client, held = session.client, tokens.rows(0, 1)
        if position == 3:
            session.prefill(held)
            session.decode(tokens.rows(1, 2))
            message = client.decode(tokens.rows(2, 3))
        else:
            message = client.chunk([held])
        sent = session.send(padded(message, client.limits.chunk_bytes))
        assert sent is not None, "a chunk and a step are units"
        _check_too_large(session, session.wait_or_end(sent), client.limits.chunk_bytes)
        if session.ended is None and client.ended is None:
            # Its step is not spent: it comes again, in its right size.
            again = client.decode(tokens.rows(2, 3), step=sent.step)
            if position == 1:
                again = client.chunk([held], step=sent.step)
            rows = session.result(session.send_unit(again))
            # The prompt's last row comes before those of the two steps.
            row = expected[-3:-2] if position == 1 else expected[-1:]
            shard.check_equal(rows[-1:], row, "the unit in its right size")
    with shard.session() as session:
        rows = joined(session.prefill(tokens.rows(0, 1)), session.decode(tokens.rows(1, 2)))
    shard.check_equal(rows[-1:], expected[-2:-1], "a session after an oversized message")


def _check_too_large(session: Session, exchange: Exchange, bound: int) -> None:
    if exchange.ack is not None:
        raise Nonconformance(
            f"a message above {bound} bytes refused",
            "it was acked",
            "measure the whole serialized message, envelope and unknown fields included",
        )
    if exchange.status is not None or session.client.ended is not None:
        session.refused(exchange)


# Sessions beside each other ----------------------------------------------------------------------


@pytest.mark.requirement("FLOW-08")
@pytest.mark.parametrize("overdrawn", [False, True], ids=["all-its-credit", "and-beyond"])
def test_a_client_that_stops_reading_does_not_stop_other_sessions(
    shard: ShardUnderTest, overdrawn: bool
) -> None:
    """Faults rows 35, 94 and 142: it sends all it may, or far more, and reads nothing of it."""
    tokens = shard.tokens(shard.length(14))
    steps = _steps(tokens)
    expected = shard.undisturbed(tokens.rows(0, 2), *steps)
    with shard.session() as deaf, shard.session() as session:
        deaf.stop_reading()
        sent = _talk(deaf, shard, 300 if overdrawn else 0)
        rows = joined(session.prefill(tokens.rows(0, 2)), *map(session.decode, steps))
        if not overdrawn:
            for exchange in sent:
                deaf.applied(deaf.wait(exchange))
        else:
            deaf.drop()
    shard.check_equal(rows, expected, "a session beside a client that does not read")


def _talk(session: Session, shard: ShardUnderTest, beyond: int) -> list[Exchange]:
    """Send fresh chunks of the largest size: all that credit covers, and `beyond` more."""
    client = session.client
    part = shard.tokens(client.plan([shard.tokens(shard.length(128), key=6)])[0].count, key=6)
    sent: list[Exchange] = []
    for _ in range(ceiling(session) + beyond):
        exchange = session.send(client.chunk([part], final=False, fresh=True))
        assert exchange is not None, "a chunk is a unit"
        sent.append(exchange)
    return sent


@pytest.mark.requirement("FLOW-09")
def test_a_decode_step_is_answered_while_another_session_prefills(shard: ShardUnderTest) -> None:
    """One session keeps its queue of chunks full; each step of the other comes back in time."""
    tokens = shard.tokens(6)
    expected = shard.undisturbed(tokens.rows(0, 2), *_steps(tokens))
    with shard.session() as busy, shard.session() as session:
        rows = session.prefill(tokens.rows(0, 2))
        pending = [_open_chunk(busy, shard)]
        busy.wait(pending[0])
        for step in _steps(tokens):
            while busy.client.may_send and busy.client.sent_len < shard.length(64):
                pending.append(_open_chunk(busy, shard))
            rows = joined(rows, session.decode(step))
        for exchange in pending:
            busy.applied(busy.wait(exchange))
    shard.check_equal(rows, expected, "steps beside a long prefill")


def _steps(tokens: Tensor) -> list[Tensor]:
    return [tokens.rows(at, at + 1) for at in range(2, tokens.shape[1])]


def _open_chunk(session: Session, shard: ShardUnderTest) -> Exchange:
    room = shard.length(64) - session.client.sent_len
    size = max(1, min(8, session.client.limits.prefill_tokens, room))
    return session.send_unit(session.client.chunk([shard.tokens(size, key=6)], final=False))
