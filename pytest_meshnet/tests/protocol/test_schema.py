"""The whole schema against the published list of names and numbers, transcribed by hand."""

from __future__ import annotations

import subprocess
import sys

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.generated import shard_runtime_pb2_grpc as rpc

# One line a message: `number name type`, "*" for repeated. Enums and messages by their names.
MESSAGES = """
Checksum: 1 algorithm ChecksumAlgorithm, 2 value bytes
TensorFragment: 1 fragment_index uint32, 2 fragment_count uint32, 3 byte_offset uint64, 4 payload bytes
NamedTensor: 1 name string, 2 shape int64*, 3 dtype DType, 4 byte_order ByteOrder, 5 total_bytes uint64, 6 compression Compression, 7 checksum Checksum, 8 fragments TensorFragment*
TensorBundle: 1 bundle_version uint32, 2 tensors NamedTensor*
Fingerprint: 1 model_artifact_digest string, 2 runtime_recipe_digest string, 3 recipe_id string, 4 recipe_version string, 5 catalogue_version string
ShardRange: 1 start_layer uint32, 2 end_layer uint32, 3 effective_start_layer uint32
PositionSpan: 1 first_position uint64, 2 token_count uint32
ChunkInfo: 1 chunk_index uint32, 2 chunk_count uint32, 3 final_chunk bool
CacheExpectation: 1 mode CacheMode, 2 expected_past_len uint64
CacheResult: 1 mode CacheMode, 2 past_len uint64, 3 cache_hit bool
Envelope: 1 schema_version SchemaVersion, 2 work_id string, 3 route_session_id string, 4 route_epoch uint64, 5 fingerprint Fingerprint, 6 shard_range ShardRange, 7 phase Phase, 8 position PositionSpan, 9 idempotency_step uint64, 10 cache_expectation CacheExpectation, 11 deadline_unix_nanos int64, 12 chunk ChunkInfo
ShardError: 1 code ErrorCode, 2 detail string, 3 retryable bool, 4 actual_past_len uint64
FlowControl: 1 credits_granted uint32, 2 max_inflight_chunks uint32, 3 max_chunk_bytes uint64, 4 max_prefill_chunk_tokens uint32
SessionOpen: 1 schema_version SchemaVersion, 2 route_session_id string, 3 route_epoch uint64, 4 fingerprint Fingerprint, 5 shard_range ShardRange, 6 proposed_flow_control FlowControl, 7 accepted_compression Compression*, 8 features Feature*, 9 sampling SamplingContract
SamplingContract: 1 temperature double, 2 top_k uint32, 3 top_p double, 4 seed uint64, 5 chat_template_digest string, 6 reasoning_effort string, 7 want TailWant
SessionAccepted: 1 schema_version SchemaVersion, 2 route_session_id string, 3 route_epoch uint64, 4 flow_control FlowControl, 5 accepted_compression Compression*, 6 fingerprint Fingerprint, 7 features Feature*
ActivationChunk: 1 envelope Envelope, 2 bundle TensorBundle
DecodeStep: 1 idempotency_step uint64, 2 position uint64, 3 expected_past_len uint64, 4 tensor NamedTensor, 5 work_id string, 6 deadline_unix_nanos int64, 7 bundle TensorBundle
ReleaseSignal: 1 route_session_id string, 2 route_epoch uint64, 3 work_id string
CancelSignal: 1 route_session_id string, 2 route_epoch uint64, 3 work_id string, 4 reason string
Ack: 1 work_id string, 2 idempotency_step uint64, 3 cache_result CacheResult, 4 duplicate bool, 5 execution_nanos uint64
ShardStatus: 1 work_id string, 2 route_session_id string, 3 idempotency_step uint64, 4 error ShardError, 5 terminal bool
SessionRequest: 1 open SessionOpen, 2 chunk ActivationChunk, 3 decode DecodeStep, 4 flow_control FlowControl, 5 release ReleaseSignal, 6 cancel CancelSignal
SessionResponse: 1 accepted SessionAccepted, 2 chunk ActivationChunk, 3 ack Ack, 4 flow_control FlowControl, 5 status ShardStatus, 6 tail TailResult
SampledToken: 1 token_id uint32, 2 log_prob float, 3 end_of_sequence bool
TailResult: 1 work_id string, 2 idempotency_step uint64, 3 position uint64, 4 logits NamedTensor, 5 token SampledToken, 6 sampling_digest string
BoundaryTensor: 1 name string, 2 dtypes DType*, 3 trailing_shape int64*, 4 optional bool
BoundarySpec: 1 inputs BoundaryTensor*, 2 outputs BoundaryTensor*, 3 hidden_size uint32, 4 vocab_size uint32, 5 input_scale float
CapabilityRequest: 1 schema_version SchemaVersion
CapabilityReport: 1 schema_version SchemaVersion, 2 fingerprint Fingerprint, 3 shard_range ShardRange, 4 backend string, 5 device string, 6 validated bool, 7 detail string, 8 max_concurrent_sessions uint64, 9 max_context_tokens uint64, 10 flow_control FlowControl, 11 accepted_compression Compression*, 12 supported_schema_versions SchemaVersion*, 13 validated_at_unix_nanos int64, 14 features Feature*, 15 boundary BoundarySpec
HealthRequest: 1 schema_version SchemaVersion
HealthReport: 1 schema_version SchemaVersion, 2 state ServingState, 3 active_sessions uint32, 4 queued_chunks uint32, 5 batch_occupancy uint32, 6 kv_pressure float, 7 resident_bytes uint64, 8 detail string
ReleaseRequest: 1 schema_version SchemaVersion, 2 route_session_id string, 3 route_epoch uint64
ReleaseResponse: 1 released bool, 2 error ShardError
CancelRequest: 1 schema_version SchemaVersion, 2 route_session_id string, 3 route_epoch uint64, 4 work_id string, 5 reason string
CancelResponse: 1 cancelled_work_items uint32, 2 error ShardError
"""  # noqa: E501

