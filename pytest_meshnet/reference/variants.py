"""The zoo of honest workers: each differs in what the protocol leaves free, and must certify."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_meshnet.protocol.machines.events import ShardModel
from pytest_meshnet.protocol.tensors import Tensor
from pytest_meshnet.reference.catalogue import ModelWrapper, variant
from pytest_meshnet.reference.tiny_llama import BatchedTinyLlama, Passing, rebuilt

if TYPE_CHECKING:
    from pytest_meshnet.reference.kv_state import KvState
    from pytest_meshnet.reference.seeded_weights import Float32Array

# Rounding, which decides the default tolerances --------------------------------------------------


class RoundedTinyLlama(BatchedTinyLlama):
    """The batched model with every intermediate rounded to the dtype of its boundary.

    What a runtime does that computes in bfloat16 and sums in float32.
    """

    def round(self, rows: Float32Array) -> Float32Array:
        """Round as a tensor of that dtype would."""
        return Tensor.from_float32("rows", rows, self.boundary_dtype).to_float32()

    def project(self, rows: Float32Array, weight: Float32Array) -> Float32Array:
        """Apply a rounded matrix to all rows."""
        return self.round(super().project(rows, self.round(weight)))

    def attended(
        self, queries: Float32Array, keys: Float32Array, values: Float32Array
    ) -> Float32Array:
        """Attend with rounded queries, keys and values."""
        return self.round(
            super().attended(self.round(queries), self.round(keys), self.round(values))
        )

    def layer(
        self,
        number: int,
        rows: Float32Array,
        state: KvState,
        passing: Passing,
    ) -> Float32Array:
        """Keep the residual sum in that dtype too."""
        return self.round(super().layer(number, rows, state, passing))


@variant
class BlasRounding(ModelWrapper):
    """Computes all rows of a unit in one matrix product, as BLAS does: sums in another order."""

    def __init__(self, model: ShardModel) -> None:
        super().__init__(rebuilt(model, BatchedTinyLlama))


@variant
class BoundaryPrecision(ModelWrapper):
    """Computes in the dtype of its boundary: every intermediate is rounded to it."""

    def __init__(self, model: ShardModel) -> None:
        super().__init__(rebuilt(model, RoundedTinyLlama))
