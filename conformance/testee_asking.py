"""How the tests of a codec testee ask: one function a task, and what its answers must be."""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message

from pytest_meshnet.protocol.generated import codec_testee_pb2 as testee
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.runtime.codec_testee import CodecTestee, described, shown
from pytest_meshnet.runtime.errors import Nonconformance

from .codec_inputs import MAX_CHUNK, MIB

# Breaking one of these often breaks others by consequence: any of them fits for any other, and for
# a dtype or checksum algorithm without meaning. docs/codec-testee.md says the same.
SIZES = frozenset(
    {
        "tensor-count",
        "fragment-count",
        "fragment-bytes",
        "fragment-tiling",
        "rank",
        "dimension",
        "total-bytes",
        "tensor-bytes",
        "bundle-bytes",
        "message-bytes",
        "checksum",
        "zstd-frame",
        "zstd-truncated",
        "zstd-trailing",
        "zstd-size",
        "zstd-window",
    }
)
FIELDS = frozenset(
    {
        "bundle-version",
        "tensor-name",
        "duplicate-name",
        "dtype",
        "byte-order",
        "compression",
        "checksum-algorithm",
    }
)


def fitting(rule: str) -> frozenset[str]:
    """The names that fit where `rule` is broken."""
    consequences = rule in SIZES or rule in ("dtype", "checksum-algorithm")
    return SIZES | {rule} if consequences else frozenset({rule})


def tensors_request(
    data: bytes, message: str = "TensorBundle", bound: int = MAX_CHUNK
) -> testee.CodecRequest:
    """Ask for the tensors of a serialized message."""
    return testee.CodecRequest(
        task=testee.TASK_TENSORS, message=message, data=data, max_chunk_bytes=bound
    )


def bundled(*tensors: pb.NamedTensor) -> bytes:
    """A serialized bundle of these tensors."""
    return pb.TensorBundle(bundle_version=1, tensors=tensors).SerializeToString(deterministic=True)


def encode_request(
    tensors: Iterable[Tensor],
    *,
    compression: int = pb.COMPRESSION_NONE,
    checksum: int = pb.CHECKSUM_ALGORITHM_CRC32C,
    fragment_bytes: int = MIB,
) -> testee.CodecRequest:
    """Ask for a bundle of these tensors."""
    plain = [
        testee.PlainTensor(name=one.name, dtype=one.dtype, shape=one.shape, data=bytes(one.data))
        for one in tensors
    ]
    return testee.CodecRequest(
        task=testee.TASK_ENCODE,
        max_chunk_bytes=MAX_CHUNK,
        encoding=testee.Encoding(
            tensors=plain,
            compression=compression,
            checksum_algorithm=checksum,
            fragment_bytes=fragment_bytes,
        ),
    )


def result_of(codec_testee: CodecTestee, what: str, request: testee.CodecRequest) -> testee.Result:
    """Ask for what must not be refused."""
    answer = codec_testee.ask(request)
    if answer.WhichOneof("kind") != "result":
        refusal = answer.refused
        raise Nonconformance(
            f"{what} is accepted: {described(request)}",
            f"refused for {refusal.rule or 'a rule it does not name'}: {refusal.detail[:200]}",
            shown(request),
        )
    return answer.result


def check_refused(
    codec_testee: CodecTestee, what: str, request: testee.CodecRequest, rule: str
) -> None:
    """Require a refusal; where it names a rule, one that fits `rule`."""
    answer = codec_testee.ask(request)
    if answer.WhichOneof("kind") != "refused":
        found = answer.result.tensors or answer.result.data
        raise Nonconformance(
            f"{what} is refused: {described(request)}",
            f"it gave {str(found)[:200]!r}",
            shown(request),
        )
    if answer.refused.rule and answer.refused.rule not in fitting(rule):
        raise Nonconformance(
            f"{what} refused for {rule}, a rule that fits it, or none that is named",
            f"refused for {answer.refused.rule}: {answer.refused.detail[:200]}",
            shown(request),
        )


def decoded(
    codec_testee: CodecTestee,
    what: str,
    data: bytes,
    message: str = "TensorBundle",
    bound: int = MAX_CHUNK,
) -> list[Tensor]:
    """The tensors of a message that must be accepted."""
    result = result_of(codec_testee, what, tensors_request(data, message, bound))
    unknown = [one.dtype for one in result.tensors if one.dtype not in set(DType)]
    if unknown:
        raise Nonconformance(f"{what}: tensors of known dtypes", f"dtype {unknown[0]}")
    return [
        Tensor(one.name, DType(one.dtype), tuple(one.shape), one.data) for one in result.tensors
    ]


def encoded(codec_testee: CodecTestee, what: str, request: testee.CodecRequest) -> pb.TensorBundle:
    """The bundle that comes of an encoding which must be accepted."""
    data = result_of(codec_testee, what, request).data
    try:
        return pb.TensorBundle.FromString(data)
    except DecodeError as error:
        raise Nonconformance(f"{what}: a TensorBundle", f"{error}", shown(request)) from error


def rewritten(codec_testee: CodecTestee, name: str, data: bytes) -> bytes:
    """What comes of a message that is parsed and serialized again."""
    request = testee.CodecRequest(task=testee.TASK_RESERIALIZE, message=name, data=data)
    return result_of(codec_testee, f"a {name}", request).data


def read_as_json(codec_testee: CodecTestee, name: str, data: bytes, into: Message) -> Message:
    """Fill `into` with what a message is as the testee's JSON, and return it."""
    request = testee.CodecRequest(task=testee.TASK_TO_JSON, message=name, data=data)
    text = result_of(codec_testee, f"a {name}", request).json
    try:
        json_format.Parse(text, into)
    except json_format.ParseError as error:
        raise Nonconformance(
            f"the ProtoJSON of a {name}", f"{error} in {text[:200]}", shown(request)
        ) from error
    return into


def built_from_json(codec_testee: CodecTestee, name: str, message: Message) -> bytes:
    """What comes of a message that is told as JSON and serialized."""
    text = json_format.MessageToJson(message, indent=None)
    request = testee.CodecRequest(task=testee.TASK_FROM_JSON, message=name, json=text)
    return result_of(codec_testee, f"the JSON of a {name}", request).data
