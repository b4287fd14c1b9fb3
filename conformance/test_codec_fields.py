"""CODEC-04, 06 and 07: the fields of a tensor agree with each other, and each is understood."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_meshnet.protocol import codec
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.runtime.errors import Nonconformance

from .codec_cases import (
    AGREEING,
    AGREEING_PACKED,
    AGREEING_PLAIN,
    DISAGREEMENTS,
    NO_MEANING,
    set_field,
    set_payload,
    set_shape,
)
from .codec_inputs import (
    ITEM_SIZES,
    NUMBERS,
    accepted,
    corrupt,
    edited,
    patterned,
    refused,
    same_tensor,
    shapes,
    written,
)

both_bodies = pytest.mark.parametrize(
    "right", [AGREEING_PLAIN, AGREEING_PACKED], ids=["plain", "compressed"]
)


def _check_refused(what: str, right: pb.NamedTensor, edit: Callable[[pb.NamedTensor], None]):
    message = edited(right, edit)
    return refused(what, lambda: codec.decode_tensor(message))


# CODEC-04: shape, dtype, total_bytes and payload ------------------------------------------------


@pytest.mark.requirement("CODEC-04")
@both_bodies
@pytest.mark.parametrize("edit", DISAGREEMENTS.values(), ids=DISAGREEMENTS)
def test_a_tensor_that_disagrees_with_itself_is_refused(
    right: pb.NamedTensor, edit: Callable[[pb.NamedTensor], None]
) -> None:
    """One of four things that say the same is changed; no checksum stands behind them."""
    message = edited(right, edit)
    corrupt("a tensor of 96 bytes so changed", lambda: codec.decode_tensor(message))


@pytest.mark.requirement("CODEC-04")
@both_bodies
@pytest.mark.parametrize("size", [95, 97, 0, 192])
def test_total_bytes_and_payload_that_agree_do_not_outvote_the_shape(
    right: pb.NamedTensor, size: int
) -> None:
    """Two against one is still a tensor that does not add up."""
    message = edited(right, set_payload(patterned(size)))
    message.total_bytes = size
    corrupt(f"{size} bytes in the shape of 96", lambda: codec.decode_tensor(message))


@pytest.mark.requirement("CODEC-04")
@both_bodies
@pytest.mark.parametrize("rows", [1, 3])
def test_total_bytes_and_shape_that_agree_do_not_outvote_the_payload(
    right: pb.NamedTensor, rows: int
) -> None:
    """Nor do they here."""
    message = edited(right, set_shape(rows, 3, 8))
    message.total_bytes = 48 * rows
    corrupt(f"96 bytes in the shape of {48 * rows}", lambda: codec.decode_tensor(message))


@pytest.mark.requirement("CODEC-04")
@given(shape=shapes(), dtype=st.sampled_from(sorted(ITEM_SIZES)), change=st.integers(-9, 9))
@settings(max_examples=100)
def test_the_encoder_refuses_data_of_another_size(
    shape: tuple[int, ...], dtype: str, change: int
) -> None:
    """Any shape and dtype, with data a little too long or too short for them."""
    size = prod(shape) * ITEM_SIZES[dtype]
    data = patterned(max(0, size + change))
    tensor = Tensor("hidden_states", DType(NUMBERS[dtype]), shape, data)
    if len(data) == size:
        message = accepted(f"{size} bytes", lambda: codec.encode_tensor(tensor))
        if message.total_bytes != size:
            raise Nonconformance(f"total_bytes {size}", f"{message.total_bytes}")
    else:
        corrupt(f"{len(data)} bytes in {shape} {dtype}", lambda: codec.encode_tensor(tensor))


@pytest.mark.requirement("CODEC-04")
@given(shape=shapes(), other=shapes(), dtype=st.sampled_from(sorted(ITEM_SIZES)))
@settings(max_examples=100)
def test_any_other_shape_needs_the_same_number_of_elements(
    shape: tuple[int, ...], other: tuple[int, ...], dtype: str
) -> None:
    """A reshape of equal size adds up, and no other does."""
    message = written(patterned(prod(shape) * ITEM_SIZES[dtype]), shape=other, dtype=dtype)
    if prod(shape) == prod(other):
        accepted(f"{other} for {shape}", lambda: codec.decode_tensor(message))
    else:
        corrupt(f"{other} for {shape}", lambda: codec.decode_tensor(message))


# CODEC-06: byte order ---------------------------------------------------------------------------


@pytest.mark.requirement("CODEC-06")
@both_bodies
def test_big_endian_is_refused_by_name(right: pb.NamedTensor) -> None:
    """The schema can say it, so that a receiver can say what it does not take."""
    error = _check_refused("big-endian", right, set_field("byte_order", pb.BYTE_ORDER_BIG_ENDIAN))
    if "big-endian" not in str(error).lower():
        raise Nonconformance("a message that names big-endian", str(error))


@pytest.mark.requirement("CODEC-06")
@both_bodies
@pytest.mark.parametrize("order", [0, 3, 99, -1])
def test_an_unspecified_byte_order_is_refused(right: pb.NamedTensor, order: int) -> None:
    """A default would be a guess about every element."""
    _check_refused(f"byte order {order}", right, set_field("byte_order", order))


@pytest.mark.requirement("CODEC-06")
def test_an_empty_tensor_needs_a_byte_order_too() -> None:
    """No element would show the mistake; the next tensor will have some."""
    for order in (pb.BYTE_ORDER_UNSPECIFIED, pb.BYTE_ORDER_BIG_ENDIAN):
        message = written(b"")
        message.byte_order = order
        refused(f"byte order {order}", lambda message=message: codec.decode_tensor(message))


# CODEC-07: enums --------------------------------------------------------------------------------


@pytest.mark.requirement("CODEC-07")
@pytest.mark.parametrize("value", [*NO_MEANING, 9])
def test_a_dtype_without_meaning_is_refused(value: int) -> None:
    """Sixteen bytes of type 0xFFFF once killed a worker; size 0 for it would divide by zero."""
    for size in (0, 16):
        message = written(patterned(size), shape=[size])
        message.dtype = value
        what = f"dtype {value}, {size} bytes"
        refused(what, lambda message=message: codec.decode_tensor(message))


@pytest.mark.requirement("CODEC-07")
@both_bodies
@pytest.mark.parametrize("value", [*NO_MEANING, 3])
def test_a_compression_without_meaning_is_refused(right: pb.NamedTensor, value: int) -> None:
    """Unset is not NONE, and an unknown one is not what the bytes happen to look like."""
    _check_refused(f"compression {value}", right, set_field("compression", value))


@pytest.mark.requirement("CODEC-07")
@pytest.mark.parametrize("value", [*NO_MEANING, 3])
@pytest.mark.parametrize("checksum", [True, False], ids=["right-value", "no-value"])
def test_a_checksum_algorithm_without_meaning_is_refused(value: int, checksum: bool) -> None:
    """Unset is not NONE; an unknown one cannot be checked, whatever its value is."""
    message = written(AGREEING, checksum=checksum)
    message.checksum.algorithm = value
    refused(f"checksum algorithm {value}", lambda: codec.decode_tensor(message))


@pytest.mark.requirement("CODEC-07")
def test_a_tensor_without_a_checksum_message_is_refused() -> None:
    """Leaving it out is leaving the algorithm unspecified."""
    message = written(AGREEING)
    message.ClearField("checksum")
    refused("a tensor without checksum", lambda: codec.decode_tensor(message))


@pytest.mark.requirement("CODEC-07")
@both_bodies
def test_checksum_none_is_legal(right: pb.NamedTensor) -> None:
    """It skips the checksum and nothing else: the other rules still hold."""
    expected = Tensor("hidden_states", DType.BFLOAT16, (2, 3, 8), AGREEING)
    tensor = accepted("checksum NONE", lambda: codec.decode_tensor(right))
    same_tensor(expected, tensor)
    sent = codec.encode_tensor(expected, checksum=pb.CHECKSUM_ALGORITHM_NONE)
    if sent.checksum.algorithm != pb.CHECKSUM_ALGORITHM_NONE or sent.checksum.value:
        raise Nonconformance("algorithm NONE without a value", f"{sent.checksum}")
    shifted = edited(right, lambda message: setattr(message.fragments[0], "byte_offset", 1))
    corrupt("a shifted fragment under NONE", lambda: codec.decode_tensor(shifted))


@pytest.mark.requirement("CODEC-07")
@pytest.mark.parametrize("version", [0, 2, 3, 2**32 - 1])
def test_a_bundle_version_without_meaning_is_refused(version: int) -> None:
    """0 is a sender that set none; 2 may mean anything."""
    for tensors in ([], [AGREEING_PLAIN]):
        bundle = pb.TensorBundle(bundle_version=version, tensors=tensors)
        refused(f"bundle version {version}", lambda bundle=bundle: codec.decode_bundle(bundle))


@pytest.mark.requirement("CODEC-07")
@pytest.mark.parametrize("option", ["compression", "checksum"])
@pytest.mark.parametrize("value", [*NO_MEANING, 3])
def test_the_encoder_refuses_an_option_without_meaning(option: str, value: int) -> None:
    """What no receiver may accept is not sent."""
    tensor = Tensor("hidden_states", DType.BFLOAT16, (2, 3, 8), AGREEING)
    refused(f"{option} {value}", lambda: codec.encode_tensor(tensor, **{option: value}))
