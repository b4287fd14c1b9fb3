"""CODEC-11: a compressed body is one whole zstd frame that expands to what was promised."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_meshnet.protocol import codec
from pytest_meshnet.protocol.errors import ProtocolError
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.tensors import Tensor
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
from .codec_inputs import (
    FOREIGN_ERRORS,
    MAX_CHUNK,
    MIB,
    accepted,
    peak_within,
    refused,
    written,
)

# What a decoder may use over what was in use: an output and a window of a few megabytes.
PEAK = 32 * MIB


def _decode(body: bytes, total: int, *, max_bytes: int = MAX_CHUNK) -> Tensor:
    """Decode a wire body that is said to hold `total` bytes; no checksum stands behind it."""
    message = written(b"", shape=[total], body=b"", checksum=False)
    message.total_bytes = total
    cuts = [MIB] * ((len(body) - 1) // MIB) if body else []
    del message.fragments[:]
    message.fragments.extend(written(body, cuts=cuts, checksum=False).fragments)
    return codec.decode_tensor(message, max_bytes=max_bytes)


def _check_holds(body: bytes, data: bytes) -> None:
    """Require that zstd itself reads a frame written by hand, so that its flaw is the only one."""
    found = zstandard.ZstdDecompressor().decompressobj().decompress(body)
    if found != data:
        raise Nonconformance("a legal frame", f"zstd reads {found[:40]!r}", "correct this test")


# Legal frames -----------------------------------------------------------------------------------


@pytest.mark.requirement("CODEC-11")
@pytest.mark.parametrize("frame", LEGAL_FRAMES.values(), ids=LEGAL_FRAMES)
def test_a_frame_of_any_honest_compressor_is_read(frame: bytes) -> None:
    """With and without a stated size, checksum or compression at all."""
    tensor = accepted("the frame", lambda: _decode(frame, len(ZSTD_DATA)))
    if tensor.data != ZSTD_DATA:
        raise Nonconformance("the payload", f"{len(tensor.data)} other bytes")


# Bombs ------------------------------------------------------------------------------------------


@pytest.mark.requirement("CODEC-11")
@pytest.mark.parametrize("begin", BOMBS.values(), ids=BOMBS)
@pytest.mark.parametrize("total", [MIB, MAX_CHUNK], ids=["1-MiB", "4-MiB"])
def test_a_frame_that_expands_past_total_bytes_is_refused_in_bounded_memory(
    begin: bytes, total: int
) -> None:
    """25,600 bytes of blocks that become 800 MiB of zeros, whatever the header says."""
    body = zstd.bomb(HUGE, begin)
    with peak_within(PEAK):
        refused("a frame of 800 MiB", lambda: _decode(body, total))


@pytest.mark.requirement("CODEC-11")
def test_many_bombs_in_one_bundle_are_refused_in_bounded_memory() -> None:
    """64 tensors of 64 KiB that would each become 16 MiB."""
    frame = zstd.bomb(16 * MIB, zstd.header(window_log=17))
    messages = [written(bytes(65536), name=f"t{n}", body=frame, checksum=False) for n in range(64)]
    bundle = pb.TensorBundle(bundle_version=1, tensors=messages)
    with peak_within(PEAK):
        refused("64 bombs", lambda: codec.decode_bundle(bundle))


@pytest.mark.requirement("CODEC-11")
@pytest.mark.parametrize("window_log", [24, 27, 31, 41])
@pytest.mark.parametrize("content_size", [None, 3000], ids=["no-size", "right-size"])
def test_a_window_that_only_serves_to_allocate_is_refused(
    window_log: int, content_size: int | None
) -> None:
    """A frame of 3,000 bytes asks its decoder for a window of 16 MiB to 2 TiB."""
    body = zstd.header(content_size, window_log) + zstd.raw(ZSTD_DATA, last=True)
    with peak_within(PEAK):
        refused(f"a window of 2^{window_log}", lambda: _decode(body, len(ZSTD_DATA)))


@pytest.mark.requirement("CODEC-11")
@pytest.mark.parametrize("window_log", [10, 17, 23])
def test_a_window_of_up_to_8_mib_is_read(window_log: int) -> None:
    """What compressors use at their usual levels."""
    body = (
        zstd.header(None, window_log)
        + zstd.raw(ZSTD_DATA[:1000])
        + zstd.raw(ZSTD_DATA[1000:], last=True)
    )
    if window_log == 10:  # No block may be larger than the window.
        blocks = [zstd.raw(ZSTD_DATA[at : at + 1000]) for at in (0, 1000)]
        body = zstd.header(None, 10) + b"".join(blocks) + zstd.raw(ZSTD_DATA[2000:], last=True)
    accepted(f"a window of 2^{window_log}", lambda: _decode(body, len(ZSTD_DATA)))


# Lies and damage --------------------------------------------------------------------------------


@pytest.mark.requirement("CODEC-11")
@pytest.mark.parametrize("claimed", [0, 1, 2999, 3001, 6000, MAX_CHUNK + 1, 2**63, 2**64 - 3])
@pytest.mark.parametrize("total", [3000, None], ids=["total-is-right", "total-as-claimed"])
def test_a_header_that_lies_about_its_content_is_refused(claimed: int, total: int | None) -> None:
    """The frame holds 3,000 bytes; total_bytes says so, or repeats the lie."""
    body = zstd.header(claimed, 17) + zstd.raw(ZSTD_DATA, last=True)
    if total is None:
        total = min(claimed, MAX_CHUNK)
    with peak_within(PEAK):
        refused(f"a header that claims {claimed}", lambda: _decode(body, total))


@pytest.mark.requirement("CODEC-11")
@pytest.mark.parametrize("frame", LEGAL_FRAMES.values(), ids=LEGAL_FRAMES)
def test_a_frame_truncated_anywhere_is_refused(frame: bytes) -> None:
    """Cut before each byte of its first and last two hundred, and at each seventh in between."""
    size = len(frame)
    cuts = {at for at in range(size) if at < 200 or at > size - 200 or at % 7 == 0}
    for at in sorted(cuts):
        refused(
            f"the first {at} of {size} bytes", lambda at=at: _decode(frame[:at], len(ZSTD_DATA))
        )


@pytest.mark.requirement("CODEC-11")
def test_a_frame_truncated_after_all_of_its_data_is_refused() -> None:
    """What was promised is there; only the end of the frame, or its checksum, is not."""
    for body in (
        zstd.header(3000) + zstd.raw(ZSTD_DATA),
        CHECKED_FRAME[:-4],
        CHECKED_FRAME[:-1],
        zstd.header() + zstd.raw(ZSTD_DATA) + zstd.raw(b"", last=True)[:2],
    ):
        refused(
            f"{len(body)} bytes without an end", lambda body=body: _decode(body, len(ZSTD_DATA))
        )


@pytest.mark.requirement("CODEC-11")
@pytest.mark.parametrize("frame", LEGAL_FRAMES.values(), ids=LEGAL_FRAMES)
@pytest.mark.parametrize("trailing", TRAILING.values(), ids=TRAILING)
def test_trailing_data_is_refused(frame: bytes, trailing: bytes) -> None:
    """The data before it is right and whole, and still not all that was sent."""
    refused("a frame with something behind it", lambda: _decode(frame + trailing, len(ZSTD_DATA)))


@pytest.mark.requirement("CODEC-11")
def test_trailing_data_behind_an_empty_tensor_is_refused() -> None:
    """Nothing was promised, so nothing is missing; the bytes are there all the same."""
    empty = zstandard.ZstdCompressor().compress(b"")
    accepted("an empty frame", lambda: _decode(empty, 0))
    for body in (
        empty + b"x",
        empty + empty,
        b"",
        zstd.skippable(b""),
        zstd.skippable(b"abcd") + empty,
    ):
        refused(f"{body.hex() or 'nothing'} for no data", lambda body=body: _decode(body, 0))


@pytest.mark.requirement("CODEC-11")
def test_a_skippable_frame_that_hides_another_is_refused() -> None:
    """Read as a frame header, it is followed by one block that reaches to the end of the body."""
    frame = zstandard.ZstdCompressor().compress(b"abcd")
    block = zstd.raw(bytes(len(frame)), last=True)[:3]
    body = zstd.skippable(b"\x00" + block) + frame
    refused("two frames for four bytes", lambda: _decode(body, 4))


@pytest.mark.requirement("CODEC-11")
@pytest.mark.parametrize("body", FOREIGN_BODIES.values(), ids=FOREIGN_BODIES)
def test_a_body_that_is_not_one_plain_frame_is_refused(body: bytes) -> None:
    """Each is refused by the codec's own error and not by that of a library."""
    refused("such a body", lambda: _decode(body, len(ZSTD_DATA)))


