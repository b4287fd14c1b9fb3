"""The gRPC transport: one channel to one Shard, a reader thread for every open stream."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
from grpc_status import rpc_status  # type: ignore[import-untyped]

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.runtime.transport import Stream, StreamEnd, UnaryFailed

_SERVICE = "/meshnet.shard.v1.ShardRuntime"

# The suite sends oversized messages on purpose and must see whatever comes back; the local pool
# keeps each transport on its own connection.
_OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
)


def _to_bytes(message: Any) -> bytes:
    return message if isinstance(message, bytes) else message.SerializeToString()


def _shard_error(error: Any) -> pb.ShardError | None:
    """The ShardError in the details of a rich status, None where there is none."""
    try:
        status = rpc_status.from_call(error)
    except ValueError:  # Its code or message disagrees with the plain status.
        return None
    found = pb.ShardError()
    for detail in status.details if status is not None else ():
        if detail.Unpack(found):
            return found
    return None


class GrpcStream:
    """A Session stream. Its threads end with the stream, whichever side ends it."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self._outgoing: queue.SimpleQueue[pb.SessionRequest | bytes | None] = queue.SimpleQueue()
        self._incoming: queue.SimpleQueue[pb.SessionResponse | StreamEnd] = queue.SimpleQueue()
        self._end: StreamEnd | None = None
        self._reading = threading.Event()
        self._reading.set()
        self._call = method(self._requests())
        self._reader = threading.Thread(target=self._read, daemon=True, name="meshnet-reader")
        self._reader.start()

    def _requests(self) -> Iterator[pb.SessionRequest | bytes]:
        while (message := self._outgoing.get()) is not None:
            yield message

    def _read(self) -> None:
        try:
            for response in self._call:
                self._incoming.put(response)
                self._reading.wait()
            end = StreamEnd("OK")
        except grpc.RpcError as error:
            end = StreamEnd(error.code().name, error.details() or "")
        self._incoming.put(end)
        # grpc's consumer thread waits in the iterator above; a server's abort does not wake it.
        self._outgoing.put(None)

    def send(self, message: pb.SessionRequest | bytes) -> None:
        """See Stream.send."""
        self._outgoing.put(message)

    def receive(self, timeout: float) -> pb.SessionResponse | StreamEnd:
        """See Stream.receive."""
        if self._end is not None:
            return self._end
        self._reading.set()
        try:
            item = self._incoming.get(timeout=timeout)
        except queue.Empty:
            raise TimeoutError(f"nothing arrived within {timeout:g} s") from None
        if isinstance(item, StreamEnd):
            self._end = item
        return item

    def stop_reading(self) -> None:
        """See Stream.stop_reading. The reader may take the one message that it waits for."""
        self._reading.clear()

    def half_close(self) -> None:
        """See Stream.half_close."""
        self._outgoing.put(None)

    def drop(self) -> None:
        """See Stream.drop."""
        self._call.cancel()
        self._reading.set()
        self._reader.join()


class GrpcTransport:
    """One channel to `address` ("host:port")."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._channel = grpc.insecure_channel(address, options=_OPTIONS)
        self._session = self._channel.stream_stream(
            f"{_SERVICE}/Session",
            request_serializer=_to_bytes,
            response_deserializer=pb.SessionResponse.FromString,
        )
        self._capability = self._unary("GetCapability", pb.CapabilityReport)
        self._health = self._unary("Health", pb.HealthReport)
        self._release = self._unary("Release", pb.ReleaseResponse)
        self._cancel = self._unary("Cancel", pb.CancelResponse)

    def _unary(self, name: str, reply: Any) -> Callable[..., Any]:
        method = self._channel.unary_unary(
            f"{_SERVICE}/{name}",
            request_serializer=_to_bytes,
            response_deserializer=reply.FromString,
        )

        def call(request: Any, timeout: float, wait_for_ready: bool = False) -> Any:
            try:
                return method(request, timeout=timeout, wait_for_ready=wait_for_ready)
            except grpc.RpcError as error:
                raise UnaryFailed(
                    error.code().name, error.details() or "", _shard_error(error)
                ) from None

        return call

    def open_stream(self) -> Stream:
        """See Transport.open_stream."""
        return GrpcStream(self._session)

    def capability(self, request: pb.CapabilityRequest, timeout: float) -> pb.CapabilityReport:
        """See Transport.capability."""
        report: pb.CapabilityReport = self._capability(request, timeout)
        return report

    def health(
        self, request: pb.HealthRequest, timeout: float, wait_for_ready: bool = False
    ) -> pb.HealthReport:
        """See Transport.health. With `wait_for_ready`, connecting counts into `timeout`."""
        report: pb.HealthReport = self._health(request, timeout, wait_for_ready)
        return report

    def release(self, request: pb.ReleaseRequest, timeout: float) -> pb.ReleaseResponse:
        """See Transport.release."""
        response: pb.ReleaseResponse = self._release(request, timeout)
        return response

    def cancel(self, request: pb.CancelRequest, timeout: float) -> pb.CancelResponse:
        """See Transport.cancel."""
        response: pb.CancelResponse = self._cancel(request, timeout)
        return response

    def close(self) -> None:
        """See Transport.close."""
        self._channel.close()
