"""The relay's stream under faults: what each of its two ends sees."""

from __future__ import annotations

from collections import deque

import pytest

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.runtime.faults import Fault, Plan
from pytest_meshnet.runtime.relay import RelayStream
from pytest_meshnet.runtime.transport import StreamEnd


class FarEnd:
    """A stream that notes what happens to it, in order, and answers with prepared messages."""

    def __init__(self, *answers: pb.SessionResponse | StreamEnd) -> None:
        self.seen: list[bytes | str] = []
        self._answers = deque(answers)

    def send(self, message: pb.SessionRequest | bytes) -> None:
        assert isinstance(message, bytes)
        self.seen.append(message)

    def receive(self, timeout: float) -> pb.SessionResponse | StreamEnd:
        if not self._answers:
            raise TimeoutError(f"{timeout}")
        return self._answers.popleft()

    def stop_reading(self) -> None:
        self.seen.append("stop reading")

    def half_close(self) -> None:
        self.seen.append("half-close")

    def drop(self) -> None:
        self.seen.append("drop")


def ack(work_id: str) -> pb.SessionResponse:
    return pb.SessionResponse(ack=pb.Ack(work_id=work_id))


def test_frames_held_back_go_out_before_the_half_close() -> None:
    far = FarEnd()
    near = RelayStream(far, Plan((Fault("delay", 0, 5),)))
    near.send(b"first")
    near.send(b"second")
    near.half_close()
    assert far.seen == [b"second", b"first", "half-close"]


def test_a_cut_loses_the_far_stream_and_nothing_follows() -> None:
    far = FarEnd()
    near = RelayStream(far, Plan((Fault("cut", 0),)))
    near.send(b"first")
    near.send(b"second")
    assert far.seen == [b"first", "drop"]


def test_a_cut_on_the_way_back_ends_the_near_stream_behind_its_frame() -> None:
    far = FarEnd(ack("a"), ack("b"))
    near = RelayStream(far, Plan(responses=(Fault("cut", 0),)))
    assert near.receive(1.0) == ack("a")
    assert near.receive(1.0) == StreamEnd("UNAVAILABLE", "the relay lost the stream")
    assert far.seen == ["drop"]


def test_answers_held_back_come_before_the_end() -> None:
    far = FarEnd(ack("a"), ack("b"), StreamEnd("OK"))
    near = RelayStream(far, Plan(responses=(Fault("delay", 0, 5),)))
    assert [near.receive(1.0) for _ in range(4)] == [
        ack("b"),
        ack("a"),
        StreamEnd("OK"),
        StreamEnd("OK"),
    ]


def test_a_dropped_answer_is_silence() -> None:
    near = RelayStream(FarEnd(ack("a")), Plan(responses=(Fault("drop", 0),)))
    with pytest.raises(TimeoutError):
        near.receive(1.0)


def test_stopping_to_read_and_dropping_reach_the_far_end() -> None:
    far = FarEnd()
    near = RelayStream(far, Plan())
    near.stop_reading()
    near.drop()
    assert far.seen == ["stop reading", "drop"]
