"""CODEC-11 on the runtime's own codec: one whole zstd frame, and never more than promised."""

from __future__ import annotations

import pytest
import zstandard

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.runtime.codec_testee import CodecTestee
from pytest_meshnet.runtime.errors import Nonconformance

from . import zstd_frames as zstd
from .codec_cases import (
    BOMBS,
    CHECKED_FRAME,
    FOREIGN_BODIES,
    HUGE,
    LEGAL_FRAMES,
    TRAILING,
    ZSTD_DATA,
    ZSTD_FRAME,
)
from .codec_inputs import MAX_CHUNK, MIB, written
from .testee_asking import bundled, check_refused, decoded, tensors_request
from .testee_memory import peak_within

# A window and an output of a few megabytes, and room for a runtime that collects garbage.
PEAK = 128 * MIB


def _packed(body: bytes, total: int) -> pb.NamedTensor:
    """A tensor whose wire body is said to hold `total` bytes; no checksum stands behind it."""
    message = written(b"", shape=[total], body=b"", checksum=False)
    message.total_bytes = total
    message.fragments[0].payload = body
    return message


def _check_refused(codec_testee: CodecTestee, what: str, body: bytes, total: int) -> None:
    request = tensors_request(bundled(_packed(body, total)))
    with peak_within(codec_testee, PEAK):
        check_refused(codec_testee, what, request, "zstd-frame")


@pytest.mark.requirement("CODEC-11")
@pytest.mark.parametrize("frame", LEGAL_FRAMES.values(), ids=LEGAL_FRAMES)
def test_a_frame_of_any_honest_compressor_is_read(codec_testee: CodecTestee, frame: bytes) -> None:
    """With and without a stated size, checksum or compression at all."""
    (found,) = decoded(codec_testee, "the frame", bundled(_packed(frame, len(ZSTD_DATA))))
    if found.data != ZSTD_DATA:
        raise Nonconformance("the payload", f"{len(found.data)} other bytes")


@pytest.mark.requirement("CODEC-11")
@pytest.mark.parametrize("begin", BOMBS.values(), ids=BOMBS)
@pytest.mark.parametrize("total", [MIB, MAX_CHUNK], ids=["1-MiB", "4-MiB"])
def test_a_frame_that_expands_past_total_bytes_is_refused_in_bounded_memory(
    codec_testee: CodecTestee, begin: bytes, total: int
) -> None:
    """25,600 bytes of blocks that become 800 MiB of zeros, whatever the header says."""
    _check_refused(codec_testee, "a frame of 800 MiB", zstd.bomb(HUGE, begin), total)


@pytest.mark.requirement("CODEC-11")
@pytest.mark.parametrize("window_log", [24, 31, 41])
@pytest.mark.parametrize("content_size", [None, 3000], ids=["no-size", "right-size"])
def test_a_window_that_only_serves_to_allocate_is_refused(
    codec_testee: CodecTestee, window_log: int, content_size: int | None
) -> None:
    """A frame of 3,000 bytes asks its decoder for a window of 16 MiB to 2 TiB."""
    body = zstd.header(content_size, window_log) + zstd.raw(ZSTD_DATA, last=True)
    _check_refused(codec_testee, f"a window of 2^{window_log}", body, len(ZSTD_DATA))


@pytest.mark.requirement("CODEC-11")
@pytest.mark.parametrize("window_log", [17, 23])
def test_a_window_of_up_to_8_mib_is_read(codec_testee: CodecTestee, window_log: int) -> None:
    """What compressors use at their usual levels."""
    body = zstd.header(None, window_log) + zstd.raw(ZSTD_DATA, last=True)
    what = f"a window of 2^{window_log}"
    decoded(codec_testee, what, bundled(_packed(body, len(ZSTD_DATA))))


