"""DecodeSteps a second through SeamClient and Worker in one thread: no transport, no model."""

from __future__ import annotations

import time
from dataclasses import dataclass

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.client import SeamClient
from pytest_meshnet.protocol.machines.events import (
    Completed,
    Effect,
    Outcome,
    Received,
    Send,
    Start,
    StreamOpened,
)
from pytest_meshnet.protocol.machines.exchange import Seam
from pytest_meshnet.protocol.machines.session import ServedShard
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.protocol.tensors import DType, Tensor

HIDDEN = 64
ROUNDS, STEPS = 5, 5000
_STREAM, _NOW = 1, 1
_ROW = Tensor("hidden_states", DType.BFLOAT16, (1, 1, HIDDEN), bytes(HIDDEN * 2))


class _Pair:
    """A client and a Worker that hand each other their messages as objects."""

    def __init__(self) -> None:
        fingerprint = pb.Fingerprint(
            model_artifact_digest="0" * 64, runtime_recipe_digest="1" * 64, recipe_id="no-op"
        )
        served = ServedShard(fingerprint, 4, 8, 12, HIDDEN, 256, max_context=STEPS + 1)
        shard_range = pb.ShardRange(start_layer=4, end_layer=8, effective_start_layer=4)
        self.worker = Worker(served)
        self.client = SeamClient(Seam("bench", 1, fingerprint, shard_range))
        self.worker.handle(StreamOpened(_STREAM), _NOW)
        self.deliver(self.client.open())
        self.unit(self.client.chunk([_ROW]))

    def deliver(self, message: pb.SessionRequest) -> None:
        """Give the Worker a message, compute nothing for it, give the client the answers."""
        effects: list[Effect] = self.worker.handle(Received(_STREAM, message), _NOW)
        while effects:
            effect = effects.pop(0)
            if isinstance(effect, Send):
                self.client.receive(effect.message)
            elif isinstance(effect, Start):
                done = Completed(effect.work.number, Outcome(None, (_ROW,), 0))
                effects += self.worker.handle(done, _NOW)

    def unit(self, message: pb.SessionRequest) -> None:
        """Send a unit, which must be applied."""
        exchange = self.client.sent(message)
        self.deliver(message)
        if exchange is None or not exchange.applied or not exchange.done:
            raise AssertionError(f"expected an applied unit with its result, found {exchange}")


@dataclass(frozen=True, slots=True)
class Rate:
    """Steps a second: of processor time, and by the clock on the wall."""

    by_processor: float
    by_clock: float


def best_rate() -> Rate:
    """The best of ROUNDS rounds of STEPS steps.

    Nothing here waits, so on a quiet machine both rates agree; on a shared one the clock also
    counts what the neighbours do.
    """
    return max((_round() for _ in range(ROUNDS)), key=lambda rate: rate.by_clock)


def _round() -> Rate:
    pair = _Pair()
    processor, clock = time.process_time(), time.perf_counter()
    for _ in range(STEPS):
        pair.unit(pair.client.decode(_ROW))
    return Rate(STEPS / (time.process_time() - processor), STEPS / (time.perf_counter() - clock))
