"""A client with an accepted session of its own, and what a Shard may answer it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pytest_meshnet.protocol.codec import encode_bundle
from pytest_meshnet.protocol.flow import FlowLimits
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.client import SeamClient
from pytest_meshnet.protocol.machines.exchange import Exchange, Seam
from pytest_meshnet.protocol.tensors import DType, Tensor

FINGERPRINT = pb.Fingerprint(model_artifact_digest="aa", runtime_recipe_digest="bb")
RANGE = pb.ShardRange(start_layer=2, end_layer=4, effective_start_layer=2)
SEAM = Seam("rs", 3, FINGERPRINT, RANGE)


def rows(count: int) -> Tensor:
    """Hidden states of width 1."""
    states = np.arange(count, dtype=np.float32).reshape(1, count, 1)
    return Tensor.from_float32("hidden_states", states, DType.FLOAT32)


def opened(*, is_tail: bool = False, **limits: int) -> SeamClient:
    """A client whose session was accepted, with the given limits and generous others."""
    client = SeamClient(replace(SEAM, is_tail=is_tail))
    settled = {"credits": 8, "inflight": 8, "chunk_bytes": 4096, "prefill_tokens": 4} | limits
    accepted = pb.SessionAccepted(flow_control=FlowLimits(**settled).to_proto())
    client.receive(pb.SessionResponse(accepted=accepted))
    return client


def sent(client: SeamClient, message: pb.SessionRequest) -> Exchange:
    """Register a unit as sent."""
    exchange = client.sent(message)
    assert exchange is not None
    return exchange


def ack(exchange: Exchange, past_len: int, *, duplicate: bool = False) -> pb.SessionResponse:
    """The ack of a unit."""
    return pb.SessionResponse(
        ack=pb.Ack(
            work_id=exchange.work_id,
            idempotency_step=exchange.step,
            cache_result=pb.CacheResult(mode=exchange.mode, past_len=past_len),  # type: ignore[arg-type]
            duplicate=duplicate,
        )
    )


def result(exchange: Exchange) -> pb.SessionResponse:
    """The result of a unit."""
    envelope = pb.Envelope(work_id=exchange.work_id, idempotency_step=exchange.step)
    bundle = encode_bundle([rows(exchange.token_count)])
    return pb.SessionResponse(chunk=pb.ActivationChunk(envelope=envelope, bundle=bundle))


def refusal(work_id: str, step: int, *, terminal: bool = False) -> pb.SessionResponse:
    """A CACHE_MISS that names a unit."""
    error = pb.ShardError(code=pb.ERROR_CODE_CACHE_MISS)
    status = pb.ShardStatus(work_id=work_id, idempotency_step=step, error=error, terminal=terminal)
    return pb.SessionResponse(status=status)
