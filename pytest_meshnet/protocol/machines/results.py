"""The parts of an answer to an applied unit."""

from __future__ import annotations

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import Mode
from pytest_meshnet.protocol.machines.session import Session, Unit

_MODES: dict[int, Mode] = {
    pb.CACHE_MODE_PREFILL: "prefill",
    pb.CACHE_MODE_DECODE: "decode",
    pb.CACHE_MODE_STATELESS: "stateless",
}


def mode_name(mode: int) -> Mode:
    """The word for a cache mode that passed the checks."""
    return _MODES[mode]


def ack_of(
    unit: Unit, past_len: int, cache_hit: bool, execution_nanos: int, *, duplicate: bool = False
) -> pb.Ack:
    """The ack of a unit, with the position that is held now."""
    ack = pb.Ack(
        work_id=unit.work_id,
        idempotency_step=unit.step,
        duplicate=duplicate,
        execution_nanos=execution_nanos,
    )
    # Filled in place here and below: a message given to a constructor is serialized and parsed.
    result = ack.cache_result
    result.mode = unit.mode  # type: ignore[assignment]
    result.past_len = past_len
    result.cache_hit = cache_hit
    return ack


def result_envelope(session: Session, unit: Unit) -> pb.Envelope:
    """The envelope of a result: that of its request, rebuilt where that was a DecodeStep."""
    if unit.envelope is not None:
        return unit.envelope
    envelope = pb.Envelope(
        schema_version=pb.SCHEMA_VERSION_1,
        work_id=unit.work_id,
        route_session_id=session.session_id,
        route_epoch=session.epoch,
        phase=pb.PHASE_DECODE,
        idempotency_step=unit.step,
        deadline_unix_nanos=unit.deadline,
    )
    envelope.fingerprint.CopyFrom(session.fingerprint)
    envelope.shard_range.CopyFrom(session.shard_range)
    envelope.position.first_position = unit.position
    envelope.position.token_count = 1
    envelope.cache_expectation.mode = pb.CACHE_MODE_DECODE
    envelope.cache_expectation.expected_past_len = unit.expected_past_len
    envelope.chunk.chunk_count = 1
    envelope.chunk.final_chunk = True
    return envelope
