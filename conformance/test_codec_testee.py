"""CODEC-01, 02 and 03 on the runtime's own codec, and every malformed bundle of the corpus."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Callable
from math import prod

import pytest
import zstandard

from pytest_meshnet.layout import folder
from pytest_meshnet.protocol import codec
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.runtime.codec_testee import CodecTestee
from pytest_meshnet.runtime.errors import Nonconformance

from .codec_cases import FOUR_PACKED, FOUR_PLAIN, FRAGMENT_EDITS, TILED, all_missing
from .codec_inputs import (
    ITEM_SIZES,
    MAX_CHUNK,
    MIB,
    NUMBERS,
    accepted,
    crc32c,
    edited,
    patterned,
    same_tensor,
    written,
)
from .testee_asking import (
    bundled,
    check_refused,
    decoded,
    encode_request,
    encoded,
    tensors_request,
)

CORPUS = folder("fixtures") / "malformed"
GROUP_OF_RULE = {
    "bundle-version": "CODEC-07",
    "duplicate-name": "CODEC-09",
    "tensor-count": "CODEC-09",
    "tensor-name": "CODEC-09",
    "dtype": "CODEC-07",
    "byte-order": "CODEC-06",
    "compression": "CODEC-07",
    "checksum-algorithm": "CODEC-07",
    "checksum": "CODEC-02",
    "rank": "CODEC-05",
    "dimension": "CODEC-05",
    "total-bytes": "CODEC-04",
    "fragment-tiling": "CODEC-03",
    "fragment-count": "CODEC-08",
    "zstd-frame": "CODEC-11",
    "zstd-truncated": "CODEC-11",
    "zstd-trailing": "CODEC-11",
    "zstd-size": "CODEC-11",
}
CASES = [
    pytest.param(
        name, case["rule"], id=name, marks=pytest.mark.requirement(GROUP_OF_RULE[case["rule"]])
    )
    for name, case in json.loads((CORPUS / "index.json").read_bytes()).items()
]
COMPRESSIONS = [pb.COMPRESSION_NONE, pb.COMPRESSION_ZSTD]
both_compressions = pytest.mark.parametrize("compression", COMPRESSIONS, ids=["none", "zstd"])


# The corpus -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "rule"), CASES)
def test_a_malformed_bundle_is_refused(codec_testee: CodecTestee, name: str, rule: str) -> None:
    """A golden bundle with one rule broken; the golden bundle itself is read before and after."""
    right = (CORPUS / "correct.binpb").read_bytes()
    decoded(codec_testee, "the correct bundle", right)
    wrong = tensors_request((CORPUS / f"{name}.binpb").read_bytes())
    check_refused(codec_testee, name.replace("-", " "), wrong, rule)
    decoded(codec_testee, "the correct bundle, afterwards", right)


# CODEC-01 ---------------------------------------------------------------------------------------


def _check_trips(
    codec_testee: CodecTestee,
    tensors: list[Tensor],
    fragment_bytes: int = MIB,
    compression: int = pb.COMPRESSION_NONE,
    checksum: int = pb.CHECKSUM_ALGORITHM_CRC32C,
) -> None:
    """Require that we read what the runtime encodes, and the runtime what we do."""
    what = f"{[(one.dtype.name, one.shape) for one in tensors]} in {fragment_bytes}"
    options = {
        "compression": compression,
        "checksum": checksum,
        "fragment_bytes": fragment_bytes,
    }
    theirs = encoded(codec_testee, what, encode_request(tensors, **options))
    _check_cut(theirs, fragment_bytes)
    found = accepted(f"what the testee made of {what}", lambda: codec.decode_bundle(theirs))
    _check_same(tensors, found)
    ours = codec.encode_bundle(tensors, **options).SerializeToString(deterministic=True)
    _check_same(tensors, decoded(codec_testee, what, ours))


def _check_same(expected: list[Tensor], found: list[Tensor] | tuple[Tensor, ...]) -> None:
    if len(found) != len(expected):
        raise Nonconformance(f"{len(expected)} tensors", f"{len(found)}")
    for one, other in zip(expected, found, strict=True):
        same_tensor(one, other)


def _check_cut(bundle: pb.TensorBundle, fragment_bytes: int) -> None:
    """Every fragment but the last is of the size asked for, and none is empty without need."""
    for tensor in bundle.tensors:
        sizes = [len(one.payload) for one in tensor.fragments]
        whole = sum(sizes) // fragment_bytes
        rest = sum(sizes) % fragment_bytes
        expected = [fragment_bytes] * whole + [rest] * bool(rest) or [0]
        if sizes != expected:
            raise Nonconformance(f"fragments of {expected} bytes", f"{sizes}")


@pytest.mark.requirement("CODEC-01")
@pytest.mark.parametrize("dtype", ITEM_SIZES)
@both_compressions
def test_every_dtype_round_trips_at_every_rank(
    codec_testee: CodecTestee, dtype: str, compression: int
) -> None:
    """Rank 0 to 8, and tensors without elements, which have one empty fragment when plain."""
    shapes = [tuple(1 + place % 3 for place in range(rank)) for rank in range(9)]
    for shape in [*shapes, (0,), (1, 0, 6144), (0, 2**31 - 1)]:
        data = patterned(prod(shape) * ITEM_SIZES[dtype])
        tensor = Tensor("hidden_states", DType(NUMBERS[dtype]), shape, data)
        _check_trips(codec_testee, [tensor], compression=compression)


@pytest.mark.requirement("CODEC-01")
@pytest.mark.parametrize("size", [1, 63, 64, 130])
def test_every_fragment_size_round_trips(codec_testee: CodecTestee, size: int) -> None:
    """Each size from one byte to beyond the payload, where at most 64 fragments come of it."""
    tensor = Tensor("hidden_states", DType.UINT8, (size,), patterned(size))
    for fragment_bytes in range(-(-size // 64), size + 2):
        _check_trips(codec_testee, [tensor], fragment_bytes)


@pytest.mark.requirement("CODEC-01")
@pytest.mark.parametrize("fragment_bytes", [MAX_CHUNK // 64, MIB])
@both_compressions
def test_a_large_tensor_round_trips(
    codec_testee: CodecTestee, fragment_bytes: int, compression: int
) -> None:
    """Nearly 4 MiB of float32, framing left aside, in 63 fragments and in the fewest."""
    data = patterned(MIB // 64) * 252
    tensor = Tensor("hidden_states", DType.FLOAT32, (1, 126, 8192), data)
    _check_trips(codec_testee, [tensor], fragment_bytes, compression)


@pytest.mark.requirement("CODEC-01")
@pytest.mark.parametrize("seed", range(8))
def test_any_bundle_round_trips(codec_testee: CodecTestee, seed: int) -> None:
    """A few tensors of any dtype, shape, bytes and name, under any settings."""
    draw = random.Random(seed)
    for _ in range(6):
        tensors = [_any_tensor(draw, place) for place in range(draw.randrange(4))]
        longest = max((len(one.data) for one in tensors), default=0) + 32
        _check_trips(
            codec_testee,
            tensors,
            draw.randrange(-(-longest // 64), longest + 2),
            draw.choice(COMPRESSIONS),
            draw.choice([pb.CHECKSUM_ALGORITHM_NONE, pb.CHECKSUM_ALGORITHM_CRC32C]),
        )


def _any_tensor(draw: random.Random, place: int) -> Tensor:
    dtype = DType(draw.randrange(1, 9))
    shape: list[int] = []
    for _ in range(draw.randrange(9)):
        shape.append(draw.randrange(max(2, min(9, 512 // max(1, prod(shape)) + 1))))
    data = draw.randbytes(prod(shape) * dtype.item_size)
    return Tensor(
        f"{draw.choice(['t', 'träger', '名', 'x' * 300])}{place}", dtype, tuple(shape), data
    )


# CODEC-02 ---------------------------------------------------------------------------------------


@pytest.mark.requirement("CODEC-02")
@both_compressions
def test_the_known_vector_is_castagnoli(codec_testee: CodecTestee, compression: int) -> None:
    """CRC32C of "123456789" is e3069283; the CRC32 of zlib, cbf43926, is another polynomial."""
    data = b"123456789"
    tensor = Tensor("hidden_states", DType.UINT8, (9,), data)
    bundle = encoded(codec_testee, "123456789", encode_request([tensor], compression=compression))
    found = bundle.tensors[0].checksum
    if (found.algorithm, found.value.hex()) != (pb.CHECKSUM_ALGORITHM_CRC32C, "e3069283"):
        raise Nonconformance("CRC32C e3069283", f"{found.algorithm} {found.value.hex()}")
    body = zstandard.ZstdCompressor().compress(data)
    packed = compression == pb.COMPRESSION_ZSTD
    message = written(data, body=body if packed else None)
    decoded(codec_testee, "its checksum", bundled(message))
    message.checksum.value = zlib.crc32(data).to_bytes(4, "big")
    check_refused(codec_testee, "the CRC32 of zlib", tensors_request(bundled(message)), "checksum")


@pytest.mark.requirement("CODEC-02")
@both_compressions
@pytest.mark.parametrize("seed", range(3))
def test_the_checksum_covers_the_uncompressed_payload(
    codec_testee: CodecTestee, compression: int, seed: int
) -> None:
    """Against an implementation of its own, bit by bit; and that of the wire body is refused."""
    draw = random.Random(seed)
    for size in (0, 1, draw.randrange(2, 200), 4096):
        data = draw.randbytes(size // 2) * 2
        tensor = Tensor("hidden_states", DType.UINT8, (len(data),), data)
        request = encode_request([tensor], compression=compression)
        found = encoded(codec_testee, f"{len(data)} bytes", request).tensors[0].checksum.value
        if found != crc32c(data):
            raise Nonconformance(crc32c(data).hex(), found.hex())
    body = zstandard.ZstdCompressor().compress(data)
    message = written(data, body=body)
    message.checksum.value = crc32c(body)
    what = "the checksum of the compressed form"
    check_refused(codec_testee, what, tensors_request(bundled(message)), "checksum")


@pytest.mark.requirement("CODEC-02")
def test_one_flipped_bit_of_a_covered_payload_is_refused(codec_testee: CodecTestee) -> None:
    """Each bit of the checksum, and bits over the whole of a payload in four fragments."""
    decoded(codec_testee, "the right tensor", bundled(FOUR_PLAIN))
    for bit in range(32):
        message = edited(FOUR_PLAIN, lambda one: None)
        message.checksum.value = _flipped(message.checksum.value, bit)
        wrong = tensors_request(bundled(message))
        check_refused(codec_testee, f"bit {bit} of the checksum flipped", wrong, "checksum")
    for bit in range(0, 8 * len(TILED), 67):
        message = edited(FOUR_PLAIN, lambda one: None)
        fragment = message.fragments[bit // 800]
        fragment.payload = _flipped(fragment.payload, bit % 800)
        wrong = tensors_request(bundled(message))
        check_refused(codec_testee, f"bit {bit} of the payload flipped", wrong, "checksum")


def _flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


# CODEC-03 ---------------------------------------------------------------------------------------

both_bodies = pytest.mark.parametrize(
    "right", [FOUR_PLAIN, FOUR_PACKED], ids=["plain", "compressed"]
)


@pytest.mark.requirement("CODEC-03")
@both_bodies
@pytest.mark.parametrize("edit", FRAGMENT_EDITS, ids=[edit.__name__ for edit in FRAGMENT_EDITS])
def test_fragments_that_do_not_tile_are_refused(
    codec_testee: CodecTestee, right: pb.NamedTensor, edit: Callable[[pb.NamedTensor], None]
) -> None:
    """Without a checksum to fall back on: the tiling alone must tell."""
    message = edited(right, edit)
    message.checksum.Clear()
    message.checksum.algorithm = pb.CHECKSUM_ALGORITHM_NONE
    what = edit.__name__.replace("_", " ")
    check_refused(codec_testee, what, tensors_request(bundled(message)), "fragment-tiling")


@pytest.mark.requirement("CODEC-03")
@both_bodies
def test_fragments_may_arrive_in_every_order(
    codec_testee: CodecTestee, right: pb.NamedTensor
) -> None:
    """Twelve of the orders of four fragments, and each means the same."""
    draw, pieces = random.Random(3), list(right.fragments)
    expected = Tensor("hidden_states", DType.UINT8, (len(TILED),), TILED)
    for _ in range(12):
        draw.shuffle(pieces)
        message = edited(right, all_missing)
        message.fragments.extend(pieces)
        order = [one.fragment_index for one in pieces]
        (found,) = decoded(codec_testee, f"the order {order}", bundled(message))
        same_tensor(expected, found)
