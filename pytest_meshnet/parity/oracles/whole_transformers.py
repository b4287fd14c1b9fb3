"""The whole model in transformers as an oracle: its own cache, its own mask, no Shard anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_meshnet.runtime.errors import Refusal
from pytest_meshnet.runtime.generation import Generation, greedy


def gguf_file(name: str, folder: Path) -> Path:
    """The file that a descriptor in `folder` names as the oracle's model. Raises Refusal."""
    path = folder / name
    if not path.is_file():
        raise Refusal(f"the oracle's model {path} is no file: correct oracle.model")
    return path


class TransformersOracle:
    """Continues prompts with a causal language model of transformers, in the dtype it has."""

    def __init__(self, model: Any) -> None:
        self._model = model.eval()
        self._entered: dict[int, list[Any]] = {}
        for number, layer in enumerate(model.model.layers):
            layer.register_forward_pre_hook(self._noting(number))

    @classmethod
    def from_gguf(cls, name: str, folder: Path) -> TransformersOracle:
        """Load a GGUF file, dequantized to float32. Raises Refusal when that cannot be done."""
        path = gguf_file(name, folder)
        try:
            import torch
            from transformers import AutoModelForCausalLM
        except ImportError as error:
            raise Refusal(
                f"the oracle needs {error.name}: pip install 'pytest-meshnet[torch]'"
            ) from None
        model = AutoModelForCausalLM.from_pretrained(
            str(path.parent), gguf_file=path.name, dtype=torch.float32
        )
        return cls(model)

    def _noting(self, number: int) -> Any:
        def note(_module: Any, arguments: tuple[Any, ...]) -> None:
            self._entered.setdefault(number, []).append(arguments[0][0])

        return note

    def generate(
        self, prompt: Sequence[int], count: int, *, chunk_tokens: int | None = None
    ) -> Generation:
        """Return `count` greedy tokens, prefilled whole or in chunks of `chunk_tokens`."""
        import numpy as np
        import torch

        self._entered.clear()
        width = chunk_tokens or len(prompt)
        pending = [list(prompt[at : at + width]) for at in range(0, len(prompt), width)]
        cache, tokens, scores = None, list[int](), []
        with torch.inference_mode():
            while len(tokens) < count:
                ids = torch.tensor([pending.pop(0)])
                told = self._model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
                cache = told.past_key_values
                if not pending:
                    scores.append(told.logits[0, -1].float().numpy().copy())
                    tokens.append(greedy(scores[-1], len(prompt) + len(tokens)))
                    pending.append([tokens[-1]])
            states = {
                layer: torch.cat(rows).float().numpy().copy()
                for layer, rows in self._entered.items()
            }
        return Generation(tuple(prompt), tuple(tokens), np.stack(scores), states=states)

    def layer_weights(self) -> int:
        """How many weights the lightest decoder layer has."""
        layers = self._model.model.layers
        return min(sum(int(one.numel()) for one in layer.parameters()) for layer in layers)

    def generate_together(self, prompts: Sequence[Sequence[int]], count: int) -> list[Generation]:
        """Continue several prompts, one after the other."""
        return [self.generate(prompt, count) for prompt in prompts]
