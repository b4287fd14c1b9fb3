"""`tiny-llama`: a seeded float32 decoder whose results have the same bits however work is cut.

Every number of a row comes from the same calls on the same shapes, whatever rows stand beside it:
elementwise arithmetic, reductions along the last axis, one matrix-vector product a row, and
attention one query at a time over the keys it sees. So chunked equals whole, and interleaved equals
alone, bit for bit. `BatchedTinyLlama` gives that up for matrix products, as real runtimes do.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from time import perf_counter_ns

import numpy as np

from pytest_meshnet.protocol.machines.events import Outcome, ShardModel, Work
from pytest_meshnet.protocol.machines.session import ServedShard
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.reference.fingerprints import built_in_fingerprint
from pytest_meshnet.reference.index_share import (
    Picks,
    attended_positions,
    chosen_positions,
    index_share_of,
    picks_of,
    picks_tensor,
)
from pytest_meshnet.reference.kv_state import KvState, empty_state, extended
from pytest_meshnet.reference.seeded_weights import (
    Float32Array,
    LayerWeights,
    TinyLlamaConfig,
    embedding_weights,
    head_weights,
    layer_weights,
)


@dataclass(slots=True)
class Passing:
    """What one run carries from layer to layer beside its rows: the rotation, and the picks."""

    rotation: tuple[Float32Array, Float32Array]
    picks: Picks | None


class TinyLlama:
    """Layers [start, end) of a model. Thread-safe: only weights are kept between runs.

    With layer 0 it is the head and takes token ids, with the last layer the tail and gives logits;
    at the seams between, hidden states travel in `boundary_dtype`.
    """

    def __init__(
        self,
        config: TinyLlamaConfig,
        start: int = 0,
        end: int | None = None,
        boundary_dtype: DType = DType.BFLOAT16,
    ) -> None:
        self.config = config
        self.index_share = index_share_of(config)
        self.start = start
        self.end = config.layers if end is None else end
        self.boundary_dtype = boundary_dtype
        self.layers = {n: layer_weights(config, n) for n in range(start, self.end)}
        self._embedding = embedding_weights(config) if start == 0 else None
        self._head = head_weights(config) if self.end == config.layers else None

    def run(self, work: Work) -> Outcome:
        """Compute the layers of `work` and return its result with the state that includes it.

        Rotation follows `first_position`; the tokens attended to are those of the state, and for
        stateless work none but its own. Raises ValueError for a token id outside the vocabulary, a
        state of other layers, or a tensor of another width.
        """
        started = perf_counter_ns()
        # A stranger's activations may be infinite; that is a result, not a warning.
        with np.errstate(all="ignore"):
            rows = self.input_rows(work)
            state = extended(self.state_before(work), len(rows))
            rotation = self.rotation(work.first_position, len(rows))
            passing = Passing(rotation, picks_of(work.tensors))
            for number in range(work.start_layer, work.end_layer):
                rows = self.layer(number, rows, state, passing)
            tensors = self.output_tensors(work, rows)
            tensors += self.sideband(work, passing)
        kept = work.state if work.mode == "stateless" else state
        return Outcome(kept, tensors, perf_counter_ns() - started)

    # The two ends ------------------------------------------------------------------------------

    def input_rows(self, work: Work) -> Float32Array:
        """The rows [n, hidden] that enter the first layer."""
        tensor = work.tensors[0]
        if work.start_layer > 0:
            return tensor.to_float32().reshape(-1, self.config.hidden)
        ids = tensor.to_array().reshape(-1).astype(np.int64)
        if self._embedding is None:
            raise ValueError(f"layers {self.start} to {self.end} have no embedding")
        # numpy would take a negative id from the end of the table.
        if ids.size and not 0 <= ids.min() <= ids.max() < self.config.vocab:
            raise ValueError(f"a token id is outside the vocabulary of {self.config.vocab}")
        return self._embedding[ids]

    def output_tensors(self, work: Work, rows: Float32Array) -> tuple[Tensor, ...]:
        """What crosses the next seam: hidden states, or the tail's logits of a last position."""
        if self._head is None:
            return (Tensor.from_float32("hidden_states", rows[None], self.boundary_dtype),)
        if not work.final:
            return ()
        norm, head = self._head
        logits = self.project(self.normalized(rows[-1:], norm), head)
        return (Tensor.from_float32("logits", logits[None], DType.FLOAT32),)

    def sideband(self, work: Work, passing: Passing) -> tuple[Tensor, ...]:
        """The indices that the layer behind `work` shares; nothing where none does."""
        share, picks = self.index_share, passing.picks
        if share is None or picks is None or share.across(work.end_layer) is None:
            return ()
        return (picks_tensor(picks),)

    def final_norm(self, states: Tensor) -> Tensor:
        """Apply the model's final norm to hidden states [1, n, hidden], as only a tail should."""
        norm, _ = head_weights(self.config)
        rows = self.normalized(states.to_float32(), norm)
        return Tensor.from_float32(states.name, rows, states.dtype)

    def state_before(self, work: Work) -> KvState:
        """The state that `work` continues, which for stateless work is always empty."""
        if work.mode == "stateless" or work.state is None:
            layers = work.end_layer - work.start_layer
            return empty_state(
                work.start_layer, layers, self.config.kv_heads, self.config.head_size
            )
        if not isinstance(work.state, KvState) or work.state.first_layer != work.start_layer:
            raise ValueError(f"the state is not one of layers {work.start_layer} onwards")
        return work.state

    # One layer ---------------------------------------------------------------------------------

    def layer(
        self,
        number: int,
        rows: Float32Array,
        state: KvState,
        passing: Passing,
    ) -> Float32Array:
        """Run one decoder layer on [n, hidden], filling the last n rows of `state`."""
        weights, count = self.layers[number], len(rows)
        normal = self.normalized(rows, weights.attention_norm)
        queries = rotated(self._heads(self.project(normal, weights.query)), passing.rotation)
        keys, values = state.keys(number), state.values(number)
        keys[-count:] = rotated(self._heads(self.project(normal, weights.key)), passing.rotation)
        values[-count:] = self._heads(self.project(normal, weights.value))
        if self.index_share is None:
            attended = self.attended(queries, keys, values)
        else:
            if self.index_share.roles[number] == "full":
                passing.picks = chosen_positions(self.index_share, queries, keys)
            attended = self.attended_sparsely(queries, keys, values, passing.picks)
        rows = rows + self.project(attended, weights.output)
        return rows + self._mlp(rows, weights)

    def attended_sparsely(
        self, queries: Float32Array, keys: Float32Array, values: Float32Array, picks: Picks | None
    ) -> Float32Array:
        """Attention of each of the last n positions to those of its picks that it sees.

        Raises ValueError without picks: a Shared layer is never computed densely.
        """
        if picks is None:
            raise ValueError("a Shared layer without indices")
        rows = np.zeros((len(queries), self.config.hidden), dtype=np.float32)
        for index, seen in enumerate(attended_positions(picks, len(keys))):
            if seen.size:  # A row of nothing but padding attends to nothing.
                query = queries[index : index + 1]
                rows[index] = self.attended(query, keys[seen], values[seen])[0]
        return rows

    def _heads(self, rows: Float32Array) -> Float32Array:
        return rows.reshape(len(rows), -1, self.config.head_size)

    def _mlp(self, rows: Float32Array, weights: LayerWeights) -> Float32Array:
        normal = self.normalized(rows, weights.mlp_norm)
        gate = self.project(normal, weights.gate)
        return self.project(silu(gate) * self.project(normal, weights.up), weights.down)

    def normalized(self, rows: Float32Array, weight: Float32Array) -> Float32Array:
        """RMSNorm of each row."""
        mean_square: Float32Array = np.mean(rows * rows, axis=-1, keepdims=True)
        scaled: Float32Array = rows / np.sqrt(mean_square + np.float32(self.config.norm_epsilon))
        return scaled * weight

    def project(self, rows: Float32Array, weight: Float32Array) -> Float32Array:
        """Apply a matrix [out, in] to each row of [n, in], one matrix-vector product a row."""
        columns: Float32Array = np.matmul(weight, rows[:, :, None])
        return columns[:, :, 0]

    def attended(
        self, queries: Float32Array, keys: Float32Array, values: Float32Array
    ) -> Float32Array:
        """Causal attention of the last n positions: [n, heads, size] over [length, kv_heads, size].

        One query at a time, over exactly the keys that it sees. Returns [n, hidden].
        """
        past = len(keys) - len(queries)
        result = np.empty((len(queries), self.config.hidden), dtype=np.float32)
        for index, query in enumerate(queries):
            seen = past + index + 1
            grouped = query.reshape(self.config.kv_heads, self.config.group, -1)
            scores = np.matmul(grouped, keys[:seen].transpose(1, 2, 0))
            shares = softmax(scores * self._score_scale)
            result[index] = np.matmul(shares, values[:seen].transpose(1, 0, 2)).reshape(-1)
        return result

    @property
    def _score_scale(self) -> np.float32:
        return np.float32(1 / sqrt(self.config.head_size))

    def rotation(self, first: int, count: int) -> tuple[Float32Array, Float32Array]:
        """Cosines and sines [count, 1, size / 2] of the rotary embedding from position `first`."""
        half = self.config.head_size // 2
        frequencies = self.config.rope_theta ** (-np.arange(half, dtype=np.float64) / half)
        angles = (float(first) + np.arange(count, dtype=np.float64))[:, None, None] * frequencies
        return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


