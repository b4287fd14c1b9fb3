"""Conversions between numpy arrays and the bytes of a tensor."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import strategies as st

from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.tests.protocol.laws import law

FLOATS = (DType.BFLOAT16, DType.FLOAT16, DType.FLOAT32)
INTEGERS = (DType.INT32, DType.INT64, DType.UINT8, DType.INT8, DType.BOOL)

# Signs, exponents and mantissas all come up: any 32 bits are a float32.
any_float32 = st.integers(0, 2**32 - 1).map(
    lambda bits: struct.unpack("<f", struct.pack("<I", bits))[0]
)


def _bf16(value: float) -> int:
    """The bits that a float32 is encoded to as bfloat16."""
    array = np.array([value], dtype=np.float32)
    return int.from_bytes(Tensor.from_float32("x", array, DType.BFLOAT16).data, "little")


def _value(bits: int) -> float:
    """What bfloat16 bits mean: they are the upper half of a float32."""
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


def _nearest_even(value: float) -> int:
    """The bfloat16 nearest to a finite float32, in rationals and by comparing neighbours.

    Beyond the largest finite value the next step would be 2^128, which rounds to infinity.
    """
    exact = abs(Fraction(value))
    low, high = 0, 0x7F80
    while high - low > 1:  # Magnitudes rise with their bits.
        middle = (low + high) // 2
        if Fraction(_value(middle)) <= exact:
            low = middle
        else:
            high = middle
    above = Fraction(2) ** 128 if high == 0x7F80 else Fraction(_value(high))
    below = Fraction(_value(low))
    if exact - below == above - exact:
        rounded = low if low % 2 == 0 else high
    else:
        rounded = low if exact - below < above - exact else high
    return rounded | (0x8000 if math.copysign(1.0, value) < 0 else 0)


@law(value=any_float32.filter(math.isfinite))
def test_bfloat16_rounds_to_the_nearest_and_ties_to_even(value):
    assert _bf16(value) == _nearest_even(value)


@law(upper=st.integers(0, 0x7F7F), sign=st.sampled_from([0, 0x8000]))
def test_a_tie_goes_to_the_even_neighbour(upper, sign):
    tie = struct.unpack("<f", struct.pack("<I", (upper | sign) << 16 | 0x8000))[0]
    assert _bf16(tie) == (upper + upper % 2) | sign


@law(upper=st.integers(0, 0x7F7F), sign=st.sampled_from([0, 0x8000]))
def test_just_beside_a_tie_the_nearer_neighbour_wins(upper, sign):
    for lower, expected in ((0x7FFF, upper), (0x8001, upper + 1)):
        value = struct.unpack("<f", struct.pack("<I", (upper | sign) << 16 | lower))[0]
        assert _bf16(value) == expected | sign


@pytest.mark.parametrize(
    ("value", "bits"),
    [
        (0.0, 0x0000),
        (-0.0, 0x8000),
        (1.0, 0x3F80),
        (1.00390625, 0x3F80),  # 1 + 2^-8: half way, and 1.0 is even
        (1.01171875, 0x3F82),  # 1 + 3 * 2^-8: half way, and the upper neighbour is even
        (3.4028234663852886e38, 0x7F80),  # the largest float32 rounds to infinity
        (3.3895313892515355e38, 0x7F7F),  # the largest bfloat16 stays
        (math.inf, 0x7F80),
        (-math.inf, 0xFF80),
        (1e-45, 0x0000),  # the smallest subnormal float32
    ],
)
def test_known_values_have_known_bits(value, bits):
    assert _bf16(value) == bits


@law(bits=st.integers(0x7F800001, 0x7FFFFFFF), sign=st.sampled_from([0, 2**31]))
def test_a_nan_stays_a_nan_of_its_sign(bits, sign):
    array = np.array([bits | sign], dtype="<u4").view("<f4")
    tensor = Tensor.from_float32("x", array, DType.BFLOAT16)
    assert np.isnan(tensor.to_float32()).all()
    assert int.from_bytes(tensor.data, "little") & 0x8000 == sign >> 16


@law(bits=st.lists(st.integers(0, 0xFFFF), max_size=20))
def test_bfloat16_comes_back_as_the_exact_float32(bits):
    data = np.array(bits, dtype="<u2").tobytes()
    values = Tensor("x", DType.BFLOAT16, (len(bits),), data).to_float32()
    assert values.dtype == np.float32
    assert [value.tobytes() for value in values] == [struct.pack("<I", one << 16) for one in bits]


@law(value=any_float32.filter(lambda value: not math.isnan(value)))
def test_float16_agrees_with_the_rounding_of_python(value):
    tensor = Tensor.from_float32("x", np.array([value], dtype=np.float32), DType.FLOAT16)
    try:
        expected = struct.pack("<e", value)
    except OverflowError:
        expected = struct.pack("<e", math.copysign(math.inf, value))
    assert tensor.data == expected


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3,), (1, 0, 8), (1, 5, 3), (2,) * 8], ids=str)
def test_values_that_a_float_dtype_holds_come_back(dtype, shape):
    array = np.arange(math.prod(shape), dtype=np.float32).reshape(shape) - 4
    tensor = Tensor.from_float32("x", array, dtype)
    assert tensor.shape == shape
    assert len(tensor.data) == tensor.size == math.prod(shape) * dtype.item_size
    back = tensor.to_float32()
    assert back.shape == shape
    assert back.dtype == np.float32
    assert (back == array).all()


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("shape", [(), (0,), (1, 3), (1, 0), (2,) * 8], ids=str)
def test_integers_come_back_in_their_own_dtype(dtype, shape):
    array = np.arange(math.prod(shape)).reshape(shape) % 2
    tensor = Tensor.from_array("x", array, dtype)
    back = tensor.to_array()
    assert len(tensor.data) == tensor.size
    assert (back.shape, back.dtype.name) == (shape, dtype.name.lower())
    assert (back == array).all()


def test_bytes_are_little_endian_and_row_major():
    array = np.array([[1, 2], [3, 256]])
    assert Tensor.from_array("x", array, DType.INT32).data == struct.pack("<4i", 1, 2, 3, 256)
    assert Tensor.from_array("x", array, DType.INT64).data == struct.pack("<4q", 1, 2, 3, 256)
    floats = array.astype(np.float32)
    assert Tensor.from_float32("x", floats, DType.FLOAT32).data == struct.pack("<4f", 1, 2, 3, 256)
    assert Tensor.from_float32("x", floats, DType.BFLOAT16).data == bytes.fromhex(
        "803f004040408043"
    )


@pytest.mark.parametrize("dtype", FLOATS)
def test_an_array_in_any_layout_is_read_by_its_elements(dtype):
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    expected = Tensor.from_float32("x", array.T.copy(), dtype)
    assert Tensor.from_float32("x", array.T, dtype) == expected
    assert Tensor.from_float32("x", array.T.astype(">f4"), dtype) == expected


@pytest.mark.parametrize("dtype", INTEGERS)
def test_only_float_dtypes_take_floats(dtype):
    with pytest.raises(ValueError, match="is not a floating-point dtype"):
        Tensor.from_float32("x", np.zeros(2, dtype=np.float32), dtype)


def test_bfloat16_is_not_a_plain_conversion():
    with pytest.raises(ValueError, match="use from_float32"):
        Tensor.from_array("x", np.zeros(2), DType.BFLOAT16)


@pytest.mark.parametrize("dtype", DType)
def test_a_dtype_is_found_by_its_name_and_has_its_size(dtype):
    sizes = {"BFLOAT16": 2, "FLOAT16": 2, "FLOAT32": 4, "INT32": 4, "INT64": 8}
    assert DType.parse(dtype.name.lower()) is dtype
    assert dtype.item_size == sizes.get(dtype.name, 1)
    assert dtype.is_float == ("FLOAT" in dtype.name)


def test_an_unknown_dtype_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="'float8': use one of bfloat16, float16, "):
        DType.parse("float8")


@pytest.mark.parametrize("dtype", DType)
def test_rows_are_those_of_the_tokens(dtype):
    data = bytes(range(1, 1 + 5 * 3 * dtype.item_size)) * 1
    tensor = Tensor("x", dtype, (1, 5, 3), data)
    row = 3 * dtype.item_size
    assert tensor.rows(1, 3) == Tensor("x", dtype, (1, 2, 3), data[row : 3 * row])
    assert tensor.rows(0, 5) == tensor
    assert tensor.rows(4, 4) == Tensor("x", dtype, (1, 0, 3), b"")
    ids = Tensor("token_ids", DType.INT32, (1, 5), bytes(range(20)))
    assert ids.rows(2, 4) == Tensor("token_ids", DType.INT32, (1, 2), bytes(range(8, 16)))
