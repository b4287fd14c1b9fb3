"""What comes back for an applied chunk: one ack, one result, their fields and positions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.exchange import Exchange, Seam
from pytest_meshnet.protocol.tensors import Tensor
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.shard import ShardUnderTest

CHUNKS = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@pytest.mark.requirement("PREFILL-01")
@given(counts=CHUNKS)
@example(counts=[1])
@example(counts=[3])
@example(counts=[2, 1, 3])
@settings(max_examples=12)
def test_each_applied_chunk_gives_one_ack_and_one_result(
    shard: ShardUnderTest, counts: list[int]
) -> None:
    """Chunks go out as fast as credit allows; whatever comes until the stream ends is counted."""
    counts = shard.fitted(counts)
    tokens = shard.tokens(sum(counts))
    with shard.session() as session:
        exchanges = session.send_chunks(tokens, counts)
        for exchange in exchanges:
            session.applied(session.wait(exchange))
    for exchange in exchanges:
        session.applied(exchange)


@pytest.mark.requirement("PREFILL-01")
@pytest.mark.parametrize(
    "work_ids",
    [["w1", "w10"], ["x" * 64, "x" * 63 + "y"], ["Teil 1/2", "層-7"]],
    ids=["prefixes", "long", "other-letters"],
)
def test_answers_name_the_work_id_and_the_step_of_their_chunk(
    shard: ShardUnderTest, work_ids: list[str]
) -> None:
    """Work ids that are easily confused, under step numbers that jump."""
    tokens = shard.tokens(2)
    with shard.session() as session:
        exchanges = [
            session.send_unit(
                session.client.chunk(
                    [tokens.rows(index, index + 1)],
                    final=index == 1,
                    work_id=work_id,
                    step=7 + 2**40 * index,
                )
            )
            for index, work_id in enumerate(work_ids)
        ]
        for exchange in exchanges:
            session.applied(session.wait(exchange))


@pytest.mark.requirement("PREFILL-02")
@pytest.mark.parametrize("counts", [[1], [3], [2, 2]], ids=["one", "three", "two-chunks"])
def test_a_prefill_result_repeats_its_request_and_carries_the_boundary(
    shard: ShardUnderTest, counts: list[int]
) -> None:
    """Every field of the envelope and the shape of the tensor, chunk by chunk."""
    for seam in seams(shard):
        tokens = shard.tokens(sum(counts), effective_start=seam.shard_range.effective_start_layer)
        with shard.session(seam) as session:
            for exchange in session.send_chunks(tokens, counts):
                check_result(shard, seam, session.applied(session.wait(exchange)))


@pytest.mark.requirement("PREFILL-02")
@pytest.mark.parametrize("full", [False, True], ids=["decode-step", "full-form"])
def test_a_decode_result_has_the_complete_envelope_too(shard: ShardUnderTest, full: bool) -> None:
    """A DecodeStep brings no envelope, so the worker has to build the one of its result."""
    for seam in seams(shard):
        tokens = shard.tokens(4, effective_start=seam.shard_range.effective_start_layer)
        with shard.session(seam) as session:
            session.prefill(tokens.rows(0, 2))
            for position in (2, 3):
                step = tokens.rows(position, position + 1)
                exchange = session.exchange(session.client.decode(step, full=full))
                check_result(shard, seam, session.applied(exchange))


def seams(shard: ShardUnderTest) -> Iterator[Seam]:
    """Sessions whose epoch is not the first and, where that is possible, with a later start."""
    yield shard.seam(epoch=7)
    if len(shard.layers) >= 2 and shard.target.spec.later_start:
        yield shard.seam(epoch=2**33, effective_start=shard.layers.start + 1)


def check_result(shard: ShardUnderTest, seam: Seam, exchange: Exchange) -> None:
    """Hold the only result of an applied unit against its request."""
    envelope = exchange.results[0][0]
    wanted = {
        "schema_version": pb.SCHEMA_VERSION_1,
        "route_session_id": seam.session_id,
        "route_epoch": seam.epoch,
        "fingerprint.model_artifact_digest": seam.fingerprint.model_artifact_digest,
        "fingerprint.runtime_recipe_digest": seam.fingerprint.runtime_recipe_digest,
        "shard_range.start_layer": seam.shard_range.start_layer,
        "shard_range.end_layer": seam.shard_range.end_layer,
        "shard_range.effective_start_layer": seam.shard_range.effective_start_layer,
        "position.first_position": exchange.first_position,
        "position.token_count": exchange.token_count,
        "idempotency_step": exchange.step,
    }
    found = {path: read(envelope, path) for path in wanted}
    wrong = [path for path in wanted if found[path] != wanted[path]]
    wrong += [name for name in ("cache_expectation", "chunk") if not envelope.HasField(name)]
    wrong += [path for path in ("phase", "cache_expectation.mode") if not read(envelope, path)]
    if wrong:
        raise Nonconformance(
            "; ".join(f"{path} {wanted.get(path, 'set')}" for path in wrong),
            "; ".join(f"{path} {found.get(path, 'not set')}" for path in wrong),
            "a result goes on to the next Shard with the envelope of its request",
        )
    check_boundary(shard, exchange)


def read(message: object, path: str) -> object:
    """The value of a field by its dotted path."""
    for name in path.split("."):
        message = getattr(message, name)
    return message


def check_boundary(shard: ShardUnderTest, exchange: Exchange) -> None:
    """The declared tensor, one row a token, in a declared dtype."""
    boundary = shard.output_boundary()
    dtypes = shard.target.model.boundary_dtypes
    shape = (1, exchange.token_count, *boundary.trailing)
    tensor = {one.name: one for one in exchange.tensors}.get(boundary.name)
    if tensor is None or tensor.dtype not in dtypes or tensor.shape != shape:
        raise Nonconformance(
            f"{boundary.name} {list(shape)} in {' or '.join(one.name for one in dtypes)}",
            f"{[one.name for one in exchange.tensors]}" if tensor is None else described(tensor),
        )


def described(tensor: Tensor) -> str:
    """Name, dtype and shape."""
    return f"{tensor.name} {list(tensor.shape)} in {tensor.dtype.name}"


@pytest.mark.requirement("PREFILL-03")
@given(counts=CHUNKS, appended=CHUNKS)
@example(counts=[1], appended=[1])
@example(counts=[2, 1, 3], appended=[2, 2])
@settings(max_examples=12)
def test_past_len_is_where_the_chunk_ends(
    shard: ShardUnderTest, counts: list[int], appended: list[int]
) -> None:
    """A prefill in chunks, one that appends to it, and one that starts afresh."""
    counts = shard.fitted(counts, spare=1)
    first = sum(counts)
    appended = shard.fitted(appended, spare=first)
    second = sum(appended)
    tokens = shard.tokens(max(first + second, 3))
    with shard.session() as session:
        exchanges = session.send_chunks(tokens.rows(0, first), counts)
        exchanges += session.send_chunks(tokens.rows(first, first + second), appended)
        exchanges += session.send_chunks(tokens.rows(0, 3), [1, 2], fresh=True)
        for exchange in exchanges:
            check_past_len(session.applied(session.wait(exchange)))


def check_past_len(exchange: Exchange) -> None:
    """Hold the acknowledged length against the positions of the unit."""
    assert exchange.ack is not None, f"work {exchange.work_id!r} was not acknowledged"
    found = exchange.ack.cache_result.past_len
    end = exchange.first_position + exchange.token_count
    if found != end:
        raise Nonconformance(
            f"past_len {end} after {exchange.token_count} tokens from {exchange.first_position}",
            f"past_len {found}",
        )