@pytest.mark.requirement("CODEC-11")
@given(at=st.integers(0, len(ZSTD_FRAME) - 1), byte=st.integers(0, 255), total=st.integers(0, 6000))
@settings(max_examples=200)
def test_any_damaged_byte_is_refused_or_without_effect(at: int, byte: int, total: int) -> None:
    """Without a checksum data may differ, its size may not; and never another exception."""
    body = ZSTD_FRAME[:at] + bytes([byte]) + ZSTD_FRAME[at + 1 :]
    try:
        tensor = _decode(body, total)
    except ProtocolError:
        return
    except FOREIGN_ERRORS as error:
        raise Nonconformance("a ProtocolError", f"{type(error).__name__}: {error}") from error
    if len(tensor.data) != total:
        raise Nonconformance(f"{total} bytes", f"{len(tensor.data)}")


# Bounds on both sides ---------------------------------------------------------------------------


@pytest.mark.requirement("CODEC-11")
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "compressed"])
@pytest.mark.parametrize("bound", [None, 4096, 65536])
def test_total_bytes_is_within_the_chunk_bound(packed: bool, bound: int | None) -> None:
    """Compressed to almost nothing, a tensor above the bound is still above it."""
    limit: dict[str, int] = {} if bound is None else {"max_bytes": bound}
    for size, verdict in ((bound or MAX_CHUNK, accepted), ((bound or MAX_CHUNK) + 1, refused)):
        data = bytes(size)
        body = zstandard.ZstdCompressor().compress(data) if packed else None
        sizes = [MIB] * ((size - 1) // MIB) if not packed else []
        message = written(data, body=body, cuts=sizes, checksum=False)
        decode: Callable[[], Tensor] = lambda m=message: codec.decode_tensor(m, **limit)  # noqa: E731
        verdict(f"{size} bytes at {bound or MAX_CHUNK}", decode)


@pytest.mark.requirement("CODEC-11")
@pytest.mark.parametrize(("size", "verdict"), [(60000, accepted), (70000, refused)])
def test_the_wire_body_is_within_the_chunk_bound(size: int, verdict: Callable) -> None:
    """Ten bytes of payload padded with empty blocks: small in memory, large on the wire."""
    padding = zstd.raw(b"") * (size // 3)
    body = zstd.header(10) + padding + zstd.raw(ZSTD_DATA[:10], last=True)
    _check_holds(body, ZSTD_DATA[:10])
    verdict(f"a wire body of {len(body)}", lambda: _decode(body, 10, max_bytes=65536))
