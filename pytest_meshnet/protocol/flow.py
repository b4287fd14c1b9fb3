"""Limits of a stream: what both sides settle on, and how a prefill is cut to fit them."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_meshnet.protocol.codec import MAX_CHUNK_BYTES
from pytest_meshnet.protocol.errors import ProtocolError
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb

DEFAULT_CREDITS = 8
DEFAULT_INFLIGHT = 8
DEFAULT_PREFILL_TOKENS = 128

# Room for the envelope and the framing of one chunk when the caller knows no better: a golden
# envelope is about 200 bytes, 64 fragments cost at most 20 bytes each.
FRAMING_BYTES = 4096


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """The four numbers of a FlowControl message. Zero means no preference."""

    credits: int = 0
    inflight: int = 0
    chunk_bytes: int = 0
    prefill_tokens: int = 0

    @classmethod
    def from_proto(cls, message: pb.FlowControl) -> FlowLimits:
        """Read the wire form."""
        return cls(
            message.credits_granted,
            message.max_inflight_chunks,
            message.max_chunk_bytes,
            message.max_prefill_chunk_tokens,
        )

    def to_proto(self) -> pb.FlowControl:
        """Write the wire form."""
        return pb.FlowControl(
            credits_granted=self.credits,
            max_inflight_chunks=self.inflight,
            max_chunk_bytes=self.chunk_bytes,
            max_prefill_chunk_tokens=self.prefill_tokens,
        )


DEFAULT_LIMITS = FlowLimits(
    DEFAULT_CREDITS, DEFAULT_INFLIGHT, MAX_CHUNK_BYTES, DEFAULT_PREFILL_TOKENS
)


def settle(mine: FlowLimits, theirs: FlowLimits) -> FlowLimits:
    """Return the strictest non-zero bound of either peer, the default where neither has one.

    Initial credits never exceed the settled in-flight limit.
    """
    inflight = _strictest(mine.inflight, theirs.inflight, DEFAULT_INFLIGHT)
    return FlowLimits(
        credits=min(inflight, _strictest(mine.credits, theirs.credits, DEFAULT_CREDITS)),
        inflight=inflight,
        chunk_bytes=_strictest(mine.chunk_bytes, theirs.chunk_bytes, MAX_CHUNK_BYTES),
        prefill_tokens=_strictest(
            mine.prefill_tokens, theirs.prefill_tokens, DEFAULT_PREFILL_TOKENS
        ),
    )


def _strictest(mine: int, theirs: int, default: int) -> int:
    bounds = [bound for bound in (mine, theirs) if bound > 0]
    return min(bounds) if bounds else default


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens [first, first + count) of a prefill; `final` marks its last chunk."""

    first: int
    count: int
    final: bool


def plan_prefill(
    tokens: int,
    *,
    max_tokens: int = DEFAULT_PREFILL_TOKENS,
    max_bytes: int = MAX_CHUNK_BYTES,
    bytes_per_token: int = 0,
    framing_bytes: int = FRAMING_BYTES,
) -> tuple[Span, ...]:
    """Cut `tokens` on token boundaries so that every framed chunk fits both bounds.

    `bytes_per_token` is the payload of one token over all tensors, `framing_bytes` what envelope
    and framing add to a chunk. Raises ProtocolError for an empty prefill, and when not even one
    token fits.
    """
    if tokens <= 0:
        raise ProtocolError(
            "empty-prefill", f"a prefill of {tokens} tokens; at least one is needed"
        )
    step = max_tokens
    if bytes_per_token > 0:
        # Whatever was settled, the codec takes no larger message.
        room = min(max_bytes, MAX_CHUNK_BYTES) - framing_bytes
        step = min(step, room // bytes_per_token)
    if step < 1:
        raise ProtocolError(
            "chunk-bytes",
            f"one token of {bytes_per_token} bytes and {framing_bytes} of framing do not fit "
            f"{max_bytes} bytes, or max_tokens is {max_tokens}",
        )
    return tuple(
        Span(first, min(step, tokens - first), first + step >= tokens)
        for first in range(0, tokens, step)
    )
