"""What the codec does beyond its requirements: rule names, brief messages, encodes that decode."""

from __future__ import annotations

import zlib

import pytest
import zstandard
from hypothesis import strategies as st

from pytest_meshnet.protocol import codec, compression
from pytest_meshnet.protocol.errors import PayloadCorrupt, ProtocolError
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.tests.protocol.laws import law

MIB = 1024 * 1024
ZSTD = pb.COMPRESSION_ZSTD


def _bytes(name, data, shape=None):
    return Tensor(name, DType.UINT8, (len(data),) if shape is None else shape, data)


def _rule(call):
    with pytest.raises(ProtocolError) as found:
        call()
    assert len(str(found.value)) < 300, "a stranger's name or value fills the message"
    assert "\n" not in str(found.value)
    return found.value.rule


def _incompressible(size):
    """Bytes that zstd can only store: a chain of checksums."""
    pieces, state = [], 1
    for _ in range(size // 4):
        state = zlib.crc32(state.to_bytes(4, "little"))
        pieces.append(state.to_bytes(4, "little"))
    return b"".join(pieces)


# Messages stay brief and name their rule ---------------------------------------------------------

LONG = "n" * 100_000


@pytest.mark.parametrize("shape", [[1] * 9, [-1], [2**31], [2**30] * 3], ids=str)
def test_a_refused_shape_is_told_without_all_of_a_long_name(shape):
    message = codec.encode_tensor(_bytes(LONG, b"x"))
    message.shape[:] = shape
    assert _rule(lambda: codec.decode_tensor(message)) in ("rank", "dimension")


def test_a_repeated_name_is_told_without_all_of_it():
    tensors = [codec.encode_tensor(_bytes(LONG, b"x"))] * 2
    bundle = pb.TensorBundle(bundle_version=1, tensors=tensors)
    assert _rule(lambda: codec.decode_bundle(bundle)) == "duplicate-name"
    assert _rule(lambda: codec.encode_bundle([_bytes(LONG, b"x")] * 2)) == "duplicate-name"


def test_a_checksum_of_any_length_is_told_briefly():
    message = codec.encode_tensor(_bytes("x", b"x"))
    message.checksum.value = bytes(100_000)
    assert _rule(lambda: codec.decode_tensor(message)) == "checksum"


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("name", "", "tensor-name"),
        ("dtype", 0, "dtype"),
        ("byte_order", 2, "byte-order"),
        ("compression", 0, "compression"),
        ("total_bytes", 7, "total-bytes"),
    ],
)
def test_a_refusal_names_its_rule(field, value, rule):
    message = codec.encode_tensor(_bytes("x", b"abcdefgh"))
    setattr(message, field, value)
    assert _rule(lambda: codec.decode_tensor(message)) == rule


def test_a_name_that_no_message_can_carry_is_refused_by_protobuf():
    with pytest.raises(ValueError, match="surrogates"):
        codec.encode_tensor(_bytes("\ud800", b"x"))


# What is encoded can be decoded ------------------------------------------------------------------


@pytest.mark.parametrize("packed", [False, True])
def test_a_tensor_above_the_largest_chunk_is_not_encoded(packed):
    kind = ZSTD if packed else pb.COMPRESSION_NONE
    codec.encode_tensor(_bytes("x", bytes(4 * MIB)), compression=kind)
    oversized = _bytes("x", bytes(4 * MIB + 1))
    assert _rule(lambda: codec.encode_tensor(oversized, compression=kind)) == "tensor-bytes"


def test_a_tensor_that_compression_makes_too_large_is_not_encoded():
    data = _incompressible(4 * MIB)
    assert len(zstandard.compress(data)) > 4 * MIB
    assert _rule(lambda: codec.encode_tensor(_bytes("x", data), compression=ZSTD)) == "tensor-bytes"
    codec.encode_tensor(_bytes("x", data))


def test_a_bundle_is_bounded_on_the_wire_as_well_as_in_memory():
    half = _incompressible(2 * MIB)
    tensors = [_bytes("a", half), _bytes("b", half)]
    assert codec.decode_bundle(codec.encode_bundle(tensors)) == tuple(tensors)
    assert _rule(lambda: codec.encode_bundle(tensors, compression=ZSTD)) == "tensor-bytes"
    zeros = [_bytes(name, bytes(3 * MIB)) for name in "ab"]
    assert _rule(lambda: codec.encode_bundle(zeros, compression=ZSTD)) == "bundle-bytes"


@law(
    sizes=st.lists(st.integers(0, 300), max_size=8),
    kind=st.sampled_from([pb.COMPRESSION_NONE, ZSTD]),
    fragment_bytes=st.integers(8, 400),
)
def test_whatever_is_encoded_is_decoded(sizes, kind, fragment_bytes):
    tensors = tuple(_bytes(f"t{n}", bytes(range(256))[:1] * n) for n in set(sizes))
    bundle = codec.encode_bundle(tensors, compression=kind, fragment_bytes=fragment_bytes)
    parsed = pb.TensorBundle.FromString(bundle.SerializeToString())
    assert codec.decode_bundle(parsed) == tensors


def test_tensors_may_come_from_a_generator():
    tensors = [_bytes("a", b"1"), _bytes("b", b"2")]
    assert codec.encode_bundle(one for one in tensors) == codec.encode_bundle(tensors)


def test_a_bundle_of_too_many_is_refused_before_one_is_encoded(monkeypatch):
    monkeypatch.setattr(codec, "_encode", None)
    tensors = [_bytes(f"t{index}", b"x") for index in range(65)]
    assert _rule(lambda: codec.encode_bundle(tensors)) == "tensor-count"


@pytest.mark.parametrize("data", [b"123456789", bytearray(b"123456789"), memoryview(b"123456789")])
def test_a_checksum_is_that_of_the_bytes_in_any_buffer(data):
    assert codec.crc32c(data).hex() == "e3069283"


# zstd --------------------------------------------------------------------------------------------


@law(data=st.binary(max_size=400), level=st.integers(1, 19))
def test_a_compressed_body_expands_to_itself(data, level):
    assert compression.decompress(compression.compress(data, level), len(data)) == data


def test_a_frame_whose_blocks_end_before_its_data_is_walked_over_and_not_expanded():
    frame = zstandard.compress(bytes(1_000_000))
    for size in (1, 999_999, 1_000_001):
        with pytest.raises(PayloadCorrupt, match="promises 1000000 bytes") as found:
            compression.decompress(frame, size)
        assert found.value.rule == "zstd-size"


@pytest.mark.parametrize(
    ("spoil", "rule"),
    [
        (lambda frame: b"", "zstd-frame"),
        (lambda frame: frame[:5], "zstd-frame"),
        (lambda frame: b"\x50\x2a\x4d\x18" + frame[4:], "zstd-frame"),
        (lambda frame: frame[:-1], "zstd-truncated"),
        (lambda frame: frame + b"\x00", "zstd-trailing"),
    ],
    ids=["empty", "header only", "skippable", "truncated", "trailing"],
)
def test_a_spoiled_frame_names_its_rule(spoil, rule):
    frame = spoil(zstandard.compress(b"abcdefgh" * 10))
    assert _rule(lambda: compression.decompress(frame, 80)) == rule


def test_a_window_above_eight_mebibytes_is_uninterpretable_and_not_corrupt():
    header = bytes.fromhex("28b52ffd") + bytes([0, (24 - 10) << 3])
    with pytest.raises(ProtocolError, match="at most 8388608") as found:
        compression.decompress(header + b"\x09\x00\x00x", 1)
    assert not isinstance(found.value, PayloadCorrupt)
    assert found.value.rule == "zstd-window"
