"""A target that answers from a script, and the shortest legal answers to a unit."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from pytest_meshnet.protocol.codec import encode_bundle
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.exchange import Seam
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.runtime.descriptor import TimeLimits, load
from pytest_meshnet.runtime.session import Session
from pytest_meshnet.runtime.target import Target
from pytest_meshnet.runtime.trace import Trace
from pytest_meshnet.runtime.transport import StreamEnd

Frame = pb.SessionResponse | StreamEnd
# What the script says to a message: nothing, some frames.
Answer = Callable[[pb.SessionRequest], Sequence[Frame]]

SEAM = Seam(
    "rs",
    1,
    pb.Fingerprint(model_artifact_digest="aa", runtime_recipe_digest="bb"),
    pb.ShardRange(start_layer=1, end_layer=3, effective_start_layer=1),
)
TIME = TimeLimits(answer=30.0, cleanup=30.0)


class ScriptedStream:
    """Says what the script says; silence is known at once."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._coming: deque[Frame] = deque()
        self.sent: list[pb.SessionRequest | bytes] = []
        self.timeouts: list[float] = []
        self.half_closed = False
        self.dropped = False
        self.at_half_close: list[Frame] = [StreamEnd("OK")]

    def send(self, message: pb.SessionRequest | bytes) -> None:
        self.sent.append(message)
        if not isinstance(message, bytes):
            self._coming += self._answer(message)

    def receive(self, timeout: float) -> Frame:
        self.timeouts.append(timeout)
        if not self._coming:
            raise TimeoutError("nothing arrived")
        return self._coming.popleft()

    def half_close(self) -> None:
        self.half_closed = True
        self._coming += self.at_half_close

    def drop(self) -> None:
        self.dropped = True


class ScriptedTarget:
    """A target whose streams answer from a script. `lost` is what has become of it."""

    def __init__(self, answer: Answer, lost: Exception | None = None) -> None:
        self.descriptor = replace(load("reference", small=True), time=TIME)
        self.transport = self
        self.lost = lost
        self.came: set[str | None] = set()
        self._answer = answer

    def open_stream(self) -> ScriptedStream:
        return ScriptedStream(self._answer)

    def loss(self, what: str) -> Exception | None:
        return self.lost


def unopened(answer: Answer, lost: Exception | None = None, *, is_tail: bool = False) -> Session:
    """A stream on which nothing was sent; `answer` speaks."""
    target = cast(Target, ScriptedTarget(answer, lost))
    return Session(target, replace(SEAM, is_tail=is_tail), Trace())


def scripted(answer: Answer, lost: Exception | None = None, *, is_tail: bool = False) -> Session:
    """A session that was accepted; `answer` speaks from its second message on."""
    session = unopened(lambda message: opening(message) or answer(message), lost, is_tail=is_tail)
    session.open()
    return session


def stream_of(session: Session) -> ScriptedStream:
    """The stream behind a scripted session."""
    stream = session._stream
    assert isinstance(stream, ScriptedStream)
    return stream


def opening(message: pb.SessionRequest, credits: int = 8) -> list[Frame]:
    """accepted for an open, nothing for anything else."""
    if not message.HasField("open"):
        return []
    limits = pb.FlowControl(
        credits_granted=credits,
        max_inflight_chunks=8,
        max_chunk_bytes=65_536,
        max_prefill_chunk_tokens=4,
    )
    return [pb.SessionResponse(accepted=pb.SessionAccepted(flow_control=limits))]


def named(message: pb.SessionRequest) -> tuple[str, int]:
    """Work id and step of a unit."""
    if message.HasField("decode"):
        return message.decode.work_id, message.decode.idempotency_step
    return message.chunk.envelope.work_id, message.chunk.envelope.idempotency_step


def ack(message: pb.SessionRequest, *, duplicate: bool = False) -> pb.SessionResponse:
    """The ack of a unit."""
    work_id, step = named(message)
    cache = message.chunk.envelope.cache_expectation
    end = cache.expected_past_len + message.chunk.envelope.position.token_count
    return pb.SessionResponse(
        ack=pb.Ack(
            work_id=work_id,
            idempotency_step=step,
            cache_result=pb.CacheResult(mode=cache.mode, past_len=end),
            duplicate=duplicate,
        )
    )


def result(message: pb.SessionRequest, *tensors: Tensor) -> pb.SessionResponse:
    """The result of a unit: `tensors`, or one row of hidden states a token."""
    work_id, step = named(message)
    envelope = pb.Envelope(work_id=work_id, idempotency_step=step)
    count = message.chunk.envelope.position.token_count or 1
    chunk = pb.ActivationChunk(envelope=envelope, bundle=encode_bundle(tensors or (states(count),)))
    return pb.SessionResponse(chunk=chunk)


def refusal(
    message: pb.SessionRequest,
    code: int = pb.ERROR_CODE_CACHE_MISS,
    *,
    terminal: bool = False,
    anonymous: bool = False,
) -> pb.SessionResponse:
    """A status about a unit, which need not name it."""
    work_id, step = ("", 0) if anonymous else named(message)
    return pb.SessionResponse(
        status=pb.ShardStatus(
            work_id=work_id,
            idempotency_step=step,
            error=pb.ShardError(code=code),  # type: ignore[arg-type]
            terminal=terminal,
        )
    )


def states(count: int, width: int = 2, name: str = "hidden_states") -> Tensor:
    """Hidden states counted through, [1, count, width] in float32."""
    array = np.arange(count * width, dtype=np.float32).reshape(1, count, width)
    return Tensor.from_float32(name, array, DType.FLOAT32)
