"""Workers that get the order of opening wrong: before open, a second open, places.

These mutants break OPEN-01, -10 and -11; those of what an open must match are in
`opening_identity`, those of what accepted says in `opening_accepted` and
`opening_compression`.
"""

from __future__ import annotations

from dataclasses import replace

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import Received
from pytest_meshnet.protocol.machines.rules import Rules
from pytest_meshnet.protocol.machines.session import Refused, ServedShard, Session
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.reference.catalogue import mutant
from pytest_meshnet.reference.mutants import (  # noqa: F401
    opening_accepted,
    opening_compression,
    opening_identity,
)

# Before open ------------------------------------------------------------------------------------


@mutant("OPEN-01")
class OpensByItself(Worker):
    """A chunk before open opens the session that its envelope names, and is computed."""

    def before_open(self, event: Received) -> None:
        envelope = event.message.chunk.envelope
        if not event.message.HasField("chunk"):
            super().before_open(event)
        message = pb.SessionOpen(
            schema_version=envelope.schema_version,
            route_session_id=envelope.route_session_id,
            route_epoch=envelope.route_epoch,
            fingerprint=envelope.fingerprint,
            shard_range=envelope.shard_range,
        )
        self.open(event.stream, message)
        session = self.table.on_stream(event.stream)
        assert session is not None
        self.on_unit(session, event)


@mutant("OPEN-01")
class AcksBeforeOpen(Worker):
    """A chunk before open is acked as if it were computed, and then refused."""

    def before_open(self, event: Received) -> None:
        work_id = event.message.chunk.envelope.work_id
        self.send(event.stream, pb.SessionResponse(ack=pb.Ack(work_id=work_id)))
        super().before_open(event)


@mutant("OPEN-01")
class KeepsAnEarlyPrefill(Worker):
    """A prefill before the open of its session is refused, yet counts once that is opened."""

    def __init__(self, served: ServedShard) -> None:
        super().__init__(served)
        self.early: dict[str, int] = {}

    def before_open(self, event: Received) -> None:
        envelope = event.message.chunk.envelope
        self.early[envelope.route_session_id] = envelope.position.token_count
        super().before_open(event)

    def accept(self, stream: int, message: pb.SessionOpen) -> None:
        super().accept(stream, message)
        session = self.table.on_stream(stream)
        assert session is not None
        session.held, session.finished = self.early.pop(session.session_id, 0), True


@mutant("OPEN-01")
class EarlyMessageIsNoEnd(Worker):
    """A message before open is refused, but the status is not terminal."""

    def refuse_stream(self, event: Received, refused: Refused) -> None:
        if event.message.HasField("open"):
            super().refuse_stream(event, refused)
        else:
            status = pb.ShardStatus(error=refused.to_proto())
            self.send(event.stream, pb.SessionResponse(status=status))


@mutant("OPEN-01")
class EarlyMessageWithoutCode(Worker):
    """A message before open is refused, but with no code."""

    def before_open(self, event: Received) -> None:
        raise Refused(pb.ERROR_CODE_UNSPECIFIED, "open first")


@mutant("OPEN-01")
class EarlyMessageIsInternal(Worker):
    """A message before open is refused as a fault of the worker."""

    def before_open(self, event: Received) -> None:
        raise Refused(pb.ERROR_CODE_INTERNAL, "open first")


@mutant("OPEN-01")
class EarlyMessageToldTwice(Worker):
    """A message before open gets two terminal statuses."""

    def refuse_stream(self, event: Received, refused: Refused) -> None:
        status = pb.ShardStatus(error=refused.to_proto(), terminal=True)
        self.send(event.stream, pb.SessionResponse(status=status))
        super().refuse_stream(event, refused)


@mutant("OPEN-01")
class OpensAfterAnEarlyMessage(Worker):
    """The terminal status of a message before open does not end its stream: an open still works."""

    def refuse_stream(self, event: Received, refused: Refused) -> None:
        status = pb.ShardStatus(error=refused.to_proto(), terminal=True)
        self.send(event.stream, pb.SessionResponse(status=status))


@mutant("OPEN-01")
class PassesEarlySignals(Worker):
    """Only units need an open: release, cancel and grants before it are taken in silence."""

    def before_open(self, event: Received) -> None:
        if event.message.WhichOneof("kind") in {"chunk", "decode", None}:
            super().before_open(event)


@mutant("OPEN-01")
class PassesEmptyMessages(Worker):
    """A message of no kind before open is taken in silence."""

    def before_open(self, event: Received) -> None:
        if event.message.WhichOneof("kind") is not None:
            super().before_open(event)


# A second open ----------------------------------------------------------------------------------


