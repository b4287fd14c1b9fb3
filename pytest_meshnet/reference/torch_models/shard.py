"""A Shard of a transformers model: its decoder layers, and the ends that it owns.

The layers are the library's own modules; around them is what the whole model does too: positions,
the causal mask, the embedding in front and final norm and output head behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

import torch
from transformers.masking_utils import create_causal_mask

from pytest_meshnet.protocol.additions.sideband import INDICES, PADDING, IndexShare
from pytest_meshnet.protocol.machines.events import Outcome, Work
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.reference.torch_models.state import TorchState, cache_view, state_of


@dataclass(frozen=True, slots=True)
class Parts:
    """The modules of layers [start, end) of a model; ends that the Shard does not own are None.

    `layers` maps a layer to its module, whose cache index is its place in the Shard. `final_norm`
    is there in every Shard of the fixtures, one vector, so that a control can misapply it.
    """

    config: Any
    start: int
    end: int
    layers: Mapping[int, torch.nn.Module]
    rotary: torch.nn.Module
    embedding: torch.nn.Module | None
    final_norm: torch.nn.Module
    head: torch.nn.Module | None


def single_threaded() -> None:
    """Let torch use one thread: results do not depend on the machine, nor Shards on one another."""
    torch.set_num_threads(1)


class TorchShard:
    """Runs the layers of `parts`. Thread-safe: nothing is kept between runs but weights."""

    def __init__(
        self, parts: Parts, boundary_dtype: DType, index_share: IndexShare | None = None
    ) -> None:
        self.parts = parts
        self._dtype = boundary_dtype
        self._share = index_share

    def run(self, work: Work) -> Outcome:
        """Compute the layers of `work` and return its result with the state that includes it.

        Raises ValueError for a token id outside the vocabulary, a state of other layers, and a
        Shared layer without indices.
        """
        started = perf_counter_ns()
        with torch.inference_mode():
            rows = self._input(work)
            before = self._state_before(work)
            count = work.end_layer - work.start_layer
            cache = cache_view(before, count, indexed=self._share is not None)
            rows, picks = self._layers(work, rows, cache)
            tensors = self._output(work, rows, picks)
            after = work.state if work.mode == "stateless" else state_of(cache, work.start_layer)
        return Outcome(after, tensors, perf_counter_ns() - started)

    def _input(self, work: Work) -> torch.Tensor:
        tensor = work.tensors[0]
        if work.start_layer > 0:
            return torch.from_numpy(tensor.to_float32())
        ids = torch.from_numpy(tensor.to_array().astype("int64"))
        vocabulary = self.parts.config.vocab_size
        if self.parts.embedding is None:
            raise ValueError(f"layers {self.parts.start} to {self.parts.end} have no embedding")
        if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < vocabulary:
            raise ValueError(f"a token id is outside the vocabulary of {vocabulary}")
        embedded: torch.Tensor = self.parts.embedding(ids)
        return embedded

    def _state_before(self, work: Work) -> TorchState | None:
        if work.mode == "stateless" or work.state is None:
            return None
        if not isinstance(work.state, TorchState) or work.state.first_layer != work.start_layer:
            raise ValueError(f"the state is not one of layers {work.start_layer} onwards")
        return work.state

    def _layers(
        self, work: Work, rows: torch.Tensor, cache: Any
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Run the layers on [1, n, hidden]; return what left them, and the last indices if any."""
        positions = torch.arange(rows.shape[1])[None] + work.first_position
        mask = self._mask(rows, cache)
        rotation = self.parts.rotary(rows, position_ids=positions)
        picks = _picks(work) if self._share else None
        for number in range(work.start_layer, work.end_layer):
            common = {
                "attention_mask": mask,
                "position_embeddings": rotation,
                "position_ids": positions,
                "past_key_values": _Shifted.view(cache, self.parts.start, work.start_layer),
                "use_cache": True,
            }
            if self._share is None:
                rows = self.parts.layers[number](rows, **common)
            else:
                rows, picks = self.parts.layers[number](rows, prev_topk_indices=picks, **common)
        return rows, picks

    def _mask(self, rows: torch.Tensor, cache: Any) -> torch.Tensor | None:
        """The causal mask as the whole model builds it, from this Shard's own cache view."""
        always = {} if self._share is None else {"allow_is_causal_skip": False}
        mask: torch.Tensor | None = create_causal_mask(
            config=self.parts.config,
            inputs_embeds=rows,
            attention_mask=None,
            past_key_values=cache,
            position_ids=None,
            **always,
        )
        return mask

    def _output(
        self, work: Work, rows: torch.Tensor, picks: torch.Tensor | None
    ) -> tuple[Tensor, ...]:
        if self.parts.head is not None:
            if not work.final:
                return ()
            logits = self.parts.head(self.parts.final_norm(rows[:, -1:]))
            return (Tensor.from_float32("logits", logits.numpy(), DType.FLOAT32),)
        states = Tensor.from_float32("hidden_states", rows.numpy(), self._dtype)
        if self._share is None or picks is None or self._share.across(work.end_layer) is None:
            return (states,)
        return states, Tensor.from_array(INDICES, picks.numpy(), DType.INT32)

    # What controls break -----------------------------------------------------------------------

    def final_norm(self, states: Tensor) -> Tensor:
        """Apply the model's final norm to hidden states [1, n, hidden], as only a tail should."""
        with torch.inference_mode():
            rows = self.parts.final_norm(torch.from_numpy(states.to_float32()))
        return Tensor.from_float32(states.name, rows.numpy(), states.dtype)

    def drop_expert(self) -> None:
        """Let the first expert of the first layer that has experts give nothing.

        Raises ValueError for layers that have none.
        """
        for layer in self.parts.layers.values():
            experts = getattr(layer.mlp, "experts", None)
            if experts is not None:
                with torch.no_grad():
                    experts.down_proj[0].zero_()
                return
        raise ValueError(f"layers {self.parts.start} to {self.parts.end} have no experts")


class _Shifted:
    """A cache whose first layer is not the Shard's first: execution began at a later layer."""

    def __init__(self, cache: Any, by: int) -> None:
        self._cache = cache
        self._by = by

    @classmethod
    def view(cls, cache: Any, start: int, first: int) -> Any:
        """The cache itself where execution began at the Shard's first layer."""
        return cache if first == start else cls(cache, first - start)

    def update(self, keys: torch.Tensor, values: torch.Tensor, layer: int, **more: Any) -> Any:
        return self._cache.update(keys, values, layer - self._by, **more)

    def update_indexer(self, keys: torch.Tensor, layer: int) -> Any:
        return self._cache.update_indexer(keys, layer - self._by)


def _picks(work: Work) -> torch.Tensor | None:
    """The indices that came over the seam, int32 [1, n, k], without padding.

    -1 is replaced by a position that the row attends to anyway. Raises ValueError for a row of
    nothing but padding: it would attend to nothing.
    """
    for tensor in work.tensors:
        if tensor.name == INDICES:
            picks = torch.from_numpy(tensor.to_array().astype("int32"))
            best = picks.max(dim=-1, keepdim=True).values
            if int(best.min()) == PADDING:
                raise ValueError("a row of indices is nothing but padding")
            return torch.where(picks == PADDING, best, picks)
    return None
