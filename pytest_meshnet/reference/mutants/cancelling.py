"""Workers that cancel wrongly. CANCEL catches them, with `cancel_state` and `stream_ends`."""

from __future__ import annotations

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import Completed
from pytest_meshnet.protocol.machines.rules import Rules
from pytest_meshnet.protocol.machines.session import Refused, ServedShard, Session, Unit
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.reference.catalogue import mutant


class OtherCancel(Worker):
    """Says or does something else to a unit that is cancelled."""

    def refuse_unit(self, session: Session, unit: Unit, refused: Refused) -> None:
        if refused.code == pb.ERROR_CODE_CANCELLED:
            self.cancel_one(session, unit, refused)
        else:
            super().refuse_unit(session, unit, refused)

    def cancel_one(self, session: Session, unit: Unit, refused: Refused) -> None:
        """What becomes of a cancelled unit."""
        super().refuse_unit(session, unit, refused)


# One outcome -------------------------------------------------------------------------------------


@mutant("CANCEL-01")
class CancelsSilently(OtherCancel):
    """A cancelled unit is never heard of again."""

    def cancel_one(self, session: Session, unit: Unit, refused: Refused) -> None:
        session.outstanding -= 1


@mutant("CANCEL-01")
class CancelsTwice(OtherCancel):
    """A cancelled unit is told to be CANCELLED twice."""

    def cancel_one(self, session: Session, unit: Unit, refused: Refused) -> None:
        super().cancel_one(session, unit, refused)
        self.send_status(session, unit.work_id, unit.step, refused)


@mutant("CANCEL-01")
class CallsACancelAnExpiry(OtherCancel):
    """A cancelled unit is told to have missed its deadline."""

    def cancel_one(self, session: Session, unit: Unit, refused: Refused) -> None:
        late = Refused(pb.ERROR_CODE_DEADLINE_EXCEEDED, refused.detail, retryable=True)
        super().cancel_one(session, unit, late)


@mutant("CANCEL-01")
class AcksWhatItCancels(OtherCancel):
    """A cancelled unit is CANCELLED, and acknowledged too."""

    def cancel_one(self, session: Session, unit: Unit, refused: Refused) -> None:
        super().cancel_one(session, unit, refused)
        ack = pb.Ack(work_id=unit.work_id, idempotency_step=unit.step)
        self.send(session.stream, pb.SessionResponse(ack=ack))


@mutant("CANCEL-01")
class GivesResultsOfCancelledUnits(Worker):
    """The running unit is CANCELLED, and its result comes all the same when it is computed."""

    def cancel_units(self, session: Session, work_id: str) -> int:
        self.last = session.unit
        return super().cancel_units(session, work_id)

    def on_completed(self, event: Completed) -> None:
        session = self._works[event.number]
        unit = session.unit or self.last
        if session.unit is None and unit is not None and event.outcome is not None:
            self.send_result(session, unit, event.outcome)
        super().on_completed(event)


@mutant("CANCEL-01")
class CancelsItsFollowersToo(Worker):
    """A cancel of one unit ends every unit of the session."""

    def cancel_units(self, session: Session, work_id: str) -> int:
        return super().cancel_units(session, "")


# The unary call ----------------------------------------------------------------------------------


class _OtherCount(Worker):
    """Reports another count."""

    def cancel(self, request: pb.CancelRequest) -> pb.CancelResponse:
        response = super().cancel(request)
        response.cancelled_work_items = self.told(response.cancelled_work_items)
        return response

    def told(self, count: int) -> int:
        raise NotImplementedError


@mutant("CANCEL-02")
class UnaryCancelOnlyCounts(Worker):
    """The unary call tells what is in flight and lets it run."""

    def cancel(self, request: pb.CancelRequest) -> pb.CancelResponse:
        session = self.table.find(request.route_session_id)
        count = len(session.queue) + (session.unit is not None) if session else 0
        return pb.CancelResponse(cancelled_work_items=count)


