"""A Worker with clients linked to it by plain calls, a model that adds up, and a clock to set.

What a client heard is told in short lines ("ack w1 past 3", "CACHE_MISS w2 held 3"), so that a test
reads as the talk that it checks.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.client import SeamClient
from pytest_meshnet.protocol.machines.events import (
    Abandon,
    Close,
    Completed,
    Event,
    HalfClosed,
    Lost,
    Outcome,
    Received,
    Reply,
    Send,
    Start,
    StreamOpened,
    UnaryCalled,
    UnaryReply,
    UnaryRequest,
    Work,
)
from pytest_meshnet.protocol.machines.exchange import Seam
from pytest_meshnet.protocol.machines.session import ServedShard
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.runtime.trace import code_name

FINGERPRINT = pb.Fingerprint(
    model_artifact_digest="sha256:aa",
    runtime_recipe_digest="sha256:bb",
    recipe_id="sums",
    recipe_version="1",
    catalogue_version="1",
)
# Layers 2 and 3 of six: a middle Shard whose rows are one float32 each.
SERVED = ServedShard(
    FINGERPRINT,
    start_layer=2,
    end_layer=4,
    layer_count=6,
    hidden_size=1,
    vocab_size=10,
    boundary_dtype=DType.FLOAT32,
    max_sessions=3,
    max_context=64,
)
HEAD = replace(SERVED, start_layer=0)
TAIL = replace(SERVED, end_layer=6)


class RunningSums:
    """Row i of a result is the sum of all rows up to i; the state is the sum and its length."""

    def run(self, work: Work) -> Outcome:
        total, length = work.state or (0.0, 0)
        values = work.tensors[0].to_float32().reshape(-1)
        sums = total + np.cumsum(values)
        state = (float(sums[-1]), length + len(values))
        kept = work.state if work.mode == "stateless" else state
        if work.end_layer < 6:
            tensor = Tensor.from_float32("hidden_states", sums.reshape(1, -1, 1), DType.FLOAT32)
        elif work.final:
            row = np.full((1, 1, 10), sums[-1], dtype=np.float32)
            tensor = Tensor.from_float32("logits", row, DType.FLOAT32)
        else:
            return Outcome(kept, (), 5)
        return Outcome(kept, (tensor,), 5)


def rows(*values: float) -> Tensor:
    """A boundary tensor between Shards, one row a value."""
    array = np.array(values, dtype=np.float32).reshape(1, -1, 1)
    return Tensor.from_float32("hidden_states", array, DType.FLOAT32)


def ids(*tokens: int) -> Tensor:
    """A head's input."""
    return Tensor.from_array("token_ids", np.array([tokens]), DType.INT32)


class Bench:
    """A Worker with its model. Nothing is computed before somebody says so."""

    def __init__(self, served: ServedShard = SERVED, worker: Worker | None = None) -> None:
        self.served = served
        self.worker = worker or Worker(served)
        self.model = RunningSums()
        self.now = 1_000
        self.waiting: deque[Work] = deque()
        self.abandoned: list[int] = []
        self._links: dict[int, Link] = {}
        self._replies: dict[int, UnaryReply] = {}
        self._numbers = count(1)

    def post(self, event: Event) -> None:
        """Let the Worker handle an event and carry out what follows, but for computing."""
        for effect in self.worker.handle(event, self.now):
            if isinstance(effect, Send):
                self._links[effect.stream].take(effect.message)
            elif isinstance(effect, Close):
                self._links[effect.stream].lines.append("closed")
            elif isinstance(effect, Start):
                self.waiting.append(effect.work)
            elif isinstance(effect, Abandon):
                self.abandoned.append(effect.number)
            elif isinstance(effect, Reply):
                self._replies[effect.call] = effect.message

    def compute(self, *, fail: bool = False) -> Work:
        """Compute the oldest waiting work, or let the model fail on it. Returns the work."""
        work = self.waiting.popleft()
        self.post(Completed(work.number, None if fail else self.model.run(work)))
        return work

    def compute_all(self) -> None:
        """Compute until nothing waits."""
        while self.waiting:
            self.compute()

    def call(self, request: UnaryRequest, resident_bytes: int = 0) -> UnaryReply:
        """Make a unary call."""
        number = next(self._numbers)
        self.post(UnaryCalled(number, request, resident_bytes))
        return self._replies.pop(number)

    def health(self) -> pb.HealthReport:
        """Ask for the health."""
        report = self.call(pb.HealthRequest(schema_version=pb.SCHEMA_VERSION_1))
        assert isinstance(report, pb.HealthReport)
        return report

    def stream(self, session: str = "s", epoch: int = 1, effective: int | None = None) -> Link:
        """A stream on which nothing was sent, with a client for that session."""
        served = self.served
        layers = pb.ShardRange(
            start_layer=served.start_layer,
            end_layer=served.end_layer,
            effective_start_layer=served.start_layer if effective is None else effective,
        )
        seam = Seam(session, epoch, FINGERPRINT, layers, served.is_tail)
        link = Link(self, next(self._numbers), SeamClient(seam))
        self._links[link.number] = link
        self.post(StreamOpened(link.number))
        return link

    def session(self, session: str = "s", epoch: int = 1, **proposed: int) -> Link:
        """An accepted session on its own stream; keywords are fields of its flow control."""
        link = self.stream(session, epoch)
        message = link.client.open()
        message.open.proposed_flow_control.CopyFrom(pb.FlowControl(**proposed))
        link.send(message)
        assert link.heard() == ["accepted"]
        return link


