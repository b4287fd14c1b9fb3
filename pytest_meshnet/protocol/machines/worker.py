"""The Shard's side of the protocol: events in, effects out, no threads and no clock."""

from __future__ import annotations

from collections.abc import Callable

from pytest_meshnet.protocol.additions.features import Feature
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import (
    Close,
    Completed,
    DrainRequested,
    Effect,
    Event,
    HalfClosed,
    Lost,
    Received,
    Reply,
    StreamOpened,
    Tick,
    UnaryCalled,
    UnaryReply,
)
from pytest_meshnet.protocol.machines.rules import SUPPORTED_SCHEMAS, Rules
from pytest_meshnet.protocol.machines.session import (
    Refused,
    ReleaseMarker,
    ServedShard,
    Session,
    Unit,
)
from pytest_meshnet.protocol.machines.units import UnitPipeline


class Worker(UnitPipeline):
    """One Shard with all its sessions. Not thread-safe: one owner posts events, one at a time."""

    def __init__(self, served: ServedShard, rules: Rules | None = None) -> None:
        super().__init__(served, rules)
        self.draining = False
        self._handlers: dict[type, Callable[..., None]] = {
            StreamOpened: self._on_opened,
            Received: self._on_received,
            Completed: self.on_completed,
            UnaryCalled: self._on_unary,
            HalfClosed: self._on_half_closed,
            Lost: self._on_lost,
            Tick: self._on_tick,
            DrainRequested: self._on_drain,
        }

    def handle(self, event: Event, now: int) -> list[Effect]:
        """Take one event at wall-clock time `now` (nanoseconds) and return its effects in order."""
        self.now = now
        self.effects = []
        self._handlers[type(event)](event)
        return self.effects

    # Messages ----------------------------------------------------------------------------------

    def _on_opened(self, event: StreamOpened) -> None:
        self.table.open_stream(event.stream)

    def _on_received(self, event: Received) -> None:
        if not self.table.knows(event.stream):
            return  # Ended by a terminal status: what was still on its way is void.
        session = self.table.on_stream(event.stream)
        kind = event.message.WhichOneof("kind")
        if session is None:
            self._first_message(event, kind)
        elif kind in {"chunk", "decode"}:
            self.on_unit(session, event)
        elif kind == "release":
            self.on_release_signal(session, event.message.release)
        elif kind == "cancel":
            self.on_cancel_signal(session, event.message.cancel)
        elif kind == "open":
            self.on_second_open(session, event.message.open)
        elif kind != "flow_control":  # Only workers grant; a grant from a client is ignored.
            self.on_unknown_message(session)

    def on_second_open(self, session: Session, message: pb.SessionOpen) -> None:  # noqa: ARG002
        """A stream is opened once; the session goes on."""
        refused = Refused(pb.ERROR_CODE_PAYLOAD_CORRUPT, "the stream is open already")
        self.send_status(session, "", 0, refused)

    def on_unknown_message(self, session: Session) -> None:
        """A message of no kind that this version knows."""
        refused = Refused(pb.ERROR_CODE_PAYLOAD_CORRUPT, "a message of no known kind")
        self.send_status(session, "", 0, refused)

    def on_release_signal(self, session: Session, signal: pb.ReleaseSignal) -> None:
        """An in-band release takes effect after the units before it."""
        if (signal.route_session_id, signal.route_epoch) == (session.session_id, session.epoch):
            session.queue.append(ReleaseMarker())
            self.pump(session)

    def on_cancel_signal(self, session: Session, signal: pb.CancelSignal) -> None:
        """An in-band cancel takes effect when it is read."""
        if (signal.route_session_id, signal.route_epoch) == (session.session_id, session.epoch):
            self.cancel_units(session, signal.work_id)

    # Opening -----------------------------------------------------------------------------------

    def _first_message(self, event: Received, kind: str | None) -> None:
        try:
            if kind != "open":
                self.before_open(event)
            else:
                self.open(event.stream, event.message.open)
        except Refused as refused:
            self.refuse_stream(event, refused)

    def before_open(self, event: Received) -> None:  # noqa: ARG002
        """A stream begins with open. Raises Refused."""
        raise Refused(pb.ERROR_CODE_PAYLOAD_CORRUPT, "the first message is open", terminal=True)

    def refuse_stream(self, event: Received, refused: Refused) -> None:
        """End a stream that has no session, with one terminal status."""
        status = pb.ShardStatus(
            route_session_id=event.message.open.route_session_id,
            error=refused.to_proto(),
            terminal=True,
        )
        self.send(event.stream, pb.SessionResponse(status=status))
        self.table.end_stream(event.stream)
        self.effects.append(Close(event.stream))

    def open(self, stream: int, message: pb.SessionOpen) -> None:
        """Check an open against Shard and sessions, then accept it. Raises Refused."""
        self.rules.check_open(message)
        session_id = message.route_session_id
        self.rules.check_epoch(message.route_epoch, self.table.highest_epoch(session_id))
        if self.draining:
            raise Refused(pb.ERROR_CODE_RESOURCE_EXHAUSTED, "draining", retryable=True)
        older = self.table.find(session_id)
        own_place = older is not None and older.has_place
        self.rules.check_capacity(self.table.places_held() - own_place)
        if older is not None:
            self.fence_older(older)
        self.table.fence(session_id, message.route_epoch)
        self.accept(stream, message)

    def fence_older(self, older: Session) -> None:
        """A newer epoch drops the older state and ends its stream."""
        stale = Refused(pb.ERROR_CODE_EPOCH_STALE, "a newer epoch was opened", terminal=True)
        self.send_status(older, "", 0, stale)

    def accept(self, stream: int, message: pb.SessionOpen) -> None:
        """Register the session and answer with the settled limits."""
        limits = self.rules.settled_limits(message.proposed_flow_control)
        session = Session(
            session_id=message.route_session_id,
            epoch=message.route_epoch,
            stream=stream,
            shard_range=message.shard_range,
            fingerprint=message.fingerprint,
            limits=limits,
            credit=limits.credits,
            compression=self.rules.settled_compression(message.accepted_compression),
            features=self.rules.settled_features(message),
            sampling=self.rules.settled_sampling(message),
        )
        self.table.add(session)
        self.send(stream, pb.SessionResponse(accepted=self.accepted(session)))

    def accepted(self, session: Session) -> pb.SessionAccepted:
        """The answer to an open."""
        return pb.SessionAccepted(
            schema_version=pb.SCHEMA_VERSION_1,
            route_session_id=session.session_id,
            route_epoch=session.epoch,
            flow_control=session.limits.to_proto(),
            accepted_compression=session.compression,  # type: ignore[arg-type]
            fingerprint=self.served.fingerprint,
            features=session.features,  # type: ignore[arg-type]
        )

    # Ends of streams, time, operator -----------------------------------------------------------

    def _on_half_closed(self, event: HalfClosed) -> None:
        if not self.table.knows(event.stream):
            return
        session = self.table.on_stream(event.stream)
        if session is None:
            self.table.end_stream(event.stream)
            self.effects.append(Close(event.stream))
        else:
            session.half_closed = True
            self.pump(session)

    def _on_lost(self, event: Lost) -> None:
        session = self.table.end_stream(event.stream)
        if session is not None:
            self.lose(session)

    def lose(self, session: Session) -> None:
        """A lost stream takes its session's state along."""
        self.end(session)

    def _on_tick(self, event: Tick) -> None:  # noqa: ARG002
        for session in self.table:
            self.expire_queued(session)

    def _on_drain(self, event: DrainRequested) -> None:  # noqa: ARG002
        self.draining = True

    # Unary calls -------------------------------------------------------------------------------

    def _on_unary(self, event: UnaryCalled) -> None:
        request = event.request
        reply: UnaryReply
        if isinstance(request, pb.CapabilityRequest):
            reply = self.capability()
        elif isinstance(request, pb.HealthRequest):
            reply = self.health(event.resident_bytes)
        elif isinstance(request, pb.ReleaseRequest):
            reply = self.release(request)
        else:
            reply = self.cancel(request)
        self.effects.append(Reply(event.call, reply))

    def capability(self) -> pb.CapabilityReport:
        """What is served, with the limits that accepted offers."""
        served = self.served
        report = pb.CapabilityReport(
            schema_version=pb.SCHEMA_VERSION_1,
            fingerprint=served.fingerprint,
            shard_range=pb.ShardRange(
                start_layer=served.start_layer,
                end_layer=served.end_layer,
                effective_start_layer=served.start_layer,
            ),
            backend=served.backend,
            device=served.device,
            validated=served.validated_at_unix_nanos > 0,
            detail=served.detail,
            max_concurrent_sessions=served.max_sessions,
            max_context_tokens=served.max_context,
            flow_control=served.limits.to_proto(),
            accepted_compression=served.compression,  # type: ignore[arg-type]
            supported_schema_versions=SUPPORTED_SCHEMAS,
            validated_at_unix_nanos=served.validated_at_unix_nanos,
            features=served.features,  # type: ignore[arg-type]
        )
        if Feature.BOUNDARY_SPEC in served.features:
            report.boundary.CopyFrom(served.boundary().to_proto())
        return report

    def health(self, resident_bytes: int) -> pb.HealthReport:
        """Live counts; kv_pressure is held tokens over all that every place may hold."""
        sessions = list(self.table)
        held = sum(session.held for session in sessions)
        return pb.HealthReport(
            schema_version=pb.SCHEMA_VERSION_1,
            state=pb.SERVING_STATE_DRAINING if self.draining else pb.SERVING_STATE_SERVING,
            active_sessions=self.table.places_held(),
            queued_chunks=sum(isinstance(i, Unit) for s in sessions for i in s.queue),
            batch_occupancy=sum(session.running is not None for session in sessions),
            kv_pressure=held / (self.served.max_sessions * self.served.max_context),
            resident_bytes=resident_bytes,
        )

    def release(self, request: pb.ReleaseRequest) -> pb.ReleaseResponse:
        """Drop a session's state at once. Its units in flight are cancelled, its stream stays."""
        if (stale := self.stale(request.route_session_id, request.route_epoch)) is not None:
            return pb.ReleaseResponse(error=stale.to_proto())
        session = self.table.find(request.route_session_id)
        if session is None or session.epoch != request.route_epoch or not session.has_place:
            return pb.ReleaseResponse()
        self.cancel_units(session, "")
        self.release_state(session)
        return pb.ReleaseResponse(released=True)

    def cancel(self, request: pb.CancelRequest) -> pb.CancelResponse:
        """End one unit in flight, or all of a session, and say how many."""
        if (stale := self.stale(request.route_session_id, request.route_epoch)) is not None:
            return pb.CancelResponse(error=stale.to_proto())
        session = self.table.find(request.route_session_id)
        if session is None or session.epoch != request.route_epoch:
            return pb.CancelResponse()
        return pb.CancelResponse(cancelled_work_items=self.cancel_units(session, request.work_id))

    def stale(self, session_id: str, epoch: int) -> Refused | None:
        """The refusal for a unary call that names an older epoch, else None."""
        if epoch < self.table.highest_epoch(session_id):
            return Refused(pb.ERROR_CODE_EPOCH_STALE, "a newer epoch was opened")
        return None