@mutant("OPEN-11")
class IgnoresSecondOpens(Worker):
    """A second open is taken in silence."""

    def on_second_open(self, session: Session, message: pb.SessionOpen) -> None:
        pass


@mutant("OPEN-11")
class AcceptsSecondOpens(Worker):
    """A second open is accepted again."""

    def on_second_open(self, session: Session, message: pb.SessionOpen) -> None:
        self.send(session.stream, pb.SessionResponse(accepted=self.accepted(session)))


@mutant("OPEN-11")
class SecondOpenWithoutCode(Worker):
    """A second open is refused, but with no code."""

    def on_second_open(self, session: Session, message: pb.SessionOpen) -> None:
        self.send_status(session, "", 0, Refused(pb.ERROR_CODE_UNSPECIFIED, "open already"))


@mutant("OPEN-11")
class SecondOpenEndsTheStream(Worker):
    """A second open is refused with a terminal status, which ends the session."""

    def on_second_open(self, session: Session, message: pb.SessionOpen) -> None:
        stale = Refused(pb.ERROR_CODE_EPOCH_STALE, "open already", terminal=True)
        self.send_status(session, "", 0, stale)


@mutant("OPEN-11")
class SecondOpenDropsTheState(Worker):
    """A second open is refused, but the session has lost its state."""

    def on_second_open(self, session: Session, message: pb.SessionOpen) -> None:
        session.drop_state()
        super().on_second_open(session, message)


@mutant("OPEN-11")
class SecondOpenDropsPrefills(Worker):
    """A second open is refused, but a prefill that has not ended is lost."""

    def on_second_open(self, session: Session, message: pb.SessionOpen) -> None:
        if not session.finished:
            session.drop_state()
        super().on_second_open(session, message)


@mutant("OPEN-11")
class SecondOpenMovesTheEpoch(Worker):
    """A second open is refused, but the session is now at the epoch that it named."""

    def on_second_open(self, session: Session, message: pb.SessionOpen) -> None:
        session.epoch = message.route_epoch
        super().on_second_open(session, message)


# Places -----------------------------------------------------------------------------------------


@mutant("OPEN-10")
class HasEndlessPlaces(Rules):
    """One more session is always accepted."""

    def check_capacity(self, places_held: int) -> None:
        pass


@mutant("OPEN-10")
class HasOnePlaceMore(Rules):
    """One session more is accepted than GetCapability tells."""

    def check_capacity(self, places_held: int) -> None:
        super().check_capacity(places_held - 1)


@mutant("OPEN-10")
class FullIsFlowViolation(Rules):
    """An open that finds no place is refused, but as a violation of flow control."""

    def check_capacity(self, places_held: int) -> None:
        if places_held >= self.served.max_sessions:
            raise Refused(pb.ERROR_CODE_FLOW_CONTROL_VIOLATION, "full", retryable=True)


@mutant("OPEN-10")
class FullForGood(Rules):
    """An open that finds no place is refused as if trying again could not help."""

    def check_capacity(self, places_held: int) -> None:
        if places_held >= self.served.max_sessions:
            raise Refused(pb.ERROR_CODE_RESOURCE_EXHAUSTED, "full")


class _WhenFull(Worker):
    """Does something to the sessions when an open finds no place."""

    def refuse_stream(self, event: Received, refused: Refused) -> None:
        if refused.code == pb.ERROR_CODE_RESOURCE_EXHAUSTED:
            self.disturb()
        super().refuse_stream(event, refused)

    def disturb(self) -> None:
        raise NotImplementedError


@mutant("OPEN-10")
class FullDropsTheStates(_WhenFull):
    """An open that finds no place is refused, but the running sessions have lost their state."""

    def disturb(self) -> None:
        for session in self.table:
            session.drop_state()


@mutant("OPEN-10")
class FullEndsSessions(_WhenFull):
    """An open that finds no place is refused, but the newest session is ended to make room."""

    def disturb(self) -> None:
        newest = list(self.table)[-1]
        evicted = Refused(pb.ERROR_CODE_RESOURCE_EXHAUSTED, "evicted", terminal=True)
        self.send_status(newest, "", 0, evicted)


@mutant("OPEN-10")
class RefusedOpensTakePlaces(_WhenFull):
    """The first open that finds no place is refused, but counts as a session for ever."""

    def disturb(self) -> None:
        if self.rules.served is self.served:
            self.rules.served = replace(self.served, max_sessions=self.served.max_sessions - 1)


@mutant("OPEN-10")
class EndedStreamsKeepTheirPlace(Worker):
    """The first stream that ends while the worker is full keeps its place."""

    kept = False

    def end(self, session: Session) -> None:
        if self.kept or self.table.places_held() < self.served.max_sessions:
            super().end(session)
        else:
            self.kept = True
            self.table.end_stream(session.stream)
