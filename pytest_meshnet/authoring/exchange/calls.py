"""The unary calls of an exchange, each answered by a message whatever way the answer came."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pytest_meshnet.authoring.exchange.notation import Frame
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.exchange import Seam

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from pytest_meshnet.runtime.shard import ShardUnderTest


def _release(shard: ShardUnderTest, seam: Seam, frame: Frame) -> pb.ReleaseResponse:
    del frame
    error, released = shard.release(seam)
    return pb.ReleaseResponse(released=released, error=error)


def _cancel(shard: ShardUnderTest, seam: Seam, frame: Frame) -> pb.CancelResponse:
    error, count = shard.cancel(seam, frame.get("work"))
    return pb.CancelResponse(cancelled_work_items=count, error=error)


def _health(shard: ShardUnderTest, seam: Seam, frame: Frame) -> pb.HealthReport:
    del seam, frame
    return shard.health()


def _capability(shard: ShardUnderTest, seam: Seam, frame: Frame) -> pb.CapabilityReport:
    del seam, frame
    return shard.transport.capability(
        pb.CapabilityRequest(schema_version=pb.SCHEMA_VERSION_1), shard.answer_time
    )


CALLS: dict[str, Callable[[ShardUnderTest, Seam, Frame], Message]] = {
    "Release": _release,
    "Cancel": _cancel,
    "Health": _health,
    "GetCapability": _capability,
}
"""Each call by its kind, for the session that the frame names."""
