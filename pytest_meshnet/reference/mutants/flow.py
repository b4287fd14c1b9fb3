"""Workers that count credit wrongly. The group FLOW catches them, with those of `flow_limits`."""

from __future__ import annotations

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import Outcome, Received
from pytest_meshnet.protocol.machines.rules import Rules
from pytest_meshnet.protocol.machines.session import Refused, Session, Unit
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.reference.catalogue import mutant

# Credit enforced ---------------------------------------------------------------------------------


@mutant("FLOW-01")
class IgnoresCredit(Rules):
    """Any number of units may be in flight."""

    def check_credit(self, session: Session) -> None:
        """Let it pass."""


@mutant("FLOW-01")
class AllowsOneUnitTooMany(Rules):
    """One unit more than the credit may be in flight."""

    def check_credit(self, session: Session) -> None:
        if session.outstanding > min(session.credit, session.limits.inflight):
            raise Refused(pb.ERROR_CODE_FLOW_CONTROL_VIOLATION, "no credit", retryable=True)


@mutant("FLOW-01")
class AllowsOneUnitTooFew(Rules):
    """One unit less than the credit may be in flight, where the credit is more than one."""

    def check_credit(self, session: Session) -> None:
        if session.outstanding >= max(1, min(session.credit, session.limits.inflight) - 1):
            raise Refused(pb.ERROR_CODE_FLOW_CONTROL_VIOLATION, "no credit", retryable=True)


class _OtherViolation(Worker):
    """Does something else with a unit beyond the credit."""

    def on_unit(self, session: Session, event: Received) -> None:
        if session.outstanding < min(session.credit, session.limits.inflight):
            super().on_unit(session, event)
        else:
            self.beyond(session, event)

    def beyond(self, session: Session, event: Received) -> None:
        raise NotImplementedError


@mutant("FLOW-01")
class CallsAViolationExhaustion(_OtherViolation):
    """A unit beyond the credit is refused with RESOURCE_EXHAUSTED."""

    def beyond(self, session: Session, event: Received) -> None:
        step, work_id = _named(event)
        full = Refused(pb.ERROR_CODE_RESOURCE_EXHAUSTED, "no credit", retryable=True)
        self.send_status(session, work_id, step, full)


@mutant("FLOW-01")
class DropsUnitsBeyondCredit(_OtherViolation):
    """A unit beyond the credit is lost."""

    def beyond(self, session: Session, event: Received) -> None:
        """Say nothing."""


@mutant("FLOW-01")
class ViolationEndsTheSession(_OtherViolation):
    """A unit beyond the credit ends the stream."""

    def beyond(self, session: Session, event: Received) -> None:
        step, work_id = _named(event)
        over = Refused(pb.ERROR_CODE_FLOW_CONTROL_VIOLATION, "no credit", terminal=True)
        self.send_status(session, work_id, step, over)


@mutant("FLOW-01")
class RefusesAndAppliesAllTheSame(_OtherViolation):
    """A unit beyond the credit is refused, and applied when its turn comes."""

    def beyond(self, session: Session, event: Received) -> None:
        step, work_id = _named(event)
        over = Refused(pb.ERROR_CODE_FLOW_CONTROL_VIOLATION, "no credit", retryable=True)
        self.send_status(session, work_id, step, over)
        session.outstanding += 1
        session.queue.append(unit_of(event))


@mutant("FLOW-01")
class TheNewestUnitFirst(Worker):
    """Of the units that wait, the last to come is the first to run."""

    def on_unit(self, session: Session, event: Received) -> None:
        waiting = len(session.queue)
        super().on_unit(session, event)
        if len(session.queue) > waiting:
            session.queue.rotate(1)


def unit_of(event: Received) -> Unit:
    message = event.message
    if message.HasField("chunk"):
        return Unit.from_chunk(message.chunk)
    return Unit.from_decode(message.decode)


def _named(event: Received) -> tuple[int, str]:
    unit = unit_of(event)
    return unit.step, unit.work_id


# What returns credit -----------------------------------------------------------------------------


