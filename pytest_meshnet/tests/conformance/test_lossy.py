"""A session over a lossy line examines a Shard, or says that it did not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from conformance import test_relay_faults
from conformance.lossy import LossySession, Sequence
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.runtime.errors import Nonconformance, NotProvoked
from pytest_meshnet.runtime.faults import Fault, Plan
from pytest_meshnet.runtime.relay import PERFECT
from pytest_meshnet.runtime.shard import ShardUnderTest
from pytest_meshnet.runtime.transport import Stream, StreamEnd, Transport
from pytest_meshnet.tests.runtime.workers import BusyAtFirst, ruled_by, small_shard

LOST = Plan((Fault("drop", 0),))


class Waiting:
    """A stream whose first frame takes `seconds`: whoever waits for less hears nothing yet."""

    def __init__(self, inner: Stream, seconds: float) -> None:
        self._inner = inner
        self._seconds = seconds
        self.send, self.half_close = inner.send, inner.half_close
        self.stop_reading, self.drop = inner.stop_reading, inner.drop

    def receive(self, timeout: float) -> pb.SessionResponse | StreamEnd:
        if timeout < self._seconds:
            raise TimeoutError("nothing yet")
        self._seconds = 0
        return self._inner.receive(timeout)


def late(inner: Transport, seconds: float) -> Transport:
    """Let the first frame of every stream take that long."""
    right = inner.open_stream
    inner.open_stream = lambda: Waiting(right(), seconds)  # type: ignore[method-assign]
    return inner


def units_of(shard: ShardUnderTest, plan: Plan) -> int:
    lossy = LossySession(shard, plan, Sequence.drawn(shard))
    lossy.run(patient=True)
    return len(lossy.units)


@pytest.mark.parametrize("plan", [PERFECT, Plan((Fault("drop", 1),)), Plan((Fault("flip", 0),))])
def test_a_shard_that_accepts_slowly_is_examined_like_any_other(plan: Plan) -> None:
    slow = small_shard(behind=partial(late, seconds=9.0))
    assert units_of(slow, plan) == units_of(small_shard(), plan) > 0


def test_a_session_waits_for_a_place_as_long_as_one_may_be_kept() -> None:
    sequence = Sequence.drawn(small_shard())
    lossy = LossySession(small_shard(ruled_by(BusyAtFirst)), PERFECT, sequence)
    lossy.run(patient=False)
    assert lossy.units


class Silent(Worker):
    """Says nothing to an open."""

    def accept(self, stream: int, message: pb.SessionOpen) -> None:
        pass


@pytest.mark.parametrize(
    ("change", "actual"),
    [
        (ruled_by(BusyAtFirst), "RESOURCE_EXHAUSTED"),
        (lambda worker: Silent(worker.served), "silence"),
    ],
)
def test_an_open_that_is_not_accepted_is_a_finding(
    change: Callable[[Worker], Worker], actual: str
) -> None:
    sequence = Sequence.drawn(small_shard())
    lossy = LossySession(small_shard(change, cleanup=-1.0), PERFECT, sequence)
    with pytest.raises(Nonconformance, match=f"expected: accepted\nactual: .*{actual}"):
        lossy.run(patient=False)


def test_a_line_that_loses_the_opening_says_nothing_about_the_shard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert units_of(small_shard(), LOST) == 0
    monkeypatch.setattr(Plan, "drawn", lambda seed, frames: LOST)
    with pytest.raises(NotProvoked, match="no unit was sent"):
        test_relay_faults.test_faults_drawn_from_the_seed_of_the_run_lead_to_no_wrong_result(
            small_shard(), patient=True
        )
