"""The pipeline of units: admitted on arrival, checked and started in order, applied, answered.

Units of one session are checked and started one after the other, each only when the one before it
was answered, since a check may depend on the state that an earlier unit leaves. Credit is the
exception; it is checked on arrival.
"""

from __future__ import annotations

from dataclasses import replace

from pytest_meshnet.protocol.additions.choice import choose
from pytest_meshnet.protocol.additions.sampling import SampledToken, SamplingContract, TailResult
from pytest_meshnet.protocol.additions.sideband import INDICES, origin_tensor
from pytest_meshnet.protocol.codec import encode_bundle
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import (
    Abandon,
    Close,
    Completed,
    Effect,
    Outcome,
    Received,
    Send,
    Start,
    Work,
)
from pytest_meshnet.protocol.machines.results import ack_of, mode_name, result_envelope
from pytest_meshnet.protocol.machines.rules import Rules
from pytest_meshnet.protocol.machines.session import (
    Refused,
    ReleaseMarker,
    ServedShard,
    Session,
    Unit,
)
from pytest_meshnet.protocol.machines.table import SessionTable
from pytest_meshnet.protocol.tensors import Tensor


class UnitPipeline:
    """What a Worker does with units. Effects of the event in hand collect in `self.effects`."""

    def __init__(self, served: ServedShard, rules: Rules | None = None) -> None:
        self.served = served
        self.rules = rules or Rules(served)
        self.table = SessionTable()
        self.effects: list[Effect] = []
        self.now = 0
        self._works: dict[int, Session] = {}
        self._next_work = 1

    def on_unit(self, session: Session, event: Received) -> None:
        """Admit an arriving unit to its session's queue, or refuse it at the door."""
        message = event.message
        unit = (
            Unit.from_chunk(message.chunk)
            if message.HasField("chunk")
            else Unit.from_decode(message.decode)
        )
        try:
            self.rules.check_credit(session)
        except Refused as refused:
            self.send_status(session, unit.work_id, unit.step, refused)
            return
        session.outstanding += 1
        try:
            size = event.size if event.size is not None else message.ByteSize()
            self.rules.check_size(session, size)
        except Refused as refused:
            self.refuse_unit(session, unit, refused)
            return
        session.queue.append(unit)
        self.pump(session)

    def pump(self, session: Session) -> None:
        """Start what waits, until something runs or nothing waits."""
        while session.queue and session.running is None:
            item = session.queue.popleft()
            if isinstance(item, ReleaseMarker):
                self.release_state(session)
                continue
            try:
                self.begin(session, item)
            except Refused as refused:
                self.refuse_unit(session, item, refused)
        if session.half_closed and session.running is None and self.table.is_live(session):
            self.end(session)
            self.effects.append(Close(session.stream))

    def begin(self, session: Session, unit: Unit) -> None:
        """Answer a duplicate, or check the unit and start it. Raises Refused."""
        if self.rules.is_duplicate(session, unit):
            self.answer_duplicate(session, unit)
            return
        self.rules.check_deadline(unit, self.now)
        self.rules.check_unit(session, unit)
        tensors = self.rules.read_tensors(session, unit)
        if not session.has_place:
            self.rules.check_capacity(self.table.places_held())
            session.has_place = True
        self.start(session, unit, tensors)

    def start(self, session: Session, unit: Unit, tensors: tuple[Tensor, ...]) -> None:
        """Hand a checked unit to the model."""
        work = Work(
            number=self._next_work,
            session=session.session_id,
            epoch=session.epoch,
            mode=mode_name(unit.mode),
            state=self.state_for(session, unit),
            first_position=unit.position,
            token_count=unit.token_count,
            start_layer=session.shard_range.effective_start_layer,
            end_layer=session.shard_range.end_layer,
            final=unit.final,
            tensors=tensors,
        )
        self._next_work += 1
        self._works[work.number] = session
        session.running, session.unit = work.number, unit
        self.effects.append(Start(work))

    def state_for(self, session: Session, unit: Unit) -> object | None:
        """The Hot KV State a unit continues: none for stateless work and a fresh prefill."""
        fresh = unit.mode != pb.CACHE_MODE_DECODE and unit.expected_past_len == 0
        return None if fresh else session.state

    def on_completed(self, event: Completed) -> None:
        """Apply what was computed, unless it was abandoned, and go on with the queue."""
        session = self._works.pop(event.number)
        unit = session.unit
        session.running = session.unit = None
        if unit is not None:
            if event.outcome is None:
                fault = Refused(pb.ERROR_CODE_INTERNAL, "the model failed", retryable=True)
                self.refuse_unit(session, unit, fault)
            else:
                self.apply(session, unit, event.outcome)
        self.pump(session)

    def apply(self, session: Session, unit: Unit, outcome: Outcome) -> None:
        """Commit an outcome: state, step and answer change together."""
        hit = unit.mode != pb.CACHE_MODE_STATELESS and unit.expected_past_len > 0
        session.last_step = unit.step
        if unit.mode != pb.CACHE_MODE_STATELESS:
            self.commit(session, unit, outcome)
        session.outstanding -= 1
        self.answer_applied(session, unit, outcome, hit)

    def commit(self, session: Session, unit: Unit, outcome: Outcome) -> None:
        """Make the outcome's state the held one."""
        session.state = outcome.state
        session.held = unit.expected_past_len + unit.token_count
        session.finished = unit.final

    def answer_applied(
        self, session: Session, unit: Unit, outcome: Outcome, cache_hit: bool
    ) -> None:
        """One ack, and the result where there is one."""
        past_len = 0 if unit.mode == pb.CACHE_MODE_STATELESS else session.held
        response = pb.SessionResponse()
        response.ack.CopyFrom(ack_of(unit, past_len, cache_hit, outcome.execution_nanos))
        self.send(session.stream, response)
        self.send_result(session, unit, outcome)

    def send_result(self, session: Session, unit: Unit, outcome: Outcome) -> None:
        """The result, or for a chunk of the tail that is not its last nothing."""
        if not outcome.tensors:
            return
        response = pb.SessionResponse()
        if session.sampling is not None:
            response.tail.CopyFrom(self.tail_result(session, unit, outcome, session.sampling))
        else:
            if self.served.index_share is not None:
                tensors = self.with_sideband(session, unit, outcome.tensors)
                outcome = replace(outcome, tensors=tensors)
            response.chunk.envelope.CopyFrom(result_envelope(session, unit))
            response.chunk.bundle.CopyFrom(self.encode_result(session, outcome))
        self.send(session.stream, response)

    def tail_result(
        self, session: Session, unit: Unit, outcome: Outcome, contract: SamplingContract
    ) -> pb.TailResult:
        """What the contract wants of the logits of a unit's last position."""
        logits, position = outcome.tensors[0], unit.position + unit.token_count - 1
        result = TailResult(
            work_id=unit.work_id,
            step=unit.step,
            position=position,
            logits=logits if contract.want.logits else None,
            token=self.sample(session, logits, position) if contract.want.token else None,
            sampling_digest=contract.digest(),
        )
        return result.to_proto()

    def sample(self, session: Session, logits: Tensor, position: int) -> SampledToken:
        """Choose the token behind `position` under the session's contract."""
        assert session.sampling is not None, "only a session with a contract samples"
        return choose(logits, session.sampling, position, self.served.end_of_sequence)

    def with_sideband(
        self, session: Session, unit: Unit, tensors: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        """Add the origin to indices that were agreed on, and leave out those that were not."""
        producer = self.served.producer_before(self.served.end_layer)
        if producer is not None and self.rules.sends_sideband(session):
            return (*tensors, origin_tensor(producer, unit.position))
        return tuple(tensor for tensor in tensors if tensor.name != INDICES)

    def encode_result(self, session: Session, outcome: Outcome) -> pb.TensorBundle:  # noqa: ARG002
        """Encode the boundary tensors of a result."""
        return encode_bundle(outcome.tensors)

    def answer_duplicate(self, session: Session, unit: Unit) -> None:
        """A duplicate is acknowledged and never applied."""
        session.outstanding -= 1
        ack = ack_of(unit, session.held, False, 0, duplicate=True)
        self.send(session.stream, pb.SessionResponse(ack=ack))

    def refuse_unit(self, session: Session, unit: Unit, refused: Refused) -> None:
        """Give the unit its status; its credit comes back, its step stays unspent."""
        session.outstanding -= 1
        self.send_status(session, unit.work_id, unit.step, refused)

    def send_status(self, session: Session, work_id: str, step: int, refused: Refused) -> None:
        """Write a status; a terminal one ends stream and session."""
        status = pb.ShardStatus(
            work_id=work_id,
            route_session_id=session.session_id,
            idempotency_step=step,
            error=refused.to_proto(0 if refused.terminal else session.held),
            terminal=refused.terminal,
        )
        self.send(session.stream, pb.SessionResponse(status=status))
        if refused.terminal:
            self.end(session)
            self.effects.append(Close(session.stream))

    def send(self, stream: int, message: pb.SessionResponse) -> None:
        """Write a message."""
        self.effects.append(Send(stream, message))

    def release_state(self, session: Session) -> None:
        """Drop the state and give the place back; the stream stays usable."""
        session.drop_state()
        session.has_place = False

    def cancel_units(self, session: Session, work_id: str) -> int:
        """End units in flight, one status each. Returns how many. Empty `work_id`: all."""
        doomed: list[Unit] = []
        if session.unit is not None and work_id in ("", session.unit.work_id):
            doomed.append(session.unit)
            self.abandon_running(session)
        waiting = [
            item
            for item in session.queue
            if isinstance(item, Unit) and work_id in ("", item.work_id)
        ]
        for unit in waiting:
            session.queue.remove(unit)
        cancelled = Refused(pb.ERROR_CODE_CANCELLED, "cancelled by the client", retryable=True)
        for unit in doomed + waiting:
            self.refuse_unit(session, unit, cancelled)
        return len(doomed) + len(waiting)

    def abandon_running(self, session: Session) -> None:
        """Let the running work end unheard. The next unit starts only when it has ended."""
        if session.running is not None and session.unit is not None:
            session.unit = None
            self.effects.append(Abandon(session.running))

    def end(self, session: Session) -> None:
        """Take session and stream out of every table; the fence stays."""
        self.abandon_running(session)
        session.queue.clear()
        session.drop_state()
        session.has_place = False
        self.table.remove(session)

    def expire_queued(self, session: Session) -> None:
        """Refuse the waiting units whose deadline has passed. A duplicate is acked all the same."""
        for item in list(session.queue):
            if isinstance(item, Unit) and not self.rules.is_duplicate(session, item):
                try:
                    self.rules.check_deadline(item, self.now)
                except Refused as refused:
                    session.queue.remove(item)
                    self.refuse_unit(session, item, refused)
