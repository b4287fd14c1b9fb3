"""The whole seeded model as an oracle: plain function calls, no protocol, no seam.

Every layer runs in one `TinyLlama`, whose rows have the same bits however work is cut; what enters
each layer is noted on the way.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pytest_meshnet.protocol.machines.events import Work
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.reference.kv_state import KvState
from pytest_meshnet.reference.seeded_weights import Float32Array, TinyLlamaConfig
from pytest_meshnet.reference.tiny_llama import Passing, TinyLlama
from pytest_meshnet.runtime.generation import Generation, greedy


class _Noting(TinyLlama):
    """Notes the rows that enter each layer."""

    def __init__(self, config: TinyLlamaConfig) -> None:
        super().__init__(config, boundary_dtype=DType.FLOAT32)
        self.entered: dict[int, list[Float32Array]] = {}

    def layer(
        self,
        number: int,
        rows: Float32Array,
        state: KvState,
        passing: Passing,
    ) -> Float32Array:
        self.entered.setdefault(number, []).append(rows)
        return super().layer(number, rows, state, passing)


class WholeTinyLlama:
    """Continues prompts with the whole model in one place."""

    def __init__(self, config: TinyLlamaConfig) -> None:
        self._config = config

    def generate(
        self, prompt: Sequence[int], count: int, *, chunk_tokens: int | None = None
    ) -> Generation:
        """Return `count` greedy tokens; chunks change nothing here, not even a bit."""
        del chunk_tokens
        model = _Noting(self._config)
        state, position, ids, tokens = None, 0, tuple(prompt), list[int]()
        scores = []
        while len(tokens) < count:
            outcome = model.run(_work(ids, state, position, self._config.layers))
            state, position = outcome.state, position + len(ids)
            scores.append(outcome.tensors[0].to_float32().reshape(-1))
            tokens.append(greedy(scores[-1], position))
            ids = (tokens[-1],)
        return Generation(
            prompt=tuple(prompt),
            tokens=tuple(tokens),
            scores=np.stack(scores),
            states={layer: np.concatenate(rows) for layer, rows in model.entered.items()},
        )

    def generate_together(self, prompts: Sequence[Sequence[int]], count: int) -> list[Generation]:
        """Continue several prompts, one after the other."""
        return [self.generate(prompt, count) for prompt in prompts]


def _work(ids: Sequence[int], state: object | None, position: int, layers: int) -> Work:
    return Work(
        number=1,
        session="whole",
        epoch=1,
        mode="decode" if position else "prefill",
        state=state,
        first_position=position,
        token_count=len(ids),
        start_layer=0,
        end_layer=layers,
        final=True,
        tensors=(Tensor.from_array("token_ids", np.array([list(ids)]), DType.INT32),),
    )
