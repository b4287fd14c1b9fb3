"""The reference worker on gRPC: bytes to events, outboxes to bytes, and the two ways a stream ends.

Requests are taken as bytes, so that a message has its size and one that is not protobuf ends its
own call only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from pytest_meshnet.protocol.codec import MAX_CHUNK_BYTES
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import (
    HalfClosed,
    Received,
    ShardModel,
    UnaryReply,
    UnaryRequest,
)
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.reference.driver import Driver, Ended, Outbox

SERVICE = "meshnet.shard.v1.ShardRuntime"

_UNARY: dict[str, type[UnaryRequest]] = {
    "GetCapability": pb.CapabilityRequest,
    "Health": pb.HealthRequest,
    "Release": pb.ReleaseRequest,
    "Cancel": pb.CancelRequest,
}
_OPTIONS = (
    # The Worker has its own bound at 4 MiB and answers with a status; beyond this gRPC refuses.
    ("grpc.max_receive_message_length", MAX_CHUNK_BYTES + 64 * 1024),
    ("grpc.max_send_message_length", -1),
    # A second server on one port must fail to start, not take every other connection.
    ("grpc.so_reuseport", 0),
    # A client whose machine vanished sends no FIN; its session is freed all the same.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 20_000),
)
_REFUSALS = {
    "no-message": (grpc.StatusCode.INVALID_ARGUMENT, "not a protobuf message of this method"),
    "stopping": (grpc.StatusCode.UNAVAILABLE, "the worker is stopping"),
}
_GRACE_SECONDS = 0.25

_Context = grpc.aio.ServicerContext[bytes, pb.SessionResponse]
_UnaryContext = grpc.aio.ServicerContext[bytes, UnaryReply]


class CannotListen(Exception):
    """The address is taken, or is not one of this machine."""


class ShardServer:
    """A Worker and its model behind a port. Use it on the loop that calls `start`."""

    def __init__(self, worker: Worker, model: ShardModel, stall_seconds: float = 0.0) -> None:
        self._driver = Driver(worker, model, stall_seconds)
        self._server: grpc.aio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen and return the port, which the system chooses where `port` is 0.

        Raises CannotListen.
        """
        self._server = grpc.aio.server(options=_OPTIONS)
        self._server.add_generic_rpc_handlers((self._handlers(),))
        try:
            bound = self._server.add_insecure_port(f"{host}:{port}")
        except RuntimeError as error:
            raise CannotListen(f"cannot listen on {host}:{port}") from error
        await self._server.start()
        return bound

    async def stop(self) -> None:
        """End every call and every stalled unit, in less than a second."""
        self._driver.end_streams()
        if self._server is not None:
            await self._server.stop(_GRACE_SECONDS)
        self._driver.close()

    def drain(self) -> None:
        """Take no new sessions and let the running ones finish."""
        self._driver.drain()

    def _handlers(self) -> grpc.GenericRpcHandler:
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            name: grpc.unary_unary_rpc_method_handler(
                self._unary(kind), response_serializer=_serialized
            )
            for name, kind in _UNARY.items()
        }
        handlers["Session"] = grpc.stream_stream_rpc_method_handler(
            self._session, response_serializer=_serialized
        )
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    def _unary(
        self, kind: type[UnaryRequest]
    ) -> Callable[[bytes, _UnaryContext], Awaitable[UnaryReply]]:
        async def handle(request: bytes, context: _UnaryContext) -> UnaryReply:
            try:
                message = kind.FromString(request)
            except DecodeError:
                await context.abort(*_REFUSALS["no-message"])
            return await self._driver.call(message)

        return handle

    async def _session(self, _requests: object, context: _Context) -> None:
        """Write what the Worker answers until it closes the stream.

        A client that cancels, or whose connection drops, cancels this coroutine; one that is only
        done sending ends the reading task.
        """
        stream, outbox = self._driver.open_stream()
        reading = asyncio.create_task(self._read(stream, outbox, context))
        reading.add_done_callback(partial(_report_fault, outbox))
        try:
            while not isinstance(item := await outbox.get(), Ended):
                await context.write(item)
        finally:
            reading.cancel()
            self._driver.forget_stream(stream)
        if item.fault is not None:
            raise item.fault
        if item.reason != "done":
            await context.abort(*_REFUSALS[item.reason])

    async def _read(self, stream: int, outbox: Outbox, context: _Context) -> None:
        while isinstance(request := await context.read(), bytes):  # Else it is EOF.
            try:
                message = pb.SessionRequest.FromString(request)
            except DecodeError:
                outbox.put(Ended("no-message"))
                return
            self._driver.post(Received(stream, message, len(request)))
            await outbox.room()
        self._driver.post(HalfClosed(stream))


def _serialized(message: UnaryReply | pb.SessionResponse) -> bytes:
    return message.SerializeToString()


def _report_fault(outbox: Outbox, reading: asyncio.Task[None]) -> None:
    """A bug met while reading ends the stream loudly; the server serves on."""
    if not reading.cancelled() and (fault := reading.exception()) is not None:
        outbox.put(Ended(fault=fault))
