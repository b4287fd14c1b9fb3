"""Workers that send, miss or believe indices otherwise than a split group of layers needs."""

from __future__ import annotations

import numpy as np

from pytest_meshnet.protocol.additions.features import Feature
from pytest_meshnet.protocol.additions.sideband import (
    INDICES,
    ORIGIN,
    IndexShare,
    check_indices,
    indices_of,
    origin_tensor,
)
from pytest_meshnet.protocol.errors import ProtocolError
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import ShardModel
from pytest_meshnet.protocol.machines.rules import Rules
from pytest_meshnet.protocol.machines.session import Refused, Session, Unit
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.reference.catalogue import ModelWrapper, mutant
from pytest_meshnet.reference.index_share import Picks
from pytest_meshnet.reference.seeded_weights import Float32Array
from pytest_meshnet.reference.tiny_llama import TinyLlama

# Carried when split ------------------------------------------------------------------------------


class _OtherSideband(Worker):
    """Sends another sideband."""

    def other(self, unit: Unit, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        raise NotImplementedError

    def with_sideband(
        self, session: Session, unit: Unit, tensors: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        right = super().with_sideband(session, unit, tensors)
        return self.other(unit, right) if len(right) == 3 else right


@mutant("SIDE-01")
class SendsNoSideband(_OtherSideband):
    """Indices stay where they were chosen."""

    def other(self, unit: Unit, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tensors[:1]


@mutant("SIDE-01")
class SendsNoOrigin(_OtherSideband):
    """Indices travel without saying whose they are."""

    def other(self, unit: Unit, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tensors[:2]


@mutant("SIDE-01")
class SendsTheOriginOnly(_OtherSideband):
    """Only the origin travels."""

    def other(self, unit: Unit, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tensors[0], tensors[2]


@mutant("SIDE-01")
class StepsHaveNoSideband(_OtherSideband):
    """Decode steps are answered with hidden states alone."""

    def other(self, unit: Unit, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tensors[:1] if unit.mode == pb.CACHE_MODE_DECODE else tensors


@mutant("SIDE-01")
class StatelessHasNoSideband(_OtherSideband):
    """Stateless work is answered with hidden states alone."""

    def other(self, unit: Unit, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tensors[:1] if unit.mode == pb.CACHE_MODE_STATELESS else tensors


@mutant("SIDE-01")
class OriginOfTheLastLayer(_OtherSideband):
    """The origin names the last layer of the Shard."""

    def other(self, unit: Unit, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return *tensors[:2], origin_tensor(self.served.end_layer - 1, unit.position)


@mutant("SIDE-01")
class OriginAtZero(_OtherSideband):
    """The origin always names position 0."""

    def other(self, unit: Unit, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return *tensors[:2], origin_tensor(indices_of(tensors[2])[0], 0)


@mutant("SIDE-01")
class OriginOfThirtyTwoBits(_OtherSideband):
    """The origin is int32."""

    def other(self, unit: Unit, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        numbers = np.array(indices_of(tensors[2]))
        return *tensors[:2], Tensor.from_array(ORIGIN, numbers, DType.INT32)


@mutant("SIDE-01")
class IndicesOfSixtyFourBits(_OtherSideband):
    """The indices are int64, as the framework has them."""

    def other(self, unit: Unit, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        wide = Tensor.from_array(INDICES, tensors[1].to_array(), DType.INT64)
        return tensors[0], wide, tensors[2]


class _OtherPicks(_OtherSideband):
    """Sends other indices."""

    def picks(self, unit: Unit, picks: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def other(self, unit: Unit, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        picks = self.picks(unit, tensors[1].to_array())
        return tensors[0], Tensor.from_array(INDICES, picks, DType.INT32), tensors[2]


@mutant("SIDE-01")
class AlwaysAsWideAsTopk(_OtherPicks):
    """Short contexts are padded to all that an indexer keeps."""

    def picks(self, unit: Unit, picks: np.ndarray) -> np.ndarray:
        share = self.served.index_share
        assert share is not None, "a sideband has an indexer"
        missing = share.topk - picks.shape[2]
        return np.pad(picks, ((0, 0), (0, 0), (0, missing)), constant_values=-1)


@mutant("SIDE-01")
class KeepsOneLess(_OtherPicks):
    """One index of each row is left out."""

    def picks(self, unit: Unit, picks: np.ndarray) -> np.ndarray:
        return picks[:, :, :-1]


@mutant("SIDE-01")
class IndicesOfTheLastRowOnly(_OtherPicks):
    """Only the last row's indices are sent."""

    def picks(self, unit: Unit, picks: np.ndarray) -> np.ndarray:
        return picks[:, -1:]


@mutant("SIDE-01")
class CountsFromOne(_OtherPicks):
    """Positions are counted from one."""

    def picks(self, unit: Unit, picks: np.ndarray) -> np.ndarray:
        return picks + 1


@mutant("SIDE-01")
class ChoosesAnew(_OtherPicks):
    """A range of Shared layers passes on the newest positions instead of those it was given."""

    def picks(self, unit: Unit, picks: np.ndarray) -> np.ndarray:
        newest = unit.position + np.arange(picks.shape[1])[:, None] - np.arange(picks.shape[2])
        clipped: np.ndarray = np.maximum(newest, -1)[None]
        return clipped


# Absent when whole -------------------------------------------------------------------------------


class _SendsAlways(Worker):
    """Sends a sideband where no group is split."""

    def is_meant(self, unit: Unit) -> bool:
        raise NotImplementedError

    def with_sideband(
        self, session: Session, unit: Unit, tensors: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        right = super().with_sideband(session, unit, tensors)
        agreed = Feature.INDEX_SHARE_SIDEBAND in session.features
        if not agreed or len(right) == 3 or not self.is_meant(unit):
            return right
        rows = np.zeros((1, unit.token_count, 1))
        indices = Tensor.from_array(INDICES, rows, DType.INT32)
        return *right, indices, origin_tensor(self.served.start_layer, unit.position)


@mutant("SIDE-02")
class SendsSidebandsAlways(_SendsAlways):
    """Whoever agreed on sidebands gets one with every result."""

    def is_meant(self, unit: Unit) -> bool:
        return True


@mutant("SIDE-02")
class PrefillsSendSidebands(_SendsAlways):
    """Only decode steps leave it out."""

    def is_meant(self, unit: Unit) -> bool:
        return unit.mode == pb.CACHE_MODE_PREFILL


@mutant("SIDE-02")
class StepsSendSidebands(_SendsAlways):
    """Only prefills leave it out."""

    def is_meant(self, unit: Unit) -> bool:
        return unit.mode == pb.CACHE_MODE_DECODE


# Missing -----------------------------------------------------------------------------------------


def _dense(unit: Unit) -> Tensor:
    """Indices with which every row attends to all that it sees."""
    length = unit.position + unit.token_count
    rows = np.broadcast_to(np.arange(length), (1, unit.token_count, length))
    return Tensor.from_array(INDICES, rows, DType.INT32)


class _ComputesDensely(Rules):
    """A unit without indices is computed all the same."""

    def is_meant(self, unit: Unit) -> bool:
        raise NotImplementedError

    def read_sideband(self, session: Session, unit: Unit, tensors: dict[str, Tensor]) -> Tensor:
        if INDICES not in tensors and self.is_meant(unit):
            tensors.pop(ORIGIN, None)
            return _dense(unit)
        return super().read_sideband(session, unit, tensors)


@mutant("SIDE-03")
class ComputesDensely(_ComputesDensely):
    """Without indices every row attends to all before it."""

    def is_meant(self, unit: Unit) -> bool:
        return True


@mutant("SIDE-03")
class ComputesFirstChunksDensely(_ComputesDensely):
    """A first chunk needs no indices: it is short."""

    def is_meant(self, unit: Unit) -> bool:
        return unit.mode == pb.CACHE_MODE_PREFILL and unit.position == 0


@mutant("SIDE-03")
class ComputesCompactStepsDensely(_ComputesDensely):
    """A compact step has no room for indices and is computed densely."""

    def is_meant(self, unit: Unit) -> bool:
        return unit.envelope is None and unit.tensor is not None


@mutant("SIDE-03")
class ComputesStatelessDensely(_ComputesDensely):
    """Stateless work needs no indices."""

    def is_meant(self, unit: Unit) -> bool:
        return unit.mode == pb.CACHE_MODE_STATELESS


@mutant("SIDE-03")
class KeepsTheLastIndices(Rules):
    """A unit without indices takes those of the one before."""

    last: Tensor | None = None

    def read_sideband(self, session: Session, unit: Unit, tensors: dict[str, Tensor]) -> Tensor:
        if INDICES not in tensors and self.last is not None:
            tensors.pop(ORIGIN, None)
            picks = np.resize(self.last.to_array()[0], (unit.token_count, self.last.shape[2]))
            return Tensor.from_array(INDICES, picks[None], DType.INT32)
        self.last = super().read_sideband(session, unit, tensors)
        return self.last


@mutant("SIDE-03")
class MissingIndicesAreInternal(Rules):
    """A unit without indices breaks the model, which is reported as INTERNAL."""

    def read_sideband(self, session: Session, unit: Unit, tensors: dict[str, Tensor]) -> Tensor:
        if INDICES not in tensors:
            raise Refused(pb.ERROR_CODE_INTERNAL, "KeyError")
        return super().read_sideband(session, unit, tensors)


@mutant("SIDE-03")
class MissingIndicesCostTheState(Worker):
    """A unit without indices is refused, and the state is dropped."""

    def refuse_unit(self, session: Session, unit: Unit, refused: Refused) -> None:
        super().refuse_unit(session, unit, refused)
        if self.rules.sideband_producer(session) is not None:
            session.drop_state()


# Wrong width or rows -----------------------------------------------------------------------------


def _bent(indices: Tensor, rows: int, width: int) -> Tensor:
    """Indices cut and padded to that shape."""
    picks = np.full((rows, width), -1)
    found = indices.to_array().reshape(-1, indices.shape[-1])[:rows, :width]
    picks[: len(found), : found.shape[1]] = found
    return Tensor.from_array(INDICES, picks[None], DType.INT32)


class _Bends(Rules):
    """Takes indices of some other shape."""

    def is_meant(self, indices: Tensor, rows: int, width: int) -> bool:
        raise NotImplementedError

    def check_sideband_width(self, unit: Unit, indices: Tensor, share: IndexShare) -> None:
        if not self._is_meant(unit, indices, share):
            super().check_sideband_width(unit, indices, share)

    def check_sideband_range(self, unit: Unit, indices: Tensor) -> None:
        if indices.dtype in (DType.INT32, DType.INT64):
            super().check_sideband_range(unit, indices)

    def read_sideband(self, session: Session, unit: Unit, tensors: dict[str, Tensor]) -> Tensor:
        indices = super().read_sideband(session, unit, tensors)
        share = self.served.index_share
        assert share is not None, "a sideband has an indexer"
        width = share.width(unit.position + unit.token_count)
        return _bent(indices, unit.token_count, width)

    def _is_meant(self, unit: Unit, indices: Tensor, share: IndexShare) -> bool:
        width = share.width(unit.position + unit.token_count)
        return self.is_meant(indices, unit.token_count, width)


@mutant("SIDE-04")
class TakesMoreRows(_Bends):
    """Rows beyond those of the unit are left out."""

    def is_meant(self, indices: Tensor, rows: int, width: int) -> bool:
        return len(indices.shape) == 3 and indices.shape[1] > rows


@mutant("SIDE-04")
class TakesFewerRows(_Bends):
    """Rows that are missing attend to nothing."""

    def is_meant(self, indices: Tensor, rows: int, width: int) -> bool:
        return len(indices.shape) == 3 and indices.shape[1] < rows


@mutant("SIDE-04")
class TakesNarrowIndices(_Bends):
    """Rows with fewer indices than an indexer keeps are taken."""

    def is_meant(self, indices: Tensor, rows: int, width: int) -> bool:
        return indices.dtype is DType.INT32 and 0 < indices.shape[-1] < width


@mutant("SIDE-04")
class TakesWideIndices(_Bends):
    """Rows with more indices than an indexer keeps are cut."""

    def is_meant(self, indices: Tensor, rows: int, width: int) -> bool:
        return indices.dtype is DType.INT32 and indices.shape[-1] > width


@mutant("SIDE-04")
class TakesPaddedShortPrompts(_Bends):
    """Before a context is long enough, rows may be as wide as an indexer keeps."""

    def is_meant(self, indices: Tensor, rows: int, width: int) -> bool:
        share = self.served.index_share
        assert share is not None, "a sideband has an indexer"
        return width < share.topk == indices.shape[-1]


@mutant("SIDE-04")
class TakesSixtyFourBitIndices(_Bends):
    """int64 is taken as well as int32."""

    def is_meant(self, indices: Tensor, rows: int, width: int) -> bool:
        return indices.dtype is DType.INT64


@mutant("SIDE-04")
class TakesFloatIndices(_Bends):
    """Indices of any dtype are converted."""

    def is_meant(self, indices: Tensor, rows: int, width: int) -> bool:
        return indices.dtype in (DType.FLOAT32, DType.UINT8)


@mutant("SIDE-04")
class TakesIndicesOfAnyRank(_Bends):
    """Only the number of elements counts."""

    def is_meant(self, indices: Tensor, rows: int, width: int) -> bool:
        return indices.dtype is DType.INT32 and len(indices.shape) == 2


@mutant("SIDE-04")
class OtherShapesAreInternal(Rules):
    """Indices of another shape break the model, which is reported as INTERNAL."""

    def check_sideband_width(self, unit: Unit, indices: Tensor, share: IndexShare) -> None:
        try:
            super().check_sideband_width(unit, indices, share)
        except ProtocolError as error:
            raise Refused(pb.ERROR_CODE_INTERNAL, str(error)) from None


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


def _rebuilt(model: ShardModel, kind: type[TinyLlama]) -> TinyLlama:
    assert isinstance(model, TinyLlama), "only the built-in model can attend in another way"
    return kind(model.config, model.start, model.end, model.boundary_dtype)


class _FromTheEnd(_OtherAttention):
    def told(self, picks: Picks, length: int) -> Picks:
        return np.where(picks < 0, picks + length, picks)


@mutant("SIDE-05")
class PaddingIsTheLastPosition(ModelWrapper):
    """-1 reads the last position, as an array's index does."""

    def __init__(self, model: ShardModel) -> None:
        super().__init__(_rebuilt(model, _FromTheEnd))


class _Clamped(_OtherAttention):
    def told(self, picks: Picks, length: int) -> Picks:
        return np.maximum(picks, 0)


@mutant("SIDE-05")
class PaddingIsTheFirstPosition(ModelWrapper):
    """-1 is clamped to position 0."""

    def __init__(self, model: ShardModel) -> None:
        super().__init__(_rebuilt(model, _Clamped))


class _Folded(_OtherAttention):
    def told(self, picks: Picks, length: int) -> Picks:
        own = np.arange(length - len(picks), length)[:, None]
        return np.where(picks > own, picks % (own + 1), picks)


@mutant("SIDE-05")
class MaskedPositionsAreRead(ModelWrapper):
    """A position behind its row is read at another place instead of ignored."""

    def __init__(self, model: ShardModel) -> None:
        super().__init__(_rebuilt(model, _Folded))


class _Everything(_OtherAttention):
    def told(self, picks: Picks, length: int) -> Picks:
        return np.broadcast_to(np.arange(length), (len(picks), length))


@mutant("SIDE-05")
class AttendsToEverything(ModelWrapper):
    """Indices are checked and then not used."""

    def __init__(self, model: ShardModel) -> None:
        super().__init__(_rebuilt(model, _Everything))


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
