"""The reference's codec testee: our codec behind the frames of docs/codec-testee.md.

Run as `python -m pytest_meshnet.reference.codec_testee [--mutant NAME]`. What it calls is looked up
at each request, because a mutant replaces it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import BinaryIO

from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message

from pytest_meshnet.protocol import codec, generated
from pytest_meshnet.protocol.errors import ProtocolError
from pytest_meshnet.protocol.generated import codec_testee_pb2 as testee
from pytest_meshnet.protocol.tensors import DType, Tensor

_PREFIX = 4


class CutOff(Exception):
    """The input ended inside a frame."""


def reserialize(request: testee.CodecRequest) -> testee.Result:
    """Parse and serialize again, unknown fields included."""
    return testee.Result(data=_serialized(_parsed(request)))


def to_json(request: testee.CodecRequest) -> testee.Result:
    """Parse, and print as JSON."""
    return testee.Result(json=json_format.MessageToJson(_parsed(request)))


def from_json(request: testee.CodecRequest) -> testee.Result:
    """Build from JSON, and serialize."""
    message = _kind(request.message)()
    try:
        json_format.Parse(request.json, message)
    except json_format.ParseError as error:
        raise ProtocolError("parse", str(error)) from None
    return testee.Result(data=_serialized(message))


def tensors(request: testee.CodecRequest) -> testee.Result:
    """Check and decode the tensors of a bundle, or of a stream message."""
    message, bound = _parsed(request), request.max_chunk_bytes
    if request.message != "TensorBundle":
        codec.check_message_size(len(request.data), bound)
    found = [_plain(one) for one in _decoded(message, bound)]
    return testee.Result(tensors=found)


def _decoded(message: Message, bound: int) -> tuple[Tensor, ...]:
    pb = generated.shard_runtime_pb2
    if isinstance(message, pb.TensorBundle):
        return codec.decode_bundle(message, max_bytes=bound)
    kind = message.WhichOneof("kind")
    if kind == "chunk":
        return codec.decode_bundle(message.chunk.bundle, max_bytes=bound)  # type: ignore[attr-defined]
    if kind == "decode":
        return (codec.decode_tensor(message.decode.tensor, max_bytes=bound),)  # type: ignore[attr-defined]
    return ()


def encode(request: testee.CodecRequest) -> testee.Result:
    """Encode plain tensors as a bundle."""
    told = request.encoding
    promised = sum(len(one.data) for one in told.tensors)
    if promised > request.max_chunk_bytes:
        raise ProtocolError(
            "bundle-bytes", f"{promised} bytes, at most {request.max_chunk_bytes} were settled"
        )
    bundle = codec.encode_bundle(
        [_tensor(one) for one in told.tensors],
        compression=told.compression,
        checksum=told.checksum_algorithm,
        fragment_bytes=told.fragment_bytes,
    )
    return testee.Result(data=_serialized(bundle))


Task = Callable[[testee.CodecRequest], testee.Result]
TASKS: dict[int, Task] = {
    testee.TASK_RESERIALIZE: reserialize,
    testee.TASK_TO_JSON: to_json,
    testee.TASK_FROM_JSON: from_json,
    testee.TASK_TENSORS: tensors,
    testee.TASK_ENCODE: encode,
}


def answer(request: testee.CodecRequest) -> testee.CodecAnswer:
    """Do what a request asks for."""
    task = TASKS.get(request.task)
    if task is None:
        return testee.CodecAnswer(unsupported=f"the task {request.task} is unknown")
    if request.message not in ("", *generated.shard_runtime_pb2.DESCRIPTOR.message_types_by_name):
        return testee.CodecAnswer(unsupported=f"there is no message {request.message}")
    try:
        return testee.CodecAnswer(result=task(request))
    except ProtocolError as error:
        return testee.CodecAnswer(refused=testee.Refusal(rule=error.rule, detail=str(error)))


def _kind(name: str) -> type[Message]:
    kind: type[Message] = getattr(generated.shard_runtime_pb2, name)
    return kind


def _parsed(request: testee.CodecRequest) -> Message:
    try:
        return _kind(request.message).FromString(request.data)
    except DecodeError as error:
        raise ProtocolError("parse", str(error)) from None


def _serialized(message: Message) -> bytes:
    return message.SerializeToString(deterministic=True)


def _tensor(plain: testee.PlainTensor) -> Tensor:
    try:
        dtype = DType(plain.dtype)
    except ValueError:
        raise ProtocolError("dtype", f"dtype {plain.dtype} is not known") from None
    return Tensor(plain.name, dtype, tuple(plain.shape), plain.data)


def _plain(tensor: Tensor) -> testee.PlainTensor:
    return testee.PlainTensor(
        name=tensor.name, dtype=int(tensor.dtype), shape=tensor.shape, data=bytes(tensor.data)
    )


def _next_frame(stream: BinaryIO) -> bytes | None:
    prefix = stream.read(_PREFIX)
    if not prefix:
        return None
    size = int.from_bytes(prefix, "little")
    data = stream.read(size)
    if len(prefix) < _PREFIX or len(data) < size:
        raise CutOff(f"a frame of {size} bytes was cut off after {len(data)}")
    return data


def serve(source: BinaryIO, sink: BinaryIO) -> int:
    """Answer every frame until the end of the input. Returns the exit code."""
    try:
        while (frame := _next_frame(source)) is not None:
            data = answer(testee.CodecRequest.FromString(frame)).SerializeToString()
            sink.write(len(data).to_bytes(_PREFIX, "little") + data)
            sink.flush()
    except CutOff as cut:
        print(cut, file=sys.stderr)  # noqa: T201
        return 1
    return 0


def main(arguments: list[str]) -> int:
    """Serve standard input and output, as the mutant or variant that `--mutant` names."""
    if arguments:
        from pytest_meshnet.reference.catalogue import apply_to_testee

        _, name = arguments
        apply_to_testee(name)
    return serve(sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    # By its name, so that a mutant finds the module that runs.
    from pytest_meshnet.reference.codec_testee import main as run

    sys.exit(run(sys.argv[1:]))
