"""Hot KV State of a torch Shard: the tensors of its own layers, and the cache view of one run.

transformers' cache is indexed by layer and appends by concatenation, so that a run makes new
tensors and every older state keeps its own. A Shard's view counts its layers from 0: the causal
mask is built from the first of them, whichever layer of the model that is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers.cache_utils import DynamicCache, DynamicIndexedLayer, DynamicLayer

LayerTensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True)
class TorchState:
    """What layers [first_layer, first_layer + len(layers)) hold for `length` tokens.

    Each layer has keys and values [1, heads, length, size]; with an indexer its keys too,
    [1, length, size].
    """

    first_layer: int
    length: int
    layers: tuple[LayerTensors, ...]

    def with_layer_of(self, other: object, layer: int) -> TorchState:
        """Return a state whose rows of one layer are those of `other`, as far as both go.

        For the control that must be found; raises TypeError for a state of another kind.
        """
        if not isinstance(other, TorchState):
            raise TypeError(f"{type(other).__name__} holds no keys and values of these layers")
        place, common = layer - self.first_layer, min(self.length, other.length)
        mixed = tuple(
            _mixed(ours, theirs, common)
            for ours, theirs in zip(self.layers[place], other.layers[place], strict=True)
        )
        return replace(self, layers=(*self.layers[:place], mixed, *self.layers[place + 1 :]))


def _mixed(ours: torch.Tensor, theirs: torch.Tensor, common: int) -> torch.Tensor:
    axis = ours.dim() - 2
    rest = ours.narrow(axis, common, ours.shape[axis] - common)
    return torch.cat([theirs.narrow(axis, 0, common), rest], dim=axis)


def cache_view(state: TorchState | None, layers: int, *, indexed: bool) -> Any:
    """A transformers cache of `layers` layers that begins with what `state` holds."""
    cache = DynamicCache()
    cache.layers = [DynamicIndexedLayer() if indexed else DynamicLayer() for _ in range(layers)]
    for layer, tensors in zip(
        cache.layers, state.layers if state else (), strict=state is not None
    ):
        keys, values, *indexer = tensors
        layer.lazy_initialization(keys, values)
        layer.keys, layer.values = keys, values
        if indexer:
            layer.lazy_initialization_indexer(indexer[0])
            layer.indexer_keys = indexer[0]
    return cache


def state_of(cache: Any, first_layer: int) -> TorchState:
    """What a cache view holds after a run."""
    layers = tuple(_tensors(layer) for layer in cache.layers)
    return TorchState(first_layer, int(cache.get_seq_length()), layers)


def _tensors(layer: Any) -> LayerTensors:
    indexer = getattr(layer, "indexer_keys", None)
    return (layer.keys, layer.values, *(() if indexer is None else (indexer,)))
