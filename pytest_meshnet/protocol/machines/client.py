"""The client's side of an Activation Seam: messages out, answers correlated, nothing else.

By default every message is legal: steps rise by one, positions follow what was sent, sizes fit the
settled limits. Tests build illegal ones by naming the field to falsify. Whether there is credit to
send is for the driver to ask (`may_send`); the machine counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pytest_meshnet.protocol.codec import decode_bundle, encode_bundle, encode_tensor
from pytest_meshnet.protocol.errors import ProtocolError
from pytest_meshnet.protocol.flow import FlowLimits, Span, plan_prefill
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.exchange import Exchange, ProtocolViolation, Seam
from pytest_meshnet.protocol.tensors import Tensor

# Envelope and framing beyond the strings, whose lengths are known: numbers, tags, tensor fields.
_FRAMING_BASE = 1024


class SeamClient:
    """One Route Session from the client's side. Feed it responses, take messages from it.

    `past_len` is the length that the Shard acknowledged, `sent_len` the length once everything in
    flight is applied. `credit` is what is left to spend. `strays` are non-terminal statuses that
    name no unit in flight, `ended` is the terminal status.
    """

    def __init__(self, seam: Seam) -> None:
        self.seam = seam
        self.accepted: pb.SessionAccepted | None = None
        self.limits = FlowLimits()
        self.credit = 0
        self.past_len = 0
        self.sent_len = 0
        self.next_step = 1
        self.ended: pb.ShardStatus | None = None
        self.strays: list[pb.ShardStatus] = []
        self.grants: list[pb.FlowControl] = []
        self._pending: dict[tuple[str, int], list[Exchange]] = {}
        self._applied: dict[tuple[str, int], Exchange] = {}
        self._times_sent: Counter[int] = Counter()
        # Answers come in any order: the length is what the newest applied step says. A release
        # makes everything sent before it old.
        self._newest_step = -1

    # Out ---------------------------------------------------------------------------------------

    def open(self, proposed: FlowLimits | None = None) -> pb.SessionRequest:
        """The first message of the stream."""
        seam = self.seam
        return pb.SessionRequest(
            open=pb.SessionOpen(
                schema_version=pb.SCHEMA_VERSION_1,
                route_session_id=seam.session_id,
                route_epoch=seam.epoch,
                fingerprint=seam.fingerprint,
                shard_range=seam.shard_range,
                proposed_flow_control=(proposed or FlowLimits()).to_proto(),
                accepted_compression=seam.reads,  # type: ignore[arg-type]
            )
        )

    def plan(self, tensors: Sequence[Tensor], max_tokens: int | None = None) -> tuple[Span, ...]:
        """Cut a prefill of [1, n, ...] tensors to the settled limits, or to fewer tokens a chunk.

        Raises ProtocolError when not even one token fits, or there is none.
        """
        tokens = tensors[0].shape[1]
        bound = self.limits.prefill_tokens
        return plan_prefill(
            tokens,
            max_tokens=bound if max_tokens is None else min(bound, max_tokens),
            max_bytes=self.limits.chunk_bytes,
            bytes_per_token=sum(tensor.size for tensor in tensors) // tokens if tokens else 0,
            framing_bytes=self._framing_bytes(),
        )

    def _framing_bytes(self) -> int:
        seam = self.seam
        strings = len(seam.session_id) + seam.fingerprint.ByteSize() + seam.shard_range.ByteSize()
        return _FRAMING_BASE + strings

    def chunk(
        self,
        tensors: Sequence[Tensor],
        *,
        final: bool = True,
        mode: int = pb.CACHE_MODE_PREFILL,
        phase: int | None = None,
        fresh: bool = False,
        expected: int | None = None,
        first: int | None = None,
        tokens: int | None = None,
        step: int | None = None,
        work_id: str | None = None,
        deadline: int = 0,
        place: tuple[int, int] = (0, 1),
        bundle: pb.TensorBundle | None = None,
    ) -> pb.SessionRequest:
        """An ActivationChunk: prefill, stateless work, or a decode step in its full form.

        `fresh` begins at token zero whatever is held. `place` is (chunk_index, chunk_count).
        `bundle` replaces what `tensors` would encode to.
        """
        begins_anew = fresh or mode == pb.CACHE_MODE_STATELESS
        length = 0 if begins_anew else self.sent_len
        expected = length if expected is None else expected
        rows = tensors[0].shape[1] if tensors and len(tensors[0].shape) > 1 else 0
        step = self._step(step)
        if phase is None:
            phase = pb.PHASE_DECODE if mode == pb.CACHE_MODE_DECODE else pb.PHASE_PREFILL
        envelope = pb.Envelope(
            schema_version=pb.SCHEMA_VERSION_1,
            work_id=f"w{step}" if work_id is None else work_id,
            route_session_id=self.seam.session_id,
            route_epoch=self.seam.epoch,
            fingerprint=self.seam.fingerprint,
            shard_range=self.seam.shard_range,
            phase=phase,  # type: ignore[arg-type]
            position=pb.PositionSpan(
                first_position=expected if first is None else first,
                token_count=rows if tokens is None else tokens,
            ),
            idempotency_step=step,
            cache_expectation=pb.CacheExpectation(
                mode=mode,  # type: ignore[arg-type]
                expected_past_len=expected,
            ),
            deadline_unix_nanos=deadline,
            chunk=pb.ChunkInfo(chunk_index=place[0], chunk_count=place[1], final_chunk=final),
        )
        encoded = encode_bundle(tensors) if bundle is None else bundle
        message = pb.SessionRequest()
        message.chunk.envelope.CopyFrom(envelope)
        message.chunk.bundle.CopyFrom(encoded)
        return message

    def decode(
        self,
        tensor: Tensor | pb.NamedTensor,
        *,
        full: bool = False,
        expected: int | None = None,
        position: int | None = None,
        step: int | None = None,
        work_id: str | None = None,
        deadline: int = 0,
    ) -> pb.SessionRequest:
        """A decode step at the end of what was sent: a DecodeStep, or the same in its full form."""
        if full:
            assert isinstance(tensor, Tensor), "the full form is encoded here"
            return self.chunk(
                [tensor],
                mode=pb.CACHE_MODE_DECODE,
                expected=expected,
                first=position,
                step=step,
                work_id=work_id,
                deadline=deadline,
            )
        expected = self.sent_len if expected is None else expected
        step = self._step(step)
        message = pb.SessionRequest()
        decode = message.decode
        decode.idempotency_step = step
        decode.position = expected if position is None else position
        decode.expected_past_len = expected
        # A message given to a constructor is serialized and parsed; this copies.
        decode.tensor.CopyFrom(encode_tensor(tensor) if isinstance(tensor, Tensor) else tensor)
        decode.work_id = f"w{step}" if work_id is None else work_id
        decode.deadline_unix_nanos = deadline
        return message

    def release(self) -> pb.SessionRequest:
        """An in-band release of this session."""
        return pb.SessionRequest(
            release=pb.ReleaseSignal(
                route_session_id=self.seam.session_id, route_epoch=self.seam.epoch
            )
        )

    def cancel(self, work_id: str = "", reason: str = "") -> pb.SessionRequest:
        """An in-band cancel of one unit, or of all in flight."""
        return pb.SessionRequest(
            cancel=pb.CancelSignal(
                route_session_id=self.seam.session_id,
                route_epoch=self.seam.epoch,
                work_id=work_id,
                reason=reason,
            )
        )

    def _step(self, step: int | None) -> int:
        step = self.next_step if step is None else step
        self.next_step = max(self.next_step, step + 1)
        return step

    @property
    def may_send(self) -> bool:
        """Whether credit and the in-flight bound allow one more unit."""
        return self.credit > 0 and self.in_flight < self.limits.inflight

    @property
    def in_flight(self) -> int:
        """Units sent and not yet acknowledged or refused."""
        return sum(
            exchange.ack is None and exchange.status is None
            for waiting in self._pending.values()
            for exchange in waiting
        )

    def sent(self, message: pb.SessionRequest) -> Exchange | None:
        """Register a message as sent. Returns the exchange of a unit, None for a signal."""
        kind = message.WhichOneof("kind")
        if kind == "chunk":
            exchange = Exchange.of_chunk(message, is_tail=self.seam.is_tail)
        elif kind == "decode":
            exchange = Exchange.of_decode(message)
        else:
            if kind == "release":
                self.past_len = self.sent_len = 0
                self._newest_step = max(self._times_sent, default=-1)
            return None
        self._times_sent[exchange.step] += 1
        self._pending.setdefault((exchange.work_id, exchange.step), []).append(exchange)
        self.credit -= 1
        if exchange.mode != pb.CACHE_MODE_STATELESS:
            self.sent_len = exchange.first_position + exchange.token_count
        return exchange

    # In ----------------------------------------------------------------------------------------

    def receive(self, response: pb.SessionResponse) -> Exchange | None:
        """Take a response in. Returns the exchange it belongs to, None where it names no unit.

        Raises ProtocolViolation for an answer to nothing, a second answer, a result more than its
        step was sent, an acceptance that comes twice or late, or a result that the codec refuses.
        """
        kind = response.WhichOneof("kind")
        if kind == "accepted":
            self._accept(response.accepted)
            return None
        if kind == "flow_control":
            self.grants.append(response.flow_control)
            self.credit += response.flow_control.credits_granted
            return None
        if kind == "status":
            return self._refused(response.status)
        if kind == "ack":
            return self._acknowledged(response.ack)
        if kind == "chunk":
            return self._result(response.chunk)
        raise ProtocolViolation("a response of no known kind")

    def _accept(self, accepted: pb.SessionAccepted) -> None:
        if self.accepted is not None:
            raise ProtocolViolation("a second accepted on one stream")
        if self.ended is not None:
            raise ProtocolViolation("accepted after the stream was refused")
        self.accepted = accepted
        self.limits = FlowLimits.from_proto(accepted.flow_control)
        self.credit = self.limits.credits

    def _refused(self, status: pb.ShardStatus) -> Exchange | None:
        if status.terminal:
            self.ended = status
        exchange = self._waiting(status.work_id, status.idempotency_step)
        if exchange is None:
            if not status.terminal:
                self.strays.append(status)
            return None
        exchange.status = status
        self._answer(exchange)
        return exchange

    def _acknowledged(self, ack: pb.Ack) -> Exchange:
        exchange = self._waiting(ack.work_id, ack.idempotency_step)
        if exchange is None:
            raise ProtocolViolation(
                f"an ack for work {ack.work_id!r} step {ack.idempotency_step}, which waits for none"
            )
        exchange.ack = ack
        self._answer(exchange)
        return exchange

    def _waiting(self, work_id: str, step: int) -> Exchange | None:
        """The oldest exchange of that unit without an ack or a status."""
        for exchange in self._pending.get((work_id, step), ()):
            if exchange.ack is None and exchange.status is None:
                return exchange
        return None

    def _answer(self, exchange: Exchange) -> None:
        self.credit += 1
        key = (exchange.work_id, exchange.step)
        if exchange.applied:
            self._applied[key] = exchange
            self._advance(exchange)
        self._settle(key)
        if not self.in_flight:
            self.sent_len = self.past_len

    def _advance(self, exchange: Exchange) -> None:
        changes_state = exchange.mode != pb.CACHE_MODE_STATELESS
        if exchange.ack is not None and changes_state and exchange.step > self._newest_step:
            self._newest_step = exchange.step
            self.past_len = exchange.ack.cache_result.past_len

    def _settle(self, key: tuple[str, int]) -> None:
        waiting = [exchange for exchange in self._pending.get(key, ()) if not exchange.done]
        if waiting:
            self._pending[key] = waiting
        else:
            self._pending.pop(key, None)

    def _result(self, chunk: pb.ActivationChunk) -> Exchange:
        envelope = chunk.envelope
        key = (envelope.work_id, envelope.idempotency_step)
        exchange = self._awaiting_result(key)
        try:
            tensors = decode_bundle(chunk.bundle)
        except ProtocolError as error:
            raise ProtocolViolation(f"the result of work {key[0]!r} is corrupt: {error}") from error
        exchange.results.append((envelope, tensors))
        self._settle(key)
        return exchange

    def _awaiting_result(self, key: tuple[str, int]) -> Exchange:
        """The exchange that a result belongs to; a duplicate may bring the original once more."""
        named = f"work {key[0]!r} step {key[1]}"
        pending = self._pending.get(key, [])
        first = [one for one in pending if not one.results]
        exchange = next(iter([*first, *pending]), None) or self._applied.get(key)
        if exchange is None:
            raise ProtocolViolation(f"a result for {named}, which was not asked for or refused")
        if not exchange.wants_result:
            raise ProtocolViolation(f"a result for {named}, which is due only an ack")
        if len(exchange.results) >= self._times_sent[exchange.step]:
            raise ProtocolViolation(f"one more result for {named} than it was sent")
        return exchange
