"""Shared layers that read indices otherwise, believe stale ones, or open without being asked."""

from __future__ import annotations

import numpy as np

from pytest_meshnet.protocol.additions.sideband import (
    check_indices,
    indices_of,
)
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import ShardModel
from pytest_meshnet.protocol.machines.rules import Rules
from pytest_meshnet.protocol.machines.session import Refused, Unit
from pytest_meshnet.protocol.tensors import Tensor
from pytest_meshnet.reference.catalogue import ModelWrapper, mutant
from pytest_meshnet.reference.index_share import Picks
from pytest_meshnet.reference.seeded_weights import Float32Array
from pytest_meshnet.reference.tiny_llama import TinyLlama, rebuilt

# Out of range ------------------------------------------------------------------------------------


class _Clips(Rules):
    """Bends indices out of range instead of refusing them."""

    def allowed(self, unit: Unit) -> tuple[int, int]:
        """The smallest and the largest index that is taken."""
        raise NotImplementedError

    def check_sideband_range(self, unit: Unit, indices: Tensor) -> None:
        lowest, highest = self.allowed(unit)
        if not all(lowest <= one <= highest for one in indices_of(indices)):
            super().check_sideband_range(unit, indices)


@mutant("SIDE-05")
class TakesTheLengthAsIndex(_Clips):
    """The position behind the last is taken."""

    def allowed(self, unit: Unit) -> tuple[int, int]:
        return -1, unit.position + unit.token_count


@mutant("SIDE-05")
class TakesAnyLargeIndex(_Clips):
    """Positions beyond the length are masked anyway."""

    def allowed(self, unit: Unit) -> tuple[int, int]:
        return -1, 2**31 - 1


@mutant("SIDE-05")
class TakesMinusTwo(_Clips):
    """Numbers down to the length count from the end."""

    def allowed(self, unit: Unit) -> tuple[int, int]:
        return -(unit.position + unit.token_count), unit.position + unit.token_count - 1


@mutant("SIDE-05")
class TakesAnyNegativeIndex(_Clips):
    """Every negative number is padding."""

    def allowed(self, unit: Unit) -> tuple[int, int]:
        return -(2**31), unit.position + unit.token_count - 1


@mutant("SIDE-05")
class RefusesPadding(Rules):
    """-1 is out of range."""

    def check_sideband_range(self, unit: Unit, indices: Tensor) -> None:
        if -1 in indices_of(indices):
            raise Refused(pb.ERROR_CODE_PAYLOAD_CORRUPT, "-1 is not a position")
        super().check_sideband_range(unit, indices)


@mutant("SIDE-05")
class RefusesMaskedPositions(Rules):
    """A position behind its own row is refused."""

    def check_sideband_range(self, unit: Unit, indices: Tensor) -> None:
        super().check_sideband_range(unit, indices)
        for position, row in enumerate(indices.to_array()[0], start=unit.position):
            if (row > position).any():
                raise Refused(pb.ERROR_CODE_PAYLOAD_CORRUPT, "a row cannot see that far")


@mutant("SIDE-05")
class CountsWithoutTheUnit(Rules):
    """Only what was held before the unit is in range."""

    def check_sideband_range(self, unit: Unit, indices: Tensor) -> None:
        check_indices(indices, max(1, unit.position))


class _OtherAttention(TinyLlama):
    """Attends to other positions than it was told."""

    def told(self, picks: Picks, length: int) -> Picks:
        raise NotImplementedError

    def attended_sparsely(
        self, queries: Float32Array, keys: Float32Array, values: Float32Array, picks: Picks | None
    ) -> Float32Array:
        if picks is not None:
            picks = self.told(picks, len(keys))
        return super().attended_sparsely(queries, keys, values, picks)


class _FromTheEnd(_OtherAttention):
    def told(self, picks: Picks, length: int) -> Picks:
        return np.where(picks < 0, picks + length, picks)


@mutant("SIDE-05")
class PaddingIsTheLastPosition(ModelWrapper):
    """-1 reads the last position, as an array's index does."""

    def __init__(self, model: ShardModel) -> None:
        super().__init__(rebuilt(model, _FromTheEnd))


class _Clamped(_OtherAttention):
    def told(self, picks: Picks, length: int) -> Picks:
        return np.maximum(picks, 0)


@mutant("SIDE-05")
class PaddingIsTheFirstPosition(ModelWrapper):
    """-1 is clamped to position 0."""

    def __init__(self, model: ShardModel) -> None:
        super().__init__(rebuilt(model, _Clamped))


class _Folded(_OtherAttention):
    def told(self, picks: Picks, length: int) -> Picks:
        own = np.arange(length - len(picks), length)[:, None]
        return np.where(picks > own, picks % (own + 1), picks)


