"""CODEC-03: fragments tile the wire body exactly, whatever their order."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_meshnet.protocol import codec
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.tensors import Tensor
from pytest_meshnet.runtime.errors import Nonconformance

from .codec_cases import FOUR_PACKED, FOUR_PLAIN, FRAGMENT_EDITS, TILED, all_missing
from .codec_inputs import accepted, corrupt, edited, fragments, written

both_bodies = pytest.mark.parametrize(
    "right", [FOUR_PLAIN, FOUR_PACKED], ids=["plain", "compressed"]
)


def _decode(message: pb.NamedTensor) -> Tensor:
    return codec.decode_tensor(message)


@pytest.mark.requirement("CODEC-03")
@both_bodies
@pytest.mark.parametrize("edit", FRAGMENT_EDITS, ids=[edit.__name__ for edit in FRAGMENT_EDITS])
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
        if tensor.data != TILED:
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
    message = written(TILED, cuts=[70, 30, 100, 50, 50], checksum=False)
    if getattr(message.fragments[at], field) != value:
        setattr(message.fragments[at], field, value)
        corrupt(f"{field} {value} in fragment {at}", lambda: _decode(message))
