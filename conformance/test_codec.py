"""CODEC-01 and 02: what was sent is what arrives, and a checksum that says so."""

from __future__ import annotations

import zlib
from math import prod

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_meshnet.protocol import codec
from pytest_meshnet.protocol.errors import ProtocolError
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.runtime.errors import Nonconformance

from .codec_inputs import (
    ITEM_SIZES,
    MAX_CHUNK,
    MIB,
    NUMBERS,
    accepted,
    corrupt,
    crc32c,
    edited,
    patterned,
    same_tensor,
    tensors,
    written,
)

COMPRESSIONS = [pb.COMPRESSION_NONE, pb.COMPRESSION_ZSTD]
CHECKSUMS = [pb.CHECKSUM_ALGORITHM_NONE, pb.CHECKSUM_ALGORITHM_CRC32C]
both_compressions = pytest.mark.parametrize("compression", COMPRESSIONS, ids=["none", "zstd"])


def _over_the_wire(
    tensor: Tensor,
    fragment_bytes: int = MIB,
    compression: int = pb.COMPRESSION_NONE,
    checksum: int = pb.CHECKSUM_ALGORITHM_CRC32C,
) -> Tensor:
    """Encode, serialize, parse, decode."""

    def trip() -> Tensor:
        message = codec.encode_tensor(
            tensor, compression=compression, checksum=checksum, fragment_bytes=fragment_bytes
        )
        return codec.decode_tensor(pb.NamedTensor.FromString(message.SerializeToString()))

    return accepted(f"{tensor.dtype.name} {tensor.shape} at {fragment_bytes}", trip)


# CODEC-01: round trip ---------------------------------------------------------------------------


@pytest.mark.requirement("CODEC-01")
@pytest.mark.parametrize("dtype", ITEM_SIZES)
@both_compressions
def test_every_dtype_round_trips_at_every_rank(dtype: str, compression: int) -> None:
    """Rank 0 is one element; up to rank 8 dimensions of 1, 2 and 3 alternate."""
    for rank in range(9):
        shape = tuple(1 + place % 3 for place in range(rank))
        data = patterned(prod(shape) * ITEM_SIZES[dtype])
        tensor = Tensor("hidden_states", DType(NUMBERS[dtype]), shape, data)
        same_tensor(tensor, _over_the_wire(tensor, compression=compression))


@pytest.mark.requirement("CODEC-01")
@pytest.mark.parametrize("dtype", ITEM_SIZES)
@pytest.mark.parametrize("shape", [(0,), (1, 0, 6144), (2, 0, 0), (0, 2**31 - 1)], ids=str)
@both_compressions
def test_an_empty_tensor_round_trips_in_one_empty_fragment(
    dtype: str, shape: tuple[int, ...], compression: int
) -> None:
    """A chunk without elements is a tensor like any other, not a crash in the handler."""
    tensor = Tensor("hidden_states", DType(NUMBERS[dtype]), shape, b"")
    same_tensor(tensor, _over_the_wire(tensor, compression=compression))
    sent = codec.encode_tensor(tensor).fragments
    found = [(one.fragment_index, one.fragment_count, one.payload) for one in sent]
    if found != [(0, 1, b"")]:
        raise Nonconformance("one empty fragment, 0 of 1", f"{found}")


