"""What a Worker knows: the Shard it serves, its sessions, and the units they wait for."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from pytest_meshnet.protocol.additions.boundary import BoundarySpec, BoundaryTensor
from pytest_meshnet.protocol.additions.features import Feature
from pytest_meshnet.protocol.additions.sampling import LOGITS, SamplingContract
from pytest_meshnet.protocol.additions.sideband import (
    INDICES,
    ORIGIN,
    IndexShare,
    origin_tensor,
)
from pytest_meshnet.protocol.flow import DEFAULT_LIMITS, FlowLimits
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.tensors import DType, Tensor

# No step was applied yet; 0 is a legal first step.
NO_STEP = -1


@dataclass(frozen=True, slots=True)
class ServedShard:
    """Everything that identifies and limits one Shard.

    A route has `layer_count` layers; this Shard runs [start_layer, end_layer). `hidden_states`
    of `hidden_size` in `boundary_dtype` cross its seams; the head takes token ids, the tail gives
    logits. `index_share` has the roles of all layers of a model with shared indices. `speaks` are
    the features of 1.1 that this worker knows, none for a worker of 1.0; `end_of_sequence` the
    token ids that end a text.
    """

    fingerprint: pb.Fingerprint
    start_layer: int
    end_layer: int
    layer_count: int
    hidden_size: int
    vocab_size: int
    boundary_dtype: DType = DType.BFLOAT16
    max_sessions: int = 8
    max_context: int = 4096
    limits: FlowLimits = DEFAULT_LIMITS
    compression: tuple[int, ...] = (pb.COMPRESSION_NONE, pb.COMPRESSION_ZSTD)
    backend: str = "numpy"
    device: str = "cpu"
    detail: str = ""
    validated_at_unix_nanos: int = 0
    index_share: IndexShare | None = None
    input_scale: float = 1.0
    end_of_sequence: tuple[int, ...] = ()
    speaks: tuple[Feature, ...] = tuple(Feature)

    @property
    def features(self) -> tuple[Feature, ...]:
        """What this Shard offers: of what it speaks, that which its layers have a use for."""
        useless = set()
        if not self.is_tail:
            useless.add(Feature.TAIL_RESULT)
        if self.index_share is None:
            useless.add(Feature.INDEX_SHARE_SIDEBAND)
        return tuple(feature for feature in self.speaks if feature not in useless)

    @property
    def is_tail(self) -> bool:
        """Whether this Shard owns the output head."""
        return self.end_layer == self.layer_count

    def input_boundary(self, effective_start: int) -> BoundaryTensor:
        """The tensor a unit must carry when execution begins at `effective_start`."""
        if effective_start == 0:
            return BoundaryTensor("token_ids", (DType.INT32,), ())
        return BoundaryTensor("hidden_states", (self.boundary_dtype,), (self.hidden_size,))

    def producer_before(self, layer: int) -> int | None:
        """The Full layer whose indices must cross the seam before `layer`, None for no sideband."""
        return None if self.index_share is None else self.index_share.across(layer)

    def boundary(self) -> BoundarySpec:
        """What enters at the first layer and leaves behind the last.

        The sideband is optional where only a later effective start needs it, and at the output,
        where a session has it or not.
        """
        starts = range(self.start_layer, self.end_layer)
        inputs = [self.input_boundary(self.start_layer)]
        if any(self.producer_before(layer) is not None for layer in starts):
            inputs += self._sideband(optional=self.producer_before(self.start_layer) is None)
        if self.is_tail:
            outputs = [BoundaryTensor(LOGITS, (DType.FLOAT32,), (self.vocab_size,))]
        else:
            outputs = [BoundaryTensor("hidden_states", (self.boundary_dtype,), (self.hidden_size,))]
        if self.producer_before(self.end_layer) is not None:
            outputs += self._sideband(optional=True)
        return BoundarySpec(
            tuple(inputs), tuple(outputs), self.hidden_size, self.vocab_size, self.input_scale
        )

    def _sideband(self, *, optional: bool) -> tuple[BoundaryTensor, BoundaryTensor]:
        assert self.index_share is not None, "a model without shared indices has no sideband"
        return (
            BoundaryTensor(INDICES, (DType.INT32,), (self.index_share.topk,), optional),
            BoundaryTensor(ORIGIN, (DType.INT64,), (2,), optional),
        )

    def output_bytes(self, tokens: int) -> int:
        """Payload bytes of the result for `tokens` rows, without a sideband."""
        if self.is_tail:
            return self.vocab_size * DType.FLOAT32.item_size
        return tokens * self.hidden_size * self.boundary_dtype.item_size

    def empty_result(self, tokens: int, width: int = 0) -> list[Tensor]:
        """The hidden states of `tokens` rows, all zero, with a sideband of `width` indices a row.

        Width 0 is none.
        """
        shape = (1, tokens, self.hidden_size)
        data = bytes(self.output_bytes(tokens))
        states = Tensor("hidden_states", self.boundary_dtype, shape, data)
        if width == 0:
            return [states]
        indices = bytes(tokens * width * DType.INT32.item_size)
        return [
            states,
            Tensor(INDICES, DType.INT32, (1, tokens, width), indices),
            origin_tensor(self.start_layer, 0),
        ]


@dataclass(frozen=True, slots=True)
class Unit:
    """An ActivationChunk or a DecodeStep, read into one form.

    `envelope` is None for a DecodeStep, which leaves out what its stream already knows, and carries
    a `tensor` or a `bundle`; a malformed one both or neither.
    """

    work_id: str
    step: int
    phase: int
    mode: int
    position: int
    expected_past_len: int
    token_count: int
    final: bool
    deadline: int
    envelope: pb.Envelope | None
    bundle: pb.TensorBundle | None
    tensor: pb.NamedTensor | None

    @classmethod
    def from_chunk(cls, chunk: pb.ActivationChunk) -> Unit:
        """Read the full form."""
        envelope = chunk.envelope
        return cls(
            work_id=envelope.work_id,
            step=envelope.idempotency_step,
            phase=envelope.phase,
            mode=envelope.cache_expectation.mode,
            position=envelope.position.first_position,
            expected_past_len=envelope.cache_expectation.expected_past_len,
            token_count=envelope.position.token_count,
            # Only a prefill comes in chunks: a decode step is whole whatever its flag says.
            final=envelope.chunk.final_chunk or envelope.phase == pb.PHASE_DECODE,
            deadline=envelope.deadline_unix_nanos,
            envelope=envelope,
            bundle=chunk.bundle,
            tensor=None,
        )

    @classmethod
    def from_decode(cls, decode: pb.DecodeStep) -> Unit:
        """Read the small form."""
        return cls(
            work_id=decode.work_id,
            step=decode.idempotency_step,
            phase=pb.PHASE_DECODE,
            mode=pb.CACHE_MODE_DECODE,
            position=decode.position,
            expected_past_len=decode.expected_past_len,
            token_count=1,
            final=True,
            deadline=decode.deadline_unix_nanos,
            envelope=None,
            bundle=decode.bundle if decode.HasField("bundle") else None,
            tensor=decode.tensor if decode.HasField("tensor") else None,
        )


class ReleaseMarker:
    """Stands in a session's queue for an in-band release, which takes effect in order."""