@mutant("FLOW-02")
class OpenChunksKeepTheirCredit(Worker):
    """The credit of a chunk comes back with the final chunk of its prefill."""

    def apply(self, session: Session, unit: Unit, outcome: Outcome) -> None:
        super().apply(session, unit, outcome)
        if not unit.final:
            session.outstanding += 1


@mutant("FLOW-02")
class AContinuingChunkWaitsForItsOwnPrefill(Worker):
    """A chunk counts the tokens before it as in flight: the fourth of a prefill finds no room."""

    def on_unit(self, session: Session, event: Received) -> None:
        crowded = session.held >= 3 and not session.finished
        session.outstanding += session.limits.inflight * crowded
        super().on_unit(session, event)
        session.outstanding -= session.limits.inflight * crowded


@mutant("FLOW-03")
class AcksKeepTheCredit(Worker):
    """An applied unit never gives its credit back."""

    def apply(self, session: Session, unit: Unit, outcome: Outcome) -> None:
        super().apply(session, unit, outcome)
        session.outstanding += 1


@mutant("FLOW-03")
class DuplicatesKeepTheCredit(Worker):
    """A duplicate never gives its credit back."""

    def answer_duplicate(self, session: Session, unit: Unit) -> None:
        super().answer_duplicate(session, unit)
        session.outstanding += 1


class _KeepsCreditOfRefusals(Worker):
    """Units refused with certain codes never give their credit back."""

    codes: tuple[int, ...] = ()

    def refuse_unit(self, session: Session, unit: Unit, refused: Refused) -> None:
        super().refuse_unit(session, unit, refused)
        session.outstanding += refused.code in self.codes


@mutant("FLOW-03")
class MissesKeepTheCredit(_KeepsCreditOfRefusals):
    """A unit answered with CACHE_MISS never gives its credit back."""

    codes = (pb.ERROR_CODE_CACHE_MISS,)


@mutant("FLOW-03")
class CorruptUnitsKeepTheCredit(_KeepsCreditOfRefusals):
    """A unit answered with PAYLOAD_CORRUPT never gives its credit back."""

    codes = (pb.ERROR_CODE_PAYLOAD_CORRUPT,)


@mutant("FLOW-03")
class CancelledUnitsKeepTheCredit(_KeepsCreditOfRefusals):
    """A cancelled unit never gives its credit back."""

    codes = (pb.ERROR_CODE_CANCELLED,)


@mutant("FLOW-03")
class ExpiredUnitsKeepTheCredit(_KeepsCreditOfRefusals):
    """A unit whose deadline passed never gives its credit back."""

    codes = (pb.ERROR_CODE_DEADLINE_EXCEEDED,)


@mutant("FLOW-03")
class SignalsTakeCredit(Worker):
    """A cancel takes a credit."""

    def on_cancel_signal(self, session: Session, signal: pb.CancelSignal) -> None:
        super().on_cancel_signal(session, signal)
        session.outstanding += 1


@mutant("FLOW-03")
class ReleasesTakeCredit(Worker):
    """A release takes a credit."""

    def on_release_signal(self, session: Session, signal: pb.ReleaseSignal) -> None:
        super().on_release_signal(session, signal)
        session.outstanding += 1


@mutant("FLOW-03")
class SignalsNeedCredit(Worker):
    """A cancel without a credit is refused."""

    def on_cancel_signal(self, session: Session, signal: pb.CancelSignal) -> None:
        try:
            self.rules.check_credit(session)
        except Refused as refused:
            self.send_status(session, signal.work_id, 0, refused)
            return
        super().on_cancel_signal(session, signal)


@mutant("FLOW-03")
class ViolationsTakeCredit(_OtherViolation):
    """A unit refused for lack of credit takes one."""

    def beyond(self, session: Session, event: Received) -> None:
        Worker.on_unit(self, session, event)
        session.outstanding += 1


@mutant("FLOW-03")
class ViolationsGiveCredit(_OtherViolation):
    """A unit refused for lack of credit gives one back that it never took."""

    def beyond(self, session: Session, event: Received) -> None:
        Worker.on_unit(self, session, event)
        session.outstanding -= 1
