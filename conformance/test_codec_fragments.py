"""CODEC-03: fragments tile the wire body exactly, whatever their order."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_meshnet.protocol import codec
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.tensors import Tensor
from pytest_meshnet.runtime.errors import Nonconformance

from .codec_inputs import accepted, corrupt, edited, fragments, patterned, written

DATA = patterned(400)
FRAME = zstandard.ZstdCompressor().compress(DATA)
PLAIN = written(DATA, cuts=[100, 100, 100])
PACKED = written(DATA, body=FRAME, cuts=[len(FRAME) // 4] * 3)
both_bodies = pytest.mark.parametrize("right", [PLAIN, PACKED], ids=["plain", "compressed"])


def _decode(message: pb.NamedTensor) -> Tensor:
    return codec.decode_tensor(message)


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


EDITS: list[Callable[[pb.NamedTensor], None]] = [
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


@pytest.mark.requirement("CODEC-03")
@both_bodies
@pytest.mark.parametrize("edit", EDITS, ids=[edit.__name__ for edit in EDITS])
def test_fragments_that_do_not_tile_are_refused(
    right: pb.NamedTensor, edit: Callable[[pb.NamedTensor], None]
) -> None:
    """Without a checksum to fall back on: the tiling alone must tell."""
    message = edited(right, edit)
    message.checksum.Clear()
    message.checksum.algorithm = pb.CHECKSUM_ALGORITHM_NONE
    corrupt(edit.__name__.replace("_", " "), lambda: _decode(message))


@pytest.mark.requirement("CODEC-03")
@both_bodies
def test_fragments_may_arrive_in_every_order(right: pb.NamedTensor) -> None:
    """All 24 orders of four fragments mean the same."""
    pieces = list(right.fragments)

    @given(order=st.permutations(range(4)))
    @settings(max_examples=60)
    def in_order(order: list[int]) -> None:
        message = edited(right, all_missing)
        message.fragments.extend(pieces[place] for place in order)
        tensor = accepted(f"the order {order}", lambda: _decode(message))
        if tensor.data != DATA:
            raise Nonconformance(f"the payload in the order {order}", bytes(tensor.data).hex())

    in_order()


@pytest.mark.requirement("CODEC-03")
@given(
    data=st.binary(min_size=1, max_size=300),
    cuts=st.lists(st.integers(1, 60), max_size=12),
    random=st.randoms(use_true_random=False),
)
@settings(max_examples=60)
def test_fragments_of_any_sizes_tile_in_any_order(data, cuts, random) -> None:
    """Another implementation may cut unevenly; only the tiling counts."""
    message = written(data)
    pieces = [one for one in fragments(data, cuts) if one.payload]
    for one in pieces:
        one.fragment_count = len(pieces)
    random.shuffle(pieces)
    del message.fragments[:]
    message.fragments.extend(pieces)
    tensor = accepted(f"cuts {cuts}", lambda: _decode(message))
    if tensor.data != data:
        raise Nonconformance(data.hex(), bytes(tensor.data).hex())


@pytest.mark.requirement("CODEC-03")
@given(
    at=st.integers(0, 5),
    field=st.sampled_from(["fragment_index", "fragment_count", "byte_offset"]),
    value=st.integers(0, 2**32 - 1) | st.integers(0, 8),
)
@settings(max_examples=100)
def test_any_wrong_number_in_a_fragment_is_refused(at: int, field: str, value: int) -> None:
    """One number of one of six fragments is another: never a tensor."""
    message = written(DATA, cuts=[70, 30, 100, 50, 50], checksum=False)
    if getattr(message.fragments[at], field) != value:
        setattr(message.fragments[at], field, value)
        corrupt(f"{field} {value} in fragment {at}", lambda: _decode(message))
