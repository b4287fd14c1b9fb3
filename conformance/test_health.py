"""Health: live counts within their ranges, truthful, and there while every session is busy."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator

import pytest

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.runtime.errors import Nonconformance, NotProvoked
from pytest_meshnet.runtime.results import check_code, joined
from pytest_meshnet.runtime.session import Session
from pytest_meshnet.runtime.shard import ShardUnderTest
from pytest_meshnet.runtime.transport import UnaryFailed

from .side_by_side import declared_places, places

MOST_SESSIONS = 8


def eventually(
    shard: ShardUnderTest, holds: Callable[[pb.HealthReport], bool], expected: str
) -> pb.HealthReport:
    """Ask Health until it says what is expected, at most for the declared cleanup time."""
    until = time.monotonic() + shard.target.descriptor.time.cleanup
    while True:
        report = shard.health()
        if holds(report):
            return report
        if time.monotonic() > until:
            raise Nonconformance(expected, f"Health still says:\n{report}")


@contextlib.contextmanager
def many_sessions(shard: ShardUnderTest) -> Iterator[list[Session]]:
    """As many sessions at once as the worker has places, up to eight."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(shard.session()) for _ in range(places(shard, MOST_SESSIONS))]


@pytest.mark.requirement("HEALTH-01")
@pytest.mark.parametrize("ending", ["release", "unary-release", "half-close", "drop"])
def test_active_sessions_rises_with_a_session_and_returns(
    shard: ShardUnderTest, ending: str
) -> None:
    """A session opens, works, and ends in each of the ways that give its place back."""
    baseline = shard.health().active_sessions
    seam = shard.seam()
    with shard.session(seam) as session:
        session.prefill(shard.tokens(2))
        eventually(
            shard,
            lambda report: report.active_sessions == baseline + 1,
            f"active_sessions {baseline + 1} with one more session",
        )
        if ending == "release":
            session.send(session.client.release())
        elif ending == "unary-release":
            shard.release(seam)
        elif ending == "half-close":
            session.finish()
        else:
            session.drop()
        eventually(
            shard,
            lambda report: report.active_sessions == baseline,
            f"active_sessions {baseline} again after the {ending}",
        )


@pytest.mark.requirement("HEALTH-02")
@pytest.mark.parametrize("load", ["idle", "one-session", "every-session"])
def test_pressure_is_finite_and_within_zero_and_one(shard: ShardUnderTest, load: str) -> None:
    """Health is asked before, during and after work of one session or of as many as there are."""
    _check_pressure(shard.health())
    if load == "one-session":
        with shard.session() as session:
            session.prefill(shard.tokens(shard.length(8)))
            _check_pressure(shard.health())
    elif load == "every-session":
        with many_sessions(shard) as sessions:
            for session in sessions:
                session.prefill(shard.tokens(shard.length(8)))
                _check_pressure(shard.health())
    _check_pressure(shard.health())


def _check_pressure(report: pb.HealthReport) -> None:
    if not (math.isfinite(report.kv_pressure) and 0.0 <= report.kv_pressure <= 1.0):
        raise Nonconformance("kv_pressure within 0 and 1", f"{report.kv_pressure}")


@pytest.mark.requirement("HEALTH-03")
def test_pressure_rises_with_what_is_held(small_shard: ShardUnderTest) -> None:
    """One session fills half of the context; the smallest rise counts."""
    shard = small_shard
    context = shard.report.max_context_tokens
    if context > 4096:
        raise NotProvoked(f"half of a context of {context} tokens takes too long to fill")
    baseline = shard.health().kv_pressure
    with shard.session() as session:
        session.prefill(shard.tokens(max(1, context // 2)))
        found = shard.health().kv_pressure
        if not found > baseline:
            raise Nonconformance(f"kv_pressure above {baseline} at half the context", f"{found}")


@pytest.mark.requirement("HEALTH-04")
def test_serving_with_a_free_place_means_that_an_open_succeeds(shard: ShardUnderTest) -> None:
    """As long as Health says SERVING and counts a free place, one more session must open."""
    declared, opened = declared_places(shard), 0
    with contextlib.ExitStack() as stack:
        for _ in range(min(MOST_SESSIONS, declared)):
            report = shard.health()
            free = report.active_sessions < declared
            if report.state != pb.SERVING_STATE_SERVING or not free:
                break
            session = stack.enter_context(shard.unopened())
            session.open()
            opened += 1
    if not opened:
        raise NotProvoked("Health never said SERVING with a free place")


@pytest.mark.requirement("HEALTH-05")
def test_a_draining_runtime_refuses_new_sessions_and_finishes_running_ones(
    another_shard: Callable[..., ShardUnderTest],
) -> None:
    """A session of its own runtime is in mid-prefill when the drain command is run."""
    shard = another_shard()
    tokens = shard.tokens(4)
    expected = shard.undisturbed(tokens.rows(0, 3), tokens.rows(3, 4))
    with shard.session() as session:
        session.prefill_chunks(tokens.rows(0, 2), [2], finish=False)
        shard.target.drain()
        eventually(
            shard,
            lambda report: report.state == pb.SERVING_STATE_DRAINING,
            "state DRAINING after the drain command",
        )
        with shard.unopened() as late:
            answer = late.try_open(late.client.open())
            if isinstance(answer, pb.SessionAccepted):
                raise Nonconformance("a new session refused while draining", "accepted")
            check_code(answer)
        rows = session.prefill_chunks(tokens.rows(2, 3), [1])
        rows = joined(rows, session.decode(tokens.rows(3, 4)))
    shard.check_equal(rows, expected[-2:], "a running session while draining")


@pytest.mark.requirement("HEALTH-06")
def test_health_and_cancel_answer_while_every_session_is_busy(shard: ShardUnderTest) -> None:
    """Every session has as many chunks in flight as it may; both calls must come back in time."""
    seam = shard.seam()
    with many_sessions(shard) as sessions:
        for session in sessions:
            _fill(session, shard)
        for _ in range(3):
            _check_in_time(shard, "Health", shard.health)
            _check_in_time(shard, "Cancel", lambda: shard.cancel(seam, "none"))


def _fill(session: Session, shard: ShardUnderTest) -> None:
    """Send chunks of one prefill without waiting, as many as credit allows."""
    room = min(session.client.limits.prefill_tokens, shard.length(64))
    for index in range(max(1, min(session.client.credit, shard.length(64) // room))):
        session.send(session.client.chunk([shard.tokens(room, key=index)], final=False))


def _check_in_time(shard: ShardUnderTest, what: str, call: Callable[[], object]) -> None:
    try:
        call()
    except UnaryFailed as failed:
        raise shard.target.loss(what) or Nonconformance(
            f"{what} answered within {shard.answer_time:g} s while every session is busy",
            str(failed),
            "answer unary calls beside the work, not behind it",
        ) from None
