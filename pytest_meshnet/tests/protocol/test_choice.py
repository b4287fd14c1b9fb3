"""Choosing a token: greedy, bounded and seeded."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from pytest_meshnet.protocol.additions.choice import choose, uniform
from pytest_meshnet.protocol.additions.sampling import SamplingContract
from pytest_meshnet.protocol.tensors import DType, Tensor

HOT = SamplingContract(temperature=1.0, seed=7)


def logits(*values: float) -> Tensor:
    row = np.array([[values]], dtype=np.float32)
    return Tensor.from_float32("logits", row, DType.FLOAT32)


def drawn(row: Tensor, contract: SamplingContract, count: int = 2000) -> Counter[int]:
    return Counter(choose(row, contract, position).token_id for position in range(count))


@pytest.mark.parametrize(
    ("values", "token"),
    [((0, 3, 1), 1), ((2, 5, 5, 5), 1), ((-1, -1), 0), ((float("nan"), 1), 1),
     ((float("-inf"), float("-inf")), 0), ((1, float("inf")), 1)],
    ids=str,
)  # fmt: skip
def test_greedy_takes_the_first_of_the_largest(values, token):
    assert choose(logits(*values), SamplingContract(), 0).token_id == token


def test_the_logarithm_is_that_of_the_softmax_whatever_the_temperature():
    row = logits(0, np.log(3))
    assert choose(row, SamplingContract(), 0).log_prob == pytest.approx(np.log(0.75))
    cold = replace(HOT, temperature=0.01)
    assert choose(row, cold, 0).log_prob == pytest.approx(np.log(0.75))


def test_draws_follow_the_distribution():
    found = drawn(logits(0, np.log(3)), HOT)
    assert 0.72 < found[1] / 2000 < 0.78


def test_temperature_sharpens():
    found = drawn(logits(0, np.log(3)), replace(HOT, temperature=0.5))
    assert 0.87 < found[1] / 2000 < 0.93  # 9 to 1


def test_top_k_keeps_the_best_and_of_equal_ones_the_first():
    assert set(drawn(logits(1, 2, 2, 2), replace(HOT, top_k=2), 200)) == {1, 2}


@pytest.mark.parametrize(("top_p", "kept"), [(0.5, {0}), (0.61, {0, 1}), (0.95, {0, 1, 2})])
def test_top_p_keeps_the_smallest_set_that_reaches_it(top_p, kept):
    row = logits(*np.log([0.6, 0.3, 0.1]))
    assert set(drawn(row, replace(HOT, top_p=top_p), 500)) == kept


def test_top_p_that_is_reached_exactly_adds_nothing():
    assert set(drawn(logits(1, 1), replace(HOT, top_p=0.5), 200)) == {0}


def test_the_same_seed_draws_the_same_and_another_something_else():
    row = logits(*np.zeros(64))
    one, again, other = (
        [choose(row, replace(HOT, seed=seed), position).token_id for position in range(16)]
        for seed in (7, 7, 8)
    )
    assert one == again
    assert one != other


def test_the_numbers_are_written_down():
    """A worker in another language draws the same ones."""
    assert [uniform(7, 0), uniform(7, 1)] == [0.489941320558831, 0.5609425529662238]
    numbers = [uniform(2**64 - 1, position) for position in range(4096)]
    assert 0 <= min(numbers) < 0.01
    assert 0.99 < max(numbers) < 1


def test_the_end_of_a_text_is_told():
    assert choose(logits(0, 1), SamplingContract(), 0, (1,)).end_of_sequence
    assert not choose(logits(1, 0), SamplingContract(), 0, (1,)).end_of_sequence
