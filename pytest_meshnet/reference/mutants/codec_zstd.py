"""Suite mutants of CODEC-11: a codec that believes a compressed body."""

from __future__ import annotations

import zstandard

from pytest_meshnet.protocol import codec, compression
from pytest_meshnet.protocol.errors import PayloadCorrupt
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.tensors import Tensor
from pytest_meshnet.reference.catalogue import suite_mutant
from pytest_meshnet.reference.mutants.patching import replace


def _expanded(body: bytes) -> bytes:
    """All that the first frame holds, however much it is."""
    try:
        data: bytes = zstandard.ZstdDecompressor().decompressobj().decompress(body)
    except zstandard.ZstdError as error:
        raise PayloadCorrupt("zstd-frame", str(error)) from None
    return data


@suite_mutant("CODEC-11")
def zstd_that_expands_and_then_compares() -> None:
    """The size is compared when everything is there: 25 KB become 800 MB first."""
    right = compression.decompress

    def decompress(body: bytes, total_bytes: int) -> bytes:
        if len(_expanded(body)) != total_bytes:
            raise PayloadCorrupt("zstd-size", "the body expands to another size")
        return right(body, total_bytes)

    replace(compression, "decompress", decompress)


@suite_mutant("CODEC-11")
def zstd_that_believes_the_header() -> None:
    """A buffer of the size that the frame claims is filled with what the frame holds."""
    right = compression.decompress

    def decompress(body: bytes, total_bytes: int) -> bytes:
        try:
            claimed = zstandard.get_frame_parameters(body).content_size
        except zstandard.ZstdError:
            claimed = total_bytes
        if total_bytes < claimed <= 1024**3:
            buffer = bytearray(b"\x01") * claimed
            del buffer
        return right(body, total_bytes)

    replace(compression, "decompress", decompress)


@suite_mutant("CODEC-11")
def zstd_that_stops_at_total_bytes() -> None:
    """What a frame holds beyond total_bytes is left in it."""

    def decompress(body: bytes, total_bytes: int) -> bytes:
        try:
            with zstandard.ZstdDecompressor().stream_reader(body) as reader:
                data: bytes = reader.read(total_bytes)
        except zstandard.ZstdError as error:
            raise PayloadCorrupt("zstd-frame", str(error)) from None
        if len(data) != total_bytes:
            raise PayloadCorrupt("zstd-size", "the frame holds less")
        return data

    replace(compression, "decompress", decompress)


@suite_mutant("CODEC-11")
def zstd_that_pads_a_truncated_frame() -> None:
    """What a frame holds too little of is zeros, which is what a new buffer is filled with."""
    right = compression.decompress

    def decompress(body: bytes, total_bytes: int) -> bytes:
        try:
            return right(body, total_bytes)
        except PayloadCorrupt as error:
            if error.rule != "zstd-truncated":
                raise
            return _expanded(body)[:total_bytes].ljust(total_bytes, b"\x00")

    replace(compression, "decompress", decompress)


@suite_mutant("CODEC-11")
def zstd_that_needs_no_end() -> None:
    """A frame may lack its end when its data is there."""
    right = compression._frame_end

    def end(body: bytes, position: int, has_checksum: bool) -> int:
        try:
            return right(body, position, has_checksum)
        except PayloadCorrupt:
            return len(body)

    replace(compression, "_frame_end", end)


@suite_mutant("CODEC-11")
def zstd_that_passes_over_trailing_data() -> None:
    """Whatever follows the frame is not looked at, as in the published codec."""
    right = compression._frame_end
    replace(compression, "_frame_end", lambda body, *rest: right(body, *rest) and len(body))


@suite_mutant("CODEC-11")
def zstd_that_reads_skippable_frames() -> None:
    """A body may begin with a frame that holds nothing and hides the next one."""
    compression._MAGIC = b""


@suite_mutant("CODEC-11")
def zstd_with_any_window() -> None:
    """A frame may ask for a window of gigabytes."""
    compression.MAX_WINDOW_BYTES = 2**31


@suite_mutant("CODEC-11")
def zstd_with_a_window_below_the_bound() -> None:
    """A window of 8 MiB is refused as well."""
    compression.MAX_WINDOW_BYTES = 8 * 1024 * 1024 - 1


@suite_mutant("CODEC-11")
def zstd_that_demands_a_content_size() -> None:
    """A frame that was compressed as a stream is refused, for it cannot say its size."""
    right = compression.decompress

    def decompress(body: bytes, total_bytes: int) -> bytes:
        data = right(body, total_bytes)
        if zstandard.get_frame_parameters(body).content_size == zstandard.CONTENTSIZE_UNKNOWN:
            raise PayloadCorrupt("zstd-size", "the frame does not say its size")
        return data

    replace(compression, "decompress", decompress)


@suite_mutant("CODEC-11")
def zstd_that_raises_its_own_errors() -> None:
    """A damaged frame ends in an error of the library, which nobody above it expects."""
    right = compression.decompress

    def decompress(body: bytes, total_bytes: int) -> bytes:
        try:
            return right(body, total_bytes)
        except PayloadCorrupt as error:
            raise zstandard.ZstdError(str(error)) from None

    replace(compression, "decompress", decompress)


@suite_mutant("CODEC-11")
def zstd_that_passes_over_its_content_size() -> None:
    """A frame may claim any size as long as its blocks hold total_bytes."""
    right = compression.decompress

    def decompress(body: bytes, total_bytes: int) -> bytes:
        data = _silenced(body)
        return right(data, total_bytes)

    replace(compression, "decompress", decompress)


def _silenced(body: bytes) -> bytes:
    """A frame with a size of eight bytes in its header, without it; any other as it is."""
    if body[4:5] != b"\xc0":
        return body
    return body[:4] + b"\x00" + body[5:6] + body[14:]


@suite_mutant("CODEC-11")
def codec_that_bounds_only_the_wire_body() -> None:
    """total_bytes may be anything, since a compressed tensor takes so little on the wire."""
    right = codec._decode

    def decode(message: pb.NamedTensor, max_bytes: int, room: int) -> tuple[Tensor, int]:
        return right(message, max(max_bytes, message.total_bytes), room)

    replace(codec, "_decode", decode)


@suite_mutant("CODEC-11")
def codec_that_bounds_only_total_bytes() -> None:
    """The wire body may be anything, since what it expands to is bounded."""
    right = codec._decode

    def decode(message: pb.NamedTensor, max_bytes: int, room: int) -> tuple[Tensor, int]:
        return right(message, max_bytes, room + codec.MAX_CHUNK_BYTES)

    replace(codec, "_decode", decode)