class Link:
    """One stream to the Worker of a Bench."""

    def __init__(self, bench: Bench, number: int, client: SeamClient) -> None:
        self.bench = bench
        self.number = number
        self.client = client
        self.lines: list[str] = []
        self.sent: list[pb.SessionRequest] = []
        self.messages: list[pb.SessionResponse] = []

    def send(self, *messages: pb.SessionRequest) -> None:
        """Send messages, legal or not."""
        for message in messages:
            self.sent.append(message)
            self.client.sent(message)
            self.bench.post(Received(self.number, message))

    def prefill(self, *values: float, **fields: Any) -> None:
        """Send a chunk of these rows. Keywords as for SeamClient.chunk."""
        self.send(self.client.chunk([rows(*values)], **fields))

    def decode(self, value: float, **fields: Any) -> None:
        """Send a DecodeStep. Keywords as for SeamClient.decode."""
        self.send(self.client.decode(rows(value), **fields))

    def half_close(self) -> None:
        """Say that nothing more will be sent."""
        self.bench.post(HalfClosed(self.number))

    def lose(self) -> None:
        """Break the stream."""
        self.bench.post(Lost(self.number))

    def take(self, message: pb.SessionResponse) -> None:
        """Take in what the Worker sent."""
        self.messages.append(message)
        self.lines.append(line(message))
        self.client.receive(message)

    def heard(self) -> list[str]:
        """What came on the stream since the last question, nothing more being computed."""
        lines, self.lines = self.lines, []
        return lines

    def answers(self) -> list[str]:
        """The same, once everything is computed."""
        self.bench.compute_all()
        return self.heard()


def line(message: pb.SessionResponse) -> str:
    """What a message says, in short."""
    kind = message.WhichOneof("kind")
    if kind == "ack":
        ack = message.ack
        word = "duplicate" if ack.duplicate else "ack"
        hit = " hit" if ack.cache_result.cache_hit else ""
        return f"{word} {ack.work_id} past {ack.cache_result.past_len}{hit}"
    if kind == "status":
        status = message.status
        what = [code_name(status.error.code), status.work_id or "-"]
        what.append("terminal" if status.terminal else f"held {status.error.actual_past_len}")
        return " ".join(what)
    if kind == "chunk":
        return f"result {message.chunk.envelope.work_id} {values_of(message.chunk.bundle)}"
    return str(kind)


def values_of(bundle: pb.TensorBundle) -> list[int]:
    """The rows of a result as whole numbers; of logits the first value."""
    payload = b"".join(part.payload for tensor in bundle.tensors for part in tensor.fragments)
    values = [int(value) for value in np.frombuffer(payload, dtype="<f4")]
    return values[:1] if bundle.tensors[0].name == "logits" else values
