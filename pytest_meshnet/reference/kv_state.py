"""Hot KV State as a persistent value: appending makes a new state and leaves every old one whole.

A state is a length over a buffer. Rows are appended in place while the state is the newest over its
buffer; whoever continues from an older state, because newer work was abandoned or failed, gets a
buffer of its own. So a commit is only a choice of which state to keep.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock

import numpy as np
from numpy.typing import NDArray

Float32Array = NDArray[np.float32]

_FIRST_CAPACITY = 32


class KvBuffer:
    """Keys and values of some layers, `rows` [layers, 2, capacity, kv_heads, head_size].

    `tip` is the length of the newest state over it; rows below are never written again.
    """

    __slots__ = ("_lock", "rows", "tip")

    def __init__(self, shape: tuple[int, int, int], capacity: int) -> None:
        layers, kv_heads, head_size = shape
        self.rows: Float32Array = np.zeros(
            (layers, 2, capacity, kv_heads, head_size), dtype=np.float32
        )
        self.tip = 0
        self._lock = Lock()

    @property
    def capacity(self) -> int:
        """Rows that fit."""
        return int(self.rows.shape[2])

    def claim(self, length: int, count: int) -> bool:
        """Take rows [length, length + count) for the state that ends there, if nobody has."""
        with self._lock:
            if self.tip != length or length + count > self.capacity:
                return False
            self.tip += count
            return True


@dataclass(frozen=True, slots=True)
class KvState:
    """What layers [first_layer, ...) hold for `length` tokens."""

    first_layer: int
    length: int
    buffer: KvBuffer

    def keys(self, layer: int) -> Float32Array:
        """Keys of one layer of the model, a view [length, kv_heads, head_size]."""
        return self.buffer.rows[layer - self.first_layer, 0, : self.length]

    def values(self, layer: int) -> Float32Array:
        """Values of one layer of the model, a view [length, kv_heads, head_size]."""
        return self.buffer.rows[layer - self.first_layer, 1, : self.length]

    def with_layer_of(self, other: object, layer: int) -> KvState:
        """Return a state whose rows of one layer are those of `other`, as far as both go.

        For the control that must be found; raises TypeError for a state of another kind.
        """
        if not isinstance(other, KvState):
            raise TypeError(f"{type(other).__name__} holds no keys and values of these layers")
        mixed = KvState(
            self.first_layer, self.length, _copied(self.buffer, self.length, self.buffer.capacity)
        )
        common = min(self.length, other.length)
        mixed.keys(layer)[:common] = other.keys(layer)[:common]
        mixed.values(layer)[:common] = other.values(layer)[:common]
        return mixed


def _copied(buffer: KvBuffer, length: int, capacity: int) -> KvBuffer:
    """A buffer for `capacity` rows that holds the first `length` of another."""
    layers, _, _, kv_heads, head_size = buffer.rows.shape
    copy = KvBuffer((layers, kv_heads, head_size), capacity)
    copy.rows[:, :, :length] = buffer.rows[:, :, :length]
    copy.tip = length
    return copy


def empty_state(first_layer: int, layers: int, kv_heads: int, head_size: int) -> KvState:
    """The state of nothing."""
    buffer = KvBuffer((layers, kv_heads, head_size), _FIRST_CAPACITY)
    return KvState(first_layer, 0, buffer)


def extended(state: KvState, count: int) -> KvState:
    """Return a state with `count` more rows, to be filled in by the caller and nobody else."""
    length = state.length + count
    if state.buffer.claim(state.length, count):
        return KvState(state.first_layer, length, state.buffer)
    buffer = _copied(
        state.buffer, state.length, max(_FIRST_CAPACITY, 1 << (length - 1).bit_length())
    )
    buffer.tip = length
    return KvState(state.first_layer, length, buffer)
