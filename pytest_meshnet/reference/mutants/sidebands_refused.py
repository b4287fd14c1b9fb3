"""Shared layers that do without indices, or take those of another shape."""

from __future__ import annotations

import numpy as np

from pytest_meshnet.protocol.additions.sideband import (
    INDICES,
    ORIGIN,
    IndexShare,
)
from pytest_meshnet.protocol.errors import ProtocolError
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.rules import Rules
from pytest_meshnet.protocol.machines.session import Refused, Session, Unit
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.reference.catalogue import mutant

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
