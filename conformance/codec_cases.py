"""What is wrong with a tensor, and what is unusual and right: one list for every codec examined."""

from __future__ import annotations

from collections.abc import Callable

import zstandard

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb

from . import zstd_frames as zstd
from .codec_inputs import MIB, patterned, written

# CODEC-03: four fragments -----------------------------------------------------------------------

TILED = patterned(400)
_FRAME = zstandard.ZstdCompressor().compress(TILED)
FOUR_PLAIN = written(TILED, cuts=[100, 100, 100])
FOUR_PACKED = written(TILED, body=_FRAME, cuts=[len(_FRAME) // 4] * 3)


def _renumber(message: pb.NamedTensor) -> None:
    """Make indices and counts consistent again, leaving offsets alone."""
    for index, fragment in enumerate(message.fragments):
        fragment.fragment_index, fragment.fragment_count = index, len(message.fragments)


# What may go wrong with the four fragments of a tensor ------------------------------------------


def first_missing(message: pb.NamedTensor) -> None:
    del message.fragments[0]


def middle_missing(message: pb.NamedTensor) -> None:
    del message.fragments[1]


def last_missing(message: pb.NamedTensor) -> None:
    del message.fragments[-1]


def all_missing(message: pb.NamedTensor) -> None:
    del message.fragments[:]


def middle_missing_and_renumbered(message: pb.NamedTensor) -> None:
    del message.fragments[1]
    _renumber(message)


def last_missing_and_renumbered(message: pb.NamedTensor) -> None:
    del message.fragments[-1]
    _renumber(message)


def one_twice(message: pb.NamedTensor) -> None:
    message.fragments.append(message.fragments[2])


def one_in_place_of_another(message: pb.NamedTensor) -> None:
    message.fragments[1].CopyFrom(message.fragments[2])


def one_twice_and_renumbered(message: pb.NamedTensor) -> None:
    message.fragments.append(message.fragments[-1])
    _renumber(message)


def equal_indices(message: pb.NamedTensor) -> None:
    message.fragments[1].fragment_index = 2


def index_beyond_the_count(message: pb.NamedTensor) -> None:
    message.fragments[3].fragment_index = 4


def largest_index(message: pb.NamedTensor) -> None:
    message.fragments[3].fragment_index = 2**32 - 1


def swapped_indices(message: pb.NamedTensor) -> None:
    one, two = message.fragments[1], message.fragments[2]
    one.fragment_index, two.fragment_index = two.fragment_index, one.fragment_index


def overlapping(message: pb.NamedTensor) -> None:
    message.fragments[2].byte_offset -= 1


def overlapping_with_its_bytes(message: pb.NamedTensor) -> None:
    """The last byte of one fragment is sent again by the next, at its true offset."""
    before, after = message.fragments[1], message.fragments[2]
    after.payload = before.payload[-1:] + after.payload
    after.byte_offset -= 1


def hole(message: pb.NamedTensor) -> None:
    message.fragments[3].byte_offset += 1


def all_shifted(message: pb.NamedTensor) -> None:
    for fragment in message.fragments:
        fragment.byte_offset += 8


def first_shifted(message: pb.NamedTensor) -> None:
    message.fragments[0].byte_offset = 1


def all_at_zero(message: pb.NamedTensor) -> None:
    for fragment in message.fragments:
        fragment.byte_offset = 0


def largest_offset(message: pb.NamedTensor) -> None:
    message.fragments[3].byte_offset = 2**64 - 1


def swapped_payloads_with_offsets(message: pb.NamedTensor) -> None:
    """Indices say one order and offsets another; each alone would tile."""
    one, two = message.fragments[1], message.fragments[2]
    one.byte_offset, two.byte_offset = two.byte_offset, one.byte_offset


def count_too_high(message: pb.NamedTensor) -> None:
    for fragment in message.fragments:
        fragment.fragment_count = 5


def count_too_low(message: pb.NamedTensor) -> None:
    for fragment in message.fragments:
        fragment.fragment_count = 3


def count_zero(message: pb.NamedTensor) -> None:
    for fragment in message.fragments:
        fragment.fragment_count = 0


def counts_that_differ(message: pb.NamedTensor) -> None:
    message.fragments[2].fragment_count = 5


def byte_lost(message: pb.NamedTensor) -> None:
    message.fragments[1].payload = message.fragments[1].payload[:-1]


def byte_too_many(message: pb.NamedTensor) -> None:
    message.fragments[1].payload += b"\x00"


FRAGMENT_EDITS: list[Callable[[pb.NamedTensor], None]] = [
    first_missing,
    middle_missing,
    last_missing,
    all_missing,
    middle_missing_and_renumbered,
    last_missing_and_renumbered,
    one_twice,
    one_in_place_of_another,
    one_twice_and_renumbered,
    equal_indices,
    index_beyond_the_count,
    largest_index,
    swapped_indices,
    overlapping,
    overlapping_with_its_bytes,
    hole,
    all_shifted,
    first_shifted,
    all_at_zero,
    largest_offset,
    swapped_payloads_with_offsets,
    count_too_high,
    count_too_low,
    count_zero,
    counts_that_differ,
    byte_lost,
    byte_too_many,
]


# CODEC-04 and 07: fields ------------------------------------------------------------------------

AGREEING = patterned(96)
AGREEING_PLAIN = written(AGREEING, shape=[2, 3, 8], dtype="BFLOAT16", checksum=False)
AGREEING_PACKED = written(
    AGREEING,
    shape=[2, 3, 8],
    dtype="BFLOAT16",
    checksum=False,
    body=zstandard.ZstdCompressor().compress(AGREEING),
)

# Numbers that no enum of the schema has a meaning for, and 0, which means that none was set.
NO_MEANING = [0, 99, 0xFFFF, 2**31 - 1, -1]


def set_shape(*shape: int) -> Callable[[pb.NamedTensor], None]:
    def edit(message: pb.NamedTensor) -> None:
        message.shape[:] = shape

    return edit


def set_field(name: str, value: int) -> Callable[[pb.NamedTensor], None]:
    return lambda message: setattr(message, name, value)


def set_payload(data: bytes) -> Callable[[pb.NamedTensor], None]:
    """Another payload in the same compression, the rest as it was."""

    def edit(message: pb.NamedTensor) -> None:
        packed = message.compression == pb.COMPRESSION_ZSTD
        body = zstandard.ZstdCompressor().compress(data) if packed else data
        message.fragments[0].payload = body

    return edit


DISAGREEMENTS = {
    "one-row-more": set_shape(3, 3, 8),
    "one-column-less": set_shape(2, 3, 7),
    "a-dimension-lost": set_shape(2, 3),
    "rank-0": set_shape(),
    "an-empty-dimension": set_shape(2, 0, 8),
    "wider-dtype": set_field("dtype", pb.DTYPE_FLOAT32),
    "narrower-dtype": set_field("dtype", pb.DTYPE_UINT8),
    "total-one-more": set_field("total_bytes", 97),
    "total-one-less": set_field("total_bytes", 95),
    "total-zero": set_field("total_bytes", 0),
    "total-doubled": set_field("total_bytes", 192),
    "payload-one-more": set_payload(AGREEING + b"\x00"),
    "payload-one-less": set_payload(AGREEING[:-1]),
    "payload-empty": set_payload(b""),
    "payload-doubled": set_payload(AGREEING * 2),
}


# CODEC-11: zstd bodies --------------------------------------------------------------------------

ZSTD_DATA = patterned(3000)
ZSTD_FRAME = zstandard.ZstdCompressor().compress(ZSTD_DATA)

_STREAMED = zstandard.ZstdCompressor(write_content_size=False).compress(ZSTD_DATA)
CHECKED_FRAME = zstandard.ZstdCompressor(write_checksum=True).compress(ZSTD_DATA)
_BY_HAND = (
    zstd.header(window_log=12) + zstd.raw(ZSTD_DATA[:1000]) + zstd.raw(ZSTD_DATA[1000:], last=True)
)
LEGAL_FRAMES = {
    "one-shot": ZSTD_FRAME,
    "strongest": zstandard.ZstdCompressor(level=22).compress(ZSTD_DATA),
    "without-size": _STREAMED,
    "with-checksum": CHECKED_FRAME,
    "raw-blocks": _BY_HAND,
    "empty-last-block": zstd.header(3000) + zstd.raw(ZSTD_DATA) + zstd.raw(b"", last=True),
}

HUGE = 800 * MIB
BOMBS = {
    "silent-about-its-size": zstd.header(window_log=17),
    "honest-about-its-size": zstd.header(HUGE, 17),
    "promising-1-MiB": zstd.header(MIB, 17),
    "promising-nothing": zstd.header(0, 17),
    "promising-2^63": zstd.header(2**63, 17),
    "its-window-is-its-size": zstd.single_segment(HUGE),
    "its-window-is-2-GiB": zstd.header(window_log=31),
}

TRAILING = {
    "one-zero": b"\x00",
    "one-letter": b"x",
    "a-newline": b"\n",
    "another-frame": ZSTD_FRAME,
    "an-empty-frame": zstandard.ZstdCompressor().compress(b""),
    "a-skippable-frame": zstd.skippable(b"abcd"),
    "an-empty-skippable-frame": zstd.skippable(b"", 15),
    "a-magic": zstd.MAGIC,
    "four-bytes": bytes(4),
}

FOREIGN_BODIES: dict[str, bytes] = {
    "nothing": b"",
    "not-zstd": ZSTD_DATA,
    "gzip": bytes.fromhex("1f8b0800000000000003") + ZSTD_DATA,
    "a-skippable-frame-before-it": zstd.skippable(b"abcd") + ZSTD_FRAME,
    "a-dictionary": zstd.header(3000, dictionary=77) + zstd.raw(ZSTD_DATA, last=True),
    "a-reserved-bit": zstd.header(3000, flags=zstd.RESERVED) + zstd.raw(ZSTD_DATA, last=True),
    "a-reserved-block": zstd.header(3000) + zstd.raw(ZSTD_DATA) + zstd.reserved(last=True),
    "a-wrong-checksum": CHECKED_FRAME[:-1] + bytes([CHECKED_FRAME[-1] ^ 1]),
    "no-magic": ZSTD_FRAME[4:],
    "an-older-magic": b"\x27" + ZSTD_FRAME[1:],
}
