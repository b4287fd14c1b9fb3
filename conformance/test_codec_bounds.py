"""CODEC-05 and 08: what a header promises is bounded before anything is allocated for it."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_meshnet.protocol import codec
from pytest_meshnet.protocol.errors import PayloadCorrupt, ProtocolError
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.runtime.errors import Nonconformance

from .codec_inputs import (
    ITEM_SIZES,
    MIB,
    NUMBERS,
    accepted,
    fragments,
    patterned,
    refused,
    written,
    zeros_in,
)

SMALL = patterned(64)
LARGEST = 2**31 - 1


def _check_bound_refusal(what: str, message: pb.NamedTensor, most_bytes: int) -> None:
    """Require a refusal for the bound itself, before more than `most_bytes` were allocated."""
    tracemalloc.start()
    try:
        error = refused(what, lambda: codec.decode_tensor(message, max_bytes=128 * MIB))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    if isinstance(error, PayloadCorrupt):
        raise Nonconformance(f"{what}: refused for its bound", f"PayloadCorrupt {error.rule}")
    if peak > most_bytes:
        raise Nonconformance(f"at most {most_bytes} bytes allocated", f"{peak} bytes")


# CODEC-05: rank and dimensions ------------------------------------------------------------------


def _shaped(shape: Sequence[int], dtype: str = "INT64", total: int | None = None) -> pb.NamedTensor:
    """A tensor of that shape, which promises what the shape does as far as 64 bits reach."""
    message = written(b"", shape=shape, dtype=dtype, checksum=False)
    size = ITEM_SIZES[dtype]
    for dimension in shape:
        size = size * dimension % 2**64
    message.total_bytes = size if total is None else total
    return message


@pytest.mark.requirement("CODEC-05")
@pytest.mark.parametrize("rank", [9, 10, 64, 1_000_000])
def test_a_rank_above_8_is_refused_before_the_shape_is_read(rank: int) -> None:
    """A megabyte of dimensions of one costs a receiver that builds the shape first dearly."""
    _check_bound_refusal(f"rank {rank}", _shaped([1] * rank, "UINT8", 1), 16 * 1024)


@pytest.mark.requirement("CODEC-05")
@pytest.mark.parametrize("dimension", [-1, -128, -(2**31), -(2**63), 2**31, 2**32, 2**63 - 1])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_dimension_out_of_bounds_is_refused(dimension: int, place: int) -> None:
    """Alone, or beside another one that makes the product look right."""
    shape = [1, 1, 1]
    shape[place] = dimension
    _check_bound_refusal(f"the shape {shape}", _shaped(shape), 16 * 1024)
    shape[place - 1] = -1 if dimension < 0 else 0
    _check_bound_refusal(f"the shape {shape}", _shaped(shape, "UINT8"), 16 * 1024)


@pytest.mark.requirement("CODEC-05")
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ([2**30, 2**30, 2**4], "UINT8"),  # 2^64 elements: nothing is left in 64 bits
        ([2**30, 2**30, 2], "INT64"),  # 2^61 elements, 2^64 bytes
        ([2**21, 2**21, 2**21], "UINT8"),  # 2^63: the sign of a signed 64-bit size
        ([LARGEST, LARGEST, 4], "UINT8"),
        ([LARGEST] * 8, "INT64"),
        ([3 * 2**30 - 2**31, 2**30, 2**4, 7], "BFLOAT16"),
        ([LARGEST] * 7 + [0], "INT64"),  # empty, yet no array can have this shape
        ([0, 2**30, 2**30, 2**4], "UINT8"),
    ],
    ids=str,
)
def test_a_product_that_overflows_is_refused(shape: list[int], dtype: str) -> None:
    """total_bytes is what is left of the product in 64 bits, so that only the overflow tells."""
    _check_bound_refusal(f"the shape {shape}", _shaped(shape, dtype), 16 * 1024)


@pytest.mark.requirement("CODEC-05")
@given(
    dimensions=st.lists(st.integers(1, LARGEST), min_size=3, max_size=8),
    dtype=st.sampled_from(sorted(ITEM_SIZES)),
)
@settings(max_examples=100)
def test_any_shape_beyond_the_chunk_is_refused_before_allocation(
    dimensions: list[int], dtype: str
) -> None:
    """Legal dimensions, each by itself: what they promise together decides."""
    size = ITEM_SIZES[dtype]
    for dimension in dimensions:
        size *= dimension
    if size > 128 * MIB:
        _check_bound_refusal(f"the shape {dimensions}", _shaped(dimensions, dtype), 16 * 1024)


@pytest.mark.requirement("CODEC-05")
@pytest.mark.parametrize(
    "shape",
    [(1,) * 9, (-1, 4), (2, -2, -1), (2**31,), (0, 2**31), (2**30, 2**30, 2**4)],
    ids=str,
)
@pytest.mark.parametrize("dtype", ["UINT8", "INT64"])
def test_the_encoder_refuses_such_shapes_too(shape: tuple[int, ...], dtype: str) -> None:
    """What no receiver may accept is not sent."""
    tensor = Tensor("hidden_states", DType(NUMBERS[dtype]), shape, bytes(ITEM_SIZES[dtype]))
    error = refused(f"the shape {shape}", lambda: codec.encode_tensor(tensor))
    if isinstance(error, PayloadCorrupt):
        raise Nonconformance(f"{shape} refused for its bound", f"PayloadCorrupt {error.rule}")


@pytest.mark.requirement("CODEC-05")
@pytest.mark.parametrize("shape", [(1,) * 8, (0, LARGEST), (1, 1, 1, 1, 1, 1, 1, 64)], ids=str)
def test_the_bounds_themselves_are_legal(shape: tuple[int, ...]) -> None:
    """Rank 8, and a dimension of 2^31-1 in an empty tensor."""
    size = 0 if 0 in shape else shape[-1]
    message = written(SMALL[:size], shape=shape)
    tensor = accepted(f"the shape {shape}", lambda: codec.decode_tensor(message))
    if tensor.shape != shape:
        raise Nonconformance(f"{shape}", f"{tensor.shape}")


# CODEC-08: bounds -------------------------------------------------------------------------------


@pytest.mark.requirement("CODEC-08")
@pytest.mark.parametrize("count", [65, 66, 1000])
@pytest.mark.parametrize("size", [1, 65536])
def test_more_than_64_fragments_are_refused_before_any_is_copied(count: int, size: int) -> None:
    """A receiver that sorts and joins first has done the attacker's work before it says no."""
    if count * size > 16 * MIB:
        count = 200
    data = bytes(count * size)
    message = written(b"", shape=[len(data)], checksum=False)
    message.total_bytes = len(data)
    message.fragments.clear()
    message.fragments.extend(fragments(data, [size] * (count - 1)))
    _check_bound_refusal(f"{count} fragments", message, 32 * 1024)


