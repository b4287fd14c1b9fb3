"""Workers whose acks and results are too many or too few, or whose acks are wrong.

They break PREFILL-01 and -03; those of what a result says are in `prefill_results`.
"""

from __future__ import annotations

from dataclasses import replace

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import Outcome
from pytest_meshnet.protocol.machines.rules import Rules
from pytest_meshnet.protocol.machines.session import Session, Unit
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.reference.catalogue import mutant

# How many answers -------------------------------------------------------------------------------


@mutant("PREFILL-01")
class AcksTwice(Worker):
    """Every unit is acknowledged twice."""

    def send(self, stream: int, message: pb.SessionResponse) -> None:
        super().send(stream, message)
        if message.HasField("ack"):
            super().send(stream, message)


@mutant("PREFILL-01")
class AnswersTwice(Worker):
    """Every result is sent twice."""

    def send(self, stream: int, message: pb.SessionResponse) -> None:
        super().send(stream, message)
        if message.HasField("chunk"):
            super().send(stream, message)


@mutant("PREFILL-01")
class NeverAcks(Worker):
    """Units are computed and their results sent, without an ack."""

    def send(self, stream: int, message: pb.SessionResponse) -> None:
        if not message.HasField("ack"):
            super().send(stream, message)


@mutant("PREFILL-01")
class AcksFinalChunksOnly(Worker):
    """One ack stands for all chunks of a prefill."""

    def answer_applied(
        self, session: Session, unit: Unit, outcome: Outcome, cache_hit: bool
    ) -> None:
        if unit.final:
            super().answer_applied(session, unit, outcome, cache_hit)
        else:
            self.send_result(session, unit, outcome)


@mutant("PREFILL-01")
class NeverAnswers(Worker):
    """Units are computed and acknowledged, without a result."""

    def send_result(self, session: Session, unit: Unit, outcome: Outcome) -> None:
        pass


@mutant("PREFILL-01")
class AnswersFinalChunksOnly(Worker):
    """Only the final chunk of a prefill brings a result, as on a tail."""

    def send_result(self, session: Session, unit: Unit, outcome: Outcome) -> None:
        if unit.final:
            super().send_result(session, unit, outcome)


class _ChangedAck(Worker):
    def change(self, ack: pb.Ack) -> None:
        raise NotImplementedError

    def send(self, stream: int, message: pb.SessionResponse) -> None:
        if message.HasField("ack"):
            self.change(message.ack)
        super().send(stream, message)


@mutant("PREFILL-01")
class AckNamesOtherWork(_ChangedAck):
    """The ack carries the first letters of the work id only."""

    def change(self, ack: pb.Ack) -> None:
        ack.work_id = ack.work_id[:1]


@mutant("PREFILL-01")
class AckNamesOtherStep(_ChangedAck):
    """The ack carries the step in 32 bits."""

    def change(self, ack: pb.Ack) -> None:
        ack.idempotency_step %= 2**32


@mutant("PREFILL-01")
class AckCountsSteps(_ChangedAck):
    """The ack carries the next step that is expected."""

    def change(self, ack: pb.Ack) -> None:
        ack.idempotency_step += 1


# Past length ------------------------------------------------------------------------------------


class _OtherPastLen(Worker):
    def past_len(self, session: Session, unit: Unit) -> int:
        raise NotImplementedError

    def answer_applied(
        self, session: Session, unit: Unit, outcome: Outcome, cache_hit: bool
    ) -> None:
        held, session.held = session.held, self.past_len(session, unit)
        super().answer_applied(session, unit, outcome, cache_hit)
        session.held = held


@mutant("PREFILL-03")
class PastLenOfTheChunk(_OtherPastLen):
    """past_len counts the tokens of the chunk only."""

    def past_len(self, _session: Session, unit: Unit) -> int:
        return unit.token_count


@mutant("PREFILL-03")
class PastLenBeforeTheChunk(_OtherPastLen):
    """past_len is where the chunk began."""

    def past_len(self, _session: Session, unit: Unit) -> int:
        return unit.expected_past_len


@mutant("PREFILL-03")
class PastLenIsTheLastPosition(_OtherPastLen):
    """past_len is the position of the last token, one too low."""

    def past_len(self, session: Session, _unit: Unit) -> int:
        return session.held - 1


@mutant("PREFILL-03")
class PastLenOfFinishedPrefills(_OtherPastLen):
    """past_len stays 0 until the final chunk."""

    def past_len(self, session: Session, unit: Unit) -> int:
        return session.held if unit.final else 0


# Positions that fit no expectation ---------------------------------------------------------------


@mutant("PREFILL-03")
class ChunksBeginAnywhere(Rules):
    """The first position of a prefill chunk is not held against the length that it expects."""

    def check_position(self, unit: Unit) -> None:
        if unit.phase != pb.PHASE_PREFILL:
            super().check_position(unit)


@mutant("PREFILL-03")
class FreshChunksBeginAnywhere(Rules):
    """A prefill that expects nothing may begin at any position."""

    def check_position(self, unit: Unit) -> None:
        if unit.phase != pb.PHASE_PREFILL or unit.expected_past_len:
            super().check_position(unit)


@mutant("PREFILL-03")
class ChunksBeginWhereTheySay(Worker):
    """A chunk that continues is written at its first position, whatever is held there."""

    def begin(self, session: Session, unit: Unit) -> None:
        if unit.mode == pb.CACHE_MODE_PREFILL and unit.expected_past_len:
            unit = replace(unit, position=unit.expected_past_len)
        super().begin(session, unit)
