"""Workers wrong about deadlines, releases and their own life. DEADLINE and RELEASE catch them."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import Outcome, Received, Tick, Work
from pytest_meshnet.protocol.machines.rules import Rules
from pytest_meshnet.protocol.machines.session import Refused, ServedShard, Session, Unit
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.reference.catalogue import ModelWrapper, mutant


@mutant("DEADLINE-01")
class IgnoresDeadlines(Rules):
    """No unit ever expires."""

    def check_deadline(self, unit: Unit, now: int) -> None:
        """Let it pass."""


@mutant("DEADLINE-01")
class CallsExpiryACancel(Rules):
    """An expired unit is refused as CANCELLED."""

    def check_deadline(self, unit: Unit, now: int) -> None:
        if 0 < unit.deadline <= now:
            raise Refused(pb.ERROR_CODE_CANCELLED, "the deadline has passed", retryable=True)


_NEVER = 2**63 - 1


class _ExecutesExpired(Worker):
    """Computes an expired unit and commits its state, then says that it had expired."""

    applies_to: tuple[int, ...] = ()

    def begin(self, session: Session, unit: Unit) -> None:
        expired = 0 < unit.deadline <= self.now and unit.mode in self.applies_to
        super().begin(session, replace(unit, deadline=_NEVER) if expired else unit)

    def answer_applied(
        self, session: Session, unit: Unit, outcome: Outcome, cache_hit: bool
    ) -> None:
        if unit.deadline != _NEVER:
            super().answer_applied(session, unit, outcome, cache_hit)
            return
        late = Refused(pb.ERROR_CODE_DEADLINE_EXCEEDED, "the deadline has passed", retryable=True)
        self.send_status(session, unit.work_id, unit.step, late)


@mutant("DEADLINE-01")
class AppliesExpiredSteps(_ExecutesExpired):
    """An expired decode step is computed, committed and called expired."""

    applies_to = (pb.CACHE_MODE_DECODE,)


@mutant("DEADLINE-02")
class CountsExpiredUnits(Worker):
    """An expired unit that continues the state moves the position all the same."""

    def refuse_unit(self, session: Session, unit: Unit, refused: Refused) -> None:
        super().refuse_unit(session, unit, refused)
        if refused.code == pb.ERROR_CODE_DEADLINE_EXCEEDED and session.held:
            session.held += unit.token_count


@mutant("DEADLINE-03")
class TakesZeroForTheEpoch(Rules):
    """A deadline of zero is 1970, and has passed."""

    def check_deadline(self, unit: Unit, now: int) -> None:
        if unit.deadline <= now:
            raise Refused(pb.ERROR_CODE_DEADLINE_EXCEEDED, "the deadline has passed")


@mutant("DEADLINE-04")
class LeavesChunkDeadlinesToTheTransport(Rules):
    """Only a DecodeStep's own deadline is looked at; a chunk is left to the transport's."""

    def check_deadline(self, unit: Unit, now: int) -> None:
        if unit.envelope is None:
            super().check_deadline(unit, now)


@mutant("DEADLINE-05")
class ChecksDeadlinesOnArrival(Worker):
    """A deadline is looked at when the unit arrives, and not again when its turn comes."""

    def on_unit(self, session: Session, event: Received) -> None:
        self.arriving = True
        super().on_unit(session, event)

    def begin(self, session: Session, unit: Unit) -> None:
        super().begin(session, replace(unit, deadline=0))

    def _on_tick(self, event: Tick) -> None:
        """Look at nothing that waits."""


# Release -----------------------------------------------------------------------------------------


@mutant("RELEASE-01")
class IgnoresInBandReleases(Worker):
    """A release in band changes nothing."""

    def on_release_signal(self, session: Session, signal: pb.ReleaseSignal) -> None:
        """Keep everything."""


@mutant("RELEASE-01")
class AnswersInBandReleases(Worker):
    """A release in band is confirmed by a status."""

    def on_release_signal(self, session: Session, signal: pb.ReleaseSignal) -> None:
        super().on_release_signal(session, signal)
        self.send_status(session, "", 0, Refused(pb.ERROR_CODE_CANCELLED, "released"))


@mutant("RELEASE-01")
class ReleaseEndsTheStream(Worker):
    """A release in band ends the stream."""

    def on_release_signal(self, session: Session, signal: pb.ReleaseSignal) -> None:
        del signal
        ended = Refused(pb.ERROR_CODE_CANCELLED, "released", terminal=True)
        self.send_status(session, "", 0, ended)


@mutant("RELEASE-02")
class NeverReportsReleased(Worker):
    """A unary release works and says false."""

    def release(self, request: pb.ReleaseRequest) -> pb.ReleaseResponse:
        super().release(request)
        return pb.ReleaseResponse()


@mutant("RELEASE-02")
class ReportsReleasedAndKeeps(Worker):
    """A unary release says true and keeps the state."""

    def release_state(self, session: Session) -> None:
        session.has_place = False


@mutant("RELEASE-03")
class ReleasesAgainAndAgain(Worker):
    """A second release of a live session says true again."""

    def release(self, request: pb.ReleaseRequest) -> pb.ReleaseResponse:
        session = self.table.find(request.route_session_id)
        response = super().release(request)
        if session is not None and session.epoch == request.route_epoch:
            response.released = True
        return response


@mutant("RELEASE-03")
class UnknownReleaseIsAnError(Worker):
    """A release of a session that is not there comes with an error."""

    def release(self, request: pb.ReleaseRequest) -> pb.ReleaseResponse:
        response = super().release(request)
        if not response.released and not response.HasField("error"):
            response.error.code = pb.ERROR_CODE_CACHE_MISS
        return response


@mutant("RELEASE-04")
class KeepsReleasedPlaces(Worker):
    """A released session holds its place until its stream ends."""

    def release_state(self, session: Session) -> None:
        session.drop_state()

    def release(self, request: pb.ReleaseRequest) -> pb.ReleaseResponse:
        session = self.table.find(request.route_session_id)
        response = super().release(request)
        if response.released and session is not None:
            session.has_place = True
        return response


@mutant("RELEASE-05")
class LeavesAFileBehind(Worker):
    """A scratch file made at the start is there after the stop."""

    def __init__(self, served: ServedShard) -> None:
        super().__init__(served)
        (Path(tempfile.gettempdir()) / "meshnet-scratch").touch()


@mutant("RELEASE-06")
class ComputesByItsProcess(ModelWrapper):
    """Results depend on the process that computes them, as with weights loaded in another order."""

    def run(self, work: Work) -> Outcome:
        outcome = super().run(work)
        shift = 1.0 + (os.getpid() % 97)
        shifted = tuple(
            Tensor.from_float32(one.name, one.to_float32() * shift, DType(one.dtype))
            for one in outcome.tensors
        )
        return replace(outcome, tensors=shifted)
