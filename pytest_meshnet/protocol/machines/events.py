"""What goes into a Worker and what comes out: events, effects, and the work between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.tensors import Tensor

Mode = Literal["prefill", "decode", "stateless"]
UnaryRequest = pb.CapabilityRequest | pb.HealthRequest | pb.ReleaseRequest | pb.CancelRequest
UnaryReply = pb.CapabilityReport | pb.HealthReport | pb.ReleaseResponse | pb.CancelResponse


@dataclass(frozen=True, slots=True)
class Work:
    """One unit that passed every check, ready to be computed.

    `state` is what an earlier Outcome returned, or None to start from nothing. The Worker commits
    the new state only when it handles Completed, so abandoned work leaves no trace. Layers
    [start_layer, end_layer) are to be run on `token_count` rows beginning at `first_position`.

    `tensors` begin with token ids or hidden states. Where `start_layer` is a Shared indexer layer,
    `topk_indices` int32 [1, n, k] follow, checked: each is -1, a masked position (both padding, to
    be ignored) or a position that the row may attend to.
    """

    number: int
    session: str
    epoch: int
    mode: Mode
    state: object | None
    first_position: int
    token_count: int
    start_layer: int
    end_layer: int
    final: bool
    tensors: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What computing a Work gave: the new state, the boundary tensors, and the time it took.

    `tensors` are `hidden_states` [1, n, hidden]; where the seam behind `end_layer` splits an index
    group, `topk_indices` int32 [1, n, min(topk, total length)] follow, and the Worker adds
    their origin. A tail gives `logits` float32 [1, 1, vocabulary] of the last position for a final
    unit, of which the Worker makes a tail result where one was agreed on, and else nothing.
    """

    state: object | None
    tensors: tuple[Tensor, ...]
    execution_nanos: int


class ShardModel(Protocol):
    """A layer range that can be run.

    `run` may append in place beyond the length an older state sees, and must change nothing that it
    does see.
    """

    def run(self, work: Work) -> Outcome:
        """Compute the layers of `work`. Blocking; called off the event loop."""


@dataclass(frozen=True, slots=True)
class StreamOpened:
    """A client opened stream `stream`."""

    stream: int


@dataclass(frozen=True, slots=True)
class Received:
    """A message arrived; `size` is its serialized length where the transport knows it."""

    stream: int
    message: pb.SessionRequest
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Completed:
    """Work number `number` ended, with an outcome or (None) by a fault of the model."""

    number: int
    outcome: Outcome | None


@dataclass(frozen=True, slots=True)
class UnaryCalled:
    """A unary call arrived. `resident_bytes` is the process's memory, sampled by the transport."""

    call: int
    request: UnaryRequest
    resident_bytes: int = 0


@dataclass(frozen=True, slots=True)
class HalfClosed:
    """The client will send nothing more and still reads."""

    stream: int


@dataclass(frozen=True, slots=True)
class Lost:
    """The stream is gone: reset, or its connection dropped."""

    stream: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed: queued units may have expired."""


@dataclass(frozen=True, slots=True)
class DrainRequested:
    """The operator asked for no new sessions."""


Event = (
    StreamOpened | Received | Completed | UnaryCalled | HalfClosed | Lost | Tick | DrainRequested
)


@dataclass(frozen=True, slots=True)
class Send:
    """Write a message on a stream, after all that was sent on it before."""

    stream: int
    message: pb.SessionResponse


@dataclass(frozen=True, slots=True)
class Start:
    """Begin computing; post Completed when it ends."""

    work: Work


@dataclass(frozen=True, slots=True)
class Abandon:
    """Nobody waits for this work any more. Stopping early is allowed, Completed is still due."""

    number: int


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer a unary call."""

    call: int
    message: UnaryReply


@dataclass(frozen=True, slots=True)
class Close:
    """End a stream in good order once everything sent on it is written."""

    stream: int


Effect = Send | Start | Abandon | Reply | Close