class BatchedTinyLlama(TinyLlama):
    """The same model in matrix products over all rows at once.

    Sums run in another order, which depends on how many rows come together: results differ from
    `TinyLlama`, and between chunkings, by about 2e-6. A conforming runtime all the same.
    """

    def project(self, rows: Float32Array, weight: Float32Array) -> Float32Array:
        """Apply a matrix [out, in] to all rows in one product."""
        return rows @ weight.T

    def attended(
        self, queries: Float32Array, keys: Float32Array, values: Float32Array
    ) -> Float32Array:
        """Causal attention of all queries in one product, future positions masked."""
        count, length, config = len(queries), len(keys), self.config
        by_kv_head = (config.kv_heads, count * config.group, config.head_size)
        grouped = queries.reshape(count, config.kv_heads, config.group, -1)
        stacked = grouped.transpose(1, 0, 2, 3).reshape(by_kv_head)
        scores = np.matmul(stacked, keys.transpose(1, 2, 0)) * self._score_scale
        future = np.arange(length) > np.arange(length - count, length).repeat(config.group)[:, None]
        shares = softmax(np.where(future, np.float32(-np.inf), scores))
        mixed: Float32Array = np.matmul(shares, values.transpose(1, 0, 2))
        split = mixed.reshape(config.kv_heads, count, config.group, -1)
        return split.transpose(1, 0, 2, 3).reshape(count, config.hidden)