@pytest.mark.requirement("CODEC-11")
@pytest.mark.parametrize("claimed", [0, 1, 2999, 3001, MAX_CHUNK + 1, 2**63])
@pytest.mark.parametrize("total", [3000, None], ids=["total-is-right", "total-as-claimed"])
def test_a_header_that_lies_about_its_content_is_refused(
    codec_testee: CodecTestee, claimed: int, total: int | None
) -> None:
    """The frame holds 3,000 bytes; total_bytes says so, or repeats the lie."""
    body = zstd.header(claimed, 17) + zstd.raw(ZSTD_DATA, last=True)
    promised = min(claimed, MAX_CHUNK) if total is None else total
    _check_refused(codec_testee, f"a header that claims {claimed}", body, promised)


@pytest.mark.requirement("CODEC-11")
@pytest.mark.parametrize("frame", LEGAL_FRAMES.values(), ids=LEGAL_FRAMES)
def test_a_frame_truncated_anywhere_is_refused(codec_testee: CodecTestee, frame: bytes) -> None:
    """Cut before each of its first and last bytes, and at places in between."""
    size = len(frame)
    for at in sorted({*range(20), *range(20, size - 20, 97), *range(size - 20, size)}):
        what = f"the first {at} of {size} bytes"
        request = tensors_request(bundled(_packed(frame[:at], len(ZSTD_DATA))))
        check_refused(codec_testee, what, request, "zstd-frame")


@pytest.mark.requirement("CODEC-11")
@pytest.mark.parametrize("trailing", TRAILING.values(), ids=TRAILING)
def test_trailing_data_is_refused(codec_testee: CodecTestee, trailing: bytes) -> None:
    """Behind a frame with a checksum and without, and behind one that holds nothing."""
    empty = zstandard.ZstdCompressor().compress(b"")
    decoded(codec_testee, "an empty frame", bundled(_packed(empty, 0)))
    for frame, total in ((ZSTD_FRAME, 3000), (CHECKED_FRAME, 3000), (empty, 0)):
        _check_refused(codec_testee, "a frame with something behind it", frame + trailing, total)


@pytest.mark.requirement("CODEC-11")
@pytest.mark.parametrize("body", FOREIGN_BODIES.values(), ids=FOREIGN_BODIES)
def test_a_body_that_is_not_one_plain_frame_is_refused(
    codec_testee: CodecTestee, body: bytes
) -> None:
    """Another format, a dictionary, a reserved bit, a wrong checksum."""
    _check_refused(codec_testee, "such a body", body, len(ZSTD_DATA))


@pytest.mark.requirement("CODEC-11")
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "compressed"])
def test_total_bytes_is_within_the_chunk_bound(codec_testee: CodecTestee, packed: bool) -> None:
    """Compressed to almost nothing, a tensor above the bound is still above it."""
    for size in (4096, 4097):
        data = bytes(size)
        body = zstandard.ZstdCompressor().compress(data) if packed else None
        message = bundled(written(data, body=body, checksum=False))
        if size == 4097:
            request = tensors_request(message, bound=4096)
            check_refused(codec_testee, "4,097 bytes at 4,096", request, "tensor-bytes")
            step = pb.DecodeStep(tensor=written(data, body=body, checksum=False))
            alone = pb.SessionRequest(decode=step).SerializeToString()
            request = tensors_request(alone, "SessionRequest", 4096)
            check_refused(codec_testee, "the same in a step", request, "tensor-bytes")
        elif packed:  # Of a plain one the framing would be above the bound, which is left open.
            decoded(codec_testee, "4,096 bytes at 4,096", message, bound=4096)


@pytest.mark.requirement("CODEC-11")
@pytest.mark.parametrize(("size", "fits"), [(60000, True), (70000, False)])
def test_the_wire_body_is_within_the_chunk_bound(
    codec_testee: CodecTestee, size: int, fits: bool
) -> None:
    """Ten bytes of payload padded with empty blocks: small in memory, large on the wire."""
    body = zstd.header(10) + zstd.raw(b"") * (size // 3) + zstd.raw(ZSTD_DATA[:10], last=True)
    data, what = bundled(_packed(body, 10)), f"a wire body of {len(body)} at 65536"
    if fits:
        decoded(codec_testee, what, data, bound=65536)
    else:
        check_refused(codec_testee, what, tensors_request(data, bound=65536), "tensor-bytes")
