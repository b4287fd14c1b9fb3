"""Workers that forget, ignore or overdo the fences of epochs. They break the group EPOCH."""

from __future__ import annotations

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import Close
from pytest_meshnet.protocol.machines.rules import Rules
from pytest_meshnet.protocol.machines.session import Refused, ServedShard, Session, Unit
from pytest_meshnet.protocol.machines.table import NO_EPOCH, SessionTable
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.reference.catalogue import mutant


@mutant("EPOCH-01")
class AcceptsLowerEpochs(Rules):
    """Only the epoch used last is refused; a lower one is accepted."""

    def check_epoch(self, epoch: int, highest: int) -> None:
        if epoch == highest:
            super().check_epoch(epoch, highest)


@mutant("EPOCH-01")
class CallsStaleEpochsExhausted(Rules):
    """A stale open is refused, but as a lack of resources."""

    def check_epoch(self, epoch: int, highest: int) -> None:
        if epoch < highest:
            raise Refused(pb.ERROR_CODE_RESOURCE_EXHAUSTED, "another epoch is open")
        super().check_epoch(epoch, highest)


@mutant("EPOCH-02")
class AcceptsAnEpochTwice(Rules):
    """The highest epoch may be opened again, as by a client that reconnects."""

    def check_epoch(self, epoch: int, highest: int) -> None:
        if epoch != highest:
            super().check_epoch(epoch, highest)


class _KeepsOlder(Worker):
    """A newer epoch leaves the stream of the older one at work."""

    def fence_older(self, older: Session) -> None:
        """Let the older session live on its stream, under no name."""


@mutant("EPOCH-03")
class WorksForOlderEpochs(_KeepsOlder):
    """A stream of an older epoch is served on beside the newer one."""


@mutant("EPOCH-03")
class StaleWorkDropsTheNewerState(_KeepsOlder):
    """Work of an older epoch is refused as stale, and costs the newer one its state."""

    def begin(self, session: Session, unit: Unit) -> None:
        newer = self.table.find(session.session_id)
        if newer is not None and newer is not session:
            newer.drop_state()
            raise Refused(pb.ERROR_CODE_EPOCH_STALE, "a newer epoch was opened", terminal=True)
        super().begin(session, unit)


@mutant("EPOCH-03")
class EndsOlderStreamsSilently(Worker):
    """The stream of an older epoch just ends, without a status."""

    def fence_older(self, older: Session) -> None:
        self.end(older)
        self.effects.append(Close(older.stream))


@mutant("EPOCH-04")
class NewEpochInheritsTheState(Worker):
    """A new epoch begins with what a live older one held."""

    def accept(self, stream: int, message: pb.SessionOpen) -> None:
        super().accept(stream, message)
        session = self.table.find(message.route_session_id)
        if session is not None and session.session_id in self.left:
            session.held, session.finished, session.state = self.left[session.session_id]

    def __init__(self, served: ServedShard) -> None:
        super().__init__(served)
        self.left: dict[str, tuple[int, bool, object | None]] = {}

    def end(self, session: Session) -> None:
        self.left[session.session_id] = (session.held, session.finished, session.state)
        super().end(session)


@mutant("EPOCH-05")
class ReleasesWhateverTheEpoch(Worker):
    """A unary release drops the session under any epoch."""

    def release(self, request: pb.ReleaseRequest) -> pb.ReleaseResponse:
        session = self.table.find(request.route_session_id)
        if session is not None:
            request.route_epoch = session.epoch
        return super().release(request)


@mutant("EPOCH-05")
class CancelsWhateverTheEpoch(Worker):
    """A unary cancel ends the units of the session under any epoch."""

    def cancel(self, request: pb.CancelRequest) -> pb.CancelResponse:
        session = self.table.find(request.route_session_id)
        if session is not None:
            request.route_epoch = session.epoch
        return super().cancel(request)


@mutant("EPOCH-05")
class StaleUnaryCallsLookUnknown(Worker):
    """A unary call for an older epoch is answered as if the session were unknown."""

    def stale(self, session_id: str, epoch: int) -> Refused | None:
        return None


@mutant("EPOCH-05")
class ReleasesAndCallsItStale(Worker):
    """A stale release gets the right error, and drops the newer epoch's state all the same."""

    def stale(self, session_id: str, epoch: int) -> Refused | None:
        refused = super().stale(session_id, epoch)
        session = self.table.find(session_id)
        if refused is not None and session is not None:
            self.cancel_units(session, "")
            self.release_state(session)
        return refused


class _ShortMemory(SessionTable):
    """Keeps the fences of the sessions that ended last, and only so many."""

    kept = 0

    def remove(self, session: Session) -> None:
        super().remove(session)
        ended = [name for name in self._fences if self.find(name) is None]
        for name in ended[: max(0, len(ended) - self.kept)]:
            del self._fences[name]


@mutant("EPOCH-06")
class ForgetsTheFenceWithTheStream(Worker):
    """The fence of a session goes with its stream."""

    def __init__(self, served: ServedShard) -> None:
        super().__init__(served)
        self.table = _ShortMemory()


class _SomeMemory(_ShortMemory):
    kept = 16


@mutant("EPOCH-06")
class RemembersSixteenFences(Worker):
    """Fences of ended sessions go when sixteen others have ended."""

    def __init__(self, served: ServedShard) -> None:
        super().__init__(served)
        self.table = _SomeMemory()


@mutant("EPOCH-06")
class LiftsTheFenceOnRelease(Worker):
    """A release forgets the epoch along with the state."""

    def release(self, request: pb.ReleaseRequest) -> pb.ReleaseResponse:
        response = super().release(request)
        if response.released:
            self.table.fence(request.route_session_id, NO_EPOCH)
        return response
