"""The relay: a Transport whose streams pass through a hop of opaque frames before the real one.

Both ends belong to the suite. The near end turns each message into bytes, the hop carries nothing
but those bytes, and the far end hands them on as they are, so that no identity, deadline or other
metadata of the caller reaches the runtime. A plan of faults makes the hop a lossy one.
"""

from __future__ import annotations

import time
from collections import deque

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.runtime.faults import FaultyLine, Plan
from pytest_meshnet.runtime.transport import Stream, StreamEnd, Transport

PERFECT = Plan()


class Hop:
    """One direction of a relayed stream: a queue of frames that nobody looks into."""

    def __init__(self, line: FaultyLine) -> None:
        self._line = line
        self._frames: deque[bytes] = deque()

    def put(self, frame: bytes) -> None:
        """Put a frame on the line."""
        self._frames.extend(self._line.carry(frame))

    def take(self) -> bytes | None:
        """The next frame that arrived, None when there is none yet."""
        return self._frames.popleft() if self._frames else None

    def flush(self) -> None:
        """Nothing more will be put: what the line holds back arrives now."""
        self._frames.extend(self._line.flush())

    @property
    def lost(self) -> bool:
        """Whether the line is cut. What arrived before can still be taken."""
        return self._line.lost


class RelayStream:
    """A stream of a RelayTransport."""

    def __init__(self, inner: Stream, plan: Plan) -> None:
        self._inner = inner
        self._outward = Hop(FaultyLine(plan.requests, pb.SessionRequest))
        self._inward = Hop(FaultyLine(plan.responses, pb.SessionResponse))
        self._end: StreamEnd | None = None

    def send(self, message: pb.SessionRequest | bytes) -> None:
        """See Stream.send."""
        if self._outward.lost:
            return
        self._outward.put(message if isinstance(message, bytes) else message.SerializeToString())
        self._hand_on()
        if self._outward.lost:
            self._inner.drop()

    def _hand_on(self) -> None:
        while (frame := self._outward.take()) is not None:
            self._inner.send(frame)

    def receive(self, timeout: float) -> pb.SessionResponse | StreamEnd:
        """See Stream.receive."""
        until = time.monotonic() + timeout
        while (frame := self._inward.take()) is None:
            if self._end is not None:
                return self._end
            self._fetch(max(0.0, until - time.monotonic()))
        return pb.SessionResponse.FromString(frame)

    def _fetch(self, timeout: float) -> None:
        """Take in what comes next on the far side. Raises TimeoutError."""
        item = self._inner.receive(timeout)
        if isinstance(item, StreamEnd):
            self._inward.flush()
            self._end = item
            return
        self._inward.put(item.SerializeToString())
        if self._inward.lost:
            self._inner.drop()
            self._end = StreamEnd("UNAVAILABLE", "the relay lost the stream")

    def stop_reading(self) -> None:
        """See Stream.stop_reading."""
        self._inner.stop_reading()

    def half_close(self) -> None:
        """See Stream.half_close. Frames held back go first."""
        self._outward.flush()
        self._hand_on()
        self._inner.half_close()

    def drop(self) -> None:
        """See Stream.drop."""
        self._inner.drop()


class RelayTransport:
    """The relay before another transport. Unary calls, which are no frames, pass through."""

    def __init__(self, inner: Transport, plan: Plan = PERFECT) -> None:
        self._inner = inner
        self._plan = plan

    def open_stream(self) -> Stream:
        """See Transport.open_stream. The plan counts the frames of each stream anew."""
        return RelayStream(self._inner.open_stream(), self._plan)

    def capability(self, request: pb.CapabilityRequest, timeout: float) -> pb.CapabilityReport:
        """See Transport.capability."""
        return self._inner.capability(request, timeout)

    def health(self, request: pb.HealthRequest, timeout: float) -> pb.HealthReport:
        """See Transport.health."""
        return self._inner.health(request, timeout)

    def release(self, request: pb.ReleaseRequest, timeout: float) -> pb.ReleaseResponse:
        """See Transport.release."""
        return self._inner.release(request, timeout)

    def cancel(self, request: pb.CancelRequest, timeout: float) -> pb.CancelResponse:
        """See Transport.cancel."""
        return self._inner.cancel(request, timeout)

    def close(self) -> None:
        """See Transport.close. The transport behind the relay is closed with it."""
        self._inner.close()