# Value names without the prefix that each enum gives them, in the order of their numbers from 0.
ENUMS = {
    "SchemaVersion": "SCHEMA_VERSION_ UNSPECIFIED 1",
    "DType": "DTYPE_ UNSPECIFIED BFLOAT16 FLOAT16 FLOAT32 INT32 INT64 UINT8 INT8 BOOL",
    "ByteOrder": "BYTE_ORDER_ UNSPECIFIED LITTLE_ENDIAN BIG_ENDIAN",
    "Compression": "COMPRESSION_ UNSPECIFIED NONE ZSTD",
    "ChecksumAlgorithm": "CHECKSUM_ALGORITHM_ UNSPECIFIED NONE CRC32C",
    "Phase": "PHASE_ UNSPECIFIED PREFILL DECODE RELEASE CANCEL",
    "CacheMode": "CACHE_MODE_ UNSPECIFIED STATELESS PREFILL DECODE",
    "ErrorCode": (
        "ERROR_CODE_ UNSPECIFIED SCHEMA_UNSUPPORTED FINGERPRINT_MISMATCH EPOCH_STALE "
        "SHARD_RANGE_MISMATCH CACHE_MISS RESOURCE_EXHAUSTED PAYLOAD_CORRUPT CANCELLED "
        "DEADLINE_EXCEEDED FLOW_CONTROL_VIOLATION INTERNAL"
    ),
    "Feature": "FEATURE_ UNSPECIFIED DECODE_BUNDLE TAIL_RESULT INDEX_SHARE_SIDEBAND BOUNDARY_SPEC",
    "TailWant": "TAIL_WANT_ UNSPECIFIED TOKEN LOGITS BOTH",
    "ServingState": "SERVING_STATE_ UNSPECIFIED SERVING DRAINING NOT_SERVING",
}

FILE = FileDescriptorProto.FromString(pb.DESCRIPTOR.serialized_pb)
LINES = dict(line.split(": ") for line in MESSAGES.strip().splitlines())


def _described(field: FieldDescriptorProto) -> str:
    type_name = field.type_name.removeprefix(".meshnet.shard.v1.")
    kind = type_name or FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    star = "*" if field.label == FieldDescriptorProto.LABEL_REPEATED else ""
    return f"{field.number} {field.name} {kind}{star}"


@pytest.mark.parametrize("name", LINES)
def test_a_message_has_the_published_fields_and_no_others(name):
    message = next((one for one in FILE.message_type if one.name == name), None)
    assert message is not None, f"there is no message {name}"
    found = ", ".join(map(_described, sorted(message.field, key=lambda one: one.number)))
    assert found == LINES[name]


def test_there_are_no_other_messages():
    assert sorted(one.name for one in FILE.message_type) == sorted(LINES)


@pytest.mark.parametrize("name", ENUMS)
def test_an_enum_has_the_published_values(name):
    prefix, *values = ENUMS[name].split()
    enum = next(one for one in FILE.enum_type if one.name == name)
    found = {one.name: one.number for one in enum.value}
    assert found == {prefix + value: number for number, value in enumerate(values)}


def test_there_are_no_other_enums():
    assert sorted(one.name for one in FILE.enum_type) == sorted(ENUMS)


@pytest.mark.parametrize("name", ["SessionRequest", "SessionResponse"])
def test_a_stream_message_is_one_of_its_kinds(name):
    message = next(one for one in FILE.message_type if one.name == name)
    assert [one.name for one in message.oneof_decl] == ["kind"]
    assert all(one.HasField("oneof_index") for one in message.field)


def test_the_file_has_the_published_package_and_options():
    assert (FILE.package, FILE.syntax) == ("meshnet.shard.v1", "proto3")
    assert FILE.options.cc_enable_arenas
    assert FILE.options.go_package == "github.com/meshnet/shard/v1;shardv1"


class _Channel:
    """Notes which methods a stub asks for."""

    def __init__(self):
        self.methods = {}

    def __getattr__(self, kind):
        def method(path, **_):
            self.methods[path] = kind

        return method


def test_the_client_stub_calls_the_five_methods_by_their_paths():
    channel = _Channel()
    rpc.ShardRuntimeStub(channel)
    expected = dict.fromkeys(("GetCapability", "Health", "Release", "Cancel"), "unary_unary")
    expected["Session"] = "stream_stream"
    prefix = "/meshnet.shard.v1.ShardRuntime/"
    assert channel.methods == {prefix + name: kind for name, kind in expected.items()}


def test_the_stubs_import_beside_a_stranger_with_a_file_of_the_same_name():
    program = """
from google.protobuf import descriptor_pb2, descriptor_pool
file = descriptor_pb2.FileDescriptorProto(name="shard_runtime.proto", package="elsewhere")
file.message_type.add(name="Envelope")
descriptor_pool.Default().Add(file)
from pytest_meshnet.protocol.generated import shard_runtime_pb2
print(shard_runtime_pb2.Envelope.DESCRIPTOR.full_name)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("meshnet.shard.v1.Envelope\n", 0), done.stderr
