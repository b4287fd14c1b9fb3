"""WIRE-03 to 06 and 09: the published bytes, and what must survive between versions."""

from __future__ import annotations

import hashlib

import pytest
from google.protobuf.message import Message
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_meshnet.protocol import goldens
from pytest_meshnet.protocol.codec import decode_bundle, encode_bundle, encode_tensor
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.client import SeamClient
from pytest_meshnet.protocol.machines.exchange import Seam
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.runtime.errors import Nonconformance

from .wire_inputs import (
    CANONICAL,
    DIGESTS,
    KINDS,
    NEWER,
    PAYLOAD,
    REPORT,
    REQUEST,
    SIZES,
    check_bytes,
    differences,
    inside,
    legal,
    published,
    tagged,
    varint,
)

goldens_of_both = pytest.mark.parametrize("name", [REQUEST, REPORT])

newer_fields = pytest.mark.parametrize("newer", NEWER.values(), ids=NEWER)


def _check_digest(name: str, data: bytes) -> None:
    found = (len(data), hashlib.sha256(data).hexdigest())
    if found != (SIZES[name], DIGESTS[name]):
        raise Nonconformance(
            f"{SIZES[name]} bytes, sha256 {DIGESTS[name]}", f"{found[0]} bytes, sha256 {found[1]}"
        )


@pytest.mark.requirement("WIRE-03")
@goldens_of_both
def test_the_codec_builds_the_published_bytes(name: str) -> None:
    """What this codec makes of the canonical tensor and fields, serialized deterministically."""
    _check_digest(name, goldens.built()[name])


@pytest.mark.requirement("WIRE-03")
@goldens_of_both
def test_the_canonical_values_serialize_to_the_published_bytes(name: str) -> None:
    """The same without the codec: every value of the published table, set by its name."""
    message = legal(
        "every canonical field exists and takes its value", lambda: KINDS[name](**CANONICAL[name])
    )
    _check_digest(name, message.SerializeToString(deterministic=True))


@pytest.mark.requirement("WIRE-03")
@goldens_of_both
def test_the_stored_vector_is_the_published_one(name: str) -> None:
    """A vector regenerated to make a test pass would show here."""
    _check_digest(name, published(name))


@pytest.mark.requirement("WIRE-04")
@goldens_of_both
def test_the_published_bytes_have_every_canonical_value(name: str) -> None:
    """Field by field, with none left over: the same bytes may mean something else elsewhere."""
    message = legal("the published bytes parse", lambda: KINDS[name].FromString(published(name)))
    found = list(differences(message, CANONICAL[name]))
    if found:
        raise Nonconformance("every canonical value", "; ".join(found[:8]))


@pytest.mark.requirement("WIRE-04")
def test_the_published_bytes_carry_the_canonical_tensor() -> None:
    """Decoded: 2,048 bytes of bfloat16 in the shape [1, 128, 8], byte i = (7 i + 11) mod 256."""
    chunk = pb.SessionRequest.FromString(published(REQUEST)).chunk
    tensors = legal("the golden bundle decodes", lambda: decode_bundle(chunk.bundle))
    found = [(one.name, one.dtype.name, one.shape) for one in tensors]
    expected = [("hidden_states", "BFLOAT16", (1, 128, 8))]
    if found != expected:
        raise Nonconformance(f"{expected}", f"{found}")
    check_bytes(PAYLOAD, bytes(tensors[0].data))


# What a newer peer sends ------------------------------------------------------------------------

UNKNOWN_NUMBERS = st.integers(100, 2**29 - 1).filter(lambda number: not 19000 <= number <= 19999)


@st.composite
def unknown_fields(draw: st.DrawFn) -> bytes:
    """A field of any wire type under a number that no message uses."""
    number = draw(st.sampled_from([9999, 9735]) | UNKNOWN_NUMBERS)
    kind = draw(st.sampled_from([0, 1, 2, 3, 5]))
    if kind == 0:
        return tagged(number, 0, varint(draw(st.integers(0, 2**64 - 1))))
    if kind == 2:
        return tagged(number, 2, draw(st.binary(max_size=40)))
    if kind == 3:  # A group: its fields lie between a start and an end tag.
        return tagged(number, 3, tagged(1, 0, varint(7))) + tagged(number, 4, b"")
    size = 8 if kind == 1 else 4
    return tagged(number, kind, draw(st.binary(min_size=size, max_size=size)))


def _rewritten(kind: type[Message], data: bytes) -> bytes:
    """What a hop makes of a message: parse, serialize."""
    message = legal(
        f"a {kind.__name__} with a field from a newer peer parses", lambda: kind.FromString(data)
    )
    return message.SerializeToString(deterministic=True)


@pytest.mark.requirement("WIRE-05")
@goldens_of_both
@newer_fields
def test_the_published_unknown_field_survives(name: str, newer: bytes) -> None:
    """The varint 12345 under an unknown number, appended to a golden vector and passed on."""
    data = published(name) + newer
    check_bytes(data, _rewritten(KINDS[name], data))


@pytest.mark.requirement("WIRE-05")
@goldens_of_both
@given(unknown=st.lists(unknown_fields(), min_size=1, max_size=3))
@settings(max_examples=40)
def test_any_unknown_field_survives_two_hops(name: str, unknown: list[bytes]) -> None:
    """Any number, wire type and value, several at once, over two hops of a relay."""
    data = published(name) + b"".join(unknown)
    check_bytes(data, _rewritten(KINDS[name], _rewritten(KINDS[name], data)))