@mutant("SIDE-05")
class MaskedPositionsAreRead(ModelWrapper):
    """A position behind its row is read at another place instead of ignored."""

    def __init__(self, model: ShardModel) -> None:
        super().__init__(rebuilt(model, _Folded))


class _Everything(_OtherAttention):
    def told(self, picks: Picks, length: int) -> Picks:
        return np.broadcast_to(np.arange(length), (len(picks), length))


@mutant("SIDE-05")
class AttendsToEverything(ModelWrapper):
    """Indices are checked and then not used."""

    def __init__(self, model: ShardModel) -> None:
        super().__init__(rebuilt(model, _Everything))


# Stale -------------------------------------------------------------------------------------------


class _Believes(Rules):
    """Takes indices of some other origin."""

    def is_meant(self, found: tuple[int, ...], producer: int, first: int) -> bool:
        raise NotImplementedError

    def check_sideband_origin(self, unit: Unit, origin: Tensor, producer: int) -> None:
        if not self.is_meant(indices_of(origin), producer, unit.position):
            super().check_sideband_origin(unit, origin, producer)


@mutant("SIDE-06")
class BelievesAnyOrigin(_Believes):
    """The origin is not looked at."""

    def is_meant(self, found: tuple[int, ...], producer: int, first: int) -> bool:
        return True


@mutant("SIDE-06")
class BelievesAnyProducer(_Believes):
    """Only the position of an origin is looked at."""

    def is_meant(self, found: tuple[int, ...], producer: int, first: int) -> bool:
        return found[1] == first


@mutant("SIDE-06")
class BelievesAnyPosition(_Believes):
    """Only the layer of an origin is looked at."""

    def is_meant(self, found: tuple[int, ...], producer: int, first: int) -> bool:
        return found[0] == producer


@mutant("SIDE-06")
class BelievesEarlierPositions(_Believes):
    """Indices of an earlier step are taken."""

    def is_meant(self, found: tuple[int, ...], producer: int, first: int) -> bool:
        return found[0] == producer and 0 <= found[1] < first


@mutant("SIDE-06")
class BelievesLaterPositions(_Believes):
    """Indices of a later step are taken."""

    def is_meant(self, found: tuple[int, ...], producer: int, first: int) -> bool:
        return found[0] == producer and found[1] > first


@mutant("SIDE-06")
class BelievesLaterLayers(_Believes):
    """Indices of a layer behind the producer are taken."""

    def is_meant(self, found: tuple[int, ...], producer: int, first: int) -> bool:
        return found[1] == first and found[0] > producer


@mutant("SIDE-06")
class BelievesEarlierLayers(_Believes):
    """Indices of a layer before the producer are taken."""

    def is_meant(self, found: tuple[int, ...], producer: int, first: int) -> bool:
        return found[1] == first and 0 <= found[0] < producer


@mutant("SIDE-06")
class BelievesSteps(Rules):
    """The origin of a decode step is not looked at: it has one row."""

    def check_sideband_origin(self, unit: Unit, origin: Tensor, producer: int) -> None:
        if unit.mode != pb.CACHE_MODE_DECODE:
            super().check_sideband_origin(unit, origin, producer)


# Order -------------------------------------------------------------------------------------------


@mutant("SIDE-07")
class OpensSharedLayersUnasked(Rules):
    """A range that starts on a Shared layer is accepted and every unit of it refused."""

    def check_sideband_agreed(self, message: pb.SessionOpen) -> None:
        pass


@mutant("SIDE-07")
class AnyFeatureOpensSharedLayers(Rules):
    """Whoever offers any feature is taken to know the sideband."""

    def check_sideband_agreed(self, message: pb.SessionOpen) -> None:
        if not message.features:
            super().check_sideband_agreed(message)


@mutant("SIDE-07")
class OnlyTheServedStartCounts(Rules):
    """A later effective start on a Shared layer is accepted without the sideband."""

    def check_sideband_agreed(self, message: pb.SessionOpen) -> None:
        served = self.served.start_layer
        if message.shard_range.effective_start_layer == served:
            super().check_sideband_agreed(message)


@mutant("SIDE-07")
class SharedLayersAreInternal(Rules):
    """The refusal of such an open is reported as INTERNAL."""

    def check_sideband_agreed(self, message: pb.SessionOpen) -> None:
        try:
            super().check_sideband_agreed(message)
        except Refused as refused:
            refused.code = pb.ERROR_CODE_INTERNAL
            raise


@mutant("SIDE-07")
class SharedLayersAreNeverServed(Rules):
    """A range that starts on a Shared layer is refused whatever was agreed on."""

    def check_sideband_agreed(self, message: pb.SessionOpen) -> None:
        super().check_sideband_agreed(message)
        if self.served.producer_before(message.shard_range.effective_start_layer) is not None:
            raise Refused(
                pb.ERROR_CODE_SHARD_RANGE_MISMATCH, "begin on a Full layer", terminal=True
            )
