"""Works to give a model, and the shortest way through a list of chunks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import settings

from pytest_meshnet.protocol.machines.events import Mode, Outcome, Work
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.reference.tiny_llama import TinyLlama


def repeatable(examples: int) -> settings:
    """The same examples in every run, however slow the machine."""
    return settings(max_examples=examples, derandomize=True, deadline=None)


def tokens(*ids: int) -> Tensor:
    """A head's input."""
    return Tensor.from_array("token_ids", np.array([ids]), DType.INT32)


def random_tokens(count: int, vocab: int = 256, seed: int = 1) -> Tensor:
    """`count` token ids."""
    return tokens(*np.random.default_rng(seed).integers(0, vocab, count).tolist())


def random_states(model: TinyLlama, count: int, seed: int = 1) -> Tensor:
    """`count` rows of hidden states at the declared scale, in the model's boundary dtype."""
    shape = (1, count, model.config.hidden)
    rows = np.random.default_rng(seed).normal(0, model.config.input_scale, shape)
    return Tensor.from_float32("hidden_states", rows.astype(np.float32), model.boundary_dtype)


def work(
    model: TinyLlama,
    tensor: Tensor,
    state: object | None = None,
    first: int = 0,
    *,
    mode: Mode = "prefill",
    final: bool = True,
    start: int | None = None,
) -> Work:
    """One unit for `model` as a Worker would hand it over."""
    return Work(
        number=1,
        session="s",
        epoch=1,
        mode=mode,
        state=state,
        first_position=first,
        token_count=tensor.shape[1],
        start_layer=model.start if start is None else start,
        end_layer=model.end,
        final=final,
        tensors=(tensor,),
    )


def run_in_chunks(
    model: TinyLlama, tensor: Tensor, sizes: Sequence[int], start: int | None = None
) -> tuple[bytes, Outcome]:
    """Prefill `tensor` in chunks of `sizes` tokens. Returns all result bytes, and the last outcome.

    Only the last chunk is final.
    """
    results, state, first = b"", None, 0
    for index, size in enumerate(sizes):
        piece = tensor.rows(first, first + size)
        last = index == len(sizes) - 1
        outcome = model.run(work(model, piece, state, first, final=last, start=start))
        results += b"".join(bytes(result.data) for result in outcome.tensors)
        state, first = outcome.state, first + size
    return results, outcome
