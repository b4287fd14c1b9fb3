"""The default tolerances lie between honest rounding and the faults that they must show.

Everything is measured as a multiple of what is allowed. Honest workers stay below half of it in
every draw; a fault goes beyond twice in at least one of a few draws, as many as the suite makes.
`pytest --junit-xml` on this file keeps the figures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_meshnet.protocol.machines.events import ShardModel, Work
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.reference.catalogue import ModelWrapper, entry
from pytest_meshnet.reference.seeded_weights import DEFAULT, SMALL, TinyLlamaConfig
from pytest_meshnet.reference.tiny_llama import TinyLlama
from pytest_meshnet.runtime.descriptor import DEFAULT_TOLERANCES, Tolerance

Rows = NDArray[np.float32]
Record = Callable[[str, object], None]

HONEST = 0.5
FAULTY = 2.0

DTYPES = (DType.BFLOAT16, DType.FLOAT16, DType.FLOAT32)
MODELS = {"small": SMALL, "default": DEFAULT}
# Where a Shard begins and ends, as parts of its model.
SHARDS = {"head": (0.0, 0.5), "middle": (0.25, 0.75), "tail": (0.5, 1.0)}
KEYS = range(4)
CUTS = ([1] * 12, [6, 6], [5, 1, 6])

every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda one: one.name.lower())
every_model = pytest.mark.parametrize("config", MODELS.values(), ids=list(MODELS))
every_shard = pytest.mark.parametrize("place", SHARDS)


@cache
def shard_of(config: TinyLlamaConfig, place: str, dtype: DType) -> TinyLlama:
    start, end = (round(part * config.layers) for part in SHARDS[place])
    return TinyLlama(config, start, end, dtype)


def changed(name: str, model: TinyLlama) -> ShardModel:
    """The variant or mutant of that name, around the model."""
    change = entry(name).change
    assert isinstance(change, type)
    assert issubclass(change, ModelWrapper)
    return change(model)


def drawn(model: TinyLlama, count: int, key: int, start: int | None = None) -> Tensor:
    """Inputs as the suite draws them: token ids for a head, else states at the input scale."""
    random = np.random.default_rng([20260101, key])
    if (model.start if start is None else start) == 0:
        ids = random.integers(0, model.config.vocab, size=(1, count))
        return Tensor.from_array("token_ids", ids, DType.INT32)
    states = random.standard_normal((1, count, model.config.hidden), dtype=np.float32)
    return Tensor.from_float32("hidden_states", states, model.boundary_dtype)


def computed(
    shard: TinyLlama,
    model: ShardModel,
    tokens: Tensor,
    prefill: Sequence[int],
    start: int | None = None,
) -> Rows:
    """Rows [n, width] of a prefill in chunks, and of a decode step for every token behind it."""
    length = sum(prefill)
    counts = [*prefill, *[1] * (tokens.shape[1] - length)]
    state, at, rows = None, 0, []
    for count in counts:
        work = Work(
            number=1,
            session="s",
            epoch=1,
            mode="prefill" if at < length else "decode",
            state=state,
            first_position=at,
            token_count=count,
            start_layer=shard.start if start is None else start,
            end_layer=shard.end,
            final=at + count >= length,
            tensors=(tokens.rows(at, at + count),),
        )
        outcome = model.run(work)
        state, at = outcome.state, at + count
        rows += [one.to_float32()[0] for one in outcome.tensors]
    return np.concatenate(rows)


def furthest(dtype: DType, actual: Rows, expected: Rows) -> float:
    """The largest difference over the last rows of both, as a multiple of what is allowed."""
    count = min(len(actual), len(expected))
    tolerance = DEFAULT_TOLERANCES[dtype]
    ratios = tolerance.ratios(actual[len(actual) - count :], expected[len(expected) - count :], 1.0)
    return float(ratios.max())


@every_dtype
@every_model
@every_shard
@pytest.mark.parametrize("variant", ["blas-rounding", "boundary-precision"])
def test_honest_rounding_stays_within_half_of_what_is_allowed(
    record_property: Record, variant: str, place: str, config: TinyLlamaConfig, dtype: DType
) -> None:
    shard = shard_of(config, place, dtype)
    honest = changed(variant, shard)
    worst = 0.0
    for key in KEYS:
        tokens = drawn(shard, 12, key)
        whole = computed(shard, honest, tokens, [12])
        for cuts in CUTS:
            worst = max(worst, furthest(dtype, computed(shard, honest, tokens, cuts), whole))
        decoded = computed(shard, honest, tokens, [6])[-1:]
        worst = max(worst, furthest(dtype, decoded, whole))
        if variant == "blas-rounding":
            exact = computed(shard, shard, tokens, [12])
            worst = max(worst, furthest(dtype, whole, exact), furthest(dtype, decoded, exact))
    record_property("times_allowed", worst)
    assert worst <= HONEST, f"{worst:.3f} of what is allowed"


# What the suite compares where each mutant must show: (prefill of one side, of the other).
FAULTS = {
    "positions-restart": ([3, 3], [6]),
    "positions-skip-one": ([3, 3], [6]),
    "forgets-earlier-chunks": ([3, 3], [6]),
    "swaps-rows": ([3, 3], [6]),
    "sees-the-whole-chunk": ([3, 3], [6]),
    "decode-positions-are-shifted": ([5], [6]),
    "decode-positions-stand-still": ([3], [6]),
    "decode-attends-to-itself": ([5], [6]),
    "decode-sees-the-prompt-only": ([3], [6]),
}


@every_dtype
@every_model
@every_shard
@pytest.mark.parametrize("fault", FAULTS)
def test_a_numerical_fault_goes_beyond_twice_what_is_allowed(
    record_property: Record, fault: str, place: str, config: TinyLlamaConfig, dtype: DType
) -> None:
    shard = shard_of(config, place, dtype)
    one, other = FAULTS[fault]
    most = max(
        furthest(
            dtype,
            computed(shard, changed(fault, shard), drawn(shard, 6, key), one),
            computed(shard, changed(fault, shard), drawn(shard, 6, key), other),
        )
        for key in KEYS
    )
    record_property("times_allowed", most)
    assert most >= FAULTY, f"{most:.2f} times what is allowed"


@every_dtype
@every_model
@pytest.mark.parametrize("place", ["middle", "tail"])
def test_an_ignored_effective_start_would_go_beyond_twice_what_is_allowed(
    record_property: Record, place: str, config: TinyLlamaConfig, dtype: DType
) -> None:
    shard = shard_of(config, place, dtype)
    least = min(
        furthest(
            dtype,
            computed(shard, shard, drawn(shard, 4, key), [4], start=shard.start + 1),
            computed(shard, shard, drawn(shard, 4, key), [4]),
        )
        for key in KEYS
    )
    record_property("times_allowed", least)
    assert least >= FAULTY, f"{least:.2f} times what is allowed"


@every_dtype
@pytest.mark.parametrize("fault", ["noisy-results", "grows-tired"])
def test_results_that_never_repeat_go_beyond_twice_what_is_allowed(
    record_property: Record, fault: str, dtype: DType
) -> None:
    shard = shard_of(SMALL, "middle", dtype)
    faulty = changed(fault, shard)
    tokens = drawn(shard, 5, 1)
    first = computed(shard, faulty, tokens, [4])
    furthest_of = max(furthest(dtype, computed(shard, faulty, tokens, [4]), first) for _ in KEYS)
    record_property("times_allowed", furthest_of)
    assert furthest_of >= FAULTY, f"{furthest_of:.2f} times what is allowed"


def test_ratios_count_what_is_not_finite_as_infinitely_far() -> None:
    tolerance = Tolerance(absolute=0.5, relative=0.0)
    actual = np.array([1.0, np.nan, np.inf, 2.0], dtype=np.float32)
    expected = np.array([1.5, 1.0, np.inf, np.nan], dtype=np.float32)
    assert tolerance.ratios(actual, expected, 2.0).tolist() == [0.5, np.inf, np.inf, np.inf]


def test_a_tolerance_of_zero_asks_for_the_same_bits() -> None:
    exact = replace(DEFAULT_TOLERANCES[DType.FLOAT32], absolute=0.0, relative=0.0)
    one = np.array([1.0, 0.0], dtype=np.float32)
    other = np.nextafter(one, np.float32(2))
    assert exact.ratios(one, one, 1.0).tolist() == [0.0, 0.0]
    assert exact.ratios(one, other, 1.0).tolist() == [np.inf, np.inf]
