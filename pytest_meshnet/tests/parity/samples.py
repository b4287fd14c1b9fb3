"""Generations, comparisons and routes to judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pytest_meshnet.parity.metrics import Comparison, compare
from pytest_meshnet.protocol.tensors import DType
from pytest_meshnet.reference.catalogue import build
from pytest_meshnet.reference.models import BUILT_IN
from pytest_meshnet.runtime.descriptor import load
from pytest_meshnet.runtime.generation import Generation, Scale
from pytest_meshnet.runtime.in_process import InProcessTransport
from pytest_meshnet.runtime.model_facts import ModelFacts
from pytest_meshnet.runtime.route import Route
from pytest_meshnet.runtime.route_spec import ranges_of
from pytest_meshnet.runtime.target import InProcess, Target

PROMPT = (3, 1, 4)


def generation(
    *rows: Sequence[float],
    tokens: Sequence[int] | None = None,
    scale: Scale = "logits",
    states: dict[int, list[list[float]]] | None = None,
) -> Generation:
    """Greedy tokens of rows of scores, unless others are given."""
    scores = np.array(rows, dtype=np.float32)
    chosen = tuple(int(row.argmax()) for row in scores) if tokens is None else tuple(tokens)
    held = {layer: np.array(rows, dtype=np.float32) for layer, rows in (states or {}).items()}
    return Generation(PROMPT, chosen, scores, scale, held)


def comparison(**changes: object) -> Comparison:
    """A comparison of two equal generations, with changes."""
    one = generation([1.0, 3.0, 2.0], [2.0, 1.0, 0.0])
    return replace(compare(one, one), **changes)  # type: ignore[arg-type]


def shard_here(model: str, start: int, end: int, dtype: DType, mutant: str = "") -> InProcess:
    """Makes a Shard of a built-in model in this process."""
    served, loaded = BUILT_IN[model].shard(start, end, dtype)
    return lambda: InProcessTransport(*build(mutant, served, loaded))


def route_here(
    model: str, cuts: Sequence[int], dtype: DType = DType.FLOAT32, mutant: str = ""
) -> Route:
    """A connected route of Shards of a built-in model, in this process."""
    layers = BUILT_IN[model].layers
    served, _ = BUILT_IN[model].shard(0, 1, dtype)
    facts = ModelFacts(layers, served.hidden_size, served.vocab_size, (dtype,))
    descriptor = replace(load("reference"), model=facts)
    targets = []
    for start, end in ranges_of(cuts, layers):
        spec = replace(descriptor.shards[0], start_layer=start, end_layer=end, model=None)
        here = shard_here(model, start, end, dtype, mutant)
        targets.append(Target(descriptor, spec, in_process=here))
        targets[-1].connect()
    return Route(targets)


def prompt_of(model: str, length: int, seed: int = 1) -> list[int]:
    """A drawn prompt."""
    served, _ = BUILT_IN[model].shard(0, 1, DType.FLOAT32)
    drawn: list[int] = np.random.default_rng(seed).integers(0, served.vocab_size, length).tolist()
    return drawn
