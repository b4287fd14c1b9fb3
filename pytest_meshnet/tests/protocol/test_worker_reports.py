"""A Worker reports: capability, health, draining, and what its details give away (8, 13)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import DrainRequested
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.tests.protocol.linked import SERVED, Bench, rows


@pytest.fixture
def bench() -> Bench:
    return Bench(replace(SERVED, detail="not validated", backend="sums", device="abacus"))


def _capability(bench: Bench, schema: int = 1) -> pb.CapabilityReport:
    reply = bench.call(pb.CapabilityRequest(schema_version=schema))
    assert isinstance(reply, pb.CapabilityReport)
    return reply


def test_capability_tells_everything_that_is_served(bench: Bench) -> None:
    assert _capability(bench) == pb.CapabilityReport(
        schema_version=pb.SCHEMA_VERSION_1,
        fingerprint=SERVED.fingerprint,
        shard_range=pb.ShardRange(start_layer=2, end_layer=4, effective_start_layer=2),
        backend="sums",
        device="abacus",
        validated=False,
        detail="not validated",
        max_concurrent_sessions=3,
        max_context_tokens=64,
        flow_control=SERVED.limits.to_proto(),
        accepted_compression=[pb.COMPRESSION_NONE, pb.COMPRESSION_ZSTD],
        supported_schema_versions=[pb.SCHEMA_VERSION_1],
        features=[pb.FEATURE_DECODE_BUNDLE, pb.FEATURE_BOUNDARY_SPEC],
        boundary=SERVED.boundary().to_proto(),
    )


def test_validated_goes_with_a_time() -> None:
    report = _capability(Bench(replace(SERVED, validated_at_unix_nanos=5)))
    assert (report.validated, report.validated_at_unix_nanos) == (True, 5)


@pytest.mark.parametrize("schema", [0, 99])
def test_a_unary_call_of_any_schema_version_is_answered(bench: Bench, schema: int) -> None:
    assert _capability(bench, schema).schema_version == pb.SCHEMA_VERSION_1
    health = bench.call(pb.HealthRequest(schema_version=schema))
    assert health.state == pb.SERVING_STATE_SERVING
    assert bench.call(pb.ReleaseRequest(schema_version=schema)) == pb.ReleaseResponse()
    assert bench.call(pb.CancelRequest(schema_version=schema)) == pb.CancelResponse()


def test_health_counts_sessions_queue_running_work_and_pressure(bench: Bench) -> None:
    one, two = bench.session("one"), bench.session("two")
    one.prefill(*range(16))
    one.answers()
    one.decode(1)
    one.decode(2, expected=17)
    two.prefill(1)
    report = bench.health()
    assert report.active_sessions == 2
    assert (report.queued_chunks, report.batch_occupancy) == (1, 2)
    assert report.kv_pressure == pytest.approx(16 / (3 * 64))
    one.lose()
    two.lose()
    report = bench.health()
    assert (report.active_sessions, report.queued_chunks, report.batch_occupancy) == (0, 0, 0)
    assert report.kv_pressure == 0


def test_pressure_is_one_when_every_place_is_full(bench: Bench) -> None:
    for number in range(3):
        link = bench.session(f"s{number}")
        link.prefill(*range(64))
        link.answers()
    assert bench.health().kv_pressure == 1


def test_stateless_work_leaves_no_pressure(bench: Bench) -> None:
    link = bench.session()
    link.prefill(1, 2, mode=pb.CACHE_MODE_STATELESS)
    link.answers()
    assert bench.health().kv_pressure == 0


def test_health_passes_the_memory_on_that_the_transport_measured(bench: Bench) -> None:
    reply = bench.call(pb.HealthRequest(), resident_bytes=4_711)
    assert isinstance(reply, pb.HealthReport)
    assert reply.resident_bytes == 4_711


def test_draining_refuses_new_sessions_and_lets_the_running_ones_finish(bench: Bench) -> None:
    running = bench.session("running")
    running.prefill(1)
    bench.post(DrainRequested())
    assert bench.health().state == pb.SERVING_STATE_DRAINING
    late = bench.stream("late")
    late.send(late.client.open())
    assert late.heard() == ["RESOURCE_EXHAUSTED - terminal", "closed"]
    assert late.messages[0].status.error.retryable
    running.decode(2, expected=1)
    assert running.answers()[1::2] == ["result w1 [1]", "result w2 [3]"]


def test_no_refusal_is_without_code_and_no_detail_is_long(bench: Bench) -> None:
    link = bench.session()
    long = Tensor("x" * 5_000, DType.FLOAT32, (1, 1, 1), bytes(4))
    link.send(link.client.chunk([long]))
    twice = link.client.chunk([long])
    twice.chunk.bundle.tensors.append(twice.chunk.bundle.tensors[0])
    wrong = link.client.chunk([long])
    wrong.chunk.bundle.tensors[0].shape[:] = [-1]
    link.send(twice, wrong, pb.SessionRequest(), link.client.open())
    link.send(pb.SessionRequest(chunk=pb.ActivationChunk()))
    statuses = [message.status for message in link.messages if message.HasField("status")]
    assert len(statuses) == 6
    for status in statuses:
        assert status.error.code not in (pb.ERROR_CODE_UNSPECIFIED, pb.ERROR_CODE_INTERNAL)
        assert 0 < len(status.error.detail) <= 512


def test_a_sparse_decode_is_answered_with_a_code(bench: Bench) -> None:
    link = bench.session()
    link.send(pb.SessionRequest(decode=pb.DecodeStep(work_id="only")))
    assert link.answers() == ["CACHE_MISS only held 0"]


def test_every_refusal_of_a_unit_names_its_work_and_step(bench: Bench) -> None:
    link = bench.session(credits_granted=1)
    link.decode(1, step=3)
    link.decode(1, position=9, step=4)
    link.prefill(1, deadline=1, step=5)
    link.send(link.client.chunk([rows(1, 2)], tokens=1, step=6))
    link.prefill(1, step=7)
    link.prefill(1, step=8)
    statuses = [message.status for message in link.messages if message.HasField("status")]
    found = [(status.work_id, status.idempotency_step) for status in statuses]
    assert found == [(f"w{step}", step) for step in (3, 4, 5, 6, 8)]
    assert {status.route_session_id for status in statuses} == {"s"}


def test_only_what_trying_again_can_help_is_retryable(bench: Bench) -> None:
    link = bench.session(credits_granted=1)
    link.decode(1, expected=4)
    link.prefill(1)
    link.decode(1, expected=1)
    link.send(link.client.cancel())
    link.answers()
    codes = {
        message.status.error.code: message.status.error.retryable
        for message in link.messages
        if message.HasField("status")
    }
    assert codes == {
        pb.ERROR_CODE_CACHE_MISS: False,
        pb.ERROR_CODE_FLOW_CONTROL_VIOLATION: True,
        pb.ERROR_CODE_CANCELLED: True,
    }
