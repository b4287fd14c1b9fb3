"""The IndexShare sideband: token indices that a Full indexer layer chose, for the Shared layers.

A layer with role "full" scores the tokens before each row and keeps the best `topk`; the layers
with role "shared" behind it attend to the same ones. When a seam falls inside such a group, the
indices travel with the hidden states.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_meshnet.protocol.errors import PayloadCorrupt
from pytest_meshnet.protocol.tensors import DType, Tensor

INDICES = "topk_indices"
ORIGIN = "topk_origin"
PADDING = -1

Role = Literal["full", "shared"]


@dataclass(frozen=True, slots=True)
class IndexShare:
    """The roles of all layers of a model, and how many tokens an indexer keeps.

    Raises ValueError when a Shared layer has no Full one before it, or nothing is kept.
    """

    topk: int
    roles: tuple[Role, ...]

    def __post_init__(self) -> None:
        if self.topk < 1 or not self.roles or self.roles[0] != "full":
            raise ValueError(
                f"topk {self.topk} with roles {list(self.roles)}: expected topk from 1 up and a "
                "first layer that is full"
            )

    def producer(self, layer: int) -> int:
        """The Full layer whose indices `layer` attends to: itself, or the last before it."""
        return max(n for n in range(layer + 1) if self.roles[n] == "full")

    def across(self, layer: int) -> int | None:
        """The producer whose indices must cross the seam before `layer`.

        None where `layer` is Full or behind the last layer: no group is split there.
        """
        if layer >= len(self.roles) or self.roles[layer] == "full":
            return None
        return self.producer(layer)

    def width(self, length: int) -> int:
        """The indices of each row when `length` tokens are held with the unit's own."""
        return min(self.topk, length)


def origin_tensor(producer: int, first_position: int) -> Tensor:
    """`topk_origin`: int64 [2], the producer layer and the first position of the rows."""
    data = b"".join(
        number.to_bytes(8, "little", signed=True) for number in (producer, first_position)
    )
    return Tensor(ORIGIN, DType.INT64, (2,), data)


def indices_of(tensor: Tensor) -> tuple[int, ...]:
    """The elements of an int32 or int64 tensor, row after row."""
    view = memoryview(bytes(tensor.data))
    return tuple(view.cast("q" if tensor.dtype is DType.INT64 else "i"))


def check_origin(origin: Tensor, producer: int, first: int) -> None:
    """Raise PayloadCorrupt unless the indices were made by `producer` for rows from `first` on."""
    if origin.dtype is not DType.INT64 or origin.shape != (2,):
        raise PayloadCorrupt("sideband-origin", f"{ORIGIN} is not int64 [2]")
    found = indices_of(origin)
    if found != (producer, first):
        raise PayloadCorrupt(
            "sideband-origin",
            f"{ORIGIN} is layer {found[0]}, position {found[1]}; expected layer {producer}, "
            f"position {first}",
        )


def check_width(indices: Tensor, rows: int, width: int) -> None:
    """Raise PayloadCorrupt unless indices are int32 [1, rows, width]."""
    if indices.dtype is not DType.INT32 or indices.shape != (1, rows, width):
        raise PayloadCorrupt(
            "sideband-shape",
            f"{INDICES} is {indices.dtype.name.lower()} {list(indices.shape)}, "
            f"expected int32 [1, {rows}, {width}]",
        )


def check_indices(indices: Tensor, length: int) -> None:
    """Raise PayloadCorrupt unless every index is -1 or one of `length` positions.

    Those that lie behind their own row are masked, so they are padding as -1 is.
    """
    found = indices_of(indices)
    if found and (min(found) < PADDING or max(found) >= length):
        raise PayloadCorrupt(
            "sideband-range", f"{INDICES} holds an index outside -1 to {length - 1}"
        )
