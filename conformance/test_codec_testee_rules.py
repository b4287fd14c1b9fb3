"""CODEC-04 to 07 on the runtime's own codec: fields that agree, shapes within bounds, and enums."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.runtime.codec_testee import CodecTestee
from pytest_meshnet.runtime.errors import Nonconformance

from .codec_cases import (
    AGREEING,
    AGREEING_PACKED,
    AGREEING_PLAIN,
    DISAGREEMENTS,
    NO_MEANING,
    set_field,
)
from .codec_inputs import ITEM_SIZES, MIB, edited, patterned, written
from .testee_asking import (
    bundled,
    check_refused,
    decoded,
    encode_request,
    result_of,
    tensors_request,
)
from .testee_memory import peak_within

both_bodies = pytest.mark.parametrize(
    "right", [AGREEING_PLAIN, AGREEING_PACKED], ids=["plain", "compressed"]
)
LARGEST = 2**31 - 1

# What a refusal may cost a runtime in memory: nothing that a header only promises.
PEAK = 64 * MIB


def _check_edit(
    codec_testee: CodecTestee,
    right: pb.NamedTensor,
    edit: Callable[[pb.NamedTensor], None],
    what: str,
    rule: str,
) -> None:
    """Require that a right tensor is read, and refused once edited."""
    decoded(codec_testee, "the right tensor", bundled(right))
    check_refused(codec_testee, what, tensors_request(bundled(edited(right, edit))), rule)


# CODEC-04 ---------------------------------------------------------------------------------------


@pytest.mark.requirement("CODEC-04")
@both_bodies
@pytest.mark.parametrize("edit", DISAGREEMENTS.values(), ids=DISAGREEMENTS)
def test_a_tensor_that_disagrees_with_itself_is_refused(
    codec_testee: CodecTestee, right: pb.NamedTensor, edit: Callable[[pb.NamedTensor], None]
) -> None:
    """One of four things that say the same is changed; no checksum stands behind them."""
    _check_edit(codec_testee, right, edit, "a tensor of 96 bytes so changed", "total-bytes")


@pytest.mark.requirement("CODEC-04")
@pytest.mark.parametrize("dtype", ["UINT8", "BFLOAT16", "INT64"])
@pytest.mark.parametrize("change", [-1, 1, -8, 8])
def test_the_encoder_refuses_data_of_another_size(
    codec_testee: CodecTestee, dtype: str, change: int
) -> None:
    """Data a little too short or too long for their shape."""
    right = patterned(24 * ITEM_SIZES[dtype])
    tensor = Tensor("hidden_states", DType[dtype], (2, 3, 4), right)
    result_of(codec_testee, "the right size", encode_request([tensor]))
    data = right[:change] if change < 0 else right + bytes(change)
    wrong = Tensor("hidden_states", DType[dtype], (2, 3, 4), data)
    what = f"{len(data)} bytes in [2, 3, 4] {dtype}"
    check_refused(codec_testee, what, encode_request([wrong]), "total-bytes")


# CODEC-05 ---------------------------------------------------------------------------------------

OUT_OF_BOUNDS = {
    "rank-9": [1] * 9,
    "rank-64": [1] * 64,
    "rank-100000": [1] * 100_000,
    "minus-1": [1, -1, 1],
    "two-negatives": [-2, -2],
    "smallest": [-(2**63), 1],
    "2^31": [2**31],
    "2^31-beside-0": [0, 2**31],
    "2^32": [1, 2**32],
    "2^63-1": [2**63 - 1],
    "2^64-elements": [2**30, 2**30, 2**4],
    "2^64-bytes": [2**30, 2**30, 2],
    "2^63-bytes": [2**20, 2**20, 2**20],
    "eight-largest": [LARGEST] * 8,
}


def _promising(shape: Sequence[int]) -> pb.NamedTensor:
    """An int64 tensor that promises what its shape does as far as 64 bits reach."""
    message = written(b"", shape=shape, dtype="INT64", checksum=False)
    size = 8
    for dimension in shape:
        size = size * dimension % 2**64
    message.total_bytes = size
    return message


@pytest.mark.requirement("CODEC-05")
@pytest.mark.parametrize("shape", OUT_OF_BOUNDS.values(), ids=OUT_OF_BOUNDS)
def test_a_shape_out_of_bounds_is_refused_before_any_allocation(
    codec_testee: CodecTestee, shape: list[int]
) -> None:
    """total_bytes is what is left of the product in 64 bits, so that only the bound tells."""
    request = tensors_request(bundled(_promising(shape)))
    with peak_within(codec_testee, PEAK):
        check_refused(codec_testee, f"the shape {str(shape)[:60]}", request, "dimension")


@pytest.mark.requirement("CODEC-05")
@pytest.mark.parametrize("shape", [(-2, -2), (-1, 4, -1), (1,) * 9 + (4,)], ids=str)
def test_a_shape_out_of_bounds_is_refused_although_its_payload_fits(
    codec_testee: CodecTestee, shape: tuple[int, ...]
) -> None:
    """Four elements, whichever way they are counted: signs cancel, and ones change nothing."""
    data = patterned(32)
    decoded(codec_testee, "the shape (4,)", bundled(written(data, shape=[4], dtype="INT64")))
    request = tensors_request(bundled(written(data, shape=shape, dtype="INT64")))
    check_refused(codec_testee, f"the shape {shape}", request, "dimension")


@pytest.mark.requirement("CODEC-05")
@pytest.mark.parametrize("shape", [(1,) * 9, (-1, 8), (2**31,), (0, 2**31)], ids=str)
def test_the_encoder_refuses_such_shapes_too(
    codec_testee: CodecTestee, shape: tuple[int, ...]
) -> None:
    """What no receiver may accept is not sent."""
    tensor = Tensor("hidden_states", DType.INT64, shape, bytes(8) if 0 not in shape else b"")
    check_refused(codec_testee, f"the shape {shape}", encode_request([tensor]), "dimension")


@pytest.mark.requirement("CODEC-05")
@pytest.mark.parametrize("shape", [(1,) * 8, (0, LARGEST), (1, 1, 1, 1, 1, 1, 1, 64)], ids=str)
def test_the_bounds_themselves_are_legal(codec_testee: CodecTestee, shape: tuple[int, ...]) -> None:
    """Rank 8, and a dimension of 2^31-1 in an empty tensor."""
    message = written(patterned(0 if 0 in shape else shape[-1]), shape=shape)
    (found,) = decoded(codec_testee, f"the shape {shape}", bundled(message))
    if found.shape != shape:
        raise Nonconformance(f"{shape}", f"{found.shape}")


# CODEC-06 and 07 --------------------------------------------------------------------------------


@pytest.mark.requirement("CODEC-06")
@both_bodies
@pytest.mark.parametrize("order", [0, pb.BYTE_ORDER_BIG_ENDIAN, 3, 99, -1])
def test_any_byte_order_but_little_endian_is_refused(
    codec_testee: CodecTestee, right: pb.NamedTensor, order: int
) -> None:
    """Big-endian, unspecified, unknown."""
    edit = set_field("byte_order", order)
    _check_edit(codec_testee, right, edit, f"byte order {order}", "byte-order")


@pytest.mark.requirement("CODEC-06")
@pytest.mark.parametrize("order", [0, pb.BYTE_ORDER_BIG_ENDIAN])
def test_an_empty_tensor_needs_a_byte_order_too(codec_testee: CodecTestee, order: int) -> None:
    """No element would show the mistake; the next tensor will have some."""
    edit = set_field("byte_order", order)
    _check_edit(codec_testee, written(b""), edit, f"byte order {order}", "byte-order")


@pytest.mark.requirement("CODEC-07")
@both_bodies
@pytest.mark.parametrize("value", [*NO_MEANING, 3])
def test_a_compression_without_meaning_is_refused(
    codec_testee: CodecTestee, right: pb.NamedTensor, value: int
) -> None:
    """Unset is not NONE, and an unknown one is not what the bytes happen to look like."""
    edit = set_field("compression", value)
    _check_edit(codec_testee, right, edit, f"compression {value}", "compression")


@pytest.mark.requirement("CODEC-07")
@pytest.mark.parametrize("value", [*NO_MEANING, 9])
@pytest.mark.parametrize("size", [0, 16])
def test_a_dtype_without_meaning_is_refused(
    codec_testee: CodecTestee, value: int, size: int
) -> None:
    """Sixteen bytes of type 0xFFFF once killed a worker; of one byte an element they would fit."""
    edit = set_field("dtype", value)
    _check_edit(codec_testee, written(patterned(size)), edit, f"dtype {value}", "dtype")


@pytest.mark.requirement("CODEC-07")
@pytest.mark.parametrize("value", [*NO_MEANING, 3])
@pytest.mark.parametrize("checksum", [True, False], ids=["right-value", "no-value"])
def test_a_checksum_algorithm_without_meaning_is_refused(
    codec_testee: CodecTestee, value: int, checksum: bool
) -> None:
    """Unset is not NONE; an unknown one cannot be checked, whatever its value is."""

    def edit(message: pb.NamedTensor) -> None:
        message.checksum.algorithm = value

    right = written(AGREEING, checksum=checksum)
    _check_edit(codec_testee, right, edit, f"algorithm {value}", "checksum-algorithm")


@pytest.mark.requirement("CODEC-07")
def test_a_tensor_without_a_checksum_message_is_refused(codec_testee: CodecTestee) -> None:
    """Leaving it out is leaving the algorithm unspecified."""

    def edit(message: pb.NamedTensor) -> None:
        message.ClearField("checksum")

    _check_edit(codec_testee, written(AGREEING), edit, "no checksum", "checksum-algorithm")


@pytest.mark.requirement("CODEC-07")
@pytest.mark.parametrize("version", [0, 2, 3, 2**32 - 1])
def test_a_bundle_version_without_meaning_is_refused(
    codec_testee: CodecTestee, version: int
) -> None:
    """0 is a sender that set none; 2 may mean anything."""
    for tensors in ([], [AGREEING_PLAIN]):
        bundle = pb.TensorBundle(bundle_version=version, tensors=tensors)
        request = tensors_request(bundle.SerializeToString())
        check_refused(codec_testee, f"bundle version {version}", request, "bundle-version")


@pytest.mark.requirement("CODEC-07")
@both_bodies
def test_checksum_none_is_legal(codec_testee: CodecTestee, right: pb.NamedTensor) -> None:
    """It skips the checksum and nothing else, and it is what an encoder may be asked for."""
    (found,) = decoded(codec_testee, "checksum NONE", bundled(right))
    if found.data != AGREEING:
        raise Nonconformance(AGREEING.hex(), bytes(found.data).hex())
    none = pb.CHECKSUM_ALGORITHM_NONE
    result = result_of(codec_testee, "checksum NONE", encode_request([found], checksum=none))
    told = pb.TensorBundle.FromString(result.data).tensors[0].checksum
    if told.algorithm != none or told.value:
        raise Nonconformance("algorithm NONE without a value", f"{told}")


@pytest.mark.requirement("CODEC-07")
@pytest.mark.parametrize("option", ["compression", "checksum"])
@pytest.mark.parametrize("value", [0, 3, 99])
def test_the_encoder_refuses_an_option_without_meaning(
    codec_testee: CodecTestee, option: str, value: int
) -> None:
    """What no receiver may accept is not sent."""
    tensor = Tensor("hidden_states", DType.BFLOAT16, (2, 3, 8), AGREEING)
    rule = "compression" if option == "compression" else "checksum-algorithm"
    request = encode_request([tensor], **{option: value})
    check_refused(codec_testee, f"{option} {value}", request, rule)
