"""Drives a Worker on one asyncio loop: events go in one at a time, effects are carried out.

The loop owns the Worker; only the model leaves it, to a pool of threads. gRPC is not known here.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import (
    Abandon,
    Close,
    Completed,
    DrainRequested,
    Effect,
    Event,
    Lost,
    Outcome,
    Reply,
    Send,
    ShardModel,
    Start,
    StreamOpened,
    Tick,
    UnaryCalled,
    UnaryReply,
    UnaryRequest,
    Work,
)
from pytest_meshnet.protocol.machines.worker import Worker

_LOG = logging.getLogger(__name__)

# How often queued units are looked at for a deadline that has passed.
_TICK_SECONDS = 0.05
# Answers that may wait for a slow reader before its requests are no longer read.
_OUTBOX_BOUND = 64


@dataclass(frozen=True, slots=True)
class Ended:
    """The last item of an outbox: why a stream ends, and the fault where a bug was the reason."""

    reason: Literal["done", "no-message", "stopping"] = "done"
    fault: BaseException | None = None


class Outbox:
    """What waits to be written on one stream, in order."""

    def __init__(self) -> None:
        self._items: asyncio.Queue[pb.SessionResponse | Ended] = asyncio.Queue()
        self._room = asyncio.Event()
        self._room.set()

    def put(self, item: pb.SessionResponse | Ended) -> None:
        """Append an item; never waits."""
        self._items.put_nowait(item)
        if self._items.qsize() >= _OUTBOX_BOUND:
            self._room.clear()

    async def get(self) -> pb.SessionResponse | Ended:
        """Take the next item, waiting for one."""
        item = await self._items.get()
        if self._items.qsize() < _OUTBOX_BOUND:
            self._room.set()
        return item

    async def room(self) -> None:
        """Wait until the reader of the stream has caught up."""
        await self._room.wait()


class Driver:
    """One Worker with its model. Every method belongs to the loop that runs it."""

    def __init__(self, worker: Worker, model: ShardModel, stall_seconds: float = 0.0) -> None:
        self._worker = worker
        self._model = model
        self._stall_seconds = stall_seconds
        # Stalled units only wait, and wait side by side; computing ones contend for the CPUs.
        threads = worker.served.max_sessions if stall_seconds else os.cpu_count() or 1
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="shard")
        self._outboxes: dict[int, Outbox] = {}
        self._replies: dict[int, asyncio.Future[UnaryReply]] = {}
        self._abandoned: dict[int, threading.Event] = {}
        self._next_number = 1
        self._tick: asyncio.TimerHandle | None = None

    # Events in ---------------------------------------------------------------------------------

    def post(self, event: Event) -> None:
        """Let the Worker handle an event and carry out what follows."""
        for effect in self._worker.handle(event, time.time_ns()):
            self._carry_out(effect)
        if self._tick is None and any(session.queue for session in self._worker.table):
            loop = asyncio.get_running_loop()
            self._tick = loop.call_later(_TICK_SECONDS, self._on_tick)

    def open_stream(self) -> tuple[int, Outbox]:
        """Register a new stream."""
        stream, outbox = self._number(), Outbox()
        self._outboxes[stream] = outbox
        self.post(StreamOpened(stream))
        return stream, outbox

    def forget_stream(self, stream: int) -> None:
        """The stream has ended, however it did: a session that it still carries is lost."""
        self._outboxes.pop(stream, None)
        self.post(Lost(stream))

    async def call(self, request: UnaryRequest) -> UnaryReply:
        """Answer a unary call."""
        call = self._number()
        reply: asyncio.Future[UnaryReply] = asyncio.get_running_loop().create_future()
        self._replies[call] = reply
        self.post(UnaryCalled(call, request, resident_bytes()))
        return await reply

    def drain(self) -> None:
        """Take no new sessions."""
        self.post(DrainRequested())

    def end_streams(self) -> None:
        """Lose every session, which abandons its work, and end its stream."""
        for stream, outbox in list(self._outboxes.items()):
            outbox.put(Ended("stopping"))
            self.forget_stream(stream)

    def close(self) -> None:
        """Start nothing more. Call it when no more events come."""
        self.end_streams()
        if self._tick is not None:
            self._tick.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _number(self) -> int:
        self._next_number += 1
        return self._next_number

    def _on_tick(self) -> None:
        self._tick = None
        self.post(Tick())

    # Effects out -------------------------------------------------------------------------------

    def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, Send):
            self._put(effect.stream, effect.message)
        elif isinstance(effect, Close):
            self._put(effect.stream, Ended())
        elif isinstance(effect, Start):
            self._start(effect.work)
        elif isinstance(effect, Abandon):
            self._abandoned[effect.number].set()
        elif isinstance(effect, Reply):
            self._replies.pop(effect.call).set_result(effect.message)

    def _put(self, stream: int, item: pb.SessionResponse | Ended) -> None:
        outbox = self._outboxes.get(stream)
        if outbox is not None:
            outbox.put(item)

    def _start(self, work: Work) -> None:
        abandoned = self._abandoned[work.number] = threading.Event()
        loop = asyncio.get_running_loop()
        computed = loop.run_in_executor(self._threads, self._compute, work, abandoned)
        computed.add_done_callback(partial(self._on_computed, work.number))

    def _compute(self, work: Work, abandoned: threading.Event) -> Outcome | None:
        if self._stall_seconds:
            abandoned.wait(self._stall_seconds)
        return None if abandoned.is_set() else self._model.run(work)

    def _on_computed(self, number: int, computed: asyncio.Future[Outcome | None]) -> None:
        del self._abandoned[number]
        if computed.cancelled():
            return  # Only when the threads were shut down.
        fault = computed.exception()
        if fault is not None:
            _LOG.error("work %d failed: %s", number, type(fault).__name__)
        self.post(Completed(number, computed.result() if fault is None else None))


def resident_bytes() -> int:
    """Memory of this process that is in RAM; 0 where the system does not tell."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return 0
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
