"""The same decoder written the plain way: float64, all rows at once, a full attention matrix.

Shares nothing with `tiny_llama` but the weights. Rotation is done in complex numbers, key-value
heads are repeated for their group, and the future is masked.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pytest_meshnet.reference.seeded_weights import (
    TinyLlamaConfig,
    embedding_weights,
    head_weights,
    layer_weights,
)

Float64Array = NDArray[np.float64]


def embed(config: TinyLlamaConfig, ids: list[int]) -> Float64Array:
    """Hidden states [n, hidden] that enter layer 0."""
    return embedding_weights(config).astype(np.float64)[ids]


def logits(config: TinyLlamaConfig, rows: Float64Array) -> Float64Array:
    """Logits [n, vocab] of hidden states that left the last layer."""
    norm, head = head_weights(config)
    return _rms(config, rows, norm) @ head.astype(np.float64).T


def run_layers(
    config: TinyLlamaConfig, rows: Float64Array, start: int, end: int, first: int = 0
) -> Float64Array:
    """Layers [start, end) on a whole sequence [n, hidden] that begins at position `first`."""
    for number in range(start, end):
        weights = layer_weights(config, number)
        normal = _rms(config, rows, weights.attention_norm)
        query = _rotate(config, _heads(config, normal @ weights.query.T), first)
        key = _rotate(config, _heads(config, normal @ weights.key.T), first)
        value = _heads(config, normal @ weights.value.T)
        rows = rows + _attend(config, query, key, value) @ weights.output.T
        normal = _rms(config, rows, weights.mlp_norm)
        gate = normal @ weights.gate.T
        rows = rows + ((gate * _sigmoid(gate)) * (normal @ weights.up.T)) @ weights.down.T
    return rows


def _sigmoid(x: Float64Array) -> Float64Array:
    return 0.5 * (1 + np.tanh(x / 2))


def _rms(config: TinyLlamaConfig, rows: Float64Array, weight: NDArray[np.float32]) -> Float64Array:
    root = np.sqrt((rows**2).sum(axis=1) / config.hidden + config.norm_epsilon)
    return (rows.T / root).T * weight


def _heads(config: TinyLlamaConfig, rows: Float64Array) -> Float64Array:
    return rows.reshape(len(rows), -1, config.hidden // config.heads)


def _rotate(config: TinyLlamaConfig, heads: Float64Array, first: int) -> Float64Array:
    half = heads.shape[2] // 2
    numbers = heads[:, :, :half] + 1j * heads[:, :, half:]
    speeds = np.array([config.rope_theta ** (-2 * i / heads.shape[2]) for i in range(half)])
    positions = first + np.arange(len(heads))
    turned = numbers * np.exp(1j * np.outer(positions, speeds))[:, None, :]
    return np.concatenate([turned.real, turned.imag], axis=2)


def _attend(
    config: TinyLlamaConfig, query: Float64Array, key: Float64Array, value: Float64Array
) -> Float64Array:
    group = config.heads // config.kv_heads
    key, value = np.repeat(key, group, axis=1), np.repeat(value, group, axis=1)
    scores = np.einsum("ihd,jhd->hij", query, key) / np.sqrt(query.shape[2])
    scores[:, np.triu(np.ones(scores.shape[1:], dtype=bool), 1)] = -np.inf
    powers = np.exp(scores - scores.max(axis=2, keepdims=True))
    shares = powers / powers.sum(axis=2, keepdims=True)
    return np.einsum("hij,jhd->ihd", shares, value).reshape(len(query), -1)
