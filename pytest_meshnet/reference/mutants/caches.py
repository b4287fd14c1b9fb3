"""Workers that mix sessions up, or keep what is not theirs. They break the group KV."""

from __future__ import annotations

from dataclasses import replace

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import Completed, Outcome
from pytest_meshnet.protocol.machines.rules import Rules
from pytest_meshnet.protocol.machines.session import Refused, ServedShard, Session, Unit
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.protocol.tensors import Tensor
from pytest_meshnet.reference.catalogue import mutant
from pytest_meshnet.reference.mutants.leaking import LosesTokens

# Sessions that mix -------------------------------------------------------------------------------


@mutant("KV-01")
class OneStateForAll(Worker):
    """A decode step continues the state that was committed last, whosever it is."""

    newest: object | None = None

    def commit(self, session: Session, unit: Unit, outcome: Outcome) -> None:
        super().commit(session, unit, outcome)
        self.newest = outcome.state

    def state_for(self, session: Session, unit: Unit) -> object | None:
        return (
            self.newest if unit.mode == pb.CACHE_MODE_DECODE else super().state_for(session, unit)
        )


@mutant("KV-01")
class OnePositionForAll(Worker):
    """A prefill of one session moves the position of every other that holds something."""

    def commit(self, session: Session, unit: Unit, outcome: Outcome) -> None:
        super().commit(session, unit, outcome)
        for other in self.table:
            if other is not session and other.held and unit.mode == pb.CACHE_MODE_PREFILL:
                other.held += unit.token_count


class _AcrossSessions(Worker):
    """Takes a unit for a duplicate when another live session is found to have used its name."""

    def __init__(self, served: ServedShard) -> None:
        super().__init__(served)
        self.used: dict[str, set[str]] = {}

    def apply(self, session: Session, unit: Unit, outcome: Outcome) -> None:
        self.used.setdefault(session.session_id, set()).add(unit.work_id)
        super().apply(session, unit, outcome)

    def is_known(self, other: Session, unit: Unit) -> bool:
        raise NotImplementedError

    def begin(self, session: Session, unit: Unit) -> None:
        others = [other for other in self.table if other is not session]
        if any(self.is_known(other, unit) for other in others):
            self.answer_duplicate(session, unit)
        else:
            super().begin(session, unit)


@mutant("KV-02")
class WorkIdsOfTheWorker(_AcrossSessions):
    """A work id that a live session has used is a duplicate in every other."""

    def is_known(self, other: Session, unit: Unit) -> bool:
        return unit.work_id in self.used.get(other.session_id, ())


@mutant("KV-02")
class StepsOfTheWorker(_AcrossSessions):
    """A step at or below the last one of any live session is a duplicate."""

    def is_known(self, other: Session, unit: Unit) -> bool:
        return unit.step <= other.last_step


@mutant("KV-02")
class ResultsByName(Worker):
    """Results are remembered by work id and step, and given to whoever uses both again."""

    def __init__(self, served: ServedShard) -> None:
        super().__init__(served)
        self.results: dict[tuple[str, int, int], tuple[Tensor, ...]] = {}

    def send_result(self, session: Session, unit: Unit, outcome: Outcome) -> None:
        key = (unit.work_id, unit.step, unit.token_count)
        tensors = self.results.setdefault(key, outcome.tensors)
        super().send_result(session, unit, replace(outcome, tensors=tensors))


@mutant("KV-03")
class LosesTokensUnderLoad(Worker):
    """A later chunk starts from nothing when another session's chunk runs at the same time."""

    def state_for(self, session: Session, unit: Unit) -> object | None:
        busy = any(other.running is not None for other in self.table if other is not session)
        chunk = unit.mode == pb.CACHE_MODE_PREFILL
        return None if busy and chunk else super().state_for(session, unit)


@mutant("KV-03")
class BorrowsStateWhenFull(Worker):
    """With every place taken a decode step continues the state of the first session."""

    def state_for(self, session: Session, unit: Unit) -> object | None:
        full = self.table.places_held() == self.served.max_sessions
        if full and unit.mode == pb.CACHE_MODE_DECODE:
            return next(iter(self.table)).state
        return super().state_for(session, unit)


class _Batched(Worker):
    """Knows the result before, when its session and the next one were computed together."""

    def __init__(self, served: ServedShard) -> None:
        super().__init__(served)
        self.neighbour: tuple[str, tuple[Tensor, ...]] = ("", ())
        self.together = False

    def on_completed(self, event: Completed) -> None:
        self.together = len(self._works) > 1
        super().on_completed(event)

    def send_result(self, session: Session, unit: Unit, outcome: Outcome) -> None:
        owner, tensors = self.neighbour
        self.neighbour = (session.session_id, outcome.tensors)
        if self.together and tensors and outcome.tensors and owner != session.session_id:
            outcome = replace(outcome, tensors=(self.mixed(tensors[0], outcome.tensors[0]),))
        super().send_result(session, unit, outcome)

    def mixed(self, before: Tensor, own: Tensor) -> Tensor:
        raise NotImplementedError


