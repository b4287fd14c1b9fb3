"""Workers that break only after a certain sequence of messages. They break ROBUST-04."""

from __future__ import annotations

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.session import Refused, ServedShard, Session, Unit
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.reference.catalogue import mutant


@mutant("ROBUST-04")
class DuplicateAfterAMissDropsTheState(Worker):
    """A duplicate that follows a cache miss is taken for a client that begins again."""

    def __init__(self, served: ServedShard) -> None:
        super().__init__(served)
        self.missed: set[str] = set()

    def refuse_unit(self, session: Session, unit: Unit, refused: Refused) -> None:
        super().refuse_unit(session, unit, refused)
        if refused.code == pb.ERROR_CODE_CACHE_MISS:
            self.missed.add(session.session_id)

    def answer_duplicate(self, session: Session, unit: Unit) -> None:
        super().answer_duplicate(session, unit)
        if session.session_id in self.missed:
            session.drop_state()


@mutant("ROBUST-04")
class CorruptionAfterAReleaseMovesThePosition(Worker):
    """A corrupt unit counts when its session was released before and holds state again."""

    def __init__(self, served: ServedShard) -> None:
        super().__init__(served)
        self.released: set[str] = set()

    def release_state(self, session: Session) -> None:
        super().release_state(session)
        self.released.add(session.session_id)

    def refuse_unit(self, session: Session, unit: Unit, refused: Refused) -> None:
        corrupt = refused.code == pb.ERROR_CODE_PAYLOAD_CORRUPT
        super().refuse_unit(session, unit, refused)
        if corrupt and session.held and session.session_id in self.released:
            session.held += 1


@mutant("ROBUST-04")
class StopsServingAfterManyRefusals(Worker):
    """A session that was refused three units is given up: its stream answers nothing useful."""

    def __init__(self, served: ServedShard) -> None:
        super().__init__(served)
        self.refusals: dict[str, int] = {}

    def refuse_unit(self, session: Session, unit: Unit, refused: Refused) -> None:
        count = self.refusals.get(session.session_id, 0) + 1
        self.refusals[session.session_id] = count
        tired = Refused(pb.ERROR_CODE_RESOURCE_EXHAUSTED, "too many faults", terminal=True)
        super().refuse_unit(session, unit, tired if count > 3 else refused)
