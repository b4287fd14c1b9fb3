"""Each variant differs from the reference in what its docstring says."""

from __future__ import annotations

import pytest

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.exchange import Exchange
from pytest_meshnet.reference.variants_answers import UNKNOWN_FIELD
from pytest_meshnet.runtime.session import Session
from pytest_meshnet.runtime.shard import ShardUnderTest
from pytest_meshnet.tests.small import shard_of


def three_in_flight(session: Session, shard: ShardUnderTest) -> list[Exchange]:
    """Three chunks of one token, none waited for."""
    return session.send_chunks(shard.tokens(3), [1, 1, 1])


@pytest.mark.parametrize(("name", "waiting"), [("", 2), ("serial-loop", 0)])
def test_a_serial_loop_queues_nothing(name: str, waiting: int) -> None:
    shard = shard_of(name)
    with shard.session() as session:
        three_in_flight(session, shard)
        assert shard.health().queued_chunks == waiting


@pytest.mark.parametrize(("name", "fragments"), [("", 1), ("tiny-fragments", 40)])
def test_tiny_fragments_are_many(name: str, fragments: int) -> None:
    answers = raw_answers(name)
    (tensor,) = next(one.chunk.bundle.tensors for one in answers if one.HasField("chunk"))
    assert len(tensor.fragments) >= fragments
    assert (len(tensor.fragments) > 1) == (fragments > 1)


def raw_answers(name: str) -> list[pb.SessionResponse]:
    """Every message of a session with one chunk of four tokens."""
    shard = shard_of(name)
    shard.target.reads = (pb.COMPRESSION_NONE, pb.COMPRESSION_ZSTD)
    stream = shard.target.transport.open_stream()
    with shard.unopened() as session:
        client = session.client
        stream.send(client.open())
        found = [stream.receive(1.0)]
        assert isinstance(found[0], pb.SessionResponse)
        client.receive(found[0])
        stream.send(client.chunk([shard.tokens(4)]))
        found += [stream.receive(1.0) for _ in range(2)]
    answers = [one for one in found if isinstance(one, pb.SessionResponse)]
    assert len(answers) == len(found)
    return answers


def test_the_ack_comes_first_and_in_the_variant_last() -> None:
    kinds = {
        name: [one.WhichOneof("kind") for one in raw_answers(name)]
        for name in ("", "acks-after-the-result")
    }
    assert kinds == {
        "": ["accepted", "ack", "chunk"],
        "acks-after-the-result": ["accepted", "chunk", "ack"],
    }


def test_unknown_fields_are_in_every_message_and_in_those_within() -> None:
    for one in raw_answers("unknown-fields-everywhere"):
        inner = getattr(one, one.WhichOneof("kind") or "")
        assert one.SerializeToString().endswith(UNKNOWN_FIELD)
        assert inner.SerializeToString().endswith(UNKNOWN_FIELD)


def test_results_are_compressed_where_the_client_accepts_that() -> None:
    (tensor,) = raw_answers("compresses-always")[-1].chunk.bundle.tensors
    assert tensor.compression == pb.COMPRESSION_ZSTD


@pytest.mark.parametrize(("name", "again"), [("", 0), ("repeats-results", 1)])
def test_a_duplicate_brings_the_result_again(name: str, again: int) -> None:
    shard = shard_of(name)
    with shard.session() as session:
        first = session.applied(session.exchange(session.client.chunk([shard.tokens(1)])))
        repeat = session.exchange(first.request)
    assert repeat.ack is not None
    assert repeat.ack.duplicate
    assert len(first.results) + len(repeat.results) == 1 + again


def test_the_oldest_state_is_evicted_and_misses_at_zero() -> None:
    shard = shard_of("evicts-the-oldest")
    token = shard.tokens(1)
    with shard.session() as one, shard.session() as two, shard.session() as three:
        for session in (one, two, three):
            session.prefill(token)
        status = one.refused(one.exchange(one.client.decode(token)), pb.ERROR_CODE_CACHE_MISS)
        assert status.error.actual_past_len == 0
        two.decode(token)
        three.decode(token)


@pytest.mark.parametrize(
    ("name", "sessions", "chunk_tokens", "context"),
    [("one-session", 1, 128, 256), ("small-limits", 2, 3, 48), ("large-limits", 16, 1024, 1024)],
)
def test_limits_are_declared(name: str, sessions: int, chunk_tokens: int, context: int) -> None:
    report = shard_of(name).report
    assert report.max_concurrent_sessions == sessions
    assert report.flow_control.max_prefill_chunk_tokens == chunk_tokens
    assert report.max_context_tokens == context
