"""WIRE-01, 02, 07 and 08: the schema itself, read from the descriptor pool."""

from __future__ import annotations

import pytest
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    ServiceDescriptorProto,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_meshnet.protocol import regenerate
from pytest_meshnet.protocol.codec import decode_bundle, decode_tensor
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.runtime.errors import Nonconformance

from .wire_inputs import PAYLOAD, REQUEST, fragment_fields, legal, published, tagged, varint

PACKAGE = "meshnet.shard.v1"
FIELD = FieldDescriptorProto

# name: (request, response, requests are a stream, responses are a stream)
METHODS = {
    "GetCapability": ("CapabilityRequest", "CapabilityReport", False, False),
    "Health": ("HealthRequest", "HealthReport", False, False),
    "Session": ("SessionRequest", "SessionResponse", True, True),
    "Release": ("ReleaseRequest", "ReleaseResponse", False, False),
    "Cancel": ("CancelRequest", "CancelResponse", False, False),
}

# number: (name, type, message or enum)
ENVELOPE = {
    1: ("schema_version", FIELD.TYPE_ENUM, "SchemaVersion"),
    2: ("work_id", FIELD.TYPE_STRING, ""),
    3: ("route_session_id", FIELD.TYPE_STRING, ""),
    4: ("route_epoch", FIELD.TYPE_UINT64, ""),
    5: ("fingerprint", FIELD.TYPE_MESSAGE, "Fingerprint"),
    6: ("shard_range", FIELD.TYPE_MESSAGE, "ShardRange"),
    7: ("phase", FIELD.TYPE_ENUM, "Phase"),
    8: ("position", FIELD.TYPE_MESSAGE, "PositionSpan"),
    9: ("idempotency_step", FIELD.TYPE_UINT64, ""),
    10: ("cache_expectation", FIELD.TYPE_MESSAGE, "CacheExpectation"),
    11: ("deadline_unix_nanos", FIELD.TYPE_INT64, ""),
    12: ("chunk", FIELD.TYPE_MESSAGE, "ChunkInfo"),
}


def _service() -> ServiceDescriptorProto:
    found = ServiceDescriptorProto()
    pb.DESCRIPTOR.pool.FindServiceByName(f"{PACKAGE}.ShardRuntime").CopyToProto(found)
    return found


def _message(name: str) -> DescriptorProto:
    found = DescriptorProto()
    pb.DESCRIPTOR.pool.FindMessageTypeByName(f"{PACKAGE}.{name}").CopyToProto(found)
    return found


@pytest.mark.requirement("WIRE-01")
def test_the_service_has_exactly_the_five_methods() -> None:
    """One method more is a promise that no runtime gave; one less cannot be called."""
    found = sorted(method.name for method in _service().method)
    if found != sorted(METHODS):
        raise Nonconformance(f"the methods {sorted(METHODS)}", f"{found}")


@pytest.mark.requirement("WIRE-01")
@pytest.mark.parametrize("name", METHODS)
def test_a_method_streams_where_the_protocol_says_so(name: str) -> None:
    """Session streams both ways; the others are unary, so that they work while it blocks."""
    expected = METHODS[name]
    for method in _service().method:
        if method.name == name:
            found = (
                method.input_type.removeprefix(f".{PACKAGE}."),
                method.output_type.removeprefix(f".{PACKAGE}."),
                method.client_streaming,
                method.server_streaming,
            )
            if found != expected:
                raise Nonconformance(f"{name}: {expected}", f"{found}")
            return
    raise Nonconformance(f"a method {name}", "there is none")


@pytest.mark.requirement("WIRE-02")
@pytest.mark.parametrize("number", ENVELOPE, ids=[name for name, _, _ in ENVELOPE.values()])
def test_the_envelope_carries_a_promised_field_under_its_number(number: int) -> None:
    """Over a relay the envelope is all there is: each field has its number, type and name."""
    name, kind, type_name = ENVELOPE[number]
    expected = (name, kind, type_name and f".{PACKAGE}.{type_name}", FIELD.LABEL_OPTIONAL)
    found = [
        (one.name, one.type, one.type_name, one.label)
        for one in _message("Envelope").field
        if one.number == number
    ]
    if found != [expected]:
        raise Nonconformance(f"field {number}: {expected}", f"{found or 'no such field'}")


