"""The in-process transport: a Worker and its model in this thread, no sockets, no waiting.

Frames are serialized and parsed as on the wire. Work is computed only when a receive finds nothing
to return, so units stay in flight until somebody asks: order is a pure function of the test.
"""

from __future__ import annotations

import time
from collections import deque
from itertools import count
from typing import TypeVar

from google.protobuf.message import DecodeError

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import (
    Close,
    Completed,
    Event,
    HalfClosed,
    Lost,
    Received,
    Reply,
    Send,
    ShardModel,
    Start,
    StreamOpened,
    UnaryCalled,
    UnaryReply,
    UnaryRequest,
    Work,
)
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.runtime.transport import Stream, StreamEnd, UnaryFailed

Answer = TypeVar("Answer", bound=UnaryReply)


class InProcessStream:
    """A stream of an InProcessTransport."""

    def __init__(self, owner: InProcessTransport, number: int) -> None:
        self._owner = owner
        self._number = number
        self._incoming: deque[bytes | StreamEnd] = deque()
        self._end: StreamEnd | None = None

    def deliver(self, item: bytes | StreamEnd) -> None:
        """Take what the Worker sent; nothing follows an end."""
        if self._end is None and not (self._incoming and isinstance(self._incoming[-1], StreamEnd)):
            self._incoming.append(item)

    def send(self, message: pb.SessionRequest | bytes) -> None:
        """See Stream.send."""
        data = message if isinstance(message, bytes) else message.SerializeToString()
        try:
            parsed = pb.SessionRequest.FromString(data)
        except DecodeError:
            self._owner.post(Lost(self._number))
            self.deliver(StreamEnd("INVALID_ARGUMENT", "not a SessionRequest"))
            return
        self._owner.post(Received(self._number, parsed, len(data)))

    def receive(self, timeout: float) -> pb.SessionResponse | StreamEnd:
        """See Stream.receive. Silence is known at once: nothing else can happen."""
        while not self._incoming:
            if self._end is not None:
                return self._end
            if not self._owner.compute_one():
                raise TimeoutError(f"nothing arrives, now or within {timeout:g} s")
        item = self._incoming.popleft()
        if isinstance(item, StreamEnd):
            self._end = item
            return item
        return pb.SessionResponse.FromString(item)

    def stop_reading(self) -> None:
        """See Stream.stop_reading. Nothing is read here but by receive."""

    def half_close(self) -> None:
        """See Stream.half_close."""
        self._owner.post(HalfClosed(self._number))

    def drop(self) -> None:
        """See Stream.drop."""
        self._owner.post(Lost(self._number))
        self.deliver(StreamEnd("CANCELLED", "dropped by the client"))


class InProcessTransport:
    """A Shard in this process: `worker` decides, `model` computes."""

    def __init__(self, worker: Worker, model: ShardModel) -> None:
        self._worker = worker
        self._model = model
        self._streams: dict[int, InProcessStream] = {}
        self._waiting: deque[Work] = deque()
        self._replies: dict[int, UnaryReply] = {}
        self._numbers = count(1)

    def post(self, event: Event) -> None:
        """Give the Worker an event and carry out its effects."""
        for effect in self._worker.handle(event, time.time_ns()):
            if isinstance(effect, Send):
                self._streams[effect.stream].deliver(effect.message.SerializeToString())
            elif isinstance(effect, Start):
                self._waiting.append(effect.work)
            elif isinstance(effect, Reply):
                self._replies[effect.call] = effect.message
            elif isinstance(effect, Close):
                self._streams[effect.stream].deliver(StreamEnd("OK"))

    def compute_one(self) -> bool:
        """Compute the oldest waiting work. Returns whether there was any."""
        if not self._waiting:
            return False
        work = self._waiting.popleft()
        self.post(Completed(work.number, self._model.run(work)))
        return True

    def open_stream(self) -> Stream:
        """See Transport.open_stream."""
        number = next(self._numbers)
        self._streams[number] = InProcessStream(self, number)
        self.post(StreamOpened(number))
        return self._streams[number]

    def _call(self, request: UnaryRequest, kind: type[Answer]) -> Answer:
        number = next(self._numbers)
        self.post(UnaryCalled(number, request))
        reply = self._replies.pop(number, None)
        if reply is None:
            raise UnaryFailed("DEADLINE_EXCEEDED", "the call was not answered")
        if not isinstance(reply, kind):
            raise TypeError(f"the Worker answered {type(request)} with {type(reply)}")
        return reply

    def capability(self, request: pb.CapabilityRequest, timeout: float) -> pb.CapabilityReport:
        """See Transport.capability."""
        del timeout
        return self._call(request, pb.CapabilityReport)

    def health(self, request: pb.HealthRequest, timeout: float) -> pb.HealthReport:
        """See Transport.health."""
        del timeout
        return self._call(request, pb.HealthReport)

    def release(self, request: pb.ReleaseRequest, timeout: float) -> pb.ReleaseResponse:
        """See Transport.release."""
        del timeout
        return self._call(request, pb.ReleaseResponse)

    def cancel(self, request: pb.CancelRequest, timeout: float) -> pb.CancelResponse:
        """See Transport.cancel."""
        del timeout
        return self._call(request, pb.CancelResponse)

    def close(self) -> None:
        """See Transport.close."""
        self._streams.clear()
