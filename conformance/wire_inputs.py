"""What the wire tests hold the schema against: published values, and bytes written by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from google.protobuf.message import Error, Message

from pytest_meshnet.layout import folder
from pytest_meshnet.protocol.errors import ProtocolError
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.runtime.errors import Nonconformance

T = TypeVar("T")

REQUEST = "session_request.binpb"
REPORT = "capability_report.binpb"
KINDS: dict[str, type[Message]] = {REQUEST: pb.SessionRequest, REPORT: pb.CapabilityReport}

# Published with the wire: size and SHA-256 of the two canonical messages.
SIZES = {REQUEST: 2587, REPORT: 135}
DIGESTS = {
    REQUEST: "c2c3df8a717ddeae7bd99624d2c7f34c09a518988de990237fe313b75cff0817",
    REPORT: "71ac5f150775f398515b43a63596a5cbe8d2ad607e7e4de56bd44fbe7987080c",
}

PAYLOAD = bytes((7 * i + 11) % 256 for i in range(2048))
DEADLINE = 1_800_000_000_000_000_000
FINGERPRINT = {
    "model_artifact_digest": "sha256:1f0c9d2e",
    "runtime_recipe_digest": "sha256:ab77e410",
    "recipe_id": "llama-gguf-q4km-rocm",
    "recipe_version": "3",
    "catalogue_version": "2026.07.1",
}
SHARD_RANGE = {"start_layer": 12, "end_layer": 24, "effective_start_layer": 16}
ENVELOPE = {
    "schema_version": 1,
    "work_id": "work-7f3a",
    "route_session_id": "rs-2b91",
    "route_epoch": 7,
    "fingerprint": FINGERPRINT,
    "shard_range": SHARD_RANGE,
    "phase": 1,
    "position": {"first_position": 256, "token_count": 128},
    "idempotency_step": 42,
    "cache_expectation": {"mode": 2, "expected_past_len": 256},
    "deadline_unix_nanos": DEADLINE,
    "chunk": {"chunk_index": 1, "chunk_count": 3, "final_chunk": False},
}
# CRC32C of PAYLOAD, computed with a bitwise implementation of its own.
PAYLOAD_CRC32C = bytes.fromhex("618c5492")
TENSOR = {
    "name": "hidden_states",
    "shape": [1, 128, 8],
    "dtype": 1,
    "byte_order": 1,
    "total_bytes": 2048,
    "compression": 1,
    "checksum": {"algorithm": 2, "value": PAYLOAD_CRC32C},
    "fragments": [
        {
            "fragment_index": index,
            "fragment_count": 32,
            "byte_offset": 64 * index,
            "payload": PAYLOAD[64 * index : 64 * index + 64],
        }
        for index in range(32)
    ],
}
CANONICAL = {
    REQUEST: {
        "chunk": {"envelope": ENVELOPE, "bundle": {"bundle_version": 1, "tensors": [TENSOR]}}
    },
    REPORT: {
        "schema_version": 1,
        "fingerprint": FINGERPRINT,
        "shard_range": SHARD_RANGE,
        "backend": "rocm",
        "device": "gfx1151",
        "validated": True,
        "detail": "",
        "max_concurrent_sessions": 4,
        "max_context_tokens": 8192,
        "flow_control": {
            "credits_granted": 8,
            "max_inflight_chunks": 8,
            "max_chunk_bytes": 4 * 1024 * 1024,
            "max_prefill_chunk_tokens": 128,
        },
        "accepted_compression": [1, 2],
        "supported_schema_versions": [1],
        "validated_at_unix_nanos": DEADLINE,
    },
}


def published(name: str) -> bytes:
    """The stored bytes of a golden vector."""
    return (folder("goldens") / name).read_bytes()


def legal(what: str, call: Callable[[], T]) -> T:
    """Do what no honest peer may be refused. A refusal is a finding and not a crash."""
    try:
        return call()
    except (ProtocolError, Error, ValueError, TypeError) as error:
        raise Nonconformance(what, f"{type(error).__name__}: {error}") from error


def differences(found: Message, expected: Mapping[str, object], path: str = "") -> Iterator[str]:
    """Say where a message has not exactly these values; fields not named must be unset."""
    unnamed = {field.name for field, _ in found.ListFields()} - expected.keys()
    yield from (f"{path}{name} is set" for name in sorted(unnamed))
    for name, value in expected.items():
        place = f"{path}{name}"
        actual = getattr(found, name, None)
        if isinstance(value, Mapping):
            if isinstance(actual, Message):
                yield from differences(actual, value, f"{place}.")
            else:
                yield f"{place} is {actual!r}, expected a message"
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            items = list(actual) if actual is not None else []
            if len(items) != len(value):
                yield f"{place} has {len(items)} elements, expected {len(value)}"
            for index, (item, wanted) in enumerate(zip(items, value, strict=False)):
                yield from differences(item, wanted, f"{place}[{index}].")
        elif isinstance(value, list):
            if actual is None or list(actual) != value:
                yield f"{place} is {actual!r}, expected {value!r}"
        elif actual != value or isinstance(actual, bool) != isinstance(value, bool):
            yield f"{place} is {actual!r}, expected {value!r}"


def varint(number: int) -> bytes:
    """A base-128 varint, least significant group first."""
    groups = bytearray()
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(groups) + bytes([number])


def tagged(number: int, wire_type: int, body: bytes) -> bytes:
    """A field as the wire has it. A body of wire type 2 gets its length put before it."""
    length = varint(len(body)) if wire_type == 2 else b""
    return varint(number << 3 | wire_type) + length + body


# Fields that no schema knows yet. The published bytes are said to be number 9999 with the varint
# 12345; they are the varint 12345 under number 9735. Both must survive.
NEWER = {"as-published": bytes.fromhex("b8e004b960"), "9999": bytes.fromhex("f8f004b960")}


def inside(place: str, unknown: bytes) -> bytes:
    """The golden request with `unknown` at the end of its chunk, envelope, bundle, tensor or last
    fragment."""

    def extra(here: str) -> bytes:
        return unknown if here == place else b""

    chunk = pb.SessionRequest.FromString(published(REQUEST)).chunk
    tensor = chunk.bundle.tensors[0]
    last = tensor.fragments[-1].SerializeToString() + extra("fragment")
    del tensor.fragments[-1]
    wire_tensor = tensor.SerializeToString() + tagged(8, 2, last) + extra("tensor")
    bundle = tagged(1, 0, varint(1)) + tagged(2, 2, wire_tensor) + extra("bundle")
    envelope = chunk.envelope.SerializeToString() + extra("envelope")
    return tagged(2, 2, tagged(1, 2, envelope) + tagged(2, 2, bundle) + extra("chunk"))


def check_bytes(expected: bytes, actual: bytes) -> None:
    """Require equal bytes, and say where they first differ."""
    if actual != expected:
        at = next(
            (i for i, (a, b) in enumerate(zip(expected, actual, strict=False)) if a != b), None
        )
        at = min(len(expected), len(actual)) if at is None else at
        raise Nonconformance(
            f"{len(expected)} bytes, at {at}: {expected[at : at + 24].hex() or 'the end'}",
            f"{len(actual)} bytes, at {at}: {actual[at : at + 24].hex() or 'the end'}",
        )


def fragment_fields(payload: bytes, size: int, index: int) -> list[bytes]:
    """A fragment as a peer of the older schema wrote it: field 5 holds the uncompressed size."""
    return [
        tagged(1, 0, varint(index)),
        tagged(2, 0, varint(2)),
        tagged(3, 0, varint(index * len(payload))),
        tagged(4, 2, payload),
        tagged(5, 0, varint(size)),
    ]
