"""Weights are a pure function of configuration, layer and name, at a scale that holds."""

from __future__ import annotations

import hashlib
from dataclasses import fields, replace

import numpy as np
import pytest

from pytest_meshnet.reference.seeded_weights import (
    DEFAULT,
    SMALL,
    TinyLlamaConfig,
    embedding_weights,
    head_weights,
    layer_weights,
    norm_weight,
    uniform,
)


def test_a_number_is_24_bits_of_shake_256_over_the_label() -> None:
    label = f"{SMALL.digest()}/1/query".encode()
    raw = hashlib.shake_256(label).digest(8)
    step = int.from_bytes(raw[4:8], "little") >> 8
    expected = np.float32(step / 2**23 - 1) * np.float32(np.sqrt(3) * 0.25)
    assert uniform(SMALL, 1, "query", (2,), 0.25)[1] == expected


def test_every_tensor_of_every_layer_is_another_one() -> None:
    tensors = [
        getattr(layer_weights(SMALL, layer), field.name).tobytes()
        for layer in range(SMALL.layers)
        for field in fields(layer_weights(SMALL, layer))
    ]
    tensors += [embedding_weights(SMALL).tobytes()] + [t.tobytes() for t in head_weights(SMALL)]
    assert len(set(tensors)) == len(tensors) == SMALL.layers * 9 + 3


def test_every_size_and_the_seed_enter_the_digest() -> None:
    changes = {"name": "x", "layers": 3, "hidden": 32, "heads": 2, "kv_heads": 1}
    changes |= {"intermediate": 48, "vocab": 512, "rope_theta": 1e6, "norm_epsilon": 1e-6}
    changes |= {"seed": 1}
    assert set(changes) == {field.name for field in fields(TinyLlamaConfig)}
    digests = {replace(SMALL, **{name: value}).digest() for name, value in changes.items()}
    assert len(digests | {SMALL.digest()}) == len(changes) + 1


def test_uniform_has_the_deviation_asked_for_and_mean_zero() -> None:
    numbers = uniform(DEFAULT, 0, "sample", (100_000,), 0.3)
    assert abs(numbers.std() - 0.3) < 0.003
    assert abs(numbers.mean()) < 0.005


def test_norm_weights_lie_between_a_half_and_one_and_a_half() -> None:
    weight = norm_weight(DEFAULT, 0, "attention_norm")
    assert weight.min() >= 0.5
    assert weight.max() < 1.5
    assert weight.std() > 0.2


@pytest.mark.parametrize("sizes", [{"heads": 3}, {"kv_heads": 3}, {"hidden": 4}])
def test_sizes_that_do_not_divide_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="heads must divide hidden"):
        replace(SMALL, **sizes)