@pytest.mark.requirement("CODEC-01")
@given(
    tensor=tensors(),
    fragment_bytes=st.integers(1, MIB) | st.integers(1, 64),
    compression=st.sampled_from(COMPRESSIONS),
    checksum=st.sampled_from(CHECKSUMS),
)
@settings(max_examples=200)
def test_any_tensor_round_trips_in_any_fragments(
    tensor: Tensor, fragment_bytes: int, compression: int, checksum: int
) -> None:
    """Any dtype, shape, bytes and name, in as many fragments as a tensor may have."""
    least = -(-(len(tensor.data) + 32) // 64)
    fragment_bytes = max(fragment_bytes, least)
    same_tensor(tensor, _over_the_wire(tensor, fragment_bytes, compression, checksum))


@pytest.mark.requirement("CODEC-01")
@pytest.mark.parametrize("size", [1, 63, 64, 130])
def test_every_fragment_size_round_trips(size: int) -> None:
    """Each size from one byte to beyond the payload, where at most 64 fragments come of it."""
    tensor = Tensor("hidden_states", DType.UINT8, (size,), patterned(size))
    for fragment_bytes in range(1, size + 2):
        if -(-size // fragment_bytes) <= 64:
            same_tensor(tensor, _over_the_wire(tensor, fragment_bytes))
            message = codec.encode_tensor(tensor, fragment_bytes=fragment_bytes)
            cut = [len(one.payload) for one in message.fragments]
            if max(cut) > fragment_bytes:
                raise Nonconformance(f"fragments of at most {fragment_bytes} bytes", f"{cut}")


@pytest.mark.requirement("CODEC-01")
@pytest.mark.parametrize("fragment_bytes", [MAX_CHUNK // 64, 65537, MIB - 1, MIB])
@both_compressions
def test_the_largest_tensor_round_trips(fragment_bytes: int, compression: int) -> None:
    """4 MiB of float32: 64 fragments of 64 KiB, the fewest of 1 MiB, and uneven ones."""
    data = patterned(MIB // 64) * 256
    tensor = Tensor("hidden_states", DType.FLOAT32, (1, 128, 8192), data)
    same_tensor(tensor, _over_the_wire(tensor, fragment_bytes, compression))


@pytest.mark.requirement("CODEC-01")
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_payload_may_lie_in_any_buffer(kind: type) -> None:
    """A view of two-byte elements counts elements, not bytes; a strided one has gaps."""
    data = patterned(256)
    tensor = Tensor("hidden_states", DType.BFLOAT16, (1, 2, 64), kind(data))
    expected = Tensor("hidden_states", DType.BFLOAT16, (1, 2, 64), data)
    same_tensor(expected, _over_the_wire(tensor, 50))
    if kind is memoryview:
        elements = Tensor("hidden_states", DType.BFLOAT16, (1, 2, 64), kind(data).cast("H"))
        same_tensor(expected, _over_the_wire(elements, 50))
        strided = Tensor("hidden_states", DType.BFLOAT16, (1, 1, 64), kind(data)[::2])
        even = Tensor("hidden_states", DType.BFLOAT16, (1, 1, 64), data[::2])
        same_tensor(even, _over_the_wire(strided, 50))


# CODEC-02: checksum -----------------------------------------------------------------------------


@pytest.mark.requirement("CODEC-02")
@both_compressions
def test_the_known_vector_is_castagnoli(compression: int) -> None:
    """CRC32C of "123456789" is e3069283; the CRC32 of zlib, cbf43926, is another polynomial."""
    if codec.crc32c(b"123456789").hex() != "e3069283":
        raise Nonconformance("e3069283", codec.crc32c(b"123456789").hex())
    tensor = Tensor("hidden_states", DType.UINT8, (9,), b"123456789")
    message = codec.encode_tensor(tensor, compression=compression)
    if message.checksum.value.hex() != "e3069283":
        raise Nonconformance("e3069283", message.checksum.value.hex())
    message.checksum.value = zlib.crc32(b"123456789").to_bytes(4, "big")
    corrupt("zlib's CRC32 under the name of CRC32C", lambda: codec.decode_tensor(message))


@pytest.mark.requirement("CODEC-02")
@given(data=st.binary(max_size=200), compression=st.sampled_from(COMPRESSIONS))
@settings(max_examples=60)
def test_the_checksum_covers_the_uncompressed_payload(data: bytes, compression: int) -> None:
    """Against an implementation of its own, bit by bit, whatever the wire body looks like."""
    tensor = Tensor("hidden_states", DType.UINT8, (len(data),), data)
    message = codec.encode_tensor(tensor, compression=compression, fragment_bytes=16)
    if message.checksum.value != crc32c(data):
        raise Nonconformance(crc32c(data).hex(), message.checksum.value.hex())


@pytest.mark.requirement("CODEC-02")
@pytest.mark.parametrize("checksum_of", ["payload", "wire-body"])
def test_a_compressed_tensor_of_a_stranger_is_checked_by_its_payload(checksum_of: str) -> None:
    """A frame made without the codec: the CRC of what it expands to is right, its own is not."""
    data = patterned(64) * 8
    frame = zstandard.ZstdCompressor(level=19).compress(data)
    message = written(data, body=frame, cuts=[20])
    if checksum_of == "payload":
        tensor = accepted("the CRC32C of the payload", lambda: codec.decode_tensor(message))
        same_tensor(Tensor("hidden_states", DType.UINT8, (512,), data), tensor)
    else:
        message.checksum.value = crc32c(frame)
        corrupt("the CRC32C of the wire body", lambda: codec.decode_tensor(message))


@pytest.mark.requirement("CODEC-02")
@both_compressions
@pytest.mark.parametrize("size", [1, 33])
def test_each_flipped_bit_of_the_payload_is_found(compression: int, size: int) -> None:
    """Every bit of every byte, flipped before compression so that only the checksum can tell."""
    data = patterned(size)
    for bit in range(8 * size):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        body = None
        if compression == pb.COMPRESSION_ZSTD:
            body = zstandard.ZstdCompressor().compress(bytes(flipped))
        message = written(bytes(flipped), body=body, cuts=[7] if size > 7 else [])
        message.checksum.value = crc32c(data)
        corrupt(f"bit {bit} flipped", lambda message=message: codec.decode_tensor(message))


@pytest.mark.requirement("CODEC-02")
@given(size=st.integers(1, 3000), data=st.data())
@settings(max_examples=40)
def test_any_flipped_bit_of_a_larger_payload_is_found(size: int, data: st.DataObject) -> None:
    """Anywhere in a payload of several fragments, the last one too."""
    tensor = Tensor("hidden_states", DType.INT8, (size,), patterned(size))
    message = codec.encode_tensor(tensor, fragment_bytes=100)
    bit = data.draw(st.integers(0, 8 * size - 1))
    fragment = message.fragments[bit // 800]
    payload = bytearray(fragment.payload)
    payload[bit % 800 // 8] ^= 1 << bit % 8
    fragment.payload = bytes(payload)
    corrupt(f"bit {bit} of {8 * size} flipped", lambda: codec.decode_tensor(message))


@pytest.mark.requirement("CODEC-02")
def test_each_flipped_bit_of_the_checksum_is_found() -> None:
    """A checksum that is compared in part lets the rest through."""
    right = int.from_bytes(crc32c(patterned(50)), "big")
    for bit in range(32):
        message = written(patterned(50))
        message.checksum.value = (right ^ 1 << bit).to_bytes(4, "big")
        what = f"bit {bit} of the checksum flipped"
        corrupt(what, lambda message=message: codec.decode_tensor(message))


@pytest.mark.requirement("CODEC-02")
@pytest.mark.parametrize("size", [0, 1, 3, 5, 8])
def test_a_checksum_of_another_length_is_refused(size: int) -> None:
    """A CRC32C is four bytes: cut short, or with zeros before it, it is not one."""
    message = written(patterned(50))
    message.checksum.value = (bytes(4) + message.checksum.value)[-size:] if size else b""
    corrupt(f"a checksum of {size} bytes", lambda: codec.decode_tensor(message))


@pytest.mark.requirement("CODEC-02")
def test_a_flipped_bit_of_a_wire_body_never_gives_other_data() -> None:
    """In a compressed body a bit may hit the frame itself: refused, or without any effect."""
    data = patterned(40) * 3
    frame = zstandard.ZstdCompressor(level=19).compress(data)
    right = written(data, body=frame)
    for bit in range(8 * len(frame)):
        broken = bytearray(frame)
        broken[bit // 8] ^= 1 << bit % 8
        message = edited(right, lambda copy, broken=broken: _set_body(copy, bytes(broken)))
        try:
            tensor = codec.decode_tensor(message)
        except ProtocolError:
            continue
        if tensor.data != data:
            raise Nonconformance(f"bit {bit} flipped: refused", f"{tensor.data.hex()}")


def _set_body(message: pb.NamedTensor, body: bytes) -> None:
    message.fragments[0].payload = body
