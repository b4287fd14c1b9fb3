"""What a client knows of one unit, and of the seam it was sent over."""

from __future__ import annotations

from dataclasses import dataclass, field

from pytest_meshnet.protocol.additions.sampling import TailResult
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.tensors import Tensor


class ProtocolViolation(Exception):
    """An answer that no state of the protocol allows."""


@dataclass(slots=True)
class Exchange:
    """One unit and what came back for it. Filled in by SeamClient.receive.

    `wants_result` is whether an applied unit must bring boundary tensors or a tail result.
    `results` holds every result that named this unit, decoded, with its envelope; of a tail result
    the envelope has only what that tells, and the tensors are its logits, if it has any. `tails`
    holds the tail results themselves.
    """

    work_id: str
    step: int
    first_position: int
    token_count: int
    mode: int
    final: bool
    wants_result: bool
    request: pb.SessionRequest
    ack: pb.Ack | None = None
    status: pb.ShardStatus | None = None
    results: list[tuple[pb.Envelope, tuple[Tensor, ...]]] = field(default_factory=list)
    tails: list[TailResult] = field(default_factory=list)

    @classmethod
    def of_chunk(cls, message: pb.SessionRequest, *, is_tail: bool) -> Exchange:
        """The exchange of an ActivationChunk. A tail owes a result only for the final chunk."""
        envelope = message.chunk.envelope
        return cls(
            work_id=envelope.work_id,
            step=envelope.idempotency_step,
            first_position=envelope.cache_expectation.expected_past_len,
            token_count=envelope.position.token_count,
            mode=envelope.cache_expectation.mode,
            final=envelope.chunk.final_chunk,
            wants_result=not is_tail or envelope.chunk.final_chunk,
            request=message,
        )

    @classmethod
    def of_decode(cls, message: pb.SessionRequest) -> Exchange:
        """The exchange of a DecodeStep."""
        decode = message.decode
        return cls(
            work_id=decode.work_id,
            step=decode.idempotency_step,
            first_position=decode.expected_past_len,
            token_count=1,
            mode=pb.CACHE_MODE_DECODE,
            final=True,
            wants_result=True,
            request=message,
        )

    @property
    def applied(self) -> bool:
        """Acknowledged as new work."""
        return self.ack is not None and not self.ack.duplicate

    @property
    def done(self) -> bool:
        """Nothing more is due."""
        if self.status is not None:
            return True
        if self.ack is None:
            return False
        return self.ack.duplicate or not self.wants_result or bool(self.results)

    def add_tail(self, result: TailResult) -> None:
        """Take in a tail result that named this unit."""
        self.tails.append(result)
        envelope = pb.Envelope(work_id=result.work_id, idempotency_step=result.step)
        self.results.append((envelope, () if result.logits is None else (result.logits,)))

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors of the result; empty when none came."""
        return self.results[0][1] if self.results else ()


@dataclass(frozen=True, slots=True)
class Seam:
    """Who talks to which Shard: the identity fields that every message repeats.

    `reads` is what an open offers as accepted compression (Compression numbers).
    """

    session_id: str
    epoch: int
    fingerprint: pb.Fingerprint
    shard_range: pb.ShardRange
    is_tail: bool = False
    reads: tuple[int, ...] = (pb.COMPRESSION_NONE,)
