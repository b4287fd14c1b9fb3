"""What tests of opening have in common: edited opens, answers to the end, one refusal."""

from __future__ import annotations

import pytest

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.client import SeamClient
from pytest_meshnet.protocol.machines.events import Received
from pytest_meshnet.protocol.machines.session import Refused
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.opening import (
    answers,
    edited_session,
    only_refusal,
    refused_open,
    try_edited,
)
from pytest_meshnet.tests.runtime.workers import BusyAtFirst, ruled_by, small_shard


def _no_range(open: pb.SessionOpen) -> None:
    open.ClearField("shard_range")


def _nothing(open: pb.SessionOpen) -> None:
    pass


def test_answers_are_all_that_came_before_the_end() -> None:
    shard = small_shard()
    client = SeamClient(shard.seam())
    found = answers(shard, client.open(), client.chunk([shard.tokens(1)]))
    assert [frame.WhichOneof("kind") for frame in found] == ["accepted", "ack", "chunk"]
    assert "end OK" in shard.trace.text()


class Endless(Worker):
    """Never ends a stream by itself."""

    def refuse_stream(self, event: Received, refused: Refused) -> None:
        pass

    def _on_half_closed(self, event: object) -> None:
        pass


def test_a_stream_that_does_not_end_is_a_finding() -> None:
    shard = small_shard(lambda worker: Endless(worker.served))
    with pytest.raises(Nonconformance, match="the end of the stream"):
        answers(shard, SeamClient(shard.seam()).release())


def _status(code: int = pb.ERROR_CODE_CACHE_MISS, terminal: bool = True) -> pb.SessionResponse:
    error = pb.ShardError(code=code)
    return pb.SessionResponse(status=pb.ShardStatus(error=error, terminal=terminal))


def test_one_terminal_status_is_the_only_refusal() -> None:
    frame = _status()
    assert only_refusal([frame]) == frame.status
    assert only_refusal([frame], pb.ERROR_CODE_CACHE_MISS) == frame.status


@pytest.mark.parametrize(
    ("frames", "actual"),
    [
        ([], "nothing"),
        ([_status(), _status()], "CACHE_MISS.*CACHE_MISS"),
        ([pb.SessionResponse(ack=pb.Ack()), _status()], "ack"),
        ([_status(terminal=False)], "terminal=False"),
        ([_status(pb.ERROR_CODE_UNSPECIFIED)], "UNSPECIFIED"),
        ([_status(pb.ERROR_CODE_INTERNAL)], "INTERNAL"),
    ],
    ids=["nothing", "two", "ack-too", "not-terminal", "no-code", "internal"],
)
def test_anything_else_is_a_finding(frames: list[pb.SessionResponse], actual: str) -> None:
    with pytest.raises(Nonconformance, match=f"actual: .*{actual}"):
        only_refusal(frames)


def test_a_refusal_with_another_code_than_the_one_asked_for_is_a_finding() -> None:
    with pytest.raises(Nonconformance, match="EPOCH_STALE"):
        only_refusal([_status()], pb.ERROR_CODE_EPOCH_STALE)
    with pytest.raises(Nonconformance, match="EPOCH_STALE"):
        refused_open(small_shard(), _no_range, pb.ERROR_CODE_EPOCH_STALE)


def test_a_refused_open_gives_its_status_and_an_accepted_one_is_a_finding() -> None:
    status = refused_open(small_shard(), _no_range, pb.ERROR_CODE_SHARD_RANGE_MISMATCH)
    assert status.terminal
    with pytest.raises(Nonconformance, match="accepted session='t-1'"):
        refused_open(small_shard(), _nothing)


def test_an_edited_session_is_accepted_with_its_change() -> None:
    def epoch(open: pb.SessionOpen) -> None:
        open.route_epoch = 9

    with edited_session(small_shard(), epoch) as session:
        assert session.client.accepted is not None
        assert session.client.accepted.route_epoch == 9
    with pytest.raises(Nonconformance, match="SHARD_RANGE_MISMATCH"):
        edited_session(small_shard(), _no_range)


def test_lack_of_a_place_is_no_answer_while_the_session_before_may_be_cleaned_up() -> None:
    assert isinstance(try_edited(small_shard(ruled_by(BusyAtFirst)), _nothing), pb.SessionAccepted)


def test_lack_of_a_place_that_lasts_is_an_answer() -> None:
    status = refused_open(small_shard(ruled_by(BusyAtFirst), cleanup=-1.0), _nothing)
    assert status.error.code == pb.ERROR_CODE_RESOURCE_EXHAUSTED