def silu(rows: Float32Array) -> Float32Array:
    """x / (1 + e^-x), elementwise."""
    gated: Float32Array = np.divide(rows, np.float32(1) + np.exp(-rows), dtype=np.float32)
    return gated


def softmax(scores: Float32Array) -> Float32Array:
    """Shares along the last axis."""
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares: Float32Array = powers / powers.sum(axis=-1, keepdims=True)
    return shares


def rotated(heads: Float32Array, rotation: tuple[Float32Array, Float32Array]) -> Float32Array:
    """Rotary embedding of [n, heads, size]: component i turns with component i + size / 2."""
    cosine, sine = rotation
    half = heads.shape[-1] // 2
    lower, upper = heads[..., :half], heads[..., half:]
    return np.concatenate([lower * cosine - upper * sine, upper * cosine + lower * sine], axis=-1)


def served_shard(
    config: TinyLlamaConfig,
    start: int = 0,
    end: int | None = None,
    boundary_dtype: DType = DType.BFLOAT16,
    *,
    max_sessions: int = 8,
    max_context: int = 4096,
) -> ServedShard:
    """What a worker that serves layers [start, end) of `config` says about itself."""
    return ServedShard(
        fingerprint=built_in_fingerprint(
            config.name,
            source_digest=config.digest(),  # the seed is the content
            architecture="tiny-llama",
            layers=config.layers,
            boundary_dtype=boundary_dtype,
        ),
        start_layer=start,
        end_layer=config.layers if end is None else end,
        layer_count=config.layers,
        hidden_size=config.hidden,
        vocab_size=config.vocab,
        boundary_dtype=boundary_dtype,
        max_sessions=max_sessions,
        max_context=max_context,
        detail=f"{config.name}, a reference worker: not validated on any hardware",
        index_share=index_share_of(config),
        input_scale=config.input_scale,
    )


def rebuilt(model: ShardModel, kind: type[TinyLlama]) -> TinyLlama:
    """The layers and the boundary of a built-in model, computed by another kind of it."""
    assert isinstance(model, TinyLlama), "only the built-in model can compute in another way"
    return kind(model.config, model.start, model.end, model.boundary_dtype)
