"""Suite mutants of CODEC-06 and 07: a codec that guesses what a field means."""

from __future__ import annotations

from collections.abc import Callable

from pytest_meshnet.protocol import codec
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.tensors import Tensor
from pytest_meshnet.reference.catalogue import suite_mutant
from pytest_meshnet.reference.mutants.decoding import before_decoding
from pytest_meshnet.reference.mutants.patching import replace

# CODEC-06 ----------------------------------------------------------------------------------------


def _take_for(name: str, wrong: Callable[[int], bool], right: int) -> None:
    """Read an enum of a tensor as `right` wherever its value is `wrong`."""

    def mend(message: pb.NamedTensor) -> None:
        if wrong(getattr(message, name)):
            setattr(message, name, right)

    before_decoding(mend)


@suite_mutant("CODEC-06")
def codec_that_takes_big_endian() -> None:
    """Big-endian is decoded as if it were little-endian."""
    _take_for("byte_order", lambda n: n == pb.BYTE_ORDER_BIG_ENDIAN, pb.BYTE_ORDER_LITTLE_ENDIAN)


@suite_mutant("CODEC-06")
def codec_that_assumes_a_byte_order() -> None:
    """A byte order that was not set is little-endian."""
    _take_for("byte_order", lambda n: n == pb.BYTE_ORDER_UNSPECIFIED, pb.BYTE_ORDER_LITTLE_ENDIAN)


@suite_mutant("CODEC-06")
def codec_that_does_not_name_big_endian() -> None:
    """Big-endian is refused as if it were unknown."""
    _take_for("byte_order", lambda number: number == pb.BYTE_ORDER_BIG_ENDIAN, 99)


# CODEC-07 ----------------------------------------------------------------------------------------


@suite_mutant("CODEC-07")
def codec_that_assumes_a_dtype() -> None:
    """A dtype that was not set means bytes."""
    _take_for("dtype", lambda number: number == pb.DTYPE_UNSPECIFIED, pb.DTYPE_UINT8)


@suite_mutant("CODEC-07")
def codec_that_takes_any_dtype() -> None:
    """A dtype from a newer schema means bytes."""
    _take_for("dtype", lambda number: number not in range(9), pb.DTYPE_UINT8)


@suite_mutant("CODEC-07")
def codec_that_assumes_no_compression() -> None:
    """A compression that was not set is NONE."""
    unset = pb.COMPRESSION_UNSPECIFIED
    _take_for("compression", lambda number: number == unset, pb.COMPRESSION_NONE)


@suite_mutant("CODEC-07")
def codec_that_takes_any_compression() -> None:
    """A compression from a newer schema is NONE."""
    _take_for("compression", lambda number: number not in range(3), pb.COMPRESSION_NONE)


@suite_mutant("CODEC-07")
def codec_that_sends_plain_what_it_cannot_compress() -> None:
    """The encoder leaves data as it is for a compression that it does not know."""
    right = codec._wire_body

    def body(data: bytes, compression: int) -> bytes:
        return right(data, compression) if compression in (1, 2) else data

    replace(codec, "_wire_body", body)


def _without_checksum(where: Callable[[int], bool]) -> None:
    def mend(message: pb.NamedTensor) -> None:
        if where(message.checksum.algorithm):
            message.checksum.algorithm = pb.CHECKSUM_ALGORITHM_NONE

    before_decoding(mend)


@suite_mutant("CODEC-07")
def codec_that_assumes_no_checksum() -> None:
    """A checksum algorithm that was not set is NONE."""
    _without_checksum(lambda number: number == pb.CHECKSUM_ALGORITHM_UNSPECIFIED)


@suite_mutant("CODEC-07")
def codec_that_takes_any_checksum() -> None:
    """A checksum algorithm from a newer schema is NONE."""
    _without_checksum(lambda number: number not in range(3))


@suite_mutant("CODEC-07")
def codec_that_demands_a_checksum() -> None:
    """Checksum NONE is refused."""

    def mend(message: pb.NamedTensor) -> None:
        if message.checksum.algorithm == pb.CHECKSUM_ALGORITHM_NONE:
            message.checksum.algorithm = pb.CHECKSUM_ALGORITHM_UNSPECIFIED

    before_decoding(mend)


def _take_bundle_version(where: Callable[[int], bool]) -> None:
    right = codec.decode_bundle

    def decode(bundle: pb.TensorBundle, **bound: int) -> tuple[Tensor, ...]:
        version = 1 if where(bundle.bundle_version) else bundle.bundle_version
        return right(pb.TensorBundle(bundle_version=version, tensors=bundle.tensors), **bound)

    replace(codec, "decode_bundle", decode)


@suite_mutant("CODEC-07")
def codec_that_assumes_a_bundle_version() -> None:
    """A bundle version that was not set is 1."""
    _take_bundle_version(lambda version: version == 0)


@suite_mutant("CODEC-07")
def codec_that_takes_any_bundle_version() -> None:
    """A later bundle version is read as version 1."""
    _take_bundle_version(lambda version: version > 1)