@dataclass(slots=True)
class Session:
    """One Route Session on one live stream. Mutable: only its Worker touches it.

    `held` is the past length of the Hot KV State `state`; `running` the number of the work being
    computed, `unit` the unit it belongs to, or None when that was abandoned. `features` hold in
    this session; `sampling` is the contract of a tail with typed results, else None.
    """

    session_id: str
    epoch: int
    stream: int
    shard_range: pb.ShardRange
    fingerprint: pb.Fingerprint
    limits: FlowLimits
    credit: int
    compression: tuple[int, ...]
    features: tuple[Feature, ...] = ()
    sampling: SamplingContract | None = None
    has_place: bool = True
    held: int = 0
    finished: bool = False
    state: object | None = None
    last_step: int = NO_STEP
    outstanding: int = 0
    queue: deque[Unit | ReleaseMarker] = field(default_factory=deque)
    running: int | None = None
    unit: Unit | None = None
    half_closed: bool = False

    def drop_state(self) -> None:
        """Forget the Hot KV State; steps stay spent."""
        self.held, self.finished, self.state = 0, False, None


class Refused(Exception):
    """A rule that a message broke, on its way to a status.

    Without `actual_past_len` the status tells the length that its session holds.
    """

    def __init__(
        self,
        code: int,
        detail: str,
        *,
        retryable: bool = False,
        terminal: bool = False,
        actual_past_len: int | None = None,
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.retryable = retryable
        self.terminal = terminal
        self.actual_past_len = actual_past_len

    def to_proto(self, held: int = 0) -> pb.ShardError:
        """The error as the wire carries it, for a session that holds `held` tokens."""
        return pb.ShardError(
            code=self.code,  # type: ignore[arg-type]
            detail=self.detail,
            retryable=self.retryable,
            actual_past_len=held if self.actual_past_len is None else self.actual_past_len,
        )
