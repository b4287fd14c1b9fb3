"""What a client sends: messages built from its seam, its limits and its place in the session.

By default every message is legal: steps rise by one, positions follow what was sent, sizes fit the
settled limits. Tests build illegal ones by naming the field to falsify.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pytest_meshnet.protocol.additions.features import Feature
from pytest_meshnet.protocol.additions.sampling import SamplingContract
from pytest_meshnet.protocol.codec import encode_bundle, encode_tensor
from pytest_meshnet.protocol.flow import FlowLimits, Span, plan_prefill
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.exchange import Seam
from pytest_meshnet.protocol.tensors import Tensor

# Envelope and framing beyond the strings, whose lengths are known: numbers, tags, tensor fields.
_FRAMING_BASE = 1024


class SeamMessages:
    """The messages of one Route Session.

    `sent_len` is the length once everything in flight is applied, `next_step` the step of the next
    unit, `limits` what both sides settled on.
    """

    def __init__(self, seam: Seam) -> None:
        self.seam = seam
        self.limits = FlowLimits()
        self.sent_len = 0
        self.next_step = 1

    def open(
        self,
        proposed: FlowLimits | None = None,
        features: Collection[Feature] = (),
        sampling: SamplingContract | None = None,
    ) -> pb.SessionRequest:
        """The first message of the stream. A tail that gives typed results needs `sampling`."""
        seam = self.seam
        message = pb.SessionRequest(
            open=pb.SessionOpen(
                schema_version=pb.SCHEMA_VERSION_1,
                route_session_id=seam.session_id,
                route_epoch=seam.epoch,
                fingerprint=seam.fingerprint,
                shard_range=seam.shard_range,
                proposed_flow_control=(proposed or FlowLimits()).to_proto(),
                accepted_compression=seam.reads,  # type: ignore[arg-type]
                features=sorted(features),  # type: ignore[arg-type]
            )
        )
        if sampling is not None:
            message.open.sampling.CopyFrom(sampling.to_proto())
        return message

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
        tensor: Tensor | pb.NamedTensor | Sequence[Tensor] | pb.TensorBundle,
        *,
        full: bool = False,
        expected: int | None = None,
        position: int | None = None,
        step: int | None = None,
        work_id: str | None = None,
        deadline: int = 0,
    ) -> pb.SessionRequest:
        """A decode step at the end of what was sent: a DecodeStep, or the same in its full form.

        Several tensors travel as a bundle, which a DecodeStep may carry under
        FEATURE_DECODE_BUNDLE; a sequence of one is a bundle too.
        """
        if full:
            assert not isinstance(tensor, (pb.NamedTensor, pb.TensorBundle)), "it is encoded here"
            return self.chunk(
                [tensor] if isinstance(tensor, Tensor) else tensor,
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
        if isinstance(tensor, (Tensor, pb.NamedTensor)):
            decode.tensor.CopyFrom(encode_tensor(tensor) if isinstance(tensor, Tensor) else tensor)
        else:
            bundle = tensor if isinstance(tensor, pb.TensorBundle) else encode_bundle(tensor)
            decode.bundle.CopyFrom(bundle)
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
