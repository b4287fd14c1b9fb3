"""`tiny-index-share`: the tiny model with an indexer, whose choices some layers share.

A Full layer scores every position that a row sees by the sum of its query heads' dot products with
the keys, keeps the best `topk`, and attends to those; the Shared layers behind it attend to the
same. Which layer is which is in `IndexShare.roles`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pytest_meshnet.protocol.additions.sideband import INDICES, IndexShare
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.reference.seeded_weights import Float32Array, TinyLlamaConfig

Picks = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TinyIndexShareConfig(TinyLlamaConfig):
    """The tiny model in which the layers of `full_layers` choose `topk` positions for each row."""

    name: str = "tiny-index-share"
    topk: int = 8
    full_layers: tuple[int, ...] = (0, 1, 2, 6)

    @property
    def index_share(self) -> IndexShare:
        """The roles of all layers."""
        chosen = self.full_layers
        return IndexShare(
            self.topk, tuple("full" if n in chosen else "shared" for n in range(self.layers))
        )


DEFAULT_INDEX_SHARE = TinyIndexShareConfig()
SMALL_INDEX_SHARE = TinyIndexShareConfig(
    "tiny-index-share-small", 6, hidden=16, intermediate=32, topk=4, full_layers=(0, 1, 4)
)


def index_share_of(config: TinyLlamaConfig) -> IndexShare | None:
    """The roles of a model's layers; None for one without an indexer."""
    return config.index_share if isinstance(config, TinyIndexShareConfig) else None


def chosen_positions(share: IndexShare, queries: Float32Array, keys: Float32Array) -> Picks:
    """What a Full layer keeps: [n, k] positions for [n, heads, size] over [length, kv_heads, size].

    The best come first, of equal scores the earlier position. A row that sees fewer than k
    positions is filled up with later ones, which are masked.
    """
    length = len(keys)
    width = share.width(length)
    picks = np.empty((len(queries), width), dtype=np.int64)
    flat = keys.reshape(length, -1)
    for index, query in enumerate(queries):
        seen = length - len(queries) + index + 1
        grouped = query.reshape(keys.shape[1], -1, keys.shape[2]).sum(axis=1)
        # Over exactly the keys that the row sees: the same bits however work is cut.
        scores = np.matmul(flat[:seen], grouped.reshape(-1))
        best = np.argsort(-scores, kind="stable")
        picks[index] = np.concatenate([best, np.arange(seen, length)])[:width]
    return picks


def attended_positions(picks: Picks, length: int) -> Iterator[Picks]:
    """For each of the last rows of `length`, the positions it attends to: sorted, padding left out.

    Padding is -1 and whatever lies behind the row.
    """
    for position, row in enumerate(picks, start=length - len(picks)):
        yield np.unique(row[(row >= 0) & (row <= position)])


def picks_of(tensors: tuple[Tensor, ...]) -> Picks | None:
    """The indices that came over a seam, [n, k]; None where none did."""
    for tensor in tensors:
        if tensor.name == INDICES:
            picks: Picks = tensor.to_array()[0].astype(np.int64)
            return picks
    return None


def picks_tensor(picks: Picks) -> Tensor:
    """The indices as they cross a seam, int32 [1, n, k]."""
    return Tensor.from_array(INDICES, picks[None], DType.INT32)
