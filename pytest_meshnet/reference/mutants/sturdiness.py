"""Workers that bad input gets the better of. They break the group ROBUST."""

from __future__ import annotations

from dataclasses import replace

from pytest_meshnet.protocol.codec import decode_bundle, decode_tensor
from pytest_meshnet.protocol.errors import ProtocolError
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.rules import Rules
from pytest_meshnet.protocol.machines.session import Refused, ServedShard, Session, Unit
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.protocol.tensors import Tensor
from pytest_meshnet.reference.catalogue import mutant
from pytest_meshnet.reference.mutants.opening import PassesEmptyMessages


class _Lenient(Rules):
    """Mends a bundle before it is decoded."""

    def mend(self, tensor: pb.NamedTensor) -> None:
        raise NotImplementedError

    def decode(self, session: Session, unit: Unit) -> tuple[Tensor, ...]:
        if unit.tensor is not None:
            self.mend(unit.tensor)
            return (decode_tensor(unit.tensor),)
        bundle = unit.bundle or pb.TensorBundle()
        for tensor in bundle.tensors:
            self.mend(tensor)
        return decode_bundle(bundle)


@mutant("ROBUST-01")
class TrustsPayloads(_Lenient):
    """No checksum is looked at."""

    def mend(self, tensor: pb.NamedTensor) -> None:
        if tensor.checksum.algorithm == pb.CHECKSUM_ALGORITHM_CRC32C:
            tensor.checksum.algorithm = pb.CHECKSUM_ALGORITHM_NONE


@mutant("ROBUST-01")
class TakesAnyByteOrder(_Lenient):
    """Every payload is taken for little-endian."""

    def mend(self, tensor: pb.NamedTensor) -> None:
        tensor.byte_order = pb.BYTE_ORDER_LITTLE_ENDIAN


@mutant("ROBUST-01")
class JoinsFragmentsAsTheyCome(_Lenient):
    """Fragments are joined in the order of the message, whatever they say of themselves."""

    def mend(self, tensor: pb.NamedTensor) -> None:
        position = 0
        for index, fragment in enumerate(tensor.fragments):
            fragment.fragment_index, fragment.byte_offset = index, position
            fragment.fragment_count = len(tensor.fragments)
            position += len(fragment.payload)
        tensor.checksum.algorithm = pb.CHECKSUM_ALGORITHM_NONE


@mutant("ROBUST-01")
class CallsCorruptionAMiss(Rules):
    """What the codec refuses is answered as CACHE_MISS."""

    def read_tensors(self, session: Session, unit: Unit) -> tuple[Tensor, ...]:
        try:
            self.decode(session, unit)
        except ProtocolError as error:
            raise self.cache_miss(session, str(error)) from None
        return super().read_tensors(session, unit)


@mutant("ROBUST-01")
class CorruptionCostsTheState(Worker):
    """A corrupt payload is refused, and the state is dropped to be on the safe side."""

    def refuse_unit(self, session: Session, unit: Unit, refused: Refused) -> None:
        super().refuse_unit(session, unit, refused)
        if refused.code == pb.ERROR_CODE_PAYLOAD_CORRUPT:
            session.drop_state()


@mutant("ROBUST-01")
class CorruptionEndsTheStream(Worker):
    """A corrupt payload ends the stream."""

    def refuse_unit(self, session: Session, unit: Unit, refused: Refused) -> None:
        refused.terminal = refused.terminal or refused.code == pb.ERROR_CODE_PAYLOAD_CORRUPT
        super().refuse_unit(session, unit, refused)


class _Adapts(Rules):
    """Bends a tensor to the boundary instead of refusing it."""

    def bent(self, tensors: tuple[Tensor, ...], name: str) -> tuple[Tensor, ...]:
        raise NotImplementedError

    def read_tensors(self, session: Session, unit: Unit) -> tuple[Tensor, ...]:
        boundary = self.served.input_boundary(session.shard_range.effective_start_layer)
        try:
            tensors = self.bent(self.decode(session, unit), boundary.name)
        except ProtocolError:
            return super().read_tensors(session, unit)
        self.check_boundary(session, unit, tensors)
        return tensors


@mutant("ROBUST-02")
class TakesAnyTensorName(_Adapts):
    """The first tensor is the boundary tensor, whatever its name."""

    def bent(self, tensors: tuple[Tensor, ...], name: str) -> tuple[Tensor, ...]:
        return tuple(replace(one, name=name) for one in tensors)


@mutant("ROBUST-02")
class ConvertsAnyDtype(_Adapts):
    """A float tensor of another dtype is converted without a word."""

    def bent(self, tensors: tuple[Tensor, ...], name: str) -> tuple[Tensor, ...]:
        wanted = self.served.boundary_dtype
        return tuple(
            Tensor.from_float32(one.name, one.to_float32(), wanted)
            if one.dtype.is_float and one.name == name
            else one
            for one in tensors
        )


@mutant("ROBUST-02")
class CutsRowsToItsWidth(_Adapts):
    """A tensor that is too wide is cut off."""

    def bent(self, tensors: tuple[Tensor, ...], name: str) -> tuple[Tensor, ...]:
        width = self.served.hidden_size
        return tuple(
            Tensor.from_float32(one.name, one.to_float32()[..., :width], one.dtype)
            if one.dtype.is_float and one.shape[-1] > width
            else one
            for one in tensors
        )


@mutant("ROBUST-03")
class ClosesAfterALostStream(Worker):
    """A stream that is lost to garbage takes the doors along: no session is accepted any more."""

    def lose(self, session: Session) -> None:
        super().lose(session)
        self.draining = True


@mutant("ROBUST-05")
class CountsGhosts(Worker):
    """One ended session in a hundred is counted for ever."""

    def __init__(self, served: ServedShard) -> None:
        super().__init__(served)
        self.ended = 0

    def end(self, session: Session) -> None:
        super().end(session)
        self.ended += 1

    def health(self, resident_bytes: int) -> pb.HealthReport:
        report = super().health(resident_bytes)
        report.active_sessions += self.ended // 100
        return report


@mutant("ROBUST-06")
class SparseUnitsAreInternal(Worker):
    """A unit without an envelope to speak of is answered as an internal error."""

    def begin(self, session: Session, unit: Unit) -> None:
        if unit.envelope is not None and not unit.envelope.HasField("fingerprint"):
            raise Refused(pb.ERROR_CODE_INTERNAL, "missing fingerprint")
        super().begin(session, unit)


@mutant("ROBUST-06")
class IgnoresSparseFirstMessages(PassesEmptyMessages):
    """A first message of no kind is passed over, and the stream left waiting."""
