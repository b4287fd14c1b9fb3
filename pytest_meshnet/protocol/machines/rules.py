"""Every check a Worker makes before it accepts an open or starts a unit, one method each.

A method returns quietly or raises Refused. Mutants break exactly one of them.
"""

from __future__ import annotations

import struct
from collections.abc import Collection

from pytest_meshnet.protocol.codec import (
    check_message_size,
    decode_bundle,
    decode_tensor,
    encode_bundle,
)
from pytest_meshnet.protocol.errors import ProtocolError
from pytest_meshnet.protocol.fingerprint import fingerprint_mismatch
from pytest_meshnet.protocol.flow import FRAMING_BYTES, FlowLimits, settle
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.negotiated import NegotiatedRules
from pytest_meshnet.protocol.machines.session import Refused, Session, Unit
from pytest_meshnet.protocol.tensors import DType, Tensor

SUPPORTED_SCHEMAS = (pb.SCHEMA_VERSION_1,)


class Rules(NegotiatedRules):
    """The rules of one served Shard, those of 1.1 included. Holds no state of its own."""

    # Opening a session -------------------------------------------------------------------------

    def check_open(self, message: pb.SessionOpen) -> None:
        """Everything about an open that does not depend on other sessions."""
        self.check_schema(message.schema_version, terminal=True)
        self.check_session_id(message.route_session_id)
        self.check_fingerprint(message.fingerprint)
        self.check_range(message.shard_range)
        self.check_sideband_agreed(message)
        self.settled_sampling(message)

    def check_schema(self, version: int, *, terminal: bool) -> None:
        """Only a listed schema version is spoken."""
        if version not in SUPPORTED_SCHEMAS:
            raise Refused(
                pb.ERROR_CODE_SCHEMA_UNSUPPORTED,
                "schema version is not one of those supported: 1",
                terminal=terminal,
            )

    def check_session_id(self, session_id: str) -> None:
        """A session needs a name."""
        if not session_id:
            raise Refused(pb.ERROR_CODE_PAYLOAD_CORRUPT, "route_session_id is empty", terminal=True)

    def check_fingerprint(self, offered: pb.Fingerprint) -> None:
        """Digests must equal those served; labels are not looked at."""
        reason = fingerprint_mismatch(self.served.fingerprint, offered)
        if reason is not None:
            raise Refused(pb.ERROR_CODE_FINGERPRINT_MISMATCH, reason, terminal=True)

    def check_range(self, offered: pb.ShardRange) -> None:
        """The range must be the one served, and the effective start must lie in it."""
        self.check_served_range(offered)
        self.check_effective_start(offered)

    def check_served_range(self, offered: pb.ShardRange) -> None:
        """Start and end are those served."""
        served = self.served
        if (offered.start_layer, offered.end_layer) != (served.start_layer, served.end_layer):
            raise Refused(
                pb.ERROR_CODE_SHARD_RANGE_MISMATCH,
                f"layers {served.start_layer} to {served.end_layer} are served here",
                terminal=True,
            )

    def check_effective_start(self, offered: pb.ShardRange) -> None:
        """Execution begins at a served layer."""
        served = self.served
        if not served.start_layer <= offered.effective_start_layer < served.end_layer:
            raise Refused(
                pb.ERROR_CODE_SHARD_RANGE_MISMATCH,
                "effective_start_layer is outside the served range",
                terminal=True,
            )

    def check_epoch(self, epoch: int, highest: int) -> None:
        """Epochs are single-use."""
        if epoch <= highest:
            raise Refused(
                pb.ERROR_CODE_EPOCH_STALE, f"an epoch above {highest} is needed", terminal=True
            )

    def check_capacity(self, places_held: int) -> None:
        """A session needs a free place."""
        if places_held >= self.served.max_sessions:
            raise Refused(
                pb.ERROR_CODE_RESOURCE_EXHAUSTED, "every session place is taken", retryable=True
            )

    def settled_limits(self, proposed: pb.FlowControl) -> FlowLimits:
        """The strictest bound of either side."""
        return settle(self.served.limits, FlowLimits.from_proto(proposed))

    def settled_compression(self, offered: Collection[int]) -> tuple[int, ...]:
        """What both sides can read; NONE always."""
        return tuple(
            kind
            for kind in self.served.compression
            if kind == pb.COMPRESSION_NONE or kind in offered
        )

    # Admitting a unit --------------------------------------------------------------------------

    def check_credit(self, session: Session) -> None:
        """A unit needs a credit and a place in flight."""
        if session.outstanding >= min(session.credit, session.limits.inflight):
            raise Refused(pb.ERROR_CODE_FLOW_CONTROL_VIOLATION, "no credit is left", retryable=True)

    def check_size(self, session: Session, size: int) -> None:
        """The whole serialized message is bounded."""
        try:
            check_message_size(size, session.limits.chunk_bytes)
        except ProtocolError as error:
            raise Refused(pb.ERROR_CODE_FLOW_CONTROL_VIOLATION, str(error)) from None

    def is_duplicate(self, session: Session, unit: Unit) -> bool:
        """A step at or below the last applied one was applied, or will never be."""
        return unit.step <= session.last_step

    def check_deadline(self, unit: Unit, now: int) -> None:
        """A deadline is an absolute time; zero is none."""
        if unit.deadline != 0 and unit.deadline <= now:
            raise Refused(
                pb.ERROR_CODE_DEADLINE_EXCEEDED, "the deadline has passed", retryable=True
            )

    def check_unit(self, session: Session, unit: Unit) -> None:
        """Everything about a unit but its tensors."""
        if unit.envelope is not None:
            self.check_envelope(session, unit.envelope)
        self.check_phase(unit)
        self.check_position(unit)
        self.check_cache(session, unit)
        self.check_tokens(session, unit)
        self.check_context(session, unit)

    def check_envelope(self, session: Session, envelope: pb.Envelope) -> None:
        """A chunk must belong to its stream."""
        self.check_schema(envelope.schema_version, terminal=True)
        self.check_envelope_session(session, envelope)
        self.check_envelope_epoch(session, envelope)
        self.check_fingerprint(envelope.fingerprint)
        self.check_envelope_range(session, envelope)

    def check_envelope_session(self, session: Session, envelope: pb.Envelope) -> None:
        """The session of a chunk is that of its stream."""
        if envelope.route_session_id != session.session_id:
            raise Refused(pb.ERROR_CODE_PAYLOAD_CORRUPT, "the chunk names another session")

    def check_envelope_epoch(self, session: Session, envelope: pb.Envelope) -> None:
        """The epoch of a chunk is that of its stream."""
        if envelope.route_epoch < session.epoch:
            raise Refused(
                pb.ERROR_CODE_EPOCH_STALE, "the chunk names an older epoch", terminal=True
            )
        if envelope.route_epoch > session.epoch:
            raise Refused(pb.ERROR_CODE_PAYLOAD_CORRUPT, "the chunk names an epoch never opened")

    def check_envelope_range(self, session: Session, envelope: pb.Envelope) -> None:
        """The range of a chunk, effective start included, is that of its stream."""
        # Not as messages, which would compare the unknown fields of a newer peer too.
        if layers_of(envelope.shard_range) != layers_of(session.shard_range):
            raise Refused(
                pb.ERROR_CODE_SHARD_RANGE_MISMATCH, "the chunk names another range", terminal=True
            )

    def check_phase(self, unit: Unit) -> None:
        """Phase and cache mode are two words for one thing."""
        allowed = {
            pb.PHASE_PREFILL: (pb.CACHE_MODE_PREFILL, pb.CACHE_MODE_STATELESS),
            pb.PHASE_DECODE: (pb.CACHE_MODE_DECODE,),
        }
        if unit.mode not in allowed.get(unit.phase, ()):  # type: ignore[call-overload]
            raise Refused(pb.ERROR_CODE_PAYLOAD_CORRUPT, "phase and cache mode disagree")
        if unit.mode == pb.CACHE_MODE_STATELESS and not unit.final:
            raise Refused(pb.ERROR_CODE_PAYLOAD_CORRUPT, "stateless work is one final chunk")

    def check_position(self, unit: Unit) -> None:
        """Work begins where its sender believes the state ends."""
        if unit.position != unit.expected_past_len:
            raise Refused(
                pb.ERROR_CODE_PAYLOAD_CORRUPT, "the position differs from expected_past_len"
            )

    def check_cache(self, session: Session, unit: Unit) -> None:
        """The expectation must be what is held, except for what starts afresh."""
        if unit.mode == pb.CACHE_MODE_DECODE:
            self.check_decode_cache(session, unit)
        elif unit.mode == pb.CACHE_MODE_PREFILL:
            self.check_prefill_cache(session, unit)
        elif unit.expected_past_len != 0:
            raise Refused(pb.ERROR_CODE_PAYLOAD_CORRUPT, "stateless work expects nothing")

    def check_prefill_cache(self, session: Session, unit: Unit) -> None:
        """A prefill expecting 0 drops what is held; any other continues exactly there."""
        if unit.expected_past_len not in (0, session.held):
            raise self.cache_miss(session, "the prefill does not begin where the state ends")

    def check_decode_cache(self, session: Session, unit: Unit) -> None:
        """A decode needs a finished prefill of exactly the expected length."""
        if unit.expected_past_len != session.held:
            raise self.cache_miss(session, "the decode does not begin where the state ends")
        if not session.finished:
            raise self.cache_miss(session, "no finished prefill is held")

    def cache_miss(self, session: Session, detail: str) -> Refused:
        """A miss that tells the true position."""
        return Refused(pb.ERROR_CODE_CACHE_MISS, detail, actual_past_len=session.held)

    def check_tokens(self, session: Session, unit: Unit) -> None:
        """A decode has one token, a chunk at least one and at most the settled bound."""
        if unit.phase == pb.PHASE_DECODE:
            if unit.token_count != 1:
                raise Refused(pb.ERROR_CODE_PAYLOAD_CORRUPT, "a decode step has one token")
            return
        if unit.token_count == 0:
            raise Refused(pb.ERROR_CODE_PAYLOAD_CORRUPT, "a chunk has at least one token")
        if unit.token_count > session.limits.prefill_tokens:
            raise Refused(
                pb.ERROR_CODE_FLOW_CONTROL_VIOLATION,
                f"a chunk has at most {session.limits.prefill_tokens} tokens",
            )

    def check_context(self, session: Session, unit: Unit) -> None:
        """State and result must fit what was promised."""
        self.check_context_length(unit)
        self.check_result_size(session, unit)

    def check_context_length(self, unit: Unit) -> None:
        """The state holds at most the tokens of the context."""
        if unit.expected_past_len + unit.token_count > self.served.max_context:
            raise Refused(
                pb.ERROR_CODE_RESOURCE_EXHAUSTED,
                f"the context holds at most {self.served.max_context} tokens",
            )

    def check_result_size(self, session: Session, unit: Unit) -> None:
        """The result must fit max_chunk_bytes too, where fewer tokens would give a smaller one."""
        if unit.token_count == 1 or unit.envelope is None or self.served.is_tail:
            return
        bound = session.limits.chunk_bytes
        width = self.sideband_width(session, unit)
        payload = self.served.output_bytes(unit.token_count)
        payload += unit.token_count * width * DType.INT32.item_size
        if payload + unit.envelope.ByteSize() + FRAMING_BYTES <= bound:
            return
        if payload > bound or self.result_bytes(unit.envelope, unit.token_count, width) > bound:
            raise Refused(
                pb.ERROR_CODE_RESOURCE_EXHAUSTED, "the result would exceed max_chunk_bytes"
            )

    def result_bytes(self, envelope: pb.Envelope, tokens: int, width: int = 0) -> int:
        """The exact size of the message with a result of that many rows, `width` indices each."""
        bundle = encode_bundle(self.served.empty_result(tokens, width))
        chunk = pb.ActivationChunk(envelope=envelope, bundle=bundle)
        return pb.SessionResponse(chunk=chunk).ByteSize()

    # Reading its tensors -----------------------------------------------------------------------

    def read_tensors(self, session: Session, unit: Unit) -> tuple[Tensor, ...]:
        """Decode the payload and hold it against the declared boundary.

        What is returned is token ids or hidden states, then `topk_indices` where they are due.
        """
        self.check_form(session, unit)
        try:
            tensors = self.decode(session, unit)
        except ProtocolError as error:
            raise Refused(pb.ERROR_CODE_PAYLOAD_CORRUPT, str(error)[:512]) from None
        if self.sideband_producer(session) is None:
            self.check_boundary(session, unit, tensors)
            return tensors
        named = {tensor.name: tensor for tensor in tensors}
        indices = self.read_sideband(session, unit, named)
        self.check_boundary(session, unit, tuple(named.values()))
        return (*named.values(), indices)

    def decode(self, session: Session, unit: Unit) -> tuple[Tensor, ...]:
        """Run the codec. Raises ProtocolError."""
        if unit.tensor is not None:
            return (decode_tensor(unit.tensor, max_bytes=session.limits.chunk_bytes),)
        return decode_bundle(unit.bundle or pb.TensorBundle(), max_bytes=session.limits.chunk_bytes)

    def check_boundary(self, session: Session, unit: Unit, tensors: tuple[Tensor, ...]) -> None:
        """The declared tensor is there, alone, in dtype and shape."""
        expected = self.served.input_boundary(session.shard_range.effective_start_layer)
        if [tensor.name for tensor in tensors] != [expected.name]:
            raise Refused(
                pb.ERROR_CODE_PAYLOAD_CORRUPT, f"the boundary is one tensor, {expected.name}"
            )
        if tensors[0].dtype not in expected.dtypes:
            raise Refused(pb.ERROR_CODE_PAYLOAD_CORRUPT, f"{expected.name} has another dtype")
        self.check_rows(unit, tensors[0], expected.trailing)
        if expected.dtypes == (DType.INT32,):
            self.check_token_ids(tensors[0])

    def check_rows(self, unit: Unit, tensor: Tensor, trailing: tuple[int, ...]) -> None:
        """One row a token."""
        if tensor.shape != (1, unit.token_count, *trailing):
            raise Refused(
                pb.ERROR_CODE_PAYLOAD_CORRUPT,
                f"{tensor.name} does not have the shape of {unit.token_count} tokens",
            )

    def check_token_ids(self, tensor: Tensor) -> None:
        """Every token id is one of the vocabulary."""
        ids = struct.unpack(f"<{len(tensor.data) // 4}i", tensor.data)
        if not all(0 <= token < self.served.vocab_size for token in ids):
            raise Refused(
                pb.ERROR_CODE_PAYLOAD_CORRUPT,
                f"a token id is outside the vocabulary of {self.served.vocab_size}",
            )


def layers_of(message: pb.ShardRange) -> tuple[int, int, int]:
    """Start, end and effective start."""
    return (message.start_layer, message.end_layer, message.effective_start_layer)
