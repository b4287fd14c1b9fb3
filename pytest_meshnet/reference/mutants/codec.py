"""Suite mutants of CODEC-01 to 04: a codec whose tensors do not arrive, or do not add up."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import replace as changed

from pytest_meshnet.protocol import codec
from pytest_meshnet.protocol.errors import ProtocolError
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.reference.catalogue import suite_mutant
from pytest_meshnet.reference.mutants import (  # noqa: F401
    codec_bounds,
    codec_fields,
    codec_limits,
    codec_zstd,
)
from pytest_meshnet.reference.mutants.decoding import after_decoding, before_decoding
from pytest_meshnet.reference.mutants.patching import replace

# CODEC-01 ----------------------------------------------------------------------------------------


@suite_mutant("CODEC-01")
def codec_without_int8() -> None:
    """One dtype was forgotten in the decoder's table."""
    del codec._DTYPES[int(DType.INT8)]


@suite_mutant("CODEC-01")
def codec_that_ends_at_rank_7() -> None:
    """Rank 8 is one too many."""
    codec.MAX_RANK = 7


@suite_mutant("CODEC-01")
def codec_that_has_no_scalars() -> None:
    """A tensor of rank 0 comes back as [1]."""
    after_decoding(lambda tensor: changed(tensor, shape=tensor.shape or (1,)))


@suite_mutant("CODEC-01")
def codec_that_refuses_empty_tensors() -> None:
    """A tensor without elements is taken for a mistake."""
    right = codec._checked_size

    def size(name: str, shape: tuple[int, ...], dtype: DType) -> int:
        found = right(name, shape, dtype)
        if found == 0:
            raise ProtocolError("dimension", "a tensor without elements")
        return found

    replace(codec, "_checked_size", size)


@suite_mutant("CODEC-01")
def codec_that_loses_the_last_fragment() -> None:
    """The number of fragments is rounded down, so that an uneven rest is never sent."""
    right = codec._add_fragments

    def add(message: pb.NamedTensor, body: bytes, fragment_bytes: int) -> None:
        whole = len(body) - len(body) % fragment_bytes
        right(message, body[: whole or len(body)], fragment_bytes)

    replace(codec, "_add_fragments", add)


@suite_mutant("CODEC-01")
def codec_that_tidies_booleans() -> None:
    """Every byte of a bool tensor that is not 0 comes back as 1."""

    def tidy(tensor: Tensor) -> Tensor:
        if tensor.dtype is not DType.BOOL:
            return tensor
        return changed(tensor, data=bytes(map(bool, bytes(tensor.data))))

    after_decoding(tidy)


# CODEC-02 ----------------------------------------------------------------------------------------


@suite_mutant("CODEC-02")
def codec_with_the_crc_of_zlib() -> None:
    """CRC32 under the name of CRC32C; both ends agree and nothing else does."""
    replace(codec, "crc32c", lambda data: zlib.crc32(data).to_bytes(4, "big"))


@suite_mutant("CODEC-02")
def codec_that_covers_the_wire_body() -> None:
    """The checksum of a compressed tensor is that of its compressed form, at both ends."""
    encode, decode = codec._encode, codec._decode

    def body_of(message: pb.NamedTensor) -> bytes:
        return b"".join(fragment.payload for fragment in message.fragments)

    def encode_body(*arguments: object, **options: object) -> tuple[pb.NamedTensor, int]:
        message, size = encode(*arguments, **options)  # type: ignore[arg-type]
        if message.checksum.algorithm == pb.CHECKSUM_ALGORITHM_CRC32C:
            message.checksum.value = codec.crc32c(body_of(message))
        return message, size

    def decode_body(message: pb.NamedTensor, max_bytes: int, room: int) -> tuple[Tensor, int]:
        if message.compression != pb.COMPRESSION_ZSTD:
            return decode(message, max_bytes, room)
        copy = pb.NamedTensor()
        copy.CopyFrom(message)
        codec._verify_checksum(copy.checksum, body_of(copy))
        copy.checksum.algorithm = pb.CHECKSUM_ALGORITHM_NONE
        return decode(copy, max_bytes, room)

    replace(codec, "_encode", encode_body)
    replace(codec, "_decode", decode_body)


@suite_mutant("CODEC-02")
def codec_that_never_compares() -> None:
    """The checksum is written and not looked at."""
    replace(codec, "_verify_checksum", lambda *_: None)


@suite_mutant("CODEC-02")
def codec_that_compares_half() -> None:
    """The upper two bytes of the checksum decide."""
    right = codec._verify_checksum

    def half(checksum: pb.Checksum, data: bytes) -> None:
        if checksum.value[:2] != codec.crc32c(data)[:2]:
            right(checksum, data)

    replace(codec, "_verify_checksum", half)


@suite_mutant("CODEC-02")
def codec_that_covers_the_beginning() -> None:
    """The checksum is that of the first 64 bytes, at both ends."""
    right = codec.crc32c
    replace(codec, "crc32c", lambda data: right(data[:64]))


# CODEC-03 ----------------------------------------------------------------------------------------

