"""WIRE-03, 04, 05 and 07 on the runtime's own codec: the published bytes, both ways."""

from __future__ import annotations

import random

import pytest

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.runtime.codec_testee import CodecTestee
from pytest_meshnet.runtime.errors import Nonconformance

from .codec_inputs import same_tensor
from .scrambling import scrambled
from .testee_asking import built_from_json, decoded, read_as_json, rewritten
from .wire_inputs import (
    CANONICAL,
    KINDS,
    NEWER,
    PAYLOAD,
    REPORT,
    REQUEST,
    check_bytes,
    differences,
    fragment_fields,
    inside,
    published,
    tagged,
    varint,
)

goldens_of_both = pytest.mark.parametrize("name", [REQUEST, REPORT])
GOLDEN_TENSOR = Tensor("hidden_states", DType.BFLOAT16, (1, 128, 8), PAYLOAD)


def _kind(name: str) -> str:
    return KINDS[name].DESCRIPTOR.name


# WIRE-03 ----------------------------------------------------------------------------------------


@pytest.mark.requirement("WIRE-03")
@goldens_of_both
def test_the_canonical_values_serialize_to_the_published_bytes(
    codec_testee: CodecTestee, name: str
) -> None:
    """Told as JSON, so that nothing of the published bytes is in the request."""
    message = KINDS[name].FromString(published(name))
    check_bytes(published(name), built_from_json(codec_testee, _kind(name), message))


@pytest.mark.requirement("WIRE-03")
@goldens_of_both
@pytest.mark.parametrize("order", ["as-published", "scrambled"])
def test_the_canonical_message_serializes_to_the_published_bytes(
    codec_testee: CodecTestee, name: str, order: str
) -> None:
    """As published, and with fields reversed, messages in pieces and lists unpacked."""
    data = published(name)
    if order == "scrambled":
        data = scrambled(KINDS[name].FromString(data))
    check_bytes(published(name), rewritten(codec_testee, _kind(name), data))


# WIRE-04 ----------------------------------------------------------------------------------------


@pytest.mark.requirement("WIRE-04")
@goldens_of_both
def test_the_published_bytes_have_every_canonical_value(
    codec_testee: CodecTestee, name: str
) -> None:
    """Field by field, as the JSON of the runtime's own parser tells them."""
    message = read_as_json(codec_testee, _kind(name), published(name), KINDS[name]())
    found = list(differences(message, CANONICAL[name]))
    if found:
        raise Nonconformance("every canonical value", "; ".join(found[:8]))


@pytest.mark.requirement("WIRE-04")
def test_the_published_bytes_carry_the_canonical_tensor(codec_testee: CodecTestee) -> None:
    """Decoded out of the stream message: 2,048 bytes of bfloat16 in the shape [1, 128, 8]."""
    found = decoded(codec_testee, "the golden message", published(REQUEST), "SessionRequest")
    if len(found) != 1:
        raise Nonconformance("one tensor", f"{len(found)}")
    same_tensor(GOLDEN_TENSOR, found[0])


# WIRE-05 ----------------------------------------------------------------------------------------


@pytest.mark.requirement("WIRE-05")
@goldens_of_both
@pytest.mark.parametrize("newer", NEWER.values(), ids=NEWER)
def test_the_published_unknown_field_survives(
    codec_testee: CodecTestee, name: str, newer: bytes
) -> None:
    """The varint 12345 under an unknown number, appended to a golden vector and passed on."""
    data = published(name) + newer
    check_bytes(data, rewritten(codec_testee, _kind(name), data))


@pytest.mark.requirement("WIRE-05")
@pytest.mark.parametrize("place", ["chunk", "envelope", "bundle", "tensor", "fragment"])
@pytest.mark.parametrize("wire_type", [0, 1, 2, 5])
def test_an_unknown_field_inside_a_message_survives(
    codec_testee: CodecTestee, place: str, wire_type: int
) -> None:
    """Of every wire type, and where a newer peer adds its fields: seldom outermost."""
    draw = random.Random(f"{place}-{wire_type}")
    for _ in range(4):
        unknown = _unknown_field(draw, wire_type) + _unknown_field(draw, 0)
        data = inside(place, unknown)
        check_bytes(data, rewritten(codec_testee, "SessionRequest", data))


def _unknown_field(draw: random.Random, wire_type: int) -> bytes:
    """A field of a number between 100 and 2^29 that protobuf does not keep for itself."""
    number = draw.choice([9999, 9735, draw.randrange(100, 19000), draw.randrange(20000, 2**29)])
    bodies = {
        0: varint(draw.randrange(2**64)),
        1: draw.randbytes(8),
        2: draw.randbytes(draw.randrange(40)),
        5: draw.randbytes(4),
    }
    return tagged(number, wire_type, bodies[wire_type])


# WIRE-07 ----------------------------------------------------------------------------------------

RETIRED = {
    "varint": tagged(5, 0, varint(64)),
    "largest-varint": tagged(5, 0, varint(2**64 - 1)),
    "fixed64": tagged(5, 1, bytes(8)),
    "length-delimited": tagged(5, 2, b"64"),
    "fixed32": tagged(5, 5, bytes(4)),
}


@pytest.mark.requirement("WIRE-07")
@pytest.mark.parametrize("retired", RETIRED.values(), ids=RETIRED)
def test_the_golden_payload_is_unaffected_by_the_retired_field(
    codec_testee: CodecTestee, retired: bytes
) -> None:
    """Whatever the older peer put there, each of the 32 golden fragments reads as before."""
    request = pb.SessionRequest.FromString(published(REQUEST))
    for fragment in request.chunk.bundle.tensors[0].fragments:
        fragment.MergeFromString(retired)
    data = request.SerializeToString()
    found = decoded(codec_testee, "a message with field 5", data, "SessionRequest")
    same_tensor(GOLDEN_TENSOR, found[0])


@pytest.mark.requirement("WIRE-07")
@pytest.mark.parametrize("seed", range(6))
def test_a_peer_that_still_sends_the_retired_field_is_read(
    codec_testee: CodecTestee, seed: int
) -> None:
    """Field 5 before, between and after the others: the payload is what it was."""
    draw = random.Random(seed)
    payload = draw.randbytes(draw.randrange(1, 40))
    message = pb.NamedTensor(
        name="hidden_states",
        shape=[2 * len(payload)],
        dtype=pb.DTYPE_UINT8,
        byte_order=pb.BYTE_ORDER_LITTLE_ENDIAN,
        total_bytes=2 * len(payload),
        compression=pb.COMPRESSION_NONE,
        checksum=pb.Checksum(algorithm=pb.CHECKSUM_ALGORITHM_NONE),
    )
    tensor = message.SerializeToString()
    for index in (0, 1):
        fields = fragment_fields(payload, draw.randrange(2**64), index)
        draw.shuffle(fields)
        tensor += tagged(8, 2, b"".join(fields))
    bundle = tagged(1, 0, varint(1)) + tagged(2, 2, tensor)
    (found,) = decoded(codec_testee, "a bundle with field 5", bundle)
    expected = Tensor("hidden_states", DType.UINT8, (2 * len(payload),), payload + payload)
    same_tensor(expected, found)
