"""Units in flight: sent back to back, counted through unary calls, held against what may become
of them.

Every unit of a flight is a decode step that expects the one before it, so that one which was lost,
reordered or half applied shows in the next. What is certain of them comes from Health: a worker may
read one message at a time, and then holds one unit only.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.exchange import Exchange
from pytest_meshnet.protocol.tensors import Tensor
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.session import Session
from pytest_meshnet.runtime.shard import ShardUnderTest

if TYPE_CHECKING:
    from pytest_meshnet.runtime.shard import Rows

PROMPT = 2
"""Tokens before the first step of a flight."""

ATTEMPTS = 5
"""How often a cancel is sent that must meet its unit in flight."""


@dataclass(frozen=True, slots=True)
class Flight:
    """Steps in flight. `covered` had credit and a place when they were sent; `seen` counts those
    that Health showed, which are the first."""

    shard: ShardUnderTest
    session: Session
    exchanges: list[Exchange]
    covered: int
    seen: int
    since: float

    def certain(self) -> int:
        """How many of the first steps are in flight beyond doubt, now."""
        elapsed = time.monotonic() - self.since
        return self.seen if elapsed < self.shard.unit_seconds else 0

    def cancelled(self) -> list[Exchange]:
        """The steps that were answered with CANCELLED."""
        return [one for one in self.exchanges if code_of(one) == pb.ERROR_CODE_CANCELLED]


def code_of(exchange: Exchange) -> int | None:
    """The error code that a unit was answered with."""
    return None if exchange.status is None else exchange.status.error.code


def drawn(shard: ShardUnderTest, steps: int) -> Tensor:
    """Input for the prompt, as many of `steps` as the context holds, and one token more."""
    return shard.tokens(max(PROMPT + 2, shard.length(PROMPT + steps + 1)))


def expected_rows(shard: ShardUnderTest, tokens: Tensor) -> Rows:
    """What an undisturbed session gives for the tokens behind the prompt, one row each."""
    count = tokens.shape[1]
    steps = [tokens.rows(at, at + 1) for at in range(PROMPT, count)]
    return shard.undisturbed(tokens.rows(0, PROMPT), *steps)[-len(steps) :]


def take_off(session: Session, shard: ShardUnderTest, tokens: Tensor, count: int) -> Flight:
    """Prefill the prompt afresh and send `count` steps behind it, whatever the credit."""
    session.prefill(tokens.rows(0, PROMPT), fresh=True)
    since = time.monotonic()
    covered, exchanges = 0, []
    for at in range(PROMPT, PROMPT + min(count, tokens.shape[1] - PROMPT - 1)):
        covered += session.client.may_send
        exchange = session.send(session.client.decode(tokens.rows(at, at + 1)))
        assert exchange is not None, "a decode step is a unit"
        exchanges.append(exchange)
    seen = min(len(exchanges), _seen(shard, covered, since))
    return Flight(shard, session, exchanges, covered, seen, since)


def _seen(shard: ShardUnderTest, count: int, since: float) -> int:
    """Units that Health counts at least. It may or may not count a running one as queued."""
    while True:
        report = shard.health()
        least = max(report.queued_chunks, report.batch_occupancy)
        left = shard.unit_seconds / 2 - (time.monotonic() - since)
        if least >= count - 1 or not 0 < left < shard.unit_seconds:
            return least


def covered_steps(session: Session, shard: ShardUnderTest, wanted: int) -> int:
    """Steps that credit covers and the context holds, at most `wanted`."""
    bound = min(session.client.credit, session.client.limits.inflight, wanted)
    return max(1, min(bound, shard.length(PROMPT + bound + 1) - PROMPT - 1))


def cancel(flight: Flight, how: str, work_id: str = "") -> int | None:
    """Cancel in band, or by the unary call, which must not fail: its count."""
    session = flight.session
    if how == "in-band":
        session.send(session.client.cancel(work_id))
        return None
    return unary_cancel(flight.shard, session, work_id)


def unary_cancel(shard: ShardUnderTest, session: Session, work_id: str = "") -> int:
    """Cancel by the unary call, require that it brings no error, and return its count."""
    error, count = shard.cancel(session.client.seam, work_id)
    if error.code != pb.ERROR_CODE_UNSPECIFIED:
        raise Nonconformance("a cancel without an error", f"error code {error.code}")
    return count


def outcomes(flight: Flight, cancelled: Collection[Exchange] = ()) -> int:
    """Wait for every step, require that each came to what it may, and return how many were applied.

    Those of `cancelled` may be CANCELLED, those beyond the credit FLOW_CONTROL_VIOLATION, and what
    comes behind one that was not applied a CACHE_MISS. All others are applied, in order.
    """
    session, applied, broken = flight.session, 0, False
    doomed = {one.step for one in cancelled}
    for index, exchange in enumerate(flight.exchanges):
        session.wait(exchange)
        allowed = [pb.ERROR_CODE_CANCELLED] if exchange.step in doomed else []
        allowed += [pb.ERROR_CODE_FLOW_CONTROL_VIOLATION] if index >= flight.covered else []
        allowed += [pb.ERROR_CODE_CACHE_MISS] if broken else []
        if exchange.ack is not None or not allowed:
            session.applied(exchange)
            applied += 1
            _check_in_order(exchange, applied, broken)
        else:
            session.refused(exchange, *allowed)
            broken = True
    check_alive(session)
    return applied


def _check_in_order(exchange: Exchange, applied: int, broken: bool) -> None:
    assert exchange.ack is not None, "an applied unit has an ack"
    found = exchange.ack.cache_result.past_len
    if broken or found != PROMPT + applied:
        raise Nonconformance(
            f"steps applied one behind the other, the next at past_len {PROMPT + applied}",
            f"step {exchange.step} applied at past_len {found}",
        )


def check_alive(session: Session) -> None:
    """Require that no terminal status came."""
    if session.client.ended is not None:
        code = pb.ErrorCode.Name(session.client.ended.error.code)
        raise Nonconformance("a session that goes on", f"a terminal {code}")


def check_silent(session: Session) -> None:
    """Require, after the end of a session, that no status came but those of its units."""
    if session.client.strays:
        raise Nonconformance("one answer a unit, and none to signals", f"{session.client.strays}")


def position(session: Session, tokens: Tensor) -> int:
    """The length that the Shard says it holds, asked for by a step that cannot fit any.

    It expects 1 where nothing or at least a prompt of two is held.
    """
    message = session.client.decode(tokens.rows(0, 1), expected=1)
    status = session.refused(session.exchange(message), pb.ERROR_CODE_CACHE_MISS)
    return status.error.actual_past_len


def check_goes_on(flight: Flight, tokens: Tensor, expected: Rows, applied: int) -> None:
    """Require that the session stands where it says and goes on from there, or starts afresh.

    A runtime may drop its state with a cancel, but never keep a part of a step.
    """
    session, shard = flight.session, flight.shard
    held = position(session, tokens)
    if held != 0 and not PROMPT <= held <= PROMPT + applied:
        raise Nonconformance(
            f"0, or {PROMPT} to {PROMPT + applied} tokens held with {applied} steps applied",
            f"actual_past_len {held}",
        )
    # Under the number of a step that was not applied, which is not spent.
    unspent = next((one.step for one in flight.exchanges if not one.applied), None)
    if held == 0:
        session.prefill(tokens.rows(0, PROMPT), fresh=True)
        held, unspent = PROMPT, None
    message = session.client.decode(tokens.rows(held, held + 1), expected=held, step=unspent)
    rows = session.result(session.send_unit(message))
    at = held - PROMPT
    shard.check_equal(rows, expected[at : at + 1], f"the step behind {held} tokens")


def back_to(shard: ShardUnderTest, baseline: pb.HealthReport, what: str) -> None:
    """Require that Health counts no more than `baseline` within the declared cleanup time."""
    until = time.monotonic() + shard.target.descriptor.time.cleanup
    names = ("active_sessions", "queued_chunks", "batch_occupancy", "kv_pressure")
    while True:
        report = shard.health()
        above = [name for name in names if getattr(report, name) > getattr(baseline, name)]
        if not above:
            return
        if time.monotonic() > until:
            told = ", ".join(
                f"{name} {getattr(report, name):g} instead of {getattr(baseline, name):g}"
                for name in above
            )
            raise Nonconformance(f"Health back at its baseline {what}", told)
