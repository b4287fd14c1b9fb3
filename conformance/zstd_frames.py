"""zstd frames written by hand (RFC 8878), for what no honest compressor writes."""

from __future__ import annotations

MAGIC = bytes.fromhex("28b52ffd")
BLOCK = 128 * 1024

SINGLE_SEGMENT = 0x20
RESERVED = 0x08


def header(
    content_size: int | None = None, window_log: int = 17, *, flags: int = 0, dictionary: int = 0
) -> bytes:
    """A frame header with a window of 2^window_log bytes (10 to 41).

    `content_size` is what the frame claims to hold; None claims nothing. `flags` are further bits
    of the descriptor.
    """
    window = bytes([(window_log - 10) << 3])
    size_flag, size = (0, b"") if content_size is None else (3, content_size.to_bytes(8, "little"))
    dictionary_flag, identity = (3, dictionary.to_bytes(4, "little")) if dictionary else (0, b"")
    return MAGIC + bytes([size_flag << 6 | flags | dictionary_flag]) + window + identity + size


def single_segment(content_size: int) -> bytes:
    """A header whose window is the content itself, as one-shot compressors write it."""
    return MAGIC + bytes([3 << 6 | SINGLE_SEGMENT]) + content_size.to_bytes(8, "little")


def _block(kind: int, size: int, content: bytes, last: bool) -> bytes:
    return (size << 3 | kind << 1 | last).to_bytes(3, "little") + content


def raw(content: bytes, *, last: bool = False) -> bytes:
    """A block that holds its content as it is."""
    return _block(0, len(content), content, last)


def repeated(byte: int, size: int, *, last: bool = False) -> bytes:
    """A block of four bytes that expands to `size` times the same byte."""
    return _block(1, size, bytes([byte]), last)


def reserved(*, last: bool = False) -> bytes:
    """A block of the type that the format reserves."""
    return _block(3, 4, b"abcd", last)


def skippable(content: bytes, number: int = 0) -> bytes:
    """A frame that decoders pass over, and that holds no data."""
    magic = (0x184D2A50 + number).to_bytes(4, "little")
    return magic + len(content).to_bytes(4, "little") + content


def bomb(size: int, begin: bytes) -> bytes:
    """`size` zeros, a multiple of 128 KiB, behind the header `begin`: four bytes a block."""
    blocks = size // BLOCK
    return begin + repeated(0, BLOCK) * (blocks - 1) + repeated(0, BLOCK, last=True)
