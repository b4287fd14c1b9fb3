"""Workers that apply a step twice, or take a new one for old. They break the group IDEM."""

from __future__ import annotations

from collections import defaultdict, deque

from pytest_meshnet.protocol.codec import encode_bundle
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import Outcome, Received
from pytest_meshnet.protocol.machines.results import ack_of, result_envelope
from pytest_meshnet.protocol.machines.rules import Rules
from pytest_meshnet.protocol.machines.session import (
    NO_STEP,
    Refused,
    ServedShard,
    Session,
    Unit,
)
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.reference.catalogue import mutant


@mutant("IDEM-01")
class MissesBeforeDuplicates(Rules):
    """A repeated decode step is held against the cache first, and missed."""

    def is_duplicate(self, session: Session, unit: Unit) -> bool:
        moved = unit.mode == pb.CACHE_MODE_DECODE and unit.expected_past_len != session.held
        return not moved and super().is_duplicate(session, unit)


@mutant("IDEM-01")
class DuplicateTellsItsOwnLength(Worker):
    """The ack of a duplicate repeats the length before the step, not the one held now."""

    def answer_duplicate(self, session: Session, unit: Unit) -> None:
        session.outstanding -= 1
        ack = ack_of(unit, unit.expected_past_len, False, 0, duplicate=True)
        self.send(session.stream, pb.SessionResponse(ack=ack))


@mutant("IDEM-01")
class DuplicateLooksNew(Worker):
    """A duplicate is acknowledged as if it had been applied now."""

    def answer_duplicate(self, session: Session, unit: Unit) -> None:
        session.outstanding -= 1
        ack = ack_of(unit, session.held, False, 0)
        self.send(session.stream, pb.SessionResponse(ack=ack))


@mutant("IDEM-01")
class DuplicateMovesThePosition(Worker):
    """A repeated decode step is answered as a duplicate, and counted all the same."""

    def answer_duplicate(self, session: Session, unit: Unit) -> None:
        super().answer_duplicate(session, unit)
        if unit.mode == pb.CACHE_MODE_DECODE:
            session.held += 1


@mutant("IDEM-02")
class ChunksAreNeverDuplicates(Rules):
    """Only decode steps are looked up; a repeated chunk is applied or missed."""

    def is_duplicate(self, session: Session, unit: Unit) -> bool:
        return unit.phase == pb.PHASE_DECODE and super().is_duplicate(session, unit)


@mutant("IDEM-02")
class RepeatedFirstChunkRestarts(Worker):
    """A repeated chunk that expects 0 drops what is held before it is found to be a duplicate."""

    def answer_duplicate(self, session: Session, unit: Unit) -> None:
        if unit.mode == pb.CACHE_MODE_PREFILL and unit.expected_past_len == 0:
            session.drop_state()
        super().answer_duplicate(session, unit)


class _SeenPayloads(Worker):
    """Remembers the messages it applied."""

    def __init__(self, served: ServedShard) -> None:
        super().__init__(served)
        self.seen: dict[tuple[str, int], bytes] = {}

    def apply(self, session: Session, unit: Unit, outcome: Outcome) -> None:
        self.seen[session.session_id, unit.step] = _payload(unit)
        super().apply(session, unit, outcome)

    def is_other(self, session: Session, unit: Unit) -> bool:
        before = self.seen.get((session.session_id, unit.step))
        return before is not None and before != _payload(unit)


def _payload(unit: Unit) -> bytes:
    message = unit.tensor or unit.bundle or pb.TensorBundle()
    return message.SerializeToString(deterministic=True)


@mutant("IDEM-03")
class RefusesOtherBytes(_SeenPayloads):
    """A repeated step number with another payload is refused as a conflict."""

    def answer_duplicate(self, session: Session, unit: Unit) -> None:
        if self.is_other(session, unit):
            raise Refused(pb.ERROR_CODE_PAYLOAD_CORRUPT, "the step was used for another payload")
        super().answer_duplicate(session, unit)


@mutant("IDEM-03")
class AppliesOtherBytes(_SeenPayloads):
    """A repeated step number with another payload is taken for a correction and computed again."""

    def answer_duplicate(self, session: Session, unit: Unit) -> None:
        if self.is_other(session, unit) and unit.mode == pb.CACHE_MODE_DECODE:
            session.held = unit.expected_past_len
            self.start(session, unit, self.rules.read_tensors(session, unit))
        else:
            super().answer_duplicate(session, unit)


@mutant("IDEM-04")
class LooksUpStepsOnArrival(Worker):
    """A step is looked up when it arrives, before the copy in front of it was applied."""

    def __init__(self, served: ServedShard) -> None:
        super().__init__(served)
        self.known: defaultdict[str, deque[int]] = defaultdict(deque)

    def on_unit(self, session: Session, event: Received) -> None:
        self.known[session.session_id].append(session.last_step)
        super().on_unit(session, event)

    def begin(self, session: Session, unit: Unit) -> None:
        last, session.last_step = session.last_step, self.known[session.session_id].popleft()
        try:
            super().begin(session, unit)
        finally:
            session.last_step = last


@mutant("IDEM-05")
class OldMeansUsed(Worker):
    """Only a step number that was really used is old; a lower one that nobody used is new work."""

    def __init__(self, served: ServedShard) -> None:
        super().__init__(served)
        self.used: defaultdict[str, set[int]] = defaultdict(set)

    def apply(self, session: Session, unit: Unit, outcome: Outcome) -> None:
        self.used[session.session_id].add(unit.step)
        super().apply(session, unit, outcome)

    def answer_duplicate(self, session: Session, unit: Unit) -> None:
        if unit.step in self.used[session.session_id]:
            super().answer_duplicate(session, unit)
        else:
            self.rules.check_unit(session, unit)
            self.start(session, unit, self.rules.read_tensors(session, unit))


@mutant("IDEM-06")
class DemandsTheNextStep(Rules):
    """A step number that leaves a gap is refused."""

    def check_unit(self, session: Session, unit: Unit) -> None:
        if session.last_step != NO_STEP and unit.step != session.last_step + 1:
            raise Refused(pb.ERROR_CODE_PAYLOAD_CORRUPT, "a step is missing")
        super().check_unit(session, unit)


@mutant("IDEM-07")
class SpendsRefusedSteps(Worker):
    """A refused unit uses its step number up."""

    def refuse_unit(self, session: Session, unit: Unit, refused: Refused) -> None:
        session.last_step = max(session.last_step, unit.step)
        super().refuse_unit(session, unit, refused)


@mutant("IDEM-08")
class AnswersDuplicatesWithTheirInput(Worker):
    """A duplicate brings a result, and it is not the original one."""

    def answer_duplicate(self, session: Session, unit: Unit) -> None:
        super().answer_duplicate(session, unit)
        (tensor,) = self.rules.read_tensors(session, unit)
        envelope = result_envelope(session, unit)
        chunk = pb.ActivationChunk(envelope=envelope, bundle=encode_bundle([tensor]))
        self.send(session.stream, pb.SessionResponse(chunk=chunk))
