"""Workers wrong about grants, ceilings and sizes, or letting one session stop another."""

from __future__ import annotations

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import Completed, Outcome, Received
from pytest_meshnet.protocol.machines.rules import Rules
from pytest_meshnet.protocol.machines.session import Refused, ServedShard, Session, Unit
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.reference.catalogue import mutant
from pytest_meshnet.reference.granting import GrantsCreditLater
from pytest_meshnet.reference.mutants.flow import unit_of

# Grants ------------------------------------------------------------------------------------------


@mutant("FLOW-04")
class AGrantReplacesTheCredit(GrantsCreditLater):
    """A grant is taken as the new credit."""

    def grant(self, session: Session, credits: int) -> None:
        super().grant(session, credits)
        session.credit = credits


@mutant("FLOW-04")
class AGrantIsOnlyTold(GrantsCreditLater):
    """A second grant is sent and not counted."""

    def grant(self, session: Session, credits: int) -> None:
        before = session.credit
        super().grant(session, credits)
        session.credit = before or credits


@mutant("FLOW-04")
class AGrantCountsTwice(GrantsCreditLater):
    """A grant gives twice what it says."""

    def grant(self, session: Session, credits: int) -> None:
        super().grant(session, credits)
        session.credit += credits


@mutant("FLOW-04")
class AGrantForgetsWhatIsInFlight(GrantsCreditLater):
    """A grant lowers the credit by the units in flight."""

    def grant(self, session: Session, credits: int) -> None:
        super().grant(session, credits)
        session.credit -= session.outstanding


# Credits conserved -------------------------------------------------------------------------------


class _Drifts(Worker):
    """Loses or gains a credit with every so manieth answer of a kind."""

    answered = 0

    def drift(self, session: Session, by: int, every: int) -> None:
        self.answered += 1
        if self.answered % every == 0:
            session.outstanding += by


@mutant("FLOW-05")
class LeaksWithCancels(_Drifts):
    """Every fifth cancelled unit keeps its credit."""

    def refuse_unit(self, session: Session, unit: Unit, refused: Refused) -> None:
        super().refuse_unit(session, unit, refused)
        if refused.code == pb.ERROR_CODE_CANCELLED:
            self.drift(session, 1, every=5)


@mutant("FLOW-05")
class LeaksWithErrors(_Drifts):
    """Every fifth refused unit that was not cancelled keeps its credit."""

    def refuse_unit(self, session: Session, unit: Unit, refused: Refused) -> None:
        super().refuse_unit(session, unit, refused)
        if refused.code != pb.ERROR_CODE_CANCELLED:
            self.drift(session, 1, every=5)


@mutant("FLOW-05")
class LeaksWithSteps(_Drifts):
    """Every hundredth applied unit keeps its credit."""

    def apply(self, session: Session, unit: Unit, outcome: Outcome) -> None:
        super().apply(session, unit, outcome)
        self.drift(session, 1, every=100)


@mutant("FLOW-05")
class GrowsWithDuplicates(_Drifts):
    """Every fifth duplicate gives two credits back."""

    def answer_duplicate(self, session: Session, unit: Unit) -> None:
        super().answer_duplicate(session, unit)
        self.drift(session, -1, every=5)


@mutant("FLOW-05")
class GrowsWithCancels(_Drifts):
    """Every fifth cancelled unit gives two credits back."""

    def refuse_unit(self, session: Session, unit: Unit, refused: Refused) -> None:
        super().refuse_unit(session, unit, refused)
        if refused.code == pb.ERROR_CODE_CANCELLED:
            self.drift(session, -1, every=5)


# Ceilings ----------------------------------------------------------------------------------------


@mutant("FLOW-06")
class GrantsBeyondTheCeiling(GrantsCreditLater):
    """Grants more than the in-flight limit, and lets that much in flight."""

    def on_unit(self, session: Session, event: Received) -> None:
        if session.outstanding < session.credit and session.outstanding >= session.limits.inflight:
            session.outstanding += 1
            session.queue.append(unit_of(event))
            self.pump(session)
            return
        super().on_unit(session, event)


@mutant("FLOW-06")
class KeepsItsOwnCeiling(Rules):
    """The client's lower in-flight limit is settled and then forgotten."""

    def check_credit(self, session: Session) -> None:
        if session.outstanding >= self.served.limits.inflight:
            raise Refused(pb.ERROR_CODE_FLOW_CONTROL_VIOLATION, "no credit", retryable=True)


@mutant("FLOW-07")
class IgnoresTheSizeOfMessages(Rules):
    """A message may have any size."""

    def check_size(self, session: Session, size: int) -> None:
        """Let it pass."""


@mutant("FLOW-07")
class KeepsItsOwnSize(Rules):
    """The client's lower max_chunk_bytes is settled and then forgotten."""

    def check_size(self, session: Session, size: int) -> None:
        if size > self.served.limits.chunk_bytes:
            super().check_size(session, size)


@mutant("FLOW-07")
class MeasuresTheFirstMessage(Worker):
    """Only a session's first unit is measured."""

    def on_unit(self, session: Session, event: Received) -> None:
        size = event.size if session.last_step < 0 else 0
        super().on_unit(session, Received(event.stream, event.message, size))


@mutant("FLOW-07")
class OversizeEndsTheService(Worker):
    """After an oversized message the worker takes no session any more."""

    def refuse_unit(self, session: Session, unit: Unit, refused: Refused) -> None:
        self.draining |= refused.code == pb.ERROR_CODE_FLOW_CONTROL_VIOLATION
        super().refuse_unit(session, unit, refused)


@mutant("FLOW-07")
class OversizeIsAppliedHalf(Worker):
    """An oversized message is refused, and its step is spent."""

    def refuse_unit(self, session: Session, unit: Unit, refused: Refused) -> None:
        if refused.code == pb.ERROR_CODE_FLOW_CONTROL_VIOLATION:
            session.last_step = max(session.last_step, unit.step)
        super().refuse_unit(session, unit, refused)


# Sessions beside each other ----------------------------------------------------------------------


class _HoldsOthersBack(Worker):
    """Starts no unit of a session while another one gives a reason to wait."""

    def begin(self, session: Session, unit: Unit) -> None:
        if not any(self.blocks(other) for other in self.table if other is not session):
            super().begin(session, unit)

    def blocks(self, other: Session) -> bool:
        raise NotImplementedError


@mutant("FLOW-08")
class WaitsForASlowReader(_HoldsOthersBack):
    """Once a client was sent a credit's worth of answers and said nothing, all others wait."""

    def __init__(self, served: ServedShard, rules: Rules | None = None) -> None:
        super().__init__(served, rules)
        self.unheard: dict[str, int] = {}

    def on_unit(self, session: Session, event: Received) -> None:
        if session.outstanding == 0:
            self.unheard[session.session_id] = 0
        super().on_unit(session, event)

    def on_completed(self, event: Completed) -> None:
        session = self._works[event.number]
        self.unheard[session.session_id] = self.unheard.get(session.session_id, 0) + 1
        super().on_completed(event)

    def blocks(self, other: Session) -> bool:
        return self.unheard.get(other.session_id, 0) >= max(2, other.credit)


@mutant("FLOW-09")
class APrefillHasTheShard(_HoldsOthersBack):
    """While a session's prefill is not finished no other session is served."""

    def blocks(self, other: Session) -> bool:
        return other.held > 0 and not other.finished
