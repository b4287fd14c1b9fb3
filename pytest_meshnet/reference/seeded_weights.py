"""Weights that need no file: every number follows from the configuration and a name.

The stream behind a tensor is SHAKE-256 over its label, so that each Shard builds only its own
layers, in any order, and a worker in another language can build the same ones.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from math import prod, sqrt

import numpy as np
from numpy.typing import NDArray

from pytest_meshnet.protocol.additions.canonical import canonical_digest

Float32Array = NDArray[np.float32]

# Standard deviation of the attention scores. At 1 a softmax over many keys is nearly a mean, and a
# lost or a foreign key would hardly show in the result.
_SCORE_DEVIATION = 2.0
# Standard deviation of silu(g) * u for independent standard normal g and u.
_GATED_DEVIATION = 0.6


@dataclass(frozen=True, slots=True)
class TinyLlamaConfig:
    """Sizes and seed of a model. `hidden` is split over `heads`; `kv_heads` are shared by groups.

    Raises ValueError for sizes that do not divide.
    """

    name: str = "tiny-llama"
    layers: int = 8
    hidden: int = 64
    heads: int = 4
    kv_heads: int = 2
    intermediate: int = 128
    vocab: int = 256
    rope_theta: float = 10_000.0
    norm_epsilon: float = 1e-5
    seed: int = 2026

    def __post_init__(self) -> None:
        if self.hidden % self.heads or self.heads % self.kv_heads or self.head_size % 2:
            raise ValueError(
                f"hidden {self.hidden}, heads {self.heads}, kv_heads {self.kv_heads}: heads must "
                "divide hidden into even parts, kv_heads must divide heads"
            )

    @property
    def head_size(self) -> int:
        """Components of one attention head."""
        return self.hidden // self.heads

    @property
    def group(self) -> int:
        """Query heads that share one key-value head."""
        return self.heads // self.kv_heads

    @property
    def input_scale(self) -> float:
        """Standard deviation at which random hidden states stand for real ones at any seam.

        Embeddings have 1, and all layers together add at most as much variance again.
        """
        return 1.0

    def digest(self) -> str:
        """SHA-256 (hex) of every size and the seed, which stand for the weights."""
        return canonical_digest(asdict(self))


DEFAULT = TinyLlamaConfig()
SMALL = TinyLlamaConfig("tiny-llama-small", layers=4, hidden=16, intermediate=32)


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One decoder layer. Matrices are [out, in], norms [hidden]."""

    attention_norm: Float32Array
    query: Float32Array
    key: Float32Array
    value: Float32Array
    output: Float32Array
    mlp_norm: Float32Array
    gate: Float32Array
    up: Float32Array
    down: Float32Array


def uniform(
    config: TinyLlamaConfig, layer: int, name: str, shape: tuple[int, ...], deviation: float
) -> Float32Array:
    """Uniform numbers of mean 0 and standard deviation `deviation`.

    Each takes four bytes of SHAKE-256("<config digest>/<layer>/<name>"), little-endian; the upper
    24 bits, which float32 holds exactly, become a number in [-1, 1) and are scaled once.
    """
    label = f"{config.digest()}/{layer}/{name}".encode()
    raw = hashlib.shake_256(label).digest(4 * prod(shape))
    steps = (np.frombuffer(raw, dtype="<u4") >> np.uint32(8)).astype(np.float32)
    unit = steps / np.float32(2**23) - np.float32(1)
    return (unit * np.float32(sqrt(3) * deviation)).reshape(shape)


def norm_weight(config: TinyLlamaConfig, layer: int, name: str) -> Float32Array:
    """Weights of an RMSNorm, between 0.5 and 1.5."""
    return np.float32(1) + uniform(config, layer, name, (config.hidden,), 0.5 / sqrt(3))


def layer_weights(config: TinyLlamaConfig, layer: int) -> LayerWeights:
    """Build one layer, scaled so that hidden states keep about unit variance at every seam."""
    hidden, inner = config.hidden, config.intermediate
    shared = config.kv_heads * config.head_size
    plain = 1 / sqrt(hidden)
    # Two branches a layer, all of them together one unit of variance.
    branch = 1 / sqrt(2 * config.layers)

    def matrix(name: str, rows: int, columns: int, deviation: float) -> Float32Array:
        return uniform(config, layer, name, (rows, columns), deviation)

    return LayerWeights(
        attention_norm=norm_weight(config, layer, "attention_norm"),
        query=matrix("query", hidden, hidden, plain * sqrt(_SCORE_DEVIATION)),
        key=matrix("key", shared, hidden, plain * sqrt(_SCORE_DEVIATION)),
        value=matrix("value", shared, hidden, plain),
        output=matrix("output", hidden, hidden, plain * branch),
        mlp_norm=norm_weight(config, layer, "mlp_norm"),
        gate=matrix("gate", inner, hidden, plain),
        up=matrix("up", inner, hidden, plain),
        down=matrix("down", hidden, inner, branch / (sqrt(inner) * _GATED_DEVIATION)),
    )


def embedding_weights(config: TinyLlamaConfig) -> Float32Array:
    """The head's embedding, [vocab, hidden], of unit variance."""
    return uniform(config, -1, "embedding", (config.vocab, config.hidden), 1.0)


def head_weights(config: TinyLlamaConfig) -> tuple[Float32Array, Float32Array]:
    """The tail's final norm [hidden] and output head [vocab, hidden]."""
    shape = (config.vocab, config.hidden)
    return (
        norm_weight(config, config.layers, "final_norm"),
        uniform(config, config.layers, "head", shape, 1 / sqrt(config.hidden)),
    )
