"""A runtime on a real port that answers as the reference does, but for one thing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.generated import shard_runtime_pb2_grpc as rpc
from pytest_meshnet.reference.catalogue import build_small
from pytest_meshnet.runtime.descriptor import load
from pytest_meshnet.runtime.in_process import InProcessTransport
from pytest_meshnet.runtime.transport import StreamEnd

Bend = Callable[[Any], Iterable[Any]]
"""What is sent in place of an answer."""

UNIMPLEMENTED = "unimplemented"

LIMIT = 5.0


class Bent(rpc.ShardRuntimeServicer):
    """Passes everything to a reference worker, and its answers through `bend`."""

    def __init__(self, bend: Bend, without: str = "") -> None:
        self._shard = InProcessTransport(*build_small("", load("reference", small=True)))
        self._bend = bend
        self._without = without

    def _bent(self, name: str, answer: Any, context: grpc.ServicerContext) -> Any:
        if self._without == name:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "not here")
        return next(iter(self._bend(answer)))

    def GetCapability(self, request, context):
        return self._bent("GetCapability", self._shard.capability(request, LIMIT), context)

    def Health(self, request, context):
        return self._bent("Health", self._shard.health(request, LIMIT), context)

    def Session(self, request_iterator, context):
        stream = self._shard.open_stream()
        for request in request_iterator:
            stream.send(request)
            yield from self._answers(stream)
        stream.half_close()
        yield from self._answers(stream)

    def _answers(self, stream) -> Iterator[pb.SessionResponse]:
        while True:
            try:
                answer = stream.receive(0)
            except TimeoutError:
                return
            if isinstance(answer, StreamEnd):
                return
            yield from self._bend(answer)


@contextmanager
def bent_runtime(bend: Bend = lambda one: [one], without: str = "") -> Iterator[str]:
    """Serve a bent reference worker; yields its address."""
    server = grpc.server(ThreadPoolExecutor(4))
    rpc.add_ShardRuntimeServicer_to_server(Bent(bend, without), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


DESCRIPTOR = """
schema = 1
name = "bent"
vendor = "tests"
version = "1"
profiles = ["core-wire"]

[[shards]]
range = [1, 3]
{reach}

[model]
layers = 4
hidden_size = 16
vocab_size = 256

[time]
start = 5
answer = 1
stop = 2
"""


def descriptor_at(folder: Path, reach: str) -> Path:
    """Write a descriptor of the small reference worker, reached as the TOML line says."""
    path = folder / "target.toml"
    path.write_text(DESCRIPTOR.format(reach=reach))
    return path
