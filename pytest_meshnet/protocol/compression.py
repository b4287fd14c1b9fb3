"""zstd bodies: one frame, all of it, and never more output than was promised."""

from __future__ import annotations

from pytest_meshnet.protocol.errors import PayloadCorrupt, ProtocolError
from pytest_meshnet.protocol.tensors import Buffer

# Twice the largest chunk: a window beyond it only serves to make the receiver allocate.
MAX_WINDOW_BYTES = 8 * 1024 * 1024

_MAGIC = b"\x28\xb5\x2f\xfd"
_BLOCK_HEADER = 3
_RLE_BLOCK = 1
_RESERVED_BLOCK = 3
_FRAME_CHECKSUM = 4


def compress(data: Buffer, level: int = 3) -> bytes:
    """Compress into one zstd frame that states its content size."""
    import zstandard

    return zstandard.ZstdCompressor(level=level).compress(data)


def decompress(body: bytes, total_bytes: int) -> bytes:
    """Return the `total_bytes` that `body`, exactly one zstd frame, expands to.

    The frame header is checked first and not believed afterwards: output is capped at
    `total_bytes` plus one. Raises PayloadCorrupt when the frame is damaged, truncated, followed by
    anything, or of another size; ProtocolError when its window is above MAX_WINDOW_BYTES.
    """
    import zstandard

    try:
        # zstd also reads skippable frames, which hold no data and here only hide what follows.
        if body[: len(_MAGIC)] != _MAGIC:
            raise PayloadCorrupt("zstd-frame", "the body does not begin with the magic of zstd")
        header = zstandard.get_frame_parameters(body)
    except zstandard.ZstdError as error:
        raise PayloadCorrupt("zstd-frame", f"the body is not a zstd frame: {error}") from None
    if header.content_size not in (zstandard.CONTENTSIZE_UNKNOWN, total_bytes):
        raise PayloadCorrupt(
            "zstd-size",
            f"the frame promises {header.content_size} bytes, total_bytes {total_bytes}",
        )
    if header.window_size > MAX_WINDOW_BYTES:
        raise ProtocolError(
            "zstd-window", f"window of {header.window_size} bytes, at most {MAX_WINDOW_BYTES}"
        )
    end = _frame_end(body, zstandard.frame_header_size(body), header.has_checksum)
    if end != len(body):
        raise PayloadCorrupt("zstd-trailing", f"the frame ends at {end} of {len(body)} bytes")
    decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES)
    try:
        with decompressor.stream_reader(body) as reader:
            data = reader.read(total_bytes + 1)
    except zstandard.ZstdError as error:
        raise PayloadCorrupt("zstd-frame", f"the zstd frame is damaged: {error}") from None
    if len(data) != total_bytes:
        raise PayloadCorrupt(
            "zstd-size",
            f"the body expands to {'more than ' if len(data) > total_bytes else ''}"
            f"{min(len(data), total_bytes)} bytes, total_bytes {total_bytes}",
        )
    return data


def _frame_end(body: bytes, position: int, has_checksum: bool) -> int:
    """Walk the block headers (RFC 8878, 3.1.1.2) to the end of the frame without expanding it."""
    last = False
    while not last:
        if position + _BLOCK_HEADER > len(body):
            raise PayloadCorrupt("zstd-truncated", "the zstd frame ends inside a block header")
        word = int.from_bytes(body[position : position + _BLOCK_HEADER], "little")
        last, kind, size = bool(word & 1), (word >> 1) & 3, word >> 3
        if kind == _RESERVED_BLOCK:
            raise PayloadCorrupt("zstd-frame", "the zstd frame holds a reserved block type")
        position += _BLOCK_HEADER + (1 if kind == _RLE_BLOCK else size)
    position += _FRAME_CHECKSUM if has_checksum else 0
    if position > len(body):
        raise PayloadCorrupt("zstd-truncated", "the zstd frame ends before its last block")
    return position
