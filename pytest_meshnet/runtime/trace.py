"""Frames as people read them: one line a message, kept for the report of a failure."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.runtime.transport import StreamEnd

KEPT_FRAMES = 200
HERE = "   <== HERE"
"""Stands behind the frame at which an expectation broke."""

Call = pb.ReleaseRequest | pb.ReleaseResponse | pb.CancelRequest | pb.CancelResponse
Frame = pb.SessionRequest | pb.SessionResponse | StreamEnd | bytes | Call


@dataclass(frozen=True, slots=True)
class TraceLine:
    """A frame with its direction ("->" to the runtime), stream and time since the test began."""

    seconds: float
    stream: str
    direction: str
    text: str

    def __str__(self) -> str:
        return f"{self.seconds:8.3f} s  {self.stream:<4} {self.direction} {self.text}"


class Trace:
    """The last frames of a test, over all its streams."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._lines: deque[TraceLine] = deque(maxlen=KEPT_FRAMES)
        self._opens: dict[str, pb.SessionOpen] = {}

    def sent(self, stream: str, frame: Frame) -> None:
        """Note a frame on its way to the runtime, and where its identity is not its stream's."""
        text = describe(frame)
        if isinstance(frame, pb.SessionRequest):
            kind = frame.WhichOneof("kind")
            if kind == "open":
                self._opens.setdefault(stream, frame.open)
            elif kind == "chunk" and stream in self._opens:
                text += _unlike(frame.chunk.envelope, self._opens[stream])
        self._note(stream, "->", text)

    def received(self, stream: str, frame: Frame) -> None:
        """Note a frame from the runtime."""
        self._note(stream, "<-", describe(frame))

    def silence(self, stream: str, due: str) -> str:
        """Note that nothing came where something was due, and return the line's text."""
        text = f"nothing, where {due} was due"
        self._note(stream, "<-", text)
        return text

    def _note(self, stream: str, direction: str, text: str) -> None:
        since = time.monotonic() - self._began
        self._lines.append(TraceLine(since, stream, direction, text))

    def text(self, last: int = 40, broken: str = "") -> str:
        """The last lines; says how many came before and after them.

        The newest answer whose text is in `broken` is marked, and always among the lines.
        """
        lines = list(self._lines)
        place = _place(lines, broken)
        stop = len(lines) if place is None else min(len(lines), max(place + last // 4, last))
        start = max(0, stop - last)
        if place is None or place >= len(lines) - last:
            start, stop = max(0, len(lines) - last), len(lines)
        shown = [
            f"{line}{HERE}" if number == place else str(line)
            for number, line in enumerate(lines[start:stop], start)
        ]
        before, after = start, len(lines) - stop
        head = [f"... {before} earlier frames"] if before else []
        tail = [f"... {after} later frames"] if after else []
        return "\n".join([*head, *shown, *tail])


def _place(lines: Sequence[TraceLine], broken: str) -> int | None:
    if not broken:
        return None
    numbered = enumerate(lines)
    found = [n for n, line in numbered if line.direction == "<-" and line.text in broken]
    return found[-1] if found else None


def _unlike(envelope: pb.Envelope, opened: pb.SessionOpen) -> str:
    """What the envelope of a unit says otherwise than the open of its stream."""
    pairs = (
        ("session", repr(envelope.route_session_id), repr(opened.route_session_id)),
        ("epoch", str(envelope.route_epoch), str(opened.route_epoch)),
        ("schema", str(envelope.schema_version), str(opened.schema_version)),
        ("range", _range(envelope.shard_range), _range(opened.shard_range)),
        ("fingerprint", _print(envelope.fingerprint), _print(opened.fingerprint)),
    )
    found = [f"{name}={told}" for name, told, open_said in pairs if told != open_said]
    return f" (unlike its open: {', '.join(found)})" if found else ""


def describe(frame: Frame) -> str:
    """Say what a frame is in one line, without its payload."""
    if isinstance(frame, bytes):
        return f"{len(frame)} raw bytes"
    if isinstance(frame, StreamEnd):
        return f"end {frame.code} {frame.detail}".rstrip()
    if not isinstance(frame, pb.SessionRequest | pb.SessionResponse):
        return _call(frame)
    kind = frame.WhichOneof("kind")
    if kind is None:
        return "a message of no known kind"
    return f"{kind} {_BODY[kind](getattr(frame, kind))}".rstrip()


def _call(message: Call) -> str:
    """A unary call or its reply."""
    name = type(message).__name__.removesuffix("Request").removesuffix("Response")
    if isinstance(message, pb.ReleaseRequest | pb.CancelRequest):
        work = f" work={message.work_id!r}" if isinstance(message, pb.CancelRequest) else ""
        return f"{name} session={message.route_session_id!r} epoch={message.route_epoch}{work}"
    if isinstance(message, pb.ReleaseResponse):
        told = f"released={message.released}"
    else:
        told = f"cancelled_work_items={message.cancelled_work_items}"
    error = message.error
    why = f" {_name(pb.ErrorCode, error.code)} {error.detail!r}" if error.code else ""
    return f"{name} {told}{why}"


def _open(message: pb.SessionOpen) -> str:
    return (
        f"session={message.route_session_id!r} epoch={message.route_epoch} "
        f"schema={message.schema_version} range={_range(message.shard_range)} "
        f"{_print(message.fingerprint)} "
        f"proposed={_flow(message.proposed_flow_control)}{_features(message.features)}"
    )


def _features(numbers: Iterable[int]) -> str:
    names = ", ".join(_name(pb.Feature, number) for number in numbers)
    return f" features=[{names}]" if names else ""


def _accepted(message: pb.SessionAccepted) -> str:
    return (
        f"session={message.route_session_id!r} epoch={message.route_epoch} "
        f"settled={_flow(message.flow_control)}{_features(message.features)}"
    )


def _chunk(message: pb.ActivationChunk) -> str:
    envelope = message.envelope
    position = envelope.position
    return (
        f"{_name(pb.Phase, envelope.phase)} work={envelope.work_id!r} "
        f"step={envelope.idempotency_step} "
        f"tokens={position.first_position}+{position.token_count} "
        f"expects={envelope.cache_expectation.expected_past_len} "
        f"mode={_name(pb.CacheMode, envelope.cache_expectation.mode)} "
        f"final={envelope.chunk.final_chunk} {_tensors(message.bundle)}"
    )


def _decode(message: pb.DecodeStep) -> str:
    return (
        f"work={message.work_id!r} step={message.idempotency_step} position={message.position} "
        f"expects={message.expected_past_len} {_payload(message)}"
    )


def _payload(message: pb.DecodeStep) -> str:
    parts = [_tensor(message.tensor)] if message.HasField("tensor") else []
    parts += [_tensors(message.bundle)] if message.HasField("bundle") else []
    return " and ".join(parts) or "neither tensor nor bundle"


def _tail(message: pb.TailResult) -> str:
    logits = f" {_tensor(message.logits)}" if message.HasField("logits") else ""
    token = f" token={message.token.token_id}" if message.HasField("token") else ""
    return (
        f"work={message.work_id!r} step={message.idempotency_step} "
        f"position={message.position}{logits}{token}"
    )


def _ack(message: pb.Ack) -> str:
    cache = message.cache_result
    duplicate = " duplicate" if message.duplicate else ""
    return (
        f"work={message.work_id!r} step={message.idempotency_step} past_len={cache.past_len} "
        f"mode={_name(pb.CacheMode, cache.mode)} hit={cache.cache_hit}{duplicate}"
    )


def _status(message: pb.ShardStatus) -> str:
    error = message.error
    return (
        f"{_name(pb.ErrorCode, error.code)} work={message.work_id!r} "
        f"step={message.idempotency_step} terminal={message.terminal} "
        f"retryable={error.retryable} actual_past_len={error.actual_past_len} {error.detail!r}"
    )


def _flow(message: pb.FlowControl) -> str:
    return (
        f"(credits {message.credits_granted}, in flight {message.max_inflight_chunks}, "
        f"{message.max_chunk_bytes} bytes, {message.max_prefill_chunk_tokens} tokens)"
    )


def _signal(message: pb.ReleaseSignal | pb.CancelSignal) -> str:
    return (
        f"session={message.route_session_id!r} epoch={message.route_epoch} work={message.work_id!r}"
    )


def _print(message: pb.Fingerprint) -> str:
    return f"artifact={message.model_artifact_digest!r} recipe={message.runtime_recipe_digest!r}"


def _range(message: pb.ShardRange) -> str:
    return f"{message.start_layer}:{message.end_layer}@{message.effective_start_layer}"


def _tensors(bundle: pb.TensorBundle) -> str:
    return "[" + ", ".join(_tensor(tensor) for tensor in bundle.tensors) + "]"


def _tensor(message: pb.NamedTensor) -> str:
    dtype = _name(pb.DType, message.dtype).lower()
    return f"{message.name}:{dtype}{list(message.shape)}"


_PREFIXES = {
    pb.Phase: "PHASE_",
    pb.CacheMode: "CACHE_MODE_",
    pb.ErrorCode: "ERROR_CODE_",
    pb.DType: "DTYPE_",
    pb.Feature: "FEATURE_",
}


def _name(enum: object, value: int) -> str:
    known = enum.DESCRIPTOR.values_by_number  # type: ignore[attr-defined]
    if value not in known:
        return f"unknown({value})"
    return str(known[value].name).removeprefix(_PREFIXES[enum])  # type: ignore[index]


def code_name(code: int) -> str:
    """The name of an error code without its prefix ("CACHE_MISS")."""
    return _name(pb.ErrorCode, code)


_BODY: dict[str, Callable[..., str]] = {
    "open": _open,
    "chunk": _chunk,
    "decode": _decode,
    "flow_control": _flow,
    "release": _signal,
    "cancel": _signal,
    "accepted": _accepted,
    "ack": _ack,
    "status": _status,
    "tail": _tail,
}
