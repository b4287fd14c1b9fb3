"""Workers wrong about streams that are dropped, half-closed, cut off, or ended by themselves."""

from __future__ import annotations

from pytest_meshnet.protocol.codec import encode_bundle
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import Outcome, Received
from pytest_meshnet.protocol.machines.results import result_envelope
from pytest_meshnet.protocol.machines.rules import Rules
from pytest_meshnet.protocol.machines.session import Refused, ServedShard, Session, Unit
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.reference.catalogue import mutant
from pytest_meshnet.reference.mutants.leaking import LosesTokens, LosesUnits


@mutant("CANCEL-08")
class LostSessionsKeepTheirPlace(Worker):
    """A dropped connection leaves its session in the table."""

    def lose(self, session: Session) -> None:
        """Keep it."""


@mutant("CANCEL-08")
class LostPrefillsKeepTheirPlace(Worker):
    """A connection dropped in mid-prefill leaves its session in the table."""

    def lose(self, session: Session) -> None:
        if session.finished:
            super().lose(session)


@mutant("CANCEL-08")
class LostSessionsKeepTheirMemory(LosesTokens):
    """The tokens of a dropped connection stay in the pressure."""

    def lose(self, session: Session) -> None:
        self.lost += session.held
        super().lose(session)


@mutant("CANCEL-08")
class LostUnitsStayQueued(LosesUnits):
    """The units of a dropped connection stay in the queue."""

    def lose(self, session: Session) -> None:
        self.lost += len(session.queue)
        super().lose(session)


class _KeepsCutPrefills(Worker):
    """A prefill whose stream ended is held for the next epoch, as if it were complete."""

    def __init__(self, served: ServedShard, rules: Rules | None = None) -> None:
        super().__init__(served, rules)
        self.kept: dict[str, tuple[int, object | None]] = {}

    def end(self, session: Session) -> None:
        self.kept[session.session_id] = (session.held, session.state)
        super().end(session)

    def accept(self, stream: int, message: pb.SessionOpen) -> None:
        super().accept(stream, message)
        session = self.table.find(message.route_session_id)
        if session is not None and session.session_id in self.kept:
            session.held, session.state = self.kept.pop(session.session_id)
            session.finished = True


@mutant("CANCEL-09")
class UsesCutPrefills(_KeepsCutPrefills):
    """A prefill cut off by the end of its stream is used by the next epoch."""


@mutant("CANCEL-09")
class ReportsCutPrefills(Worker):
    """A half-close in mid-prefill ends it, and gives a result for the whole of it once more."""

    def apply(self, session: Session, unit: Unit, outcome: Outcome) -> None:
        super().apply(session, unit, outcome)
        if session.half_closed and not unit.final and not session.queue:
            chunk = pb.ActivationChunk(
                envelope=result_envelope(session, unit), bundle=encode_bundle(outcome.tensors)
            )
            self.send(session.stream, pb.SessionResponse(chunk=chunk))


@mutant("CANCEL-10")
class HalfCloseDropsTheQueue(Worker):
    """A half-close ends the stream after the running unit."""

    def pump(self, session: Session) -> None:
        if session.half_closed:
            session.queue.clear()
        super().pump(session)


@mutant("CANCEL-10")
class HalfCloseIsALoss(Worker):
    """A half-close ends the stream at once."""

    def pump(self, session: Session) -> None:
        if session.half_closed and self.table.is_live(session):
            self.abandon_running(session)
            session.queue.clear()
            session.running = None
        super().pump(session)


@mutant("CANCEL-10")
class HalfCloseLosesResults(Worker):
    """After a half-close units are acknowledged and give no result."""

    def send_result(self, session: Session, unit: Unit, outcome: Outcome) -> None:
        if not session.half_closed:
            super().send_result(session, unit, outcome)


@mutant("CANCEL-10")
class HalfClosedStreamsStayOpen(Worker):
    """A half-closed stream is never ended."""

    def pump(self, session: Session) -> None:
        half_closed, session.half_closed = session.half_closed, False
        super().pump(session)
        session.half_closed = half_closed


@mutant("CANCEL-10")
class HalfCloseIsRefused(Worker):
    """A half-closed stream ends with a terminal status instead of a clean end."""

    def pump(self, session: Session) -> None:
        waits = session.queue or session.running is not None
        if session.half_closed and not waits and self.table.is_live(session):
            gone = Refused(pb.ERROR_CODE_CANCELLED, "the client left", terminal=True)
            self.send_status(session, "", 0, gone)
            return
        super().pump(session)


@mutant("CANCEL-10")
class HalfCloseKeepsTheState(_KeepsCutPrefills):
    """The state of a half-closed stream serves the next epoch."""

    def lose(self, session: Session) -> None:
        super().lose(session)
        self.kept.pop(session.session_id, None)


@mutant("CANCEL-10")
class HalfCloseKeepsThePlace(Worker):
    """The place of a half-closed session is never given back."""

    ghosts = 0

    def pump(self, session: Session) -> None:
        live = self.table.is_live(session)
        super().pump(session)
        if live and session.half_closed and not self.table.is_live(session):
            self.ghosts += 1

    def health(self, resident_bytes: int) -> pb.HealthReport:
        report = super().health(resident_bytes)
        report.active_sessions += self.ghosts
        return report


class _OtherEnd(Worker):
    """Ends a stream by a terminal status of a chunk in another way."""

    def refuse_unit(self, session: Session, unit: Unit, refused: Refused) -> None:
        if refused.terminal:
            self.end_by(session, unit, refused)
        else:
            super().refuse_unit(session, unit, refused)

    def end_by(self, session: Session, unit: Unit, refused: Refused) -> None:
        raise NotImplementedError


@mutant("CANCEL-11")
class EndsWithoutAStatus(_OtherEnd):
    """A chunk that ends its stream ends it without a word."""

    def end_by(self, session: Session, unit: Unit, refused: Refused) -> None:
        Worker.refuse_unit(self, session, unit, refused)
        del self.effects[-2]


@mutant("CANCEL-11")
class LosesTheStatusToAWritingClient(_OtherEnd):
    """The terminal status waits for the client to pause; one that writes on never sees it."""

    def end_by(self, session: Session, unit: Unit, refused: Refused) -> None:
        self.ending = (session, unit, refused)

    def _on_received(self, event: Received) -> None:
        ending = getattr(self, "ending", None)
        if ending is not None and event.stream == ending[0].stream:
            del self.ending
            Worker.refuse_unit(self, *ending)
            del self.effects[-2]
            return
        super()._on_received(event)


@mutant("CANCEL-11")
class EndsAsCancelled(_OtherEnd):
    """A stream that the worker ends is told to have been CANCELLED."""

    def end_by(self, session: Session, unit: Unit, refused: Refused) -> None:
        ended = Refused(pb.ERROR_CODE_CANCELLED, refused.detail, terminal=True)
        Worker.refuse_unit(self, session, unit, ended)
