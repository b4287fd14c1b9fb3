"""The golden messages of 1.1, built from written-down values.

Unlike those of 1.0 they are this project's own: the digests pin what it published first.
"""

from __future__ import annotations

import json
import struct

from pytest_meshnet.protocol.additions.boundary import BoundarySpec, BoundaryTensor
from pytest_meshnet.protocol.additions.features import Feature
from pytest_meshnet.protocol.additions.sampling import (
    LOGITS,
    SampledToken,
    SamplingContract,
    TailResult,
    TailWant,
)
from pytest_meshnet.protocol.additions.sideband import INDICES, ORIGIN, origin_tensor
from pytest_meshnet.protocol.codec import encode_bundle
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.tensors import DType, Tensor

PINNED = {
    "session_open_1_1.binpb": "7856f41901b57763448b4040c7a65babb625561bedbffd630dd0fe003b15726a",
    "decode_bundle_1_1.binpb": "f7c8defe7b030ff9db16fcfc2dd252ece4a8b730b847b41e8aae7f7e64d68a20",
    "tail_result_1_1.binpb": "09320165319aebfbc17d4db3121d344541d78f251014b9cbb57e371d06c7b02a",
    "capability_report_1_1.binpb": (
        "d94e1dc0bb0ba10b3115f0b1fbe1fd2ff65a87436bce4fd8ec83d682bb1e33a0"
    ),
    "sampling-vectors.json": "bbc0cbbfebc85a115154c2f75ae9577f2160006972736f57964e23f8d1516729",
}

CONTRACT = SamplingContract(
    temperature=0.7,
    top_k=40,
    top_p=0.95,
    seed=2**63 + 11,
    chat_template_digest="5b1d6c0e",
    reasoning_effort="high",
    want=TailWant.BOTH,
)
CONTRACTS = (
    SamplingContract(),
    CONTRACT,
    SamplingContract(temperature=1.0, seed=2**64 - 1, want=TailWant.TOKEN),
    SamplingContract(temperature=1e-7, top_p=1.0, reasoning_effort="größte", want=TailWant.LOGITS),
)


def session_open(fingerprint: pb.Fingerprint, shard_range: pb.ShardRange) -> pb.SessionRequest:
    """An open that offers every feature, with a sampling contract."""
    message = pb.SessionRequest(
        open=pb.SessionOpen(
            schema_version=pb.SCHEMA_VERSION_1,
            route_session_id="rs-2b91",
            route_epoch=7,
            fingerprint=fingerprint,
            shard_range=shard_range,
            accepted_compression=[pb.COMPRESSION_NONE],
            features=[int(feature) for feature in Feature],  # type: ignore[misc]
        )
    )
    message.open.sampling.CopyFrom(CONTRACT.to_proto())
    return message


def decode_bundle() -> pb.SessionRequest:
    """A DecodeStep with hidden states and the sideband of producer layer 6."""
    states = Tensor("hidden_states", DType.BFLOAT16, (1, 1, 8), bytes(range(16)))
    indices = (384, 0, 17, 2, 383, 256, 128, -1)
    data = b"".join(index.to_bytes(4, "little", signed=True) for index in indices)
    sideband = Tensor(INDICES, DType.INT32, (1, 1, len(indices)), data)
    message = pb.SessionRequest()
    step = message.decode
    step.idempotency_step, step.position, step.expected_past_len = 43, 384, 384
    step.work_id, step.deadline_unix_nanos = "work-7f3b", 1_800_000_000_000_000_000
    step.bundle.CopyFrom(encode_bundle([states, sideband, origin_tensor(6, 384)]))
    return message


def tail_result() -> pb.SessionResponse:
    """A TailResult with both logits and token."""
    data = struct.pack("<4f", 0.5, -1.25, 3.0, 2.75)  # exact in float32
    logits = Tensor(LOGITS, DType.FLOAT32, (1, 1, 4), data)
    result = TailResult(
        "work-7f3b", 43, 384, logits, SampledToken(2, -0.75, False), CONTRACT.digest()
    )
    return pb.SessionResponse(tail=result.to_proto())


def capability_report(base: pb.CapabilityReport) -> pb.CapabilityReport:
    """The published report with every feature and the boundary of a middle Shard."""
    report = pb.CapabilityReport()
    report.CopyFrom(base)
    report.features.extend(int(feature) for feature in Feature)  # type: ignore[misc]
    states = BoundaryTensor("hidden_states", (DType.BFLOAT16, DType.FLOAT32), (8,))
    indices = BoundaryTensor(INDICES, (DType.INT32,), (8,), optional=True)
    origin = BoundaryTensor(ORIGIN, (DType.INT64,), (2,), optional=True)
    spec = BoundarySpec((states, indices, origin), (states,), 8, 64, 0.5)
    report.boundary.CopyFrom(spec.to_proto())
    return report


def sampling_vectors() -> bytes:
    """The document of every vector contract with its digest, as JSON for other languages."""
    vectors = [{"document": one.document(), "digest": one.digest()} for one in CONTRACTS]
    document = {"schema_version": 1, "vectors": vectors}
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()
