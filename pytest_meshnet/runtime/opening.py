"""Opens that must fail, and streams read to their end: what tests of opening have in common."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.client import SeamClient
from pytest_meshnet.protocol.machines.exchange import Seam
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.results import check_code
from pytest_meshnet.runtime.session import Session
from pytest_meshnet.runtime.shard import ShardUnderTest
from pytest_meshnet.runtime.trace import describe
from pytest_meshnet.runtime.transport import StreamEnd

Edit = Callable[[pb.SessionOpen], object]
OpenAnswer = pb.SessionAccepted | pb.ShardStatus


def edited_open(seam: Seam, edit: Edit) -> pb.SessionRequest:
    """A legal open with one change."""
    message = SeamClient(seam).open()
    edit(message.open)
    return message


def try_edited(shard: ShardUnderTest, edit: Edit) -> OpenAnswer:
    """What a legal open with one change is answered, on a stream of its own."""
    session, answer = _attempt(shard, edit)
    session.finish()
    return answer


def edited_session(shard: ShardUnderTest, edit: Edit) -> Session:
    """A session that must be accepted for all the change in its open. Use as a context manager."""
    session, answer = _attempt(shard, edit)
    if isinstance(answer, pb.ShardStatus):
        raise Nonconformance("accepted", describe(pb.SessionResponse(status=answer)))
    return session


def _attempt(shard: ShardUnderTest, edit: Edit) -> tuple[Session, OpenAnswer]:
    return shard.attempt(lambda session: edited_open(session.client.seam, edit))


def refused_open(shard: ShardUnderTest, edit: Edit, *codes: int) -> pb.ShardStatus:
    """Require that a legal open with one change ends in a terminal status.

    Its code is one of `codes`, or any but UNSPECIFIED and INTERNAL.
    """
    answer = try_edited(shard, edit)
    if isinstance(answer, pb.SessionAccepted):
        accepted = describe(pb.SessionResponse(accepted=answer))
        raise Nonconformance("the open refused with a terminal status", accepted)
    check_code(answer, *codes)
    return answer


def answers(shard: ShardUnderTest, *messages: pb.SessionRequest) -> list[pb.SessionResponse]:
    """Everything that a new stream answers to `messages` before it ends.

    The client half-closes after the last: a runtime may wait for that before it ends the stream.
    """
    stream, name = shard.transport.open_stream(), "bare"
    for message in messages:
        shard.trace.sent(name, message)
        stream.send(message)
    stream.half_close()
    until = time.monotonic() + shard.answer_time
    found: list[pb.SessionResponse] = []
    expected = "the end of the stream"
    while True:
        try:
            frame = stream.receive(max(0.0, until - time.monotonic()))
        except TimeoutError as silence:
            stream.drop()
            line = shard.trace.silence(name, expected)
            raise shard.target.loss(expected) or Nonconformance(
                expected,
                str(silence),
                "end the stream after a terminal status, whatever still arrives on it",
                frame=line,
            ) from None
        shard.trace.received(name, frame)
        if not isinstance(frame, StreamEnd):
            found.append(frame)
            continue
        if frame.code == "UNAVAILABLE" and (lost := shard.target.loss(expected)) is not None:
            raise lost
        return found


def only_refusal(found: Sequence[pb.SessionResponse], *codes: int) -> pb.ShardStatus:
    """Require that a stream answered one terminal status and nothing else, with a code as above."""
    if [frame.WhichOneof("kind") for frame in found] != ["status"]:
        came = "; ".join(map(describe, found)) or "nothing"
        raise Nonconformance("one terminal status and nothing else", came)
    status = found[0].status
    if not status.terminal:
        raise Nonconformance("a terminal status", describe(found[0]))
    check_code(status, *codes)
    return status