@pytest.mark.requirement("WIRE-05")
@pytest.mark.parametrize("place", ["chunk", "envelope", "bundle", "tensor", "fragment"])
@given(unknown=unknown_fields())
@example(unknown=NEWER["9999"])
@settings(max_examples=20)
def test_an_unknown_field_inside_a_message_survives(place: str, unknown: bytes) -> None:
    """A newer peer adds fields where they belong, which is seldom the outermost message."""

    data = inside(place, unknown)
    check_bytes(data, _rewritten(pb.SessionRequest, data))


# What an older or a terse peer sends ------------------------------------------------------------

# Every message with a work_id, and the number it has there.
WORK_IDS: dict[str, int] = {
    "Envelope": 2,
    "DecodeStep": 5,
    "ReleaseSignal": 3,
    "CancelSignal": 3,
    "Ack": 1,
    "ShardStatus": 1,
    "CancelRequest": 4,
    "TailResult": 1,
}


def _check_defaults(message: Message, set_fields: set[str]) -> None:
    """Every field but those has the default of its type, all the way down one level."""
    for field in message.DESCRIPTOR.fields:
        if field.name in set_fields:
            continue
        value = getattr(message, field.name)
        if field.is_repeated:
            problem = f"{len(value)} elements" if len(value) else ""
        elif field.message_type is not None:
            present = message.HasField(field.name) or value.ByteSize() or value.ListFields()
            problem = "present" if present else ""
        else:
            problem = f"{value!r}" if value not in (0, 0.0, False, "", b"") else ""
        if problem:
            raise Nonconformance(f"{message.DESCRIPTOR.name}.{field.name} at its default", problem)


@pytest.mark.requirement("WIRE-06")
@pytest.mark.parametrize("name", WORK_IDS)
@pytest.mark.parametrize("work_id", ["w", "work-7f3a", "Arbeit-ä"])
def test_a_message_with_only_a_work_id_parses_to_defaults(name: str, work_id: str) -> None:
    """Written by hand, as a peer in another language would: one field and nothing else."""
    data = tagged(WORK_IDS[name], 2, work_id.encode())
    kind: type[Message] = getattr(pb, name)
    message = legal(f"a {name} with only a work_id parses", lambda: kind.FromString(data))
    if not message.IsInitialized():
        raise Nonconformance(
            "no field is required", f"missing {message.FindInitializationErrors()}"
        )
    found = getattr(message, "work_id", None)
    if found != work_id:
        raise Nonconformance(f"work_id {work_id!r}", f"{found!r}")
    _check_defaults(message, {"work_id"})
    check_bytes(data, legal("it serializes again", message.SerializeToString))


@pytest.mark.requirement("WIRE-06")
def test_a_chunk_whose_envelope_has_only_a_work_id_parses_to_defaults() -> None:
    """The same inside a stream message, where one required field would refuse the whole frame."""
    data = tagged(2, 2, tagged(1, 2, tagged(2, 2, b"work-7f3a")))
    request = legal("the stream message parses", lambda: pb.SessionRequest.FromString(data))
    if not request.IsInitialized() or request.WhichOneof("kind") != "chunk":
        raise Nonconformance("a chunk without anything required", f"{request!r}")
    _check_defaults(request.chunk, {"envelope"})
    _check_defaults(request.chunk.envelope, {"work_id"})
    if request.chunk.envelope.work_id != "work-7f3a":
        raise Nonconformance("work_id 'work-7f3a'", repr(request.chunk.envelope.work_id))


# The small decode message -----------------------------------------------------------------------


def _check_half(step: bytes, chunk: bytes) -> None:
    if not 2 * len(step) < len(chunk):
        raise Nonconformance(
            f"a DecodeStep below half of the {len(chunk)} bytes of the full chunk",
            f"{len(step)} bytes",
        )


@pytest.mark.requirement("WIRE-09")
def test_a_decode_step_is_less_than_half_of_the_full_chunk() -> None:
    """The [1, 1, 8] bfloat16 tensor under the golden envelope, in both forms, without framing."""
    envelope = pb.SessionRequest.FromString(published(REQUEST)).chunk.envelope
    tensor = Tensor("hidden_states", DType.BFLOAT16, (1, 1, 8), PAYLOAD[:16])
    step = pb.DecodeStep(
        idempotency_step=envelope.idempotency_step,
        position=envelope.position.first_position,
        expected_past_len=envelope.cache_expectation.expected_past_len,
        tensor=encode_tensor(tensor),
        work_id=envelope.work_id,
        deadline_unix_nanos=envelope.deadline_unix_nanos,
    )
    chunk = pb.ActivationChunk(envelope=envelope, bundle=encode_bundle([tensor]))
    _check_half(step.SerializeToString(), chunk.SerializeToString())


@pytest.mark.requirement("WIRE-09")
def test_the_client_sends_a_decode_step_below_half_of_the_full_chunk() -> None:
    """The same as the suite's own client puts it on the wire, framed as stream messages."""
    golden = pb.SessionRequest.FromString(published(REQUEST)).chunk.envelope
    client = SeamClient(
        Seam(golden.route_session_id, golden.route_epoch, golden.fingerprint, golden.shard_range)
    )
    tensor = Tensor("hidden_states", DType.BFLOAT16, (1, 1, 8), PAYLOAD[:16])
    place = {
        "expected": 256,
        "step": 42,
        "work_id": golden.work_id,
        "deadline": golden.deadline_unix_nanos,
    }
    step = client.decode(tensor, **place)
    chunk = client.chunk([tensor], mode=pb.CACHE_MODE_DECODE, place=(1, 3), **place)
    _check_half(step.SerializeToString(), chunk.SerializeToString())
    for sent in (step.decode.tensor, chunk.chunk.bundle.tensors[0]):
        carried = b"".join(fragment.payload for fragment in sent.fragments)
        check_bytes(PAYLOAD[:16], carried)
