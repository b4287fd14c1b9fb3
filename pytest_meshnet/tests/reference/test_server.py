"""The worker over real gRPC: what only sockets, threads and clocks can get wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import grpc
import pytest

from pytest_meshnet.protocol.codec import MAX_CHUNK_BYTES
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import Outcome, Work
from pytest_meshnet.protocol.tensors import DType
from pytest_meshnet.reference.seeded_weights import SMALL
from pytest_meshnet.reference.tiny_llama import TinyLlama, served_shard
from pytest_meshnet.tests.reference.running import Client, raw_stream, server_thread
from pytest_meshnet.tests.reference.works import random_tokens, run_in_chunks

SERVED = served_shard(SMALL, 0, 2, DType.FLOAT32, max_sessions=2)
MODEL = TinyLlama(SMALL, 0, 2, DType.FLOAT32)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with server_thread(SERVED, MODEL) as address:
        yield address


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    with Client(address) as client:
        client.wait_for(lambda report: report.active_sessions == 0)
        yield client


def test_a_session_over_grpc_has_the_bits_of_the_model_alone(client: Client) -> None:
    session, prompt = client.session(), random_tokens(20)
    units = [
        session.seam.chunk([prompt.rows(0, 8)], final=False),
        session.seam.chunk([prompt.rows(8, 19)], expected=8),
        session.seam.decode(prompt.rows(19, 20), expected=19),
    ]
    exchanges = [session.result(unit) for unit in units]
    result = b"".join(bytes(exchange.tensors[0].data) for exchange in exchanges)
    assert result == run_in_chunks(MODEL, prompt, [20])[0]
    assert session.seam.past_len == 20
    session.drop()


def test_a_half_close_delivers_what_is_outstanding_and_then_ok(client: Client) -> None:
    session, prompt = client.session(), random_tokens(128 * 3)
    exchanges = [
        session.send(session.seam.chunk([prompt.rows(n, n + 128)], expected=n, final=n == 256))
        for n in (0, 128, 256)
    ]
    session.half_close()
    for response in session.call:
        session.seam.receive(response)
    assert [exchange is not None and exchange.applied for exchange in exchanges] == [True] * 3
    assert session.call.code() is grpc.StatusCode.OK
    assert client.health().active_sessions == 0


def test_a_terminal_status_arrives_and_then_ok(client: Client) -> None:
    call = raw_stream(client, [pb.SessionRequest(release=pb.ReleaseSignal()).SerializeToString()])
    (response,) = [pb.SessionResponse.FromString(data) for data in call]
    assert response.status.terminal
    assert call.code() is grpc.StatusCode.OK


def test_a_cancelled_call_frees_its_session(client: Client) -> None:
    session = client.session()
    session.result(session.seam.chunk([random_tokens(8)]))
    assert client.health().active_sessions == 1
    session.drop()
    client.wait_for(lambda report: report.active_sessions == 0 and report.kv_pressure == 0)


def test_a_dropped_connection_frees_its_session(client: Client, address: str) -> None:
    with Client(address) as other:
        session = other.session()
        session.result(session.seam.chunk([random_tokens(8)], final=False))
        assert client.health().active_sessions == 1
    client.wait_for(lambda report: report.active_sessions == 0 and report.kv_pressure == 0)
    session.half_close()


@pytest.mark.parametrize("opened", [False, True], ids=["before-open", "after-open"])
def test_bytes_that_are_no_message_end_their_stream_only(client: Client, opened: bool) -> None:
    bystander = client.session(f"bystander-{opened}")
    first = [bystander.seam.open().SerializeToString()] if opened else []
    first = [data.replace(b"bystander", b"culprit..") for data in first]
    call = raw_stream(client, [*first, b"\xff\xff\xff"])
    assert len([*_until_error(call)]) == len(first)
    assert call.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert bystander.result(bystander.seam.chunk([random_tokens(4)])).applied
    client.wait_for(lambda report: report.active_sessions == 1)
    bystander.drop()


def _until_error(call: grpc.Call) -> Iterator[bytes]:
    with pytest.raises(grpc.RpcError):
        yield from call


@pytest.mark.parametrize("method", ["GetCapability", "Health", "Release", "Cancel"])
def test_bytes_that_are_no_request_end_their_unary_call_only(client: Client, method: str) -> None:
    call = client.channel.unary_unary(f"/meshnet.shard.v1.ShardRuntime/{method}")
    with pytest.raises(grpc.RpcError) as refused:
        call(b"\xff\xff\xff")
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert client.health().state == pb.SERVING_STATE_SERVING


def test_the_worker_itself_answers_a_message_just_above_its_bound(client: Client) -> None:
    session = client.session()
    message = session.seam.chunk([random_tokens(4)])
    message.chunk.bundle.tensors[0].fragments[0].payload = bytes(MAX_CHUNK_BYTES + 1024)
    exchange = session.result(message)
    assert exchange.status is not None
    assert exchange.status.error.code == pb.ERROR_CODE_FLOW_CONTROL_VIOLATION
    session.drop()


def test_a_message_far_above_the_bound_ends_its_stream_and_frees_its_session(
    client: Client,
) -> None:
    session = client.session()
    message = session.seam.chunk([random_tokens(4)])
    message.chunk.bundle.tensors[0].fragments[0].payload = bytes(2 * MAX_CHUNK_BYTES)
    session.send(message)
    with pytest.raises(grpc.RpcError) as refused:
        session.receive()
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    session.half_close()
    client.wait_for(lambda report: report.active_sessions == 0)


def test_health_tells_the_memory_of_the_process(client: Client) -> None:
    assert 10 * 2**20 < client.health().resident_bytes < 2**34


def test_a_client_that_does_not_read_is_not_read_for_ever_and_disturbs_nobody(
    client: Client, address: str
) -> None:
    refused = pb.SessionRequest(decode=pb.DecodeStep(work_id="x" * 4096))
    sent = threading.Semaphore(0)

    def flood(opening: pb.SessionRequest) -> Iterator[bytes]:
        yield opening.SerializeToString()
        for _ in range(20_000):
            yield refused.SerializeToString()
            sent.release()

    with Client(address) as other:
        opening = other.session("greedy").seam.open()
        opening.open.route_epoch = 2
        stream = other.channel.stream_stream("/meshnet.shard.v1.ShardRuntime/Session")
        call = stream(flood(opening))
        assert 64 <= _settles(sent) < 5_000
        session = client.session()
        assert session.result(session.seam.chunk([random_tokens(4)])).applied
        session.drop()
        call.cancel()


def _settles(counter: threading.Semaphore) -> int:
    """Count releases until none comes for a while."""
    count = 0
    while counter.acquire(timeout=0.3):
        count += 1
    return count


class Fails:
    """A model that fails on every second work."""

    def __init__(self) -> None:
        self.works = 0

    def run(self, work: Work) -> Outcome:
        self.works += 1
        if self.works % 2:
            raise RuntimeError("secret 12345")
        return MODEL.run(work)


def test_a_fault_of_the_model_is_internal_and_the_session_goes_on() -> None:
    with server_thread(SERVED, Fails()) as address, Client(address) as client:
        session = client.session()
        failed = session.result(session.seam.chunk([random_tokens(4)]))
        assert failed.status is not None
        assert failed.status.error.code == pb.ERROR_CODE_INTERNAL
        assert "12345" not in failed.status.error.detail
        again = session.seam.chunk([random_tokens(4)], step=failed.step)
        assert session.result(again).applied
        session.drop()


# With stalled units ---------------------------------------------------------------------------

STALL_SECONDS = 60.0


@pytest.fixture
def stalled() -> Iterator[Client]:
    """A worker whose units take a minute, which no test here waits for."""
    before = time.monotonic()
    with server_thread(SERVED, MODEL, STALL_SECONDS) as address, Client(address) as client:
        yield client
    assert time.monotonic() - before < STALL_SECONDS / 2


def test_a_deadline_that_passes_in_the_queue_is_noticed_while_another_unit_runs(
    stalled: Client,
) -> None:
    session, prompt = stalled.session(), random_tokens(8)
    session.send(session.seam.chunk([prompt.rows(0, 4)], final=False))
    soon = time.time_ns() + 200_000_000
    waiting = session.result(session.seam.chunk([prompt.rows(4, 8)], expected=4, deadline=soon))
    assert waiting.status is not None
    assert waiting.status.error.code == pb.ERROR_CODE_DEADLINE_EXCEEDED
    assert time.time_ns() >= soon
    session.drop()


def test_the_unary_cancel_ends_the_stall_of_every_session(stalled: Client) -> None:
    sessions = [stalled.session(name) for name in ("a", "b")]
    exchanges = [session.send(session.seam.chunk([random_tokens(4)])) for session in sessions]
    stalled.wait_for(lambda report: report.batch_occupancy == 2)
    for name, session in zip("ab", sessions, strict=True):
        request = pb.CancelRequest(schema_version=1, route_session_id=name, route_epoch=1)
        assert stalled.stub.Cancel(request).cancelled_work_items == 1
        session.receive()
    codes = [e.status.error.code for e in exchanges if e is not None and e.status is not None]
    assert codes == [pb.ERROR_CODE_CANCELLED] * 2
    stalled.wait_for(lambda report: report.batch_occupancy == 0)
    for session in sessions:
        session.drop()


class WaitsForAnother:
    """A model whose works end only in pairs."""

    def __init__(self) -> None:
        self.pair = threading.Barrier(2, timeout=10)

    def run(self, work: Work) -> Outcome:
        self.pair.wait()
        return MODEL.run(work)


def test_units_of_all_sessions_stall_side_by_side() -> None:
    with server_thread(SERVED, WaitsForAnother(), 0.01) as address, Client(address) as client:
        sessions = [client.session() for _ in range(SERVED.max_sessions)]
        exchanges = [session.send(session.seam.chunk([random_tokens(4)])) for session in sessions]
        for session, exchange in zip(sessions, exchanges, strict=True):
            while exchange is not None and not exchange.done:
                session.receive()
        assert [e is not None and e.applied for e in exchanges] == [True, True]
        for session in sessions:
            session.drop()


@pytest.mark.parametrize("how", ["cancelled-call", "dropped-connection"])
def test_a_client_that_vanished_has_its_running_unit_abandoned(stalled: Client, how: str) -> None:
    """Unlike one that half-closed, which still waits for the answer."""
    other = Client(stalled.address)
    session = other.session()
    session.send(session.seam.chunk([random_tokens(4)]))
    stalled.wait_for(lambda report: report.batch_occupancy == 1)
    if how == "cancelled-call":
        session.call.cancel()
    else:
        other.channel.close()
    stalled.wait_for(lambda report: report.batch_occupancy == report.active_sessions == 0)
    session.half_close()
    other.channel.close()


def test_a_half_closed_client_still_waits_for_its_running_unit() -> None:
    with server_thread(SERVED, MODEL, 0.5) as address, Client(address) as client:
        session = client.session()
        exchange = session.send(session.seam.chunk([random_tokens(4)]))
        client.wait_for(lambda report: report.batch_occupancy == 1)
        session.half_close()
        for response in session.call:
            session.seam.receive(response)
        assert exchange is not None
        assert exchange.done


def test_a_stalled_unit_takes_its_time_and_is_then_computed() -> None:
    with server_thread(SERVED, MODEL, 0.25) as address, Client(address) as client:
        session, before = client.session(), time.monotonic()
        assert session.result(session.seam.chunk([random_tokens(4)])).applied
        assert time.monotonic() - before >= 0.25
        session.drop()
