"""Honest workers that read or hold more or less than the reference: serial loops and limits."""

from __future__ import annotations

import time
from collections import OrderedDict, defaultdict, deque
from dataclasses import replace

from pytest_meshnet.protocol.flow import FlowLimits
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import (
    Effect,
    Event,
    HalfClosed,
    Lost,
    Outcome,
    Received,
    Work,
)
from pytest_meshnet.protocol.machines.rules import Rules
from pytest_meshnet.protocol.machines.session import Refused, ServedShard, Session, Unit
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.reference.catalogue import ModelWrapper, variant
from pytest_meshnet.reference.mutants.opening_compression import AgreedCompressionRules

# Serial loops ------------------------------------------------------------------------------------


@variant
class SerialLoop(Worker):
    """Reads the next message of a stream only when the unit before it was answered."""

    def __init__(self, served: ServedShard, rules: Rules | None = None) -> None:
        super().__init__(served, rules)
        self._unread: defaultdict[int, deque[Received | HalfClosed]] = defaultdict(deque)

    def handle(self, event: Event, now: int) -> list[Effect]:
        """Leave a message unread while its stream computes."""
        if isinstance(event, (Received, HalfClosed)) and self._is_busy(event.stream):
            self._unread[event.stream].append(event)
            return []
        if isinstance(event, Lost):
            self._unread.pop(event.stream, None)
        effects = list(super().handle(event, now))
        for stream, unread in list(self._unread.items()):
            while unread and not self._computes(stream):
                effects += super().handle(unread.popleft(), now)
            if not unread:
                self._unread.pop(stream, None)
        return effects

    def _is_busy(self, stream: int) -> bool:
        return bool(self._unread.get(stream)) or self._computes(stream)

    def _computes(self, stream: int) -> bool:
        session = self.table.on_stream(stream) if self.table.knows(stream) else None
        return session is not None and session.running is not None


@variant
class SlowWorker(ModelWrapper):
    """Takes a millisecond longer over each unit."""

    DELAY = 0.001

    def run(self, work: Work) -> Outcome:
        """Compute, and hold the outcome back."""
        outcome = super().run(work)
        time.sleep(self.DELAY)
        return outcome


# Limits ------------------------------------------------------------------------------------------


class _Limited(Worker):
    def __init__(self, served: ServedShard, rules: Rules | None = None) -> None:
        served = self.limited(served)
        super().__init__(served, rules or Rules(served))

    def limited(self, served: ServedShard) -> ServedShard:
        """The Shard with other limits."""
        raise NotImplementedError


@variant
class OneSession(_Limited):
    """Holds one session at a time."""

    def limited(self, served: ServedShard) -> ServedShard:
        """One place."""
        return replace(served, max_sessions=1)


@variant
class SmallLimits(_Limited):
    """Takes one unit at a time, three tokens a chunk, 48 KiB a message and 48 tokens in all."""

    def limited(self, served: ServedShard) -> ServedShard:
        """Smaller limits of every kind."""
        limits = FlowLimits(1, 1, 48 * 1024, 3)
        return replace(served, max_sessions=2, max_context=48, limits=limits)


@variant
class OneTokenChunks(_Limited):
    """Takes two units in flight, of one token each."""

    def limited(self, served: ServedShard) -> ServedShard:
        """The smallest chunk there can be."""
        limits = replace(served.limits, credits=2, inflight=2, prefill_tokens=1)
        return replace(served, limits=limits)


@variant
class LargeLimits(_Limited):
    """Offers places and context for many, and bounds above those of the codec."""

    def limited(self, served: ServedShard) -> ServedShard:
        """Larger limits of every kind."""
        limits = FlowLimits(64, 64, 16 * 1024 * 1024, 1024)
        return replace(served, max_sessions=16, max_context=1024, limits=limits)


@variant
class FewerCreditsThanPlaces(_Limited):
    """Gives three credits where eight units may be in flight."""

    def limited(self, served: ServedShard) -> ServedShard:
        """Credit below the in-flight limit."""
        return replace(served, limits=replace(served.limits, credits=3))


@variant
class NeverCompresses(_Limited):
    """Neither accepts nor sends zstd."""

    def limited(self, served: ServedShard) -> ServedShard:
        """NONE is implicit; this Shard lists nothing."""
        return replace(served, compression=())


# What is free in the rules -----------------------------------------------------------------------


@variant
class ReadsOnlyWhatWasAccepted(AgreedCompressionRules):
    """Refuses a payload in a compression that its session did not agree on."""


@variant
class ExhaustedByLongChunks(Rules):
    """Refuses a chunk above max_prefill_chunk_tokens by RESOURCE_EXHAUSTED."""

    def check_tokens(self, session: Session, unit: Unit) -> None:
        """The other code that PREFILL-05 allows."""
        try:
            super().check_tokens(session, unit)
        except Refused as refused:
            if refused.code == pb.ERROR_CODE_FLOW_CONTROL_VIOLATION:
                refused.code = pb.ERROR_CODE_RESOURCE_EXHAUSTED
            raise


@variant
class EvictsTheOldest(Worker):
    """Keeps two Hot KV States and drops the one unused for longest: its session misses at 0."""

    KEPT = 2

    def __init__(self, served: ServedShard, rules: Rules | None = None) -> None:
        super().__init__(served, rules)
        self._used: OrderedDict[int, Session] = OrderedDict()

    def commit(self, session: Session, unit: Unit, outcome: Outcome) -> None:
        """Make room for the state that grew last."""
        super().commit(session, unit, outcome)
        self._used[session.stream] = session
        self._used.move_to_end(session.stream)
        # A session that computes needs its state: it is the next that is dropped instead.
        idle = [one for one in self._used.values() if one.running is None and one is not session]
        for oldest in idle[: max(0, len(self._used) - self.KEPT)]:
            del self._used[oldest.stream]
            oldest.drop_state()

    def release_state(self, session: Session) -> None:
        """A released state takes no room."""
        super().release_state(session)
        self._used.pop(session.stream, None)

    def end(self, session: Session) -> None:
        """Nor does that of a session that ended."""
        super().end(session)
        self._used.pop(session.stream, None)
