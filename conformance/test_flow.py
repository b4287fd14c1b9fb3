"""Credit: enforced, returned by every answer, added to by grants, and bound by the in-flight limit.

A worker that reads one message at a time never has a second unit in flight. So what is beyond the
credit may always be processed, if the worker had answered what came before; what counts is how many
units were in flight at once, which the unary cancel tells.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from pytest_meshnet.protocol.flow import FlowLimits
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.exchange import Exchange
from pytest_meshnet.protocol.tensors import Tensor
from pytest_meshnet.runtime.errors import Nonconformance, NotProvoked
from pytest_meshnet.runtime.probe import ROUNDS, grant_comes, spend_credit
from pytest_meshnet.runtime.results import rows_of
from pytest_meshnet.runtime.session import Session
from pytest_meshnet.runtime.shard import ShardUnderTest

from .in_flight import (
    PROMPT,
    check_alive,
    check_goes_on,
    check_silent,
    code_of,
    drawn,
    expected_rows,
    outcomes,
    take_off,
    unary_cancel,
)

BEYOND = 3
ONE = FlowLimits(credits=1, inflight=1)
OVERDRAWN = (pb.ERROR_CODE_CANCELLED, pb.ERROR_CODE_FLOW_CONTROL_VIOLATION)
MINUTE = 60 * 1_000_000_000


def ceiling(session: Session) -> int:
    """How many units may be in flight at once."""
    return min(session.client.credit, session.client.limits.inflight)


def check_ceiling(shard: ShardUnderTest, session: Session, most: int | None = None) -> None:
    """Send more units than may be in flight, at most `most`, and cancel all: see how many were."""
    count = session.client.limits.inflight + BEYOND
    flight = take_off(session, shard, drawn(shard, count), count)
    found = unary_cancel(shard, session)
    outcomes(flight, cancelled=flight.exchanges)
    check_bound(session, found, most)


def check_bound(session: Session, found: int, most: int | None = None) -> None:
    """Hold the number of units that were in flight against the credit, now that it is back.

    Later is not too late to ask: grants only add, and come before the answers that they precede.
    """
    bound = min(ceiling(session), most or ceiling(session))
    if found > bound:
        raise Nonconformance(
            f"at most {bound} units in flight, the credit and limit of the session",
            f"{found} units cancelled",
            "refuse a unit on arrival when the un-acked ones equal the credit",
        )


@pytest.mark.requirement("FLOW-01")
@pytest.mark.parametrize("credits", [1, 2, 0], ids=["one", "two", "as-many-as-there-are"])
def test_no_more_units_are_in_flight_than_there_is_credit_for(
    slow_shard: ShardUnderTest, credits: int
) -> None:
    """Faults row 116: units beyond the credit are sent at once; each gets an answer of its own."""
    with slow_shard.session(proposed=FlowLimits(credits=credits)) as session:
        session.prefill(slow_shard.tokens(PROMPT))
        check_ceiling(slow_shard, session)
    check_silent(session)


@pytest.mark.requirement("FLOW-01")
@pytest.mark.parametrize("credits", [1, 2, 0], ids=["one", "two", "as-many-as-there-are"])
def test_units_beyond_the_credit_are_refused_or_applied_and_never_half(
    shard: ShardUnderTest, credits: int
) -> None:
    """What had credit is applied in order; the session goes on from exactly what was applied."""
    tokens = drawn(shard, 11)
    expected = expected_rows(shard, tokens)
    with shard.session(proposed=FlowLimits(credits=credits)) as session:
        session.prefill(tokens.rows(0, PROMPT))
        flight = take_off(session, shard, tokens, ceiling(session) + BEYOND)
        applied = outcomes(flight)
        rows = rows_of([one for one in flight.exchanges if one.applied])
        shard.check_equal(rows, expected[:applied], "the applied units of a burst")
        check_goes_on(flight, tokens, expected, applied)
    check_silent(session)


@pytest.mark.requirement("FLOW-02")
@pytest.mark.parametrize("proposed", [FlowLimits(credits=1), ONE], ids=["credit", "in-flight"])
@pytest.mark.parametrize(("length", "size"), [(24, 1), (96, 16)], ids=["single-tokens", "chunks"])
def test_a_long_prefill_runs_to_its_end_on_one_credit(
    shard: ShardUnderTest, length: int, size: int, proposed: FlowLimits
) -> None:
    """Faults row 92: one chunk after each ack; the last row must be that of the whole prompt."""
    tokens = shard.tokens(shard.length(length))
    expected = shard.undisturbed(tokens)
    with shard.session(proposed=proposed) as session:
        rows = session.prefill(tokens, chunk_tokens=size)
        if session.client.past_len != tokens.shape[1]:
            raise Nonconformance(f"past_len {tokens.shape[1]}", f"{session.client.past_len}")
    shard.check_equal(rows[-1:], expected[-1:], "a long prefill on one credit")


Spoil = Callable[[Session, Tensor, Exchange], pb.SessionRequest]


def _corrupt(session: Session, token: Tensor, done: Exchange) -> pb.SessionRequest:
    del done
    message = session.client.decode(token)
    message.decode.tensor.checksum.value = bytes(4)
    return message


def _missed(session: Session, token: Tensor, done: Exchange) -> pb.SessionRequest:
    del done
    return session.client.decode(token, expected=1)


def _expired(session: Session, token: Tensor, done: Exchange) -> pb.SessionRequest:
    del done
    return session.client.decode(token, deadline=time.time_ns() - 5 * MINUTE)


def _duplicate(session: Session, token: Tensor, done: Exchange) -> pb.SessionRequest:
    del session, token
    return done.request


def _stateless(session: Session, token: Tensor, done: Exchange) -> pb.SessionRequest:
    del done
    return session.client.chunk([token], mode=pb.CACHE_MODE_STATELESS)


ANSWERED: dict[str, Spoil] = {
    "acked": _stateless,
    "duplicate": _duplicate,
    "corrupt": _corrupt,
    "missed": _missed,
    "expired": _expired,
}


@pytest.mark.requirement("FLOW-03")
@pytest.mark.parametrize("spoil", ANSWERED.values(), ids=ANSWERED)
def test_every_answer_returns_the_credit_of_its_unit(shard: ShardUnderTest, spoil: Spoil) -> None:
    """With one credit, more units than there can be credits are answered so; then a step runs."""
    tokens = shard.tokens(4)
    with shard.session(proposed=ONE) as session:
        session.prefill(tokens.rows(0, 2))
        done = session.exchange(session.client.decode(tokens.rows(2, 3)))
        session.applied(done)
        for _ in range(3):
            exchange = session.exchange(spoil(session, tokens.rows(3, 4), done))
            _check_had_credit(exchange)
        _check_had_credit(last := session.exchange(session.client.decode(tokens.rows(3, 4))))
        session.applied(last)


def _check_had_credit(exchange: Exchange) -> None:
    if code_of(exchange) == pb.ERROR_CODE_FLOW_CONTROL_VIOLATION:
        raise Nonconformance(
            f"credit for step {exchange.step}: every unit before it was answered",
            "FLOW_CONTROL_VIOLATION",
            "return the credit with an ack, a duplicate ack and a status alike",
        )


@pytest.mark.requirement("FLOW-03")
@pytest.mark.parametrize("how", ["in-band", "unary"])
def test_a_cancelled_unit_returns_its_credit(slow_shard: ShardUnderTest, how: str) -> None:
    """With one credit a step is cancelled, twice; the next must find the credit again."""
    tokens = slow_shard.tokens(3)
    with slow_shard.session(proposed=ONE) as session:
        for _ in range(2):
            session.prefill(tokens.rows(0, 2), fresh=True)
            step = session.send_unit(session.client.decode(tokens.rows(2, 3)))
            if how == "in-band":
                session.send(session.client.cancel())
            else:
                unary_cancel(slow_shard, session)
            _check_had_credit(session.wait(step))
        session.prefill(tokens.rows(0, 2), fresh=True)
    check_silent(session)


def _cancel(session: Session) -> pb.SessionRequest:
    return session.client.cancel("none")


def _release(session: Session) -> pb.SessionRequest:
    return session.client.release()


def _client_grant(session: Session) -> pb.SessionRequest:
    del session
    return pb.SessionRequest(flow_control=pb.FlowControl(credits_granted=1))


@pytest.mark.requirement("FLOW-03")
@pytest.mark.parametrize("signal", [_cancel, _release, _client_grant], ids=lambda f: f.__name__[1:])
def test_signals_take_no_credit(
    slow_shard: ShardUnderTest, signal: Callable[[Session], pb.SessionRequest]
) -> None:
    """Several are sent with credit, and several when the only credit is taken by a unit."""
    tokens = slow_shard.tokens(1)
    with slow_shard.session(proposed=ONE) as session:
        for _ in range(3):
            session.send(signal(session))
        unit = session.exchange(session.client.chunk([tokens], fresh=True))
        session.applied(unit)
        busy = session.send_unit(session.client.chunk([tokens], fresh=True))
        for _ in range(3):
            session.send(signal(session))
        session.applied(session.wait(busy))
        session.applied(session.exchange(session.client.chunk([tokens], fresh=True)))
    check_silent(session)


@pytest.mark.requirement("FLOW-03")
@pytest.mark.parametrize("credits", [1, 2])
def test_a_unit_refused_for_lack_of_credit_took_none_and_gives_none_back(
    slow_shard: ShardUnderTest, credits: int
) -> None:
    """After a burst beyond the credit there is as much of it as before, and no more."""
    proposed = FlowLimits(credits=credits, inflight=credits)
    tokens = drawn(slow_shard, credits + BEYOND)
    with slow_shard.session(proposed=proposed) as session:
        session.prefill(tokens.rows(0, PROMPT))
        bound = ceiling(session)
        outcomes(take_off(session, slow_shard, tokens, bound + BEYOND))
        outcomes(take_off(session, slow_shard, tokens, bound))
        check_ceiling(slow_shard, session)
    check_silent(session)


@pytest.mark.requirement("FLOW-04")
def test_no_more_is_in_flight_than_was_granted(slow_shard: ShardUnderTest) -> None:
    """The credit is spent and overdrawn before any unit is answered, at first and once granted."""
    token = slow_shard.tokens(1)
    with slow_shard.session() as session:
        _overdraw(slow_shard, session, token)
        if not session.client.grants:
            _await_grant(session, token)
            _overdraw(slow_shard, session, token)
    check_silent(session)


def _overdraw(shard: ShardUnderTest, session: Session, token: Tensor) -> None:
    """Send fresh chunks beyond the credit, cancel all, and hold what was in flight against it."""
    client = session.client
    sent = [session.send_unit(client.chunk([token], fresh=True))]
    for _ in range(client.limits.inflight + BEYOND):
        exchange = session.send(client.chunk([token], fresh=True))
        assert exchange is not None, "a chunk is a unit"
        sent.append(exchange)
    found = unary_cancel(shard, session)
    for exchange in sent:
        if session.wait(exchange).ack is not None:
            session.applied(exchange)
        else:
            session.refused(exchange, *OVERDRAWN)
    check_bound(session, found)


def _await_grant(session: Session, token: Tensor) -> None:
    if not grant_comes(session, token):
        raise NotProvoked(f"no grant came in this session, which spent its credit {ROUNDS} times")


@pytest.mark.requirement("FLOW-04")
def test_a_grant_adds_to_the_credit_and_never_lowers_it(
    slow_shard: ShardUnderTest, shard: ShardUnderTest
) -> None:
    """Faults row 141: the credit of accepted and of every grant is spent at once, and no more."""
    tokens = drawn(shard, 11)
    expected = expected_rows(shard, tokens)
    with slow_shard.session() as session:
        session.send_unit(session.client.chunk([tokens.rows(0, PROMPT)]))
        spend_credit(session, tokens.rows(0, 1))
        _await_grant(session, tokens.rows(0, 1))
        flight = take_off(session, slow_shard, tokens, ceiling(session))
        applied = outcomes(flight)
    check_silent(session)
    rows = rows_of(flight.exchanges)
    slow_shard.check_equal(rows, expected[:applied], "units sent on granted credit")


@pytest.mark.requirement("FLOW-06")
@pytest.mark.parametrize("credits", [0, 8], ids=["no-preference", "more-credit"])
@pytest.mark.parametrize("inflight", [1, 2])
def test_the_in_flight_limit_binds_whatever_was_granted(
    slow_shard: ShardUnderTest, inflight: int, credits: int
) -> None:
    """The client asks for a low limit, and for more credit than that; units are sent beyond it."""
    proposed = FlowLimits(credits=credits, inflight=inflight)
    with slow_shard.session(proposed=proposed) as session:
        session.prefill(slow_shard.tokens(PROMPT))
        check_ceiling(slow_shard, session, inflight)
        check_alive(session)
    check_silent(session)
