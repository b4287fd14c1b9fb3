"""Workers whose cancels reach other sessions, or leave something behind in their own."""

from __future__ import annotations

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import Completed
from pytest_meshnet.protocol.machines.rules import Rules
from pytest_meshnet.protocol.machines.session import Refused, Session, Unit
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.reference.catalogue import mutant
from pytest_meshnet.reference.mutants.cancelling import OtherCancel
from pytest_meshnet.reference.mutants.leaking import LosesTokens, LosesUnits


@mutant("CANCEL-05")
class CancelsByWorkIdAlone(Worker):
    """A cancel ends units of that work id in every session."""

    def cancel_units(self, session: Session, work_id: str) -> int:
        count = super().cancel_units(session, work_id)
        if work_id:
            others = [other for other in self.table if other is not session]
            count += sum(super(CancelsByWorkIdAlone, self).cancel_units(o, work_id) for o in others)
        return count


@mutant("CANCEL-05")
class CancelOfAllIsEverybodys(Worker):
    """A unary cancel of all ends the units of every session."""

    def cancel(self, request: pb.CancelRequest) -> pb.CancelResponse:
        response = super().cancel(request)
        if not request.work_id:
            for session in self.table:
                self.cancel_units(session, "")
        return response


@mutant("CANCEL-05")
class CancelDropsOtherStates(Worker):
    """A cancel clears the Hot KV State of every other session."""

    def cancel_units(self, session: Session, work_id: str) -> int:
        for other in self.table:
            if other is not session:
                other.drop_state()
        return super().cancel_units(session, work_id)


@mutant("CANCEL-06")
class CountsCancelledUnits(OtherCancel):
    """A cancelled unit moves the position."""

    def cancel_one(self, session: Session, unit: Unit, refused: Refused) -> None:
        super().cancel_one(session, unit, refused)
        session.held += unit.token_count


@mutant("CANCEL-06")
class MissesTheTruePosition(Rules):
    """A CACHE_MISS tells a token too many."""

    def cache_miss(self, session: Session, detail: str) -> Refused:
        return Refused(pb.ERROR_CODE_CACHE_MISS, detail, actual_past_len=session.held + 1)


@mutant("CANCEL-06")
class KeepsTheStateOfCancelledUnits(Worker):
    """The state of a unit that was cancelled while it ran is kept, and its position is not."""

    def on_completed(self, event: Completed) -> None:
        session = self._works[event.number]
        if session.unit is None and event.outcome is not None:
            session.state = event.outcome.state
        super().on_completed(event)


@mutant("CANCEL-06")
class CancelSpendsTheStep(OtherCancel):
    """The step of a cancelled unit counts as applied."""

    def cancel_one(self, session: Session, unit: Unit, refused: Refused) -> None:
        super().cancel_one(session, unit, refused)
        session.last_step = max(session.last_step, unit.step)


@mutant("CANCEL-07")
class CancelledChunksStayQueued(LosesUnits, OtherCancel):
    """Health goes on to count chunks that were cancelled."""

    def cancel_one(self, session: Session, unit: Unit, refused: Refused) -> None:
        super().cancel_one(session, unit, refused)
        self.lost += 1


@mutant("CANCEL-07")
class CancelledChunksKeepTheirMemory(LosesTokens, OtherCancel):
    """The memory taken for chunks that were cancelled is never given back."""

    def cancel_one(self, session: Session, unit: Unit, refused: Refused) -> None:
        super().cancel_one(session, unit, refused)
        self.lost += unit.token_count


@mutant("CANCEL-07")
class CancelledPrefillCannotRestart(OtherCancel):
    """After a cancelled chunk the session waits for the rest of that prefill and takes no other."""

    def cancel_one(self, session: Session, unit: Unit, refused: Refused) -> None:
        super().cancel_one(session, unit, refused)
        self.broken = session

    def begin(self, session: Session, unit: Unit) -> None:
        fresh = unit.mode == pb.CACHE_MODE_PREFILL and unit.expected_past_len == 0
        if fresh and session.held and getattr(self, "broken", None) is session:
            raise self.rules.cache_miss(session, "a prefill is under way")
        super().begin(session, unit)


class _StrayTokens(LosesTokens):
    """Health counts tokens of prefills that were cancelled."""

    def cancel_units(self, session: Session, work_id: str) -> int:
        unfinished = 0 if session.finished else session.held
        count = super().cancel_units(session, work_id)
        if unfinished:
            self.lost += unfinished
            self.left_unfinished(session)
        return count

    def left_unfinished(self, session: Session) -> None:
        raise NotImplementedError


@mutant("CANCEL-07")
class CancelledPrefillIsForgottenAndKept(_StrayTokens):
    """A cancelled prefill is dropped from its session, and its memory is not given back."""

    def left_unfinished(self, session: Session) -> None:
        session.drop_state()


@mutant("CANCEL-07")
class CancelledPrefillIsHeldTwice(_StrayTokens):
    """A cancel in mid-prefill copies what is held, and keeps the original too."""

    def left_unfinished(self, session: Session) -> None:
        """Nothing is dropped."""


@mutant("CANCEL-07")
class CancelTakesALastToken(Worker):
    """A cancel in mid-prefill takes the last token back that was acked."""

    def cancel_units(self, session: Session, work_id: str) -> int:
        count = super().cancel_units(session, work_id)
        if session.held and not session.finished:
            session.held -= 1
        return count