@mutant("CANCEL-02")
class UnaryCancelWaitsItsTurn(Worker):
    """The unary call is done when the running unit has finished, as if it came on the stream."""

    def __init__(self, served: ServedShard, rules: Rules | None = None) -> None:
        super().__init__(served, rules)
        self.waiting: dict[str, str] = {}

    def cancel(self, request: pb.CancelRequest) -> pb.CancelResponse:
        self.waiting[request.route_session_id] = request.work_id
        return pb.CancelResponse()

    def on_completed(self, event: Completed) -> None:
        session = self._works[event.number]
        super().on_completed(event)
        if session.session_id in self.waiting:
            self.cancel_units(session, self.waiting.pop(session.session_id))


class _CancelsOnlyQueued(Worker):
    """A unit that runs can no longer be cancelled."""

    def cancel_units(self, session: Session, work_id: str) -> int:
        running, session.unit = session.unit, None
        count = super().cancel_units(session, work_id)
        session.unit = running
        return count


@mutant("CANCEL-02")
class UnaryCancelSparesTheRunning(_CancelsOnlyQueued):
    """A unit that runs cannot be cancelled by the unary call."""


class _CancelsOnlyRunning(Worker):
    """A unit that waits in the queue is not found by a cancel."""

    def cancel_units(self, session: Session, work_id: str) -> int:
        queue = list(session.queue)
        session.queue.clear()
        count = super().cancel_units(session, work_id)
        session.queue.extend(queue)
        self.pump(session)
        return count


@mutant("CANCEL-03")
class CancelOfAllTakesTheRunning(_CancelsOnlyRunning):
    """A cancel of all ends the running unit, and the queue goes on."""


@mutant("CANCEL-03")
class CancelOfAllSparesTheNext(Worker):
    """A cancel of all leaves the unit that would run next."""

    def cancel_units(self, session: Session, work_id: str) -> int:
        following = session.queue.popleft() if session.queue and not work_id else None
        count = super().cancel_units(session, work_id)
        if following is not None:
            session.queue.append(following)
        return count


@mutant("CANCEL-03")
class ReportsCancellationAsOne(_OtherCount):
    """However many units were cancelled, one is reported."""

    def told(self, count: int) -> int:
        return min(count, 1)


@mutant("CANCEL-03")
class ReportsNothingCancelled(_OtherCount):
    """However many units were cancelled, none is reported."""

    def told(self, count: int) -> int:
        return 0 * count


# Nothing to cancel -------------------------------------------------------------------------------


@mutant("CANCEL-04")
class CountsCancelsOfNothing(_OtherCount):
    """A cancel of what is not there is counted as one unit."""

    def told(self, count: int) -> int:
        return max(count, 1)


@mutant("CANCEL-04")
class UnknownWorkIsAnError(Worker):
    """A unary cancel that ends nothing comes with an error."""

    def cancel(self, request: pb.CancelRequest) -> pb.CancelResponse:
        response = super().cancel(request)
        if not response.cancelled_work_items and not response.HasField("error"):
            response.error.code = pb.ERROR_CODE_CACHE_MISS
        return response


@mutant("CANCEL-04")
class AnswersCancelsOfNothing(Worker):
    """An in-band cancel that ends nothing is answered by a status."""

    def on_cancel_signal(self, session: Session, signal: pb.CancelSignal) -> None:
        if not self.cancel_units(session, signal.work_id):
            nothing = Refused(pb.ERROR_CODE_CANCELLED, "nothing to cancel")
            self.send_status(session, signal.work_id, 0, nothing)


@mutant("CANCEL-09")
class CancelFinishesThePrefill(OtherCancel):
    """When the final chunk is cancelled, what came before it counts as a finished prefill."""

    def cancel_one(self, session: Session, unit: Unit, refused: Refused) -> None:
        super().cancel_one(session, unit, refused)
        session.finished = session.finished or unit.final


# Stalled units -----------------------------------------------------------------------------------


@mutant("CANCEL-12")
class CancelsNoRunningUnit(_CancelsOnlyQueued):
    """A stalled unit that runs cannot be cancelled."""


@mutant("CANCEL-12")
class CancelsNoQueuedUnit(_CancelsOnlyRunning):
    """A unit that waits behind a stalled one cannot be cancelled."""