@mutant("KV-04")
class ShiftsRowsByALane(_Batched):
    """In a batch a session gets the rows of the lane before it, where they are as many."""

    def mixed(self, before: Tensor, own: Tensor) -> Tensor:
        return before if before.shape == own.shape else own


@mutant("KV-04")
class CutsABatchByLane(_Batched):
    """Rows of a ragged batch are cut at the wrong offset: the first is the last of another's."""

    def mixed(self, before: Tensor, own: Tensor) -> Tensor:
        if before.shape == own.shape:
            return own
        size = len(own.data) // own.shape[1]
        return replace(own, data=bytes(before.data)[-size:] + bytes(own.data)[size:])


# What is left behind -----------------------------------------------------------------------------


class _LeavesState(Worker):
    """Gives what a session held to the next prefill that begins at token zero."""

    left: object | None = None

    def state_for(self, session: Session, unit: Unit) -> object | None:
        fresh = unit.mode == pb.CACHE_MODE_PREFILL and unit.expected_past_len == 0
        if fresh and self.left is not None:
            left, self.left = self.left, None
            return left
        return super().state_for(session, unit)


@mutant("KV-05")
class ReusesReleasedKv(_LeavesState):
    """The place of a released session is handed on without being cleared."""

    def release_state(self, session: Session) -> None:
        self.left = session.state
        super().release_state(session)


@mutant("KV-05")
class ReusesLostKv(_LeavesState):
    """The place of a session that ended with its stream is handed on without being cleared."""

    def end(self, session: Session) -> None:
        self.left = session.state or self.left
        super().end(session)


@mutant("KV-05")
class InheritsThePosition(Worker):
    """A new session starts with the length and state that the last one to end had."""

    last: tuple[int, object | None] = (0, None)

    def end(self, session: Session) -> None:
        if session.held:
            self.last = (session.held, session.state)
        super().end(session)

    def accept(self, stream: int, message: pb.SessionOpen) -> None:
        super().accept(stream, message)
        session = self.table.find(message.route_session_id)
        if session is not None and self.last[0]:
            session.held, session.state = self.last
            session.finished = True


@mutant("KV-06")
class StatelessTakesPages(LosesTokens):
    """Stateless work takes memory that is not given back while its session lives."""

    def apply(self, session: Session, unit: Unit, outcome: Outcome) -> None:
        if unit.mode == pb.CACHE_MODE_STATELESS:
            self.lost += unit.token_count
        super().apply(session, unit, outcome)


@mutant("KV-06")
class DecodesAfterStateless(Rules):
    """A decode that expects what stateless work computed goes through, on nothing."""

    def check_decode_cache(self, session: Session, unit: Unit) -> None:
        if session.held or session.last_step < 0:
            super().check_decode_cache(session, unit)


@mutant("KV-06")
class StatelessMissTellsALength(Rules):
    """A miss on nothing repeats the length that was expected."""

    def check_decode_cache(self, session: Session, unit: Unit) -> None:
        if not session.held and session.last_step >= 0:
            expected = unit.expected_past_len
            raise Refused(pb.ERROR_CODE_CACHE_MISS, "nothing is held", actual_past_len=expected)
        super().check_decode_cache(session, unit)


@mutant("KV-07")
class KeepsAbandonedKv(Worker):
    """The memory of a session that was lost is never given back."""

    BYTES_A_SESSION = 1 << 20

    def __init__(self, served: ServedShard) -> None:
        super().__init__(served)
        self.kept = 64

    def lose(self, session: Session) -> None:
        self.kept += 1
        super().lose(session)

    def health(self, resident_bytes: int) -> pb.HealthReport:
        return super().health(resident_bytes + self.kept * self.BYTES_A_SESSION)


class _Evicts(Worker):
    """Accepts a session too many and takes the place of the oldest for it."""

    def open(self, stream: int, message: pb.SessionOpen) -> None:
        if self.table.places_held() >= self.served.max_sessions:
            oldest = next(session for session in self.table if session.has_place)
            oldest.has_place = False
            self.evict(oldest)
        super().open(stream, message)

    def evict(self, session: Session) -> None:
        raise NotImplementedError


@mutant("KV-07")
class DecodesEvictedSessions(_Evicts):
    """An evicted session goes on from its old position, over nothing."""

    def evict(self, session: Session) -> None:
        session.state = None

    def begin(self, session: Session, unit: Unit) -> None:
        session.has_place = True
        super().begin(session, unit)


@mutant("KV-07")
class EvictedSessionsAreCancelled(_Evicts):
    """A unit of an evicted session is refused as CANCELLED."""

    def evict(self, session: Session) -> None:
        session.drop_state()

    def begin(self, session: Session, unit: Unit) -> None:
        if not session.has_place:
            raise Refused(pb.ERROR_CODE_CANCELLED, "evicted", retryable=True)
        super().begin(session, unit)