@pytest.mark.requirement("WIRE-07")
def test_the_retired_number_is_reserved() -> None:
    """Only a reservation stops the next author from giving number 5 another meaning."""
    fragment = _message("TensorFragment")
    if not any(one.start <= 5 < one.end for one in fragment.reserved_range):
        ranges = [(one.start, one.end) for one in fragment.reserved_range]
        raise Nonconformance("TensorFragment reserves 5", f"it reserves [start, end) {ranges}")
    using = [one.name for one in fragment.field if one.number == 5]
    if using:
        raise Nonconformance("no field of number 5", f"{using}")


@pytest.mark.requirement("WIRE-07")
def test_the_retired_name_is_reserved() -> None:
    """The name under another number would read as the old field in JSON and in text."""
    fragment = _message("TensorFragment")
    if "uncompressed_size" not in fragment.reserved_name:
        raise Nonconformance(
            "TensorFragment reserves uncompressed_size", f"it reserves {fragment.reserved_name}"
        )
    numbers = [one.number for one in fragment.field if one.name == "uncompressed_size"]
    if numbers:
        raise Nonconformance("no field uncompressed_size", f"number {numbers}")


@pytest.mark.requirement("WIRE-07")
@given(
    size=st.integers(0, 2**64 - 1),
    payload=st.binary(min_size=1, max_size=40),
    order=st.permutations(range(5)),
)
@settings(max_examples=40)
def test_a_peer_that_still_sends_the_retired_field_is_read(
    size: int, payload: bytes, order: list[int]
) -> None:
    """Field 5 before, between and after the others, with any value: the payload is what it was."""
    message = pb.NamedTensor(
        name="hidden_states",
        shape=[2 * len(payload)],
        dtype=pb.DTYPE_UINT8,
        byte_order=pb.BYTE_ORDER_LITTLE_ENDIAN,
        total_bytes=2 * len(payload),
        compression=pb.COMPRESSION_NONE,
        checksum=pb.Checksum(algorithm=pb.CHECKSUM_ALGORITHM_NONE),
    )
    for index in (0, 1):
        fields = fragment_fields(payload, size, index)
        data = b"".join(fields[place] for place in order)
        fragment = legal("a fragment with field 5 parses", lambda data=data: _parsed(data))
        if fragment.payload != payload:
            raise Nonconformance(f"payload {payload.hex()}", fragment.payload.hex())
        message.fragments.append(fragment)
    tensor = legal("a tensor with field 5 decodes", lambda: decode_tensor(message))
    if tensor.data != payload + payload:
        raise Nonconformance(f"payload {(payload + payload).hex()}", bytes(tensor.data).hex())


def _parsed(data: bytes) -> pb.TensorFragment:
    return pb.TensorFragment.FromString(data)


@pytest.mark.requirement("WIRE-07")
@pytest.mark.parametrize(
    "retired",
    [tagged(5, 0, varint(64)), tagged(5, 1, bytes(8)), tagged(5, 2, b"64"), tagged(5, 5, bytes(4))],
    ids=["varint", "fixed64", "length-delimited", "fixed32"],
)
def test_the_golden_payload_is_unaffected_by_the_retired_field(retired: bytes) -> None:
    """Whatever the older peer put there, each of the 32 golden fragments reads as before."""
    chunk = pb.SessionRequest.FromString(published(REQUEST)).chunk
    for fragment in chunk.bundle.tensors[0].fragments:
        fragment.MergeFromString(retired)
    tensors = legal("a bundle with field 5 decodes", lambda: decode_bundle(chunk.bundle))
    if tensors[0].data != PAYLOAD:
        raise Nonconformance("the golden payload", bytes(tensors[0].data).hex())


@pytest.mark.requirement("WIRE-08")
def test_the_committed_stubs_are_what_the_pinned_generator_makes(record_property) -> None:
    """Digests always; where grpcio-tools 1.82.1 is installed, the stubs are made and compared."""
    found = regenerate.provenance_differences()
    try:
        made = regenerate.generate()
        how = f"made anew with {regenerate.GENERATOR} {regenerate.GENERATOR_VERSION}"
        found += regenerate.differences(made)
    except regenerate.GeneratorMissing as missing:
        how = f"recorded digests only: {missing}"
    record_property("stubs", how)
    if found:
        raise Nonconformance(
            f"stubs and schema agree ({how})", "; ".join(found), "run tox -e proto and commit"
        )
