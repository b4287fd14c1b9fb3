"""Bad input of every kind: refused with a code, without a trace in the state, and survived."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_meshnet.protocol.codec import encode_bundle
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.malformed import Malformed, cases
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.results import check_code, joined
from pytest_meshnet.runtime.shard import ShardUnderTest


@pytest.mark.requirement("ROBUST-01")
@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_a_malformed_bundle_is_refused_and_the_next_unit_succeeds(
    shard: ShardUnderTest, case: Malformed
) -> None:
    """A correct bundle of the Shard's own boundary is spoilt in one way, as chunk and as step."""
    # faults.md 1, 19, 75, 78, 110, 111
    tokens = shard.tokens(3)
    prompt, step = tokens.rows(0, 2), tokens.rows(2, 3)
    expected = shard.undisturbed(prompt, step)
    with shard.session() as session:
        rows = session.prefill(prompt)
        bundle = encode_bundle([shard.tokens(1, key=9)])
        case.spoil(bundle)
        messages = [session.client.chunk([shard.tokens(1)], bundle=bundle)]
        if len(bundle.tensors) == 1 and bundle.bundle_version == 1:
            messages.append(session.client.decode(bundle.tensors[0]))
        for message in messages:
            session.refused(session.exchange(message), *case.codes)
        if session.client.past_len != 2:
            raise Nonconformance("past_len 2 as before", f"{session.client.past_len}")
        rows = joined(rows, session.decode(step))
    shard.check_equal(rows, expected, "a session around a malformed bundle")


Edit = Callable[[Tensor], list[Tensor]]


def _other_dtype(tensor: Tensor) -> Tensor:
    dtype = DType.INT64 if tensor.dtype is DType.INT32 else DType.FLOAT32
    if tensor.dtype is DType.FLOAT32:
        dtype = DType.FLOAT16
    elements = len(tensor.data) // tensor.dtype.item_size
    return replace(tensor, dtype=dtype, data=bytes(elements * dtype.item_size))


def _wider(tensor: Tensor) -> Tensor:
    if len(tensor.shape) == 2:
        return replace(tensor, shape=(*tensor.shape, 2), data=bytes(tensor.data) * 2)
    shape = (*tensor.shape[:-1], tensor.shape[-1] * 2)
    return replace(tensor, shape=shape, data=bytes(tensor.data) * 2)


BOUNDARIES: dict[str, Edit] = {
    "no-tensor": lambda _: [],
    "another-name": lambda tensor: [replace(tensor, name="hidden_state")],
    "another-dtype": lambda tensor: [_other_dtype(tensor)],
    "twice-the-width": lambda tensor: [_wider(tensor)],
    "another-rank": lambda tensor: [replace(tensor, shape=tensor.shape[1:])],
    "two-rows-of-batch": lambda tensor: [
        replace(tensor, shape=(2, *tensor.shape[1:]), data=bytes(tensor.data) * 2)
    ],
}


@pytest.mark.requirement("ROBUST-02")
@pytest.mark.parametrize("edit", BOUNDARIES.values(), ids=BOUNDARIES)
def test_a_bundle_without_the_declared_boundary_tensor_is_refused(
    shard: ShardUnderTest, edit: Edit
) -> None:
    """A whole bundle that carries no, or another tensor than the boundary declares."""
    # faults.md 22
    tokens = shard.tokens(3)
    prompt, step = tokens.rows(0, 2), tokens.rows(2, 3)
    expected = shard.undisturbed(prompt, step)
    with shard.session() as session:
        session.prefill(prompt)
        message = session.client.chunk(edit(shard.tokens(1, key=9)), tokens=1)
        session.refused(session.exchange(message))
        rows = session.decode(step)
    shard.check_equal(rows, expected[-1:], "the step after another boundary tensor")


@pytest.mark.requirement("ROBUST-03")
@given(data=st.binary(min_size=1, max_size=64), opened=st.booleans())
@example(data=b"\x0a", opened=True)
@example(data=b"\xff" * 32, opened=False)
@settings(max_examples=25)
def test_bytes_that_are_no_message_never_stop_the_worker(
    shard: ShardUnderTest, data: bytes, opened: bool
) -> None:
    """Random bytes as a frame, before or after the open; a new session must then be served."""
    stream = shard.session() if opened else shard.unopened()
    stream.send(data)
    stream.half_close()
    stream.wait_for_end()
    _check_serving(shard)


@pytest.mark.requirement("ROBUST-03")
@given(cut=st.floats(0.0, 1.0), flip=st.one_of(st.none(), st.integers(0, 2**16)))
@example(cut=0.5, flip=None)
@example(cut=1.0, flip=77)
@settings(max_examples=25)
def test_cut_and_mutated_frames_never_stop_the_worker(
    shard: ShardUnderTest, cut: float, flip: int | None
) -> None:
    """A good chunk is cut off or has one bit flipped; a new session must then be served."""
    # faults.md 144, 146
    stream = shard.session()
    frame = bytearray(stream.client.chunk([shard.tokens(2)]).SerializeToString())
    if flip is not None:
        frame[flip // 8 % len(frame)] ^= 1 << flip % 8
    stream.send(bytes(frame[: max(1, int(len(frame) * cut))]))
    stream.half_close()
    stream.drain()
    _check_serving(shard)


def _check_serving(shard: ShardUnderTest) -> None:
    with shard.session() as session:
        session.prefill(shard.tokens(1))


MANY = 1000


@pytest.mark.requirement("ROBUST-05")
def test_a_thousand_sessions_leave_nothing_behind(shard: ShardUnderTest) -> None:
    """Open, work, close, a thousand times; counts, threads, descriptors and memory are compared."""
    # faults.md 120, 147, 148
    prompt = shard.tokens(1)
    for _ in range(20):  # What is allocated once belongs to the baseline.
        with shard.session() as session:
            session.prefill(prompt)
    before = shard.footprint()
    for _ in range(MANY):
        with shard.session() as session:
            session.prefill(prompt)
    shard.check_footprint(before)


@pytest.mark.requirement("ROBUST-06")
@pytest.mark.parametrize("kind", ["chunk", "decode", "empty", "release", "cancel", "open"])
@pytest.mark.parametrize("opened", [True, False], ids=["opened", "unopened"])
def test_a_sparse_message_is_answered_or_ignored_and_never_a_crash(
    shard: ShardUnderTest, kind: str, opened: bool
) -> None:
    """A message that sets at most a work id; units and first messages must get a coded status."""
    message = pb.SessionRequest()
    if kind == "chunk":
        message.chunk.envelope.work_id = "sparse"
    elif kind != "empty":
        getattr(message, kind).SetInParent()
    if kind in ("decode", "release", "cancel"):
        getattr(message, kind).work_id = "sparse"
    stream = shard.session() if opened else shard.unopened()
    exchange = stream.send(message)
    if not opened:
        status = stream.wait_for_end()
        if status is None:
            raise Nonconformance("a terminal status for a first message that is no open", "none")
        check_code(status)
    elif exchange is not None:
        stream.wait_or_end(exchange)
        found = exchange.status or stream.client.ended
        if found is None:
            raise Nonconformance("a coded status for a sparse unit", "it was applied")
        check_code(found)
    stream.drop()
    _check_serving(shard)
