"""A reference worker on a real port, in a thread or in a process, and a client for it."""

from __future__ import annotations

import asyncio
import itertools
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import grpc

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.generated import shard_runtime_pb2_grpc as rpc
from pytest_meshnet.protocol.machines.client import SeamClient
from pytest_meshnet.protocol.machines.events import ShardModel
from pytest_meshnet.protocol.machines.exchange import Exchange, Seam
from pytest_meshnet.protocol.machines.session import ServedShard
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.reference.server import ShardServer

# Nothing here takes longer unless it hangs.
LIMIT_SECONDS = 20.0

_NUMBERS = itertools.count()


@contextmanager
def server_thread(
    served: ServedShard, model: ShardModel, stall_seconds: float = 0.0
) -> Iterator[str]:
    """A server in a thread of this process; yields its address."""
    started: queue.Queue[tuple[asyncio.AbstractEventLoop, asyncio.Event, int]] = queue.Queue()

    async def main() -> None:
        server, stop = ShardServer(Worker(served), model, stall_seconds), asyncio.Event()
        port = await server.start("127.0.0.1", 0)
        started.put((asyncio.get_running_loop(), stop, port))
        await stop.wait()
        await server.stop()

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    loop, stop, port = started.get(timeout=LIMIT_SECONDS)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(LIMIT_SECONDS)
        assert not thread.is_alive()


@contextmanager
def server_process(
    *arguments: str, environment: dict[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`serve` in a process of its own on a free port; yields the process and its address."""
    code = "from pytest_meshnet.reference.serve import serve; serve()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "--listen", "127.0.0.1:0", *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
    )
    assert process.stderr is not None
    try:
        yield process, process.stderr.readline().rpartition(" ")[2].strip()
    finally:
        process.kill()
        process.wait(LIMIT_SECONDS)
        process.stderr.close()


class Client:
    """One channel to a worker."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.channel = grpc.insecure_channel(
            address,
            options=[("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)],
        )
        self.stub = rpc.ShardRuntimeStub(self.channel)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.close()

    def health(self) -> pb.HealthReport:
        return self.stub.Health(pb.HealthRequest(schema_version=1), timeout=LIMIT_SECONDS)

    def wait_for(self, wanted: Callable[[pb.HealthReport], bool]) -> pb.HealthReport:
        """Ask Health until it is as wanted."""
        deadline = time.monotonic() + LIMIT_SECONDS
        while not wanted(report := self.health()):
            assert time.monotonic() < deadline, f"health stayed at {report}"
        return report

    def session(self, session_id: str = "") -> Session:
        """Open a session, of a new id unless one is given, and take the answer."""
        session_id = session_id or f"s{next(_NUMBERS)}"
        report = self.stub.GetCapability(pb.CapabilityRequest(schema_version=1))
        seam = Seam(session_id, 1, report.fingerprint, report.shard_range)
        session = Session(self.stub, SeamClient(seam))
        session.send(session.seam.open())
        session.receive()
        return session


class Session:
    """A stream with its SeamClient."""

    def __init__(self, stub: rpc.ShardRuntimeStub, seam: SeamClient) -> None:
        self.seam = seam
        self._requests: queue.Queue[pb.SessionRequest | None] = queue.Queue()
        self.call = stub.Session(iter(self._requests.get, None), timeout=LIMIT_SECONDS)

    def send(self, message: pb.SessionRequest) -> Exchange | None:
        exchange = None
        if message.WhichOneof("kind") in {"chunk", "decode"}:
            exchange = self.seam.sent(message)
        self._requests.put(message)
        return exchange

    def receive(self) -> pb.SessionResponse:
        response = next(self.call)
        self.seam.receive(response)
        return response

    def half_close(self) -> None:
        self._requests.put(None)

    def result(self, message: pb.SessionRequest) -> Exchange:
        """Send a unit and wait for everything due to it."""
        exchange = self.send(message)
        assert exchange is not None
        while not exchange.done:
            self.receive()
        return exchange

    def drop(self) -> None:
        """Vanish without a half-close."""
        self.call.cancel()
        self._requests.put(None)


def raw_stream(client: Client, messages: Sequence[bytes]) -> grpc.Call:
    """A Session call that writes bytes as they are, and then half-closes."""
    stream = client.channel.stream_stream("/meshnet.shard.v1.ShardRuntime/Session")
    return stream(iter(messages), timeout=LIMIT_SECONDS)
