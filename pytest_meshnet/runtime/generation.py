"""What a route, or a whole model, made of a prompt: tokens, their scores, states, and the work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Rows = NDArray[np.float32]

Scale = Literal["logits", "log-probabilities"]


@dataclass(frozen=True, slots=True)
class ShardWork:
    """What one Shard of layers [start_layer, end_layer) reported for the units of a generation.

    `units` were applied; they took `execution_nanos` in all, `least_nanos` the shortest of them.
    `unchanged` counts results that held the very bytes of their input.
    """

    start_layer: int
    end_layer: int
    units: int
    execution_nanos: int
    least_nanos: int
    unchanged: int


@dataclass(frozen=True, slots=True)
class Generation:
    """Tokens that followed a prompt.

    Row i of `scores` [tokens, vocabulary] (float32) is what token i was chosen from; NaN where an
    engine does not tell a score. `states` maps a layer to the hidden states [positions, hidden]
    (float32) that entered it, for the prompt and every token but the last. `epochs` is 1 unless
    something was lost on the way.
    """

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    scores: Rows
    scale: Scale = "logits"
    states: Mapping[int, Rows] = field(default_factory=dict)
    work: tuple[ShardWork, ...] = ()
    epochs: int = 1

    def first(self, count: int) -> Generation:
        """The generation as if only `count` of its tokens had been asked for; without the work."""
        positions = len(self.prompt) + count - 1
        return Generation(
            prompt=self.prompt,
            tokens=self.tokens[:count],
            scores=self.scores[:count],
            scale=self.scale,
            states={layer: rows[:positions] for layer, rows in self.states.items()},
            epochs=self.epochs,
        )


class Choice(Protocol):
    """Chooses the next token."""

    def __call__(self, scores: Rows, position: int) -> int:
        """Return a token id for `position`, given the scores [vocabulary] of the one before."""


def greedy(scores: Rows, position: int) -> int:
    """Return the token of the highest score, of equals the one with the lowest id."""
    del position
    return int(scores.argmax())


class Generator(Protocol):
    """Whatever continues prompts greedily: a route, a whole model, another engine."""

    def generate(
        self, prompt: Sequence[int], count: int, *, chunk_tokens: int | None = None
    ) -> Generation:
        """Return `count` greedy tokens after `prompt`, prefilled in chunks of `chunk_tokens`."""

    def generate_together(self, prompts: Sequence[Sequence[int]], count: int) -> list[Generation]:
        """Do the same for several prompts at once, in sessions of their own."""
