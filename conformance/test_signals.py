"""Signals in band that name another session or epoch than that of their stream: nothing happens.

Whether such a signal is passed over in silence or answered with a status that ends nothing is free.
"""

from __future__ import annotations

import pytest

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.runtime.results import joined, rows_of
from pytest_meshnet.runtime.session import Session
from pytest_meshnet.runtime.shard import ShardUnderTest

from .in_flight import covered_steps, drawn, expected_rows, outcomes, take_off

# The epoch of the session that must be left alone, so that there are older and newer ones.
EPOCH = 4


def _elsewhere(requirement: str) -> pytest.MarkDecorator:
    """Where a signal may be addressed; an older epoch is what EPOCH-05 is about."""
    return pytest.mark.parametrize(
        ("name", "epoch"),
        [
            pytest.param("-2", EPOCH, id="session", marks=pytest.mark.requirement(requirement)),
            pytest.param("", EPOCH + 1, id="newer", marks=pytest.mark.requirement(requirement)),
            pytest.param("", EPOCH - 1, id="older", marks=pytest.mark.requirement("EPOCH-05")),
        ],
    )


def _signal(session: Session, kind: str, name: str, epoch: int) -> pb.SessionRequest:
    """The signal of this session under another name or epoch."""
    message = session.client.release() if kind == "release" else session.client.cancel()
    signal = message.release if kind == "release" else message.cancel
    signal.route_session_id += name
    signal.route_epoch = epoch
    return message


@_elsewhere("RELEASE-01")
@pytest.mark.parametrize("before", ["prefill", "unfinished", "decode"])
def test_a_release_that_is_for_another_session_or_epoch_drops_nothing(
    shard: ShardUnderTest, before: str, name: str, epoch: int
) -> None:
    """It comes at each stage of a session, which then goes on as if it had never come."""
    tokens = shard.tokens(5)
    steps = [tokens.rows(at, at + 1) for at in (3, 4)]
    expected = shard.undisturbed(tokens.rows(0, 3), *steps)
    with shard.session(shard.seam(epoch=EPOCH)) as session:
        done = []
        if before == "unfinished":
            session.prefill(tokens.rows(0, 2), finish=False)
        else:
            session.prefill(tokens.rows(0, 3))
        if before == "decode":
            done = [session.decode(steps[0])]
        session.send(_signal(session, "release", name, epoch))
        if before == "unfinished":
            session.prefill(tokens.rows(2, 3))
        rows = joined(*done, *(session.decode(step) for step in steps[len(done) :]))
    shard.check_equal(rows, expected[-2:], "the steps around a release that is not for them")


@_elsewhere("CANCEL-04")
@pytest.mark.parametrize("wanted", [1, 3])
def test_a_cancel_that_is_for_another_session_or_epoch_ends_no_unit(
    slow_shard: ShardUnderTest, shard: ShardUnderTest, wanted: int, name: str, epoch: int
) -> None:
    """Every unit of the stream is in flight when it comes, and each must be applied."""
    tokens = drawn(shard, wanted)
    expected = expected_rows(shard, tokens)
    with slow_shard.session(slow_shard.seam(epoch=EPOCH)) as session:
        count = covered_steps(session, slow_shard, wanted)
        flight = take_off(session, slow_shard, tokens, count)
        session.send(_signal(session, "cancel", name, epoch))
        done = outcomes(flight)
        rows = rows_of(flight.exchanges)
    shard.check_equal(rows, expected[:done], "the steps around a cancel that is not for them")
