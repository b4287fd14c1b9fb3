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
    return pb.Ack(
        work_id=unit.work_id,
        idempotency_step=unit.step,
        cache_result=pb.CacheResult(
            mode=unit.mode,  # type: ignore[arg-type]
            past_len=past_len,
            cache_hit=cache_hit,
        ),
        duplicate=duplicate,
        execution_nanos=execution_nanos,
    )


def result_envelope(session: Session, unit: Unit) -> pb.Envelope:
    """The envelope of a result: that of its request, rebuilt where that was a DecodeStep."""
    if unit.envelope is not None:
        return unit.envelope
    return pb.Envelope(
        schema_version=pb.SCHEMA_VERSION_1,
        work_id=unit.work_id,
        route_session_id=session.session_id,
        route_epoch=session.epoch,
        fingerprint=session.fingerprint,
        shard_range=session.shard_range,
        phase=pb.PHASE_DECODE,
        position=pb.PositionSpan(first_position=unit.position, token_count=1),
        idempotency_step=unit.step,
        cache_expectation=pb.CacheExpectation(
            mode=pb.CACHE_MODE_DECODE, expected_past_len=unit.expected_past_len
        ),
        deadline_unix_nanos=unit.deadline,
        chunk=pb.ChunkInfo(chunk_count=1, final_chunk=True),
    )
