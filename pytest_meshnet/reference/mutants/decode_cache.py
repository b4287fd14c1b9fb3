"""Workers whose CacheResult says another mode or another hit. They break DECODE-09."""

from __future__ import annotations

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import Outcome
from pytest_meshnet.protocol.machines.session import Session, Unit
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.reference.catalogue import mutant


class _OtherMode(Worker):
    def mode(self, unit: Unit) -> int:
        raise NotImplementedError

    def answer_applied(
        self, session: Session, unit: Unit, outcome: Outcome, cache_hit: bool
    ) -> None:
        self.told = self.mode(unit)
        super().answer_applied(session, unit, outcome, cache_hit)

    def send(self, stream: int, message: pb.SessionResponse) -> None:
        if message.HasField("ack") and not message.ack.duplicate:
            message.ack.cache_result.mode = self.told  # type: ignore[assignment]
        super().send(stream, message)


@mutant("DECODE-09")
class NoMode(_OtherMode):
    """The mode of a CacheResult is not set."""

    def mode(self, _unit: Unit) -> int:
        return pb.CACHE_MODE_UNSPECIFIED


@mutant("DECODE-09")
class ModeIsAlwaysPrefill(_OtherMode):
    """The mode of a CacheResult is PREFILL whatever the work was."""

    def mode(self, _unit: Unit) -> int:
        return pb.CACHE_MODE_PREFILL


@mutant("DECODE-09")
class FullFormSaysPrefill(_OtherMode):
    """A decode step in its full form is reported as PREFILL."""

    def mode(self, unit: Unit) -> int:
        return pb.CACHE_MODE_DECODE if unit.envelope is None else pb.CACHE_MODE_PREFILL


@mutant("DECODE-09")
class StatelessSaysPrefill(_OtherMode):
    """Stateless work is reported as PREFILL."""

    def mode(self, unit: Unit) -> int:
        stateless = unit.mode == pb.CACHE_MODE_STATELESS
        return pb.CACHE_MODE_PREFILL if stateless else unit.mode


@mutant("DECODE-09")
class AppendSaysDecode(_OtherMode):
    """A prefill that continues is reported as DECODE."""

    def mode(self, unit: Unit) -> int:
        return pb.CACHE_MODE_DECODE if unit.expected_past_len else unit.mode


class _OtherHit(Worker):
    def hit(self, session: Session, unit: Unit) -> bool:
        raise NotImplementedError

    def apply(self, session: Session, unit: Unit, outcome: Outcome) -> None:
        self.told = self.hit(session, unit)
        super().apply(session, unit, outcome)

    def answer_applied(
        self, session: Session, unit: Unit, outcome: Outcome, cache_hit: bool
    ) -> None:
        del cache_hit
        super().answer_applied(session, unit, outcome, self.told)


@mutant("DECODE-09")
class AlwaysHits(_OtherHit):
    """cache_hit is always true."""

    def hit(self, _session: Session, _unit: Unit) -> bool:
        return True


@mutant("DECODE-09")
class NeverHits(_OtherHit):
    """cache_hit is always false."""

    def hit(self, _session: Session, _unit: Unit) -> bool:
        return False


@mutant("DECODE-09")
class OnlyDecodeHits(_OtherHit):
    """cache_hit is false for a prefill that continues."""

    def hit(self, _session: Session, unit: Unit) -> bool:
        return unit.mode == pb.CACHE_MODE_DECODE


@mutant("DECODE-09")
class AppendIsNoHit(_OtherHit):
    """cache_hit is false for a prefill that appends to a finished one."""

    def hit(self, session: Session, unit: Unit) -> bool:
        appended = session.finished and unit.mode == pb.CACHE_MODE_PREFILL
        return unit.expected_past_len > 0 and not appended


@mutant("DECODE-09")
class FreshPrefillHits(_OtherHit):
    """cache_hit is true for a prefill from zero where state was held before."""

    def hit(self, session: Session, unit: Unit) -> bool:
        return session.held > 0 and unit.mode != pb.CACHE_MODE_STATELESS


@mutant("DECODE-09")
class StatelessHits(_OtherHit):
    """cache_hit is true for stateless work where state is held beside it."""

    def hit(self, session: Session, unit: Unit) -> bool:
        stateless = unit.mode == pb.CACHE_MODE_STATELESS
        return session.held > 0 if stateless else unit.expected_past_len > 0


@mutant("DECODE-09")
class FullFormIsNoHit(_OtherHit):
    """cache_hit is false for a decode step in its full form."""

    def hit(self, _session: Session, unit: Unit) -> bool:
        in_full = unit.mode == pb.CACHE_MODE_DECODE and unit.envelope is not None
        return unit.expected_past_len > 0 and not in_full
