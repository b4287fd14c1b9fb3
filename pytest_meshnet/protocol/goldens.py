"""The golden messages: how they are built, and the check of the stored bytes.

The two digests below were published with the wire. They are the outside truth: when a test and a
digest disagree, the code is wrong. Those of 1.1 are in `additions/vectors.py`.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from google.protobuf.message import Message

from pytest_meshnet.layout import folder
from pytest_meshnet.protocol.additions import vectors
from pytest_meshnet.protocol.codec import encode_bundle
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.tensors import DType, Tensor

PUBLISHED = {
    "session_request.binpb": "c2c3df8a717ddeae7bd99624d2c7f34c09a518988de990237fe313b75cff0817",
    "capability_report.binpb": "71ac5f150775f398515b43a63596a5cbe8d2ad607e7e4de56bd44fbe7987080c",
}
# The same of 1.1, which this project made first.
EXPECTED = PUBLISHED | vectors.PINNED
SUMS = "SHA256SUMS"


def session_request() -> pb.SessionRequest:
    """Build the canonical SessionRequest: chunk 1 of 3 of a prefill, one bfloat16 tensor."""
    envelope = pb.Envelope(
        schema_version=pb.SCHEMA_VERSION_1,
        work_id="work-7f3a",
        route_session_id="rs-2b91",
        route_epoch=7,
        fingerprint=_fingerprint(),
        shard_range=_shard_range(),
        phase=pb.PHASE_PREFILL,
        position=pb.PositionSpan(first_position=256, token_count=128),
        idempotency_step=42,
        cache_expectation=pb.CacheExpectation(mode=pb.CACHE_MODE_PREFILL, expected_past_len=256),
        deadline_unix_nanos=1_800_000_000_000_000_000,
        chunk=pb.ChunkInfo(chunk_index=1, chunk_count=3, final_chunk=False),
    )
    tensor = Tensor("hidden_states", DType.BFLOAT16, (1, 128, 8), golden_payload())
    bundle = encode_bundle([tensor], fragment_bytes=64)
    return pb.SessionRequest(chunk=pb.ActivationChunk(envelope=envelope, bundle=bundle))


def golden_payload() -> bytes:
    """The 2,048 bytes of the golden tensor."""
    return bytes((7 * i + 11) % 256 for i in range(128 * 8 * 2))


def capability_report() -> pb.CapabilityReport:
    """Build the canonical CapabilityReport."""
    return pb.CapabilityReport(
        schema_version=pb.SCHEMA_VERSION_1,
        fingerprint=_fingerprint(),
        shard_range=_shard_range(),
        backend="rocm",
        device="gfx1151",
        validated=True,
        max_concurrent_sessions=4,
        max_context_tokens=8192,
        flow_control=pb.FlowControl(
            credits_granted=8,
            max_inflight_chunks=8,
            max_chunk_bytes=4 * 1024 * 1024,
            max_prefill_chunk_tokens=128,
        ),
        accepted_compression=[pb.COMPRESSION_NONE, pb.COMPRESSION_ZSTD],
        supported_schema_versions=[pb.SCHEMA_VERSION_1],
        validated_at_unix_nanos=1_800_000_000_000_000_000,
    )


def _fingerprint() -> pb.Fingerprint:
    return pb.Fingerprint(
        model_artifact_digest="sha256:1f0c9d2e",
        runtime_recipe_digest="sha256:ab77e410",
        recipe_id="llama-gguf-q4km-rocm",
        recipe_version="3",
        catalogue_version="2026.07.1",
    )


def _shard_range() -> pb.ShardRange:
    return pb.ShardRange(start_layer=12, end_layer=24, effective_start_layer=16)


def built() -> dict[str, bytes]:
    """Make every golden file from its written-down values; messages deterministically."""
    messages: dict[str, Message] = {
        "session_request.binpb": session_request(),
        "capability_report.binpb": capability_report(),
        "session_open_1_1.binpb": vectors.session_open(_fingerprint(), _shard_range()),
        "decode_bundle_1_1.binpb": vectors.decode_bundle(),
        "tail_result_1_1.binpb": vectors.tail_result(),
        "capability_report_1_1.binpb": vectors.capability_report(capability_report()),
    }
    files = {name: one.SerializeToString(deterministic=True) for name, one in messages.items()}
    return {**files, "sampling-vectors.json": vectors.sampling_vectors()}


def check() -> list[str]:
    """Say what is wrong with the stored goldens; an empty list means that all is well."""
    root = folder("goldens")
    found = [
        f"{name}: sha256 {found} stored, {digest} {_source(name)}"
        for name, digest in EXPECTED.items()
        if (found := _digest(root / name)) != digest
    ]
    found += [
        f"{name}: this build serializes to other bytes than the {_source(name)} ones"
        for name, data in built().items()
        if hashlib.sha256(data).hexdigest() != EXPECTED[name]
    ]
    return found + _sum_differences(root)


def _source(name: str) -> str:
    return "published" if name in PUBLISHED else "pinned"


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "of no file"


def _sum_differences(root: Path) -> list[str]:
    if not (root / SUMS).is_file():
        return [f"{SUMS}: missing"]
    listed = {}
    for line in (root / SUMS).read_text().splitlines():
        digest, _, name = line.partition("  ")
        listed[name] = digest
    present = {path.name for path in root.iterdir() if path.is_file() and path.name != SUMS}
    found = [f"{name}: not listed in {SUMS}" for name in sorted(present - listed.keys())]
    found += [
        f"{name}: sha256 differs from {SUMS}"
        for name, digest in listed.items()
        if _digest(root / name) != digest
    ]
    return found


def write() -> list[str]:
    """Write the goldens and SHA256SUMS.

    Raises ValueError, with nothing written, when this build does not give the expected bytes.
    """
    root = folder("goldens")
    made = built()
    for name, data in made.items():
        if hashlib.sha256(data).hexdigest() != EXPECTED[name]:
            raise ValueError(
                f"{name}: this build does not give the {_source(name)} bytes; nothing written"
            )
    for name, data in made.items():
        (root / name).write_bytes(data)
    names = sorted(path.name for path in root.iterdir() if path.is_file() and path.name != SUMS)
    (root / SUMS).write_text("".join(f"{_digest(root / name)}  {name}\n" for name in names))
    return names
