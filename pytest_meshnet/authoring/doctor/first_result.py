"""The checks from a runtime that answers to the first result of a decode step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pytest_meshnet.authoring.doctor.patient import Patient, Problem, Skipped
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.results import rows_of
from pytest_meshnet.runtime.trace import describe

if TYPE_CHECKING:
    from pytest_meshnet.protocol.machines.exchange import Exchange

_TOKENS = 3


def report(patient: Patient) -> str:
    """No field of the report that a client needs is empty or zero."""
    report = patient.examined.report
    missing = [name for name, is_there in _told(report) if not is_there]
    if missing:
        raise Problem(
            f"the report lacks {', '.join(missing)}",
            "set these fields of CapabilityReport; none of them may be empty or zero",
        )
    sessions, context = report.max_concurrent_sessions, report.max_context_tokens
    return f"{sessions} session(s), {context} tokens of context"


def _told(report: pb.CapabilityReport) -> Iterator[tuple[str, bool]]:
    flow, print_ = report.flow_control, report.fingerprint
    yield "fingerprint.model_artifact_digest", bool(print_.model_artifact_digest)
    yield "fingerprint.runtime_recipe_digest", bool(print_.runtime_recipe_digest)
    yield "shard_range.end_layer", report.shard_range.end_layer > 0
    yield "backend", bool(report.backend)
    yield "device", bool(report.device)
    yield "max_concurrent_sessions", report.max_concurrent_sessions > 0
    yield "max_context_tokens", report.max_context_tokens > 0
    yield "flow_control.max_inflight_chunks", flow.max_inflight_chunks > 0
    yield "flow_control.max_chunk_bytes", flow.max_chunk_bytes > 0
    yield "flow_control.max_prefill_chunk_tokens", flow.max_prefill_chunk_tokens > 0
    listed = pb.SCHEMA_VERSION_1 in report.supported_schema_versions
    yield "supported_schema_versions (SCHEMA_VERSION_1 in it)", listed


def open(patient: Patient) -> str:
    """An open with the reported identity is accepted, and its session and epoch are repeated."""
    shard = patient.examined
    patient.session = session = shard.unopened()
    answer = session.try_open(session.client.open())
    if isinstance(answer, pb.ShardStatus):
        raise Problem(
            describe(pb.SessionResponse(status=answer)),
            "accept an open with the digests and the range that GetCapability reported",
        )
    session_id = session.client.seam.session_id
    if (answer.route_session_id, answer.route_epoch) != (session_id, session.client.seam.epoch):
        raise Problem(
            f"accepted says session {answer.route_session_id!r} epoch {answer.route_epoch}",
            f"repeat route_session_id and route_epoch of the open: {session_id!r}, epoch 1",
            describe(pb.SessionResponse(accepted=answer)),
        )
    return "accepted"


def limits(patient: Patient) -> str:
    """No settled limit is zero."""
    accepted = patient.opened.client.accepted
    assert accepted is not None, "accepted comes before"
    settled = accepted.flow_control
    zero = [
        name
        for name in ("max_inflight_chunks", "max_chunk_bytes", "max_prefill_chunk_tokens")
        if not getattr(settled, name)
    ]
    if zero:
        raise Problem(
            f"accepted.flow_control has no {', '.join(zero)}",
            "settle each to the smaller of what is proposed and what you report (0 proposes none)",
            describe(pb.SessionResponse(accepted=accepted)),
        )
    return (
        f"{settled.credits_granted} credit(s), {settled.max_inflight_chunks} in flight, "
        f"{settled.max_prefill_chunk_tokens} tokens a chunk"
    )


# To a first result -----------------------------------------------------------------------------


def prefill(patient: Patient) -> str:
    """A prefill of a few tokens in one chunk is acked with the right length."""
    shard, session = patient.examined, patient.opened
    count = min(shard.length(_TOKENS), session.client.limits.prefill_tokens)
    patient.chunk = exchange = session.send_unit(session.client.chunk([shard.tokens(count)]))
    try:
        session.wait(exchange)
    except Nonconformance as finding:
        if exchange.ack is None:
            raise
        patient.late = finding  # the ack came: what is missing is the result
    if exchange.ack is None:
        session.applied(exchange)
    _past_len(exchange, count)
    return f"past_len {count}"


def _past_len(exchange: Exchange, expected: int) -> None:
    assert exchange.ack is not None, "it was applied"
    found = exchange.ack.cache_result.past_len
    if found != expected:
        raise Problem(
            f"the ack of {exchange.work_id} says past_len {found}, expected {expected}",
            "past_len is first_position + token_count of the unit",
            describe(pb.SessionResponse(ack=exchange.ack)),
        )


def result(patient: Patient) -> str:
    """The result of the prefill came, is whole, finite and of the described shape."""
    exchange = patient.chunk
    assert exchange is not None, "the chunk comes before"
    if patient.late is not None:
        raise patient.late
    patient.opened.applied(exchange)
    return _shape(patient, exchange)


def _shape(patient: Patient, exchange: Exchange) -> str:
    import numpy as np

    shard, boundary = patient.examined, patient.examined.output_boundary()
    rows = rows_of([exchange])
    wanted = (1 if shard.is_tail else exchange.token_count, *boundary.trailing)
    name, shape = boundary.name, list(exchange.tensors[0].shape)
    if rows.shape != wanted:
        raise Problem(
            f"the result of {exchange.work_id} has shape {shape}, expected {[1, *wanted]}",
            f"send {name} as [1, n, width]; or correct the width in the descriptor's [model]",
        )
    if not np.isfinite(rows).all():
        raise Problem("the result holds NaN or infinity", "inputs are finite: look at your kernels")
    return f"{name} {exchange.tensors[0].dtype.name.lower()} {shape}"


def decode(patient: Patient) -> str:
    """One decode step at the held length is applied, with its result."""
    shard, session = patient.examined, patient.opened
    assert patient.chunk is not None, "the chunk comes before"
    held = patient.chunk.token_count
    if shard.length(held + 1) == held:
        raise Skipped(f"{held} token(s) fill the context")
    tensor = shard.tokens(held + 1).rows(held, held + 1)
    exchange = session.send_unit(session.client.decode(tensor))
    session.applied(session.wait(exchange))
    _past_len(exchange, held + 1)
    return f"past_len {held + 1}, {_shape(patient, exchange)}"