Fragments = list[pb.TensorFragment]


def _join(order: Callable[[Fragments], Fragments]) -> None:
    """Join fragments as `order` puts them, and look at nothing else."""

    def joined(message: pb.NamedTensor, room: int) -> bytes:
        del room
        return b"".join(fragment.payload for fragment in order(list(message.fragments)))

    replace(codec, "_joined_body", joined)


@suite_mutant("CODEC-03")
def codec_that_joins_by_offset() -> None:
    """Fragments are put in the order of their offsets; indices, counts and holes do not matter."""
    _join(lambda found: sorted(found, key=lambda fragment: fragment.byte_offset))


@suite_mutant("CODEC-03")
def codec_that_joins_by_index() -> None:
    """Fragments are put in the order of their indices; offsets and counts do not matter."""
    _join(lambda found: sorted(found, key=lambda fragment: fragment.fragment_index))


@suite_mutant("CODEC-03")
def codec_that_joins_as_they_come() -> None:
    """Fragments are taken for being in order, as they are on a single stream."""

    def in_order(message: pb.NamedTensor) -> None:
        start = 0
        for index, fragment in enumerate(message.fragments):
            fragment.fragment_index, fragment.byte_offset = index, start
            start += len(fragment.payload)

    before_decoding(in_order)


@suite_mutant("CODEC-03")
def codec_that_writes_into_a_buffer() -> None:
    """Each fragment is written where its offset says, into zeros: holes and overlaps go unseen."""
    right = codec._joined_body

    def joined(message: pb.NamedTensor, room: int) -> bytes:
        if message.compression != pb.COMPRESSION_NONE or not message.fragments:
            return right(message, room)
        body = bytearray(message.total_bytes)
        for fragment in message.fragments:
            start = min(fragment.byte_offset, len(body))
            part = fragment.payload[: len(body) - start]
            body[start : start + len(part)] = part
        return bytes(body)

    replace(codec, "_joined_body", joined)


@suite_mutant("CODEC-03")
def codec_that_counts_for_itself() -> None:
    """fragment_count is not read: what is here is what there is."""

    def count(message: pb.NamedTensor) -> None:
        for fragment in message.fragments:
            fragment.fragment_count = len(message.fragments)

    before_decoding(count)


@suite_mutant("CODEC-03")
def codec_that_lets_the_later_fragment_win() -> None:
    """A fragment that comes twice replaces the former, and is not counted."""

    def keep_last(message: pb.NamedTensor) -> None:
        kept = {fragment.fragment_index: fragment for fragment in message.fragments}
        copies = [pb.TensorFragment.FromString(one.SerializeToString()) for one in kept.values()]
        message.fragments.clear()
        message.fragments.extend(copies)

    before_decoding(keep_last)


# CODEC-04 ----------------------------------------------------------------------------------------


@suite_mutant("CODEC-04")
def codec_that_pads_before_sending() -> None:
    """Data that is too short or too long for its shape is made to fit at encode."""
    right = codec._encode

    def encode(make: object, tensor: Tensor, *rest: object, **options: object) -> object:
        fitting = bytes(tensor.data)[: tensor.size].ljust(tensor.size, b"\x00")
        return right(make, changed(tensor, data=fitting), *rest, **options)  # type: ignore[arg-type]

    replace(codec, "_encode", encode)


@suite_mutant("CODEC-04")
def codec_that_passes_over_total_bytes() -> None:
    """total_bytes is not compared with what shape and dtype promise."""

    def mend(message: pb.NamedTensor) -> None:
        if message.dtype in codec._DTYPES:
            dtype = codec._DTYPES[message.dtype]
            message.total_bytes = codec._checked_size("", tuple(message.shape), dtype)

    before_decoding(mend)


@suite_mutant("CODEC-04")
def codec_that_passes_over_the_shape() -> None:
    """A shape that disagrees with total_bytes is replaced by a flat one."""

    def mend(message: pb.NamedTensor) -> None:
        if message.dtype in codec._DTYPES:
            message.shape[:] = [message.total_bytes // codec._DTYPES[message.dtype].item_size]

    before_decoding(mend)


@suite_mutant("CODEC-04")
def codec_that_fits_the_payload() -> None:
    """A plain payload is cut or padded to total_bytes at decode."""
    right = codec._joined_body

    def joined(message: pb.NamedTensor, room: int) -> bytes:
        body, total = right(message, room), message.total_bytes
        plain = message.compression == pb.COMPRESSION_NONE
        return body[:total].ljust(total, b"\x00") if plain else body

    replace(codec, "_joined_body", joined)


@suite_mutant("CODEC-04")
def codec_that_fits_what_it_expanded() -> None:
    """A compressed payload is cut or padded to total_bytes at decode."""
    import zstandard

    def decompress(body: bytes, total_bytes: int) -> bytes:
        data: bytes = zstandard.ZstdDecompressor().decompressobj().decompress(body)
        return data[:total_bytes].ljust(total_bytes, b"\x00")

    replace(codec, "decompress", decompress)
