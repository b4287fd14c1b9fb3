"""Suite mutants of CODEC-05 and 08 to 10: a codec that finds out too late, or never."""

from __future__ import annotations

from itertools import count
from math import prod

from pytest_meshnet.protocol import codec
from pytest_meshnet.protocol.errors import ProtocolError
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.reference.catalogue import suite_mutant
from pytest_meshnet.reference.mutants.decoding import before_decoding
from pytest_meshnet.reference.mutants.patching import replace

_NO_BOUND = 2**64

# CODEC-05 ----------------------------------------------------------------------------------------


@suite_mutant("CODEC-05")
def codec_without_a_rank() -> None:
    """A shape may have any number of dimensions."""
    codec.MAX_RANK = _NO_BOUND


@suite_mutant("CODEC-05")
def codec_that_reads_the_shape_first() -> None:
    """The shape is copied before its rank is looked at."""
    right = codec._decode

    def decode(message: pb.NamedTensor, max_bytes: int, room: int) -> tuple[Tensor, int]:
        shape = tuple(message.shape)
        found = right(message, max_bytes, room)
        del shape
        return found

    replace(codec, "_decode", decode)


@suite_mutant("CODEC-05")
def codec_that_multiplies_signs() -> None:
    """Two negative dimensions make a positive size."""

    def size(name: str, shape: tuple[int, ...], dtype: DType) -> int:
        found = prod(shape) * dtype.item_size
        if found < 0 or found >= 2**63 or any(one > codec.MAX_DIMENSION for one in shape):
            raise ProtocolError("dimension", f"the shape of {name} is out of bounds")
        return found

    replace(codec, "_checked_size", size)


@suite_mutant("CODEC-05")
def codec_with_64_bit_dimensions() -> None:
    """A dimension may be as large as its field."""
    codec.MAX_DIMENSION = _NO_BOUND


@suite_mutant("CODEC-05")
def codec_with_dimensions_below_the_bound() -> None:
    """The largest dimension is refused as well."""
    codec.MAX_DIMENSION = 2**31 - 2


@suite_mutant("CODEC-05")
def codec_whose_product_wraps() -> None:
    """The size of a tensor is computed in 64 bits, as most languages would."""
    right = codec._checked_size

    def size(name: str, shape: tuple[int, ...], dtype: DType) -> int:
        for dimension in shape:
            right(name, (dimension,), DType.UINT8)
        return prod(shape) * dtype.item_size % 2**64

    replace(codec, "_checked_size", size)


@suite_mutant("CODEC-05")
def codec_that_allocates_what_is_promised() -> None:
    """A buffer of total_bytes is there before the shape is checked."""
    right = codec._decode

    def decode(message: pb.NamedTensor, max_bytes: int, room: int) -> tuple[Tensor, int]:
        buffer = bytearray(min(message.total_bytes, 64 * 1024 * 1024))
        found = right(message, max_bytes, room)
        del buffer
        return found

    replace(codec, "_decode", decode)


# CODEC-08 ----------------------------------------------------------------------------------------


@suite_mutant("CODEC-08")
def codec_with_fragments_of_any_size() -> None:
    """A fragment may be as large as the tensor."""
    codec.MAX_FRAGMENT_BYTES = _NO_BOUND


@suite_mutant("CODEC-08")
def codec_with_any_number_of_fragments() -> None:
    """A tensor may come byte by byte."""
    codec.MAX_FRAGMENTS = _NO_BOUND


@suite_mutant("CODEC-08")
def codec_that_allows_one_fragment_less() -> None:
    """63 fragments are the most."""
    codec.MAX_FRAGMENTS = 63


@suite_mutant("CODEC-08")
def codec_with_fragments_below_the_bound() -> None:
    """A fragment of 1 MiB is refused as well."""

    def refuse(message: pb.NamedTensor) -> None:
        if any(len(fragment.payload) == codec.MAX_FRAGMENT_BYTES for fragment in message.fragments):
            raise ProtocolError("fragment-bytes", "a fragment of 1 MiB")

    before_decoding(refuse)


@suite_mutant("CODEC-08")
def codec_that_sorts_before_it_counts() -> None:
    """Fragments are copied and put in order, and counted and measured then."""
    right = codec._joined_body

    def joined(message: pb.NamedTensor, room: int) -> bytes:
        pieces = [(one.fragment_index, one.payload) for one in message.fragments]
        body = b"".join(payload for _, payload in sorted(pieces))
        found = right(message, room)
        del body
        return found

    replace(codec, "_joined_body", joined)


# CODEC-09 ----------------------------------------------------------------------------------------


@suite_mutant("CODEC-09")
def codec_with_any_number_of_tensors() -> None:
    """A bundle may hold more than 64 tensors."""
    codec.MAX_TENSORS = _NO_BOUND


@suite_mutant("CODEC-09")
def codec_with_bundles_below_the_bound() -> None:
    """A bundle of 64 tensors is refused as well."""
    codec.MAX_TENSORS = 63


@suite_mutant("CODEC-09")
def codec_that_names_the_nameless() -> None:
    """A tensor without a name gets one."""
    numbers = count(1)

    def name(message: pb.NamedTensor) -> None:
        message.name = message.name or f"tensor{next(numbers)}"

    before_decoding(name)


@suite_mutant("CODEC-09")
def codec_that_takes_a_name_twice() -> None:
    """Tensors of one name pass; whoever looks one up gets either."""
    replace(codec, "_check_names", lambda _: None)


@suite_mutant("CODEC-09")
def codec_that_measures_tensors_one_by_one() -> None:
    """Each tensor is within the bound, their sum need not be."""
    right = codec._check_bound

    def check(rule: str, what: str, size: int, bound: int) -> None:
        if rule != "bundle-bytes":
            right(rule, what, size, max(bound, codec.MAX_CHUNK_BYTES))

    replace(codec, "_check_bound", check)


@suite_mutant("CODEC-09")
def codec_that_counts_only_payloads() -> None:
    """What a bundle takes on the wire is not added up."""
    right = codec._decode

    def decode(message: pb.NamedTensor, max_bytes: int, room: int) -> tuple[Tensor, int]:
        del room
        return right(message, max_bytes, max_bytes)[0], 0

    replace(codec, "_decode", decode)


# CODEC-10 ----------------------------------------------------------------------------------------


@suite_mutant("CODEC-10")
def codec_without_a_message_bound() -> None:
    """Only tensors are bounded."""
    replace(codec, "check_message_size", lambda *_: None)


@suite_mutant("CODEC-10")
def codec_that_forgives_the_envelope() -> None:
    """A message may exceed the bound by what an envelope usually takes."""
    right = codec.check_message_size
    replace(codec, "check_message_size", lambda size, bound: right(size - 200, bound))


@suite_mutant("CODEC-10")
def codec_that_wants_to_stay_below() -> None:
    """A message of exactly the bound is refused."""
    right = codec.check_message_size
    replace(codec, "check_message_size", lambda size, bound: right(size + 1, bound))
