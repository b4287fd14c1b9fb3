"""Workers that send the indices of a split group otherwise, or where nothing is split."""

from __future__ import annotations

import numpy as np

from pytest_meshnet.protocol.additions.features import Feature
from pytest_meshnet.protocol.additions.sideband import (
    INDICES,
    ORIGIN,
    indices_of,
    origin_tensor,
)
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.session import Session, Unit
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.reference.catalogue import mutant

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
