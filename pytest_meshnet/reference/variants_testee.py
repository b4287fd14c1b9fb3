"""Honest codec testees: each differs in what docs/codec-testee.md leaves free, and must pass."""

from __future__ import annotations

import io
from typing import BinaryIO

import zstandard
from google.protobuf import json_format

from pytest_meshnet.protocol import codec, generated
from pytest_meshnet.protocol.generated import codec_testee_pb2 as testee
from pytest_meshnet.reference import codec_testee
from pytest_meshnet.reference.catalogue import testee_variant
from pytest_meshnet.reference.mutants.patching import replace

_SIZES = (
    "checksum",
    "dimension",
    "fragment-bytes",
    "fragment-count",
    "fragment-tiling",
    "rank",
    "tensor-bytes",
    "tensor-count",
    "zstd-frame",
    "zstd-size",
    "zstd-trailing",
    "zstd-truncated",
    "zstd-window",
)


def _rename(old: tuple[str, ...] | None, new: str) -> None:
    """Answer with another rule for these, or for all."""
    right = codec_testee.answer

    def renamed(request: testee.CodecRequest) -> testee.CodecAnswer:
        answer = right(request)
        if answer.HasField("refused") and (old is None or answer.refused.rule in old):
            answer.refused.rule, answer.refused.detail = new, ""
        return answer

    replace(codec_testee, "answer", renamed)


@testee_variant
def testee_without_rules() -> None:
    """A refusal says nothing about why."""
    _rename(None, "")


@testee_variant
def testee_that_sees_sizes_only() -> None:
    """Whatever does not add up is said to be total_bytes."""
    _rename(_SIZES, "total-bytes")


@testee_variant
def testee_with_other_json() -> None:
    """JSON with the names of the .proto, numbers for enumerations, and every default."""

    def printed(request: testee.CodecRequest) -> testee.Result:
        kind = getattr(generated.shard_runtime_pb2, request.message)
        text = json_format.MessageToJson(
            kind.FromString(request.data),
            preserving_proto_field_name=True,
            use_integers_for_enums=True,
            always_print_fields_with_no_presence=True,
            indent=None,
        )
        return testee.Result(json=text)

    codec_testee.TASKS[testee.TASK_TO_JSON] = printed


@testee_variant
def testee_that_compresses_as_a_stream() -> None:
    """zstd frames of the strongest level with a checksum and without a stated size."""
    compressor = zstandard.ZstdCompressor(level=19, write_content_size=False, write_checksum=True)
    replace(codec, "compress", compressor.compress)


@testee_variant
def testee_that_writes_byte_by_byte() -> None:
    """The beginning of each frame goes out in single bytes, as an unbuffered program writes it."""
    right = codec_testee.serve

    class Dripping(io.RawIOBase):
        def __init__(self, sink: BinaryIO) -> None:
            self._sink = sink

        def write(self, data: bytes) -> int:  # type: ignore[override]
            for at in range(min(8, len(data))):
                self._sink.write(data[at : at + 1])
                self._sink.flush()
            self._sink.write(data[8:])
            return len(data)

        def flush(self) -> None:
            self._sink.flush()

    def serve(source: BinaryIO, sink: BinaryIO) -> int:
        return right(source, Dripping(sink))  # type: ignore[arg-type]

    replace(codec_testee, "serve", serve)


@testee_variant
def testee_whose_bundles_count_their_framing() -> None:
    """A lone bundle is measured as it is serialized, and not only its payloads."""
    right = codec_testee.tensors

    def measured(request: testee.CodecRequest) -> testee.Result:
        codec.check_message_size(len(request.data), request.max_chunk_bytes)
        return right(request)

    codec_testee.TASKS[testee.TASK_TENSORS] = measured