@pytest.mark.requirement("CODEC-08")
def test_64_fragments_are_accepted() -> None:
    """The bound itself is legal."""
    message = written(SMALL, cuts=[1] * 63)
    tensor = accepted("64 fragments", lambda: codec.decode_tensor(message))
    if tensor.data != SMALL:
        raise Nonconformance(SMALL.hex(), bytes(tensor.data).hex())


@pytest.mark.requirement("CODEC-08")
@pytest.mark.parametrize(
    "sizes",
    [[MIB + 1], [MIB + 1] * 3, [1, 1, MIB + 1], [4 * MIB], [16 * MIB]],
    ids=["one", "all", "last", "4-MiB", "16-MiB"],
)
def test_a_fragment_above_1_mib_is_refused_before_the_body_is_joined(sizes: list[int]) -> None:
    """Its size is known only from one copy of it, and nothing more may be allocated."""
    _check_bound_refusal(f"a fragment of {max(sizes)} bytes", zeros_in(sizes), max(sizes) + 65536)


@pytest.mark.requirement("CODEC-08")
@pytest.mark.parametrize("sizes", [[MIB], [MIB] * 4, [MIB - 1, MIB, 1]], ids=["one", "four", "mix"])
def test_a_fragment_of_1_mib_is_accepted(sizes: list[int]) -> None:
    """The bound itself is legal."""
    tensor = accepted("fragments of 1 MiB", lambda: codec.decode_tensor(zeros_in(sizes)))
    if tensor.data != bytes(sum(sizes)):
        raise Nonconformance(f"{sum(sizes)} zeros", f"{len(tensor.data)} other bytes")


@pytest.mark.requirement("CODEC-08")
@pytest.mark.parametrize("fragment_bytes", [0, -1, MIB + 1, 2**31])
def test_the_encoder_refuses_a_fragment_size_out_of_bounds(fragment_bytes: int) -> None:
    """What no receiver may accept is not sent."""
    tensor = Tensor("hidden_states", DType.UINT8, (4,), b"abcd")
    refused(
        f"a fragment size of {fragment_bytes}",
        lambda: codec.encode_tensor(tensor, fragment_bytes=fragment_bytes),
    )


@pytest.mark.requirement("CODEC-08")
@pytest.mark.parametrize("size", [65, 640])
def test_the_encoder_refuses_to_cut_into_more_than_64(size: int) -> None:
    """A fragment size that is legal by itself may be too small for the tensor."""
    tensor = Tensor("hidden_states", DType.UINT8, (size,), patterned(size))
    fragment_bytes = size // 65
    try:
        message = codec.encode_tensor(tensor, fragment_bytes=fragment_bytes)
    except ProtocolError:
        return
    raise Nonconformance("refused", f"{len(message.fragments)} fragments")
