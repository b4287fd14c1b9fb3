"""Workers that negotiate compression wrongly, or keep to it wrongly. They break OPEN-09."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.rules import Rules
from pytest_meshnet.protocol.machines.session import Refused, ServedShard, Session, Unit
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.protocol.tensors import Tensor
from pytest_meshnet.reference.catalogue import mutant


@mutant("OPEN-09")
class EchoesOfferedCompression(Rules):
    """accepted_compression is what the client offered, known or not."""

    def settled_compression(self, offered: Collection[int]) -> tuple[int, ...]:
        return tuple(offered)


@mutant("OPEN-09")
class AcceptsZstdUnasked(Rules):
    """accepted_compression is all that the worker can, offered or not."""

    def settled_compression(self, offered: Collection[int]) -> tuple[int, ...]:
        return self.served.compression


@mutant("OPEN-09")
class AcceptsUnlistedZstd(Worker):
    """ZSTD is accepted though GetCapability does not list it."""

    def capability(self) -> pb.CapabilityReport:
        report = super().capability()
        report.accepted_compression[:] = [pb.COMPRESSION_NONE]
        return report


@mutant("OPEN-09")
class WantsNoneToBeOffered(Rules):
    """An open that does not name NONE is refused where nothing else is common."""

    def check_open(self, message: pb.SessionOpen) -> None:
        super().check_open(message)
        if not set(self.served.compression) & set(message.accepted_compression):
            raise Refused(pb.ERROR_CODE_PAYLOAD_CORRUPT, "no common compression", terminal=True)


class _ByCompression(Rules):
    """Refuses payloads by their compression where ZSTD was accepted."""

    refused: ClassVar[int]

    def decode(self, session: Session, unit: Unit) -> tuple[Tensor, ...]:
        messages = [unit.tensor] if unit.tensor else unit.bundle.tensors if unit.bundle else []
        if pb.COMPRESSION_ZSTD in session.compression:
            for message in messages:
                if message.compression == self.refused:
                    raise Refused(pb.ERROR_CODE_PAYLOAD_CORRUPT, "not in this compression")
        return super().decode(session, unit)


@mutant("OPEN-09")
class RefusesPlainPayloads(_ByCompression):
    """Where ZSTD was accepted, an uncompressed payload is refused."""

    refused = pb.COMPRESSION_NONE


@mutant("OPEN-09")
class RefusesAcceptedZstd(_ByCompression):
    """ZSTD is accepted, and its payloads are refused."""

    refused = pb.COMPRESSION_ZSTD


class AgreedCompressionRules(Rules):
    """Refuses a payload in a compression that its session did not agree on, before any decoder."""

    DETAIL = "the compression was not agreed on"

    def decode(self, session: Session, unit: Unit) -> tuple[Tensor, ...]:
        bundle = unit.bundle or pb.TensorBundle(tensors=[unit.tensor] if unit.tensor else [])
        readable = (pb.COMPRESSION_NONE, *session.compression)
        if any(one.compression not in readable for one in bundle.tensors):
            raise self.unreadable()
        return super().decode(session, unit)

    def unreadable(self) -> Refused:
        """What is said of it."""
        return Refused(pb.ERROR_CODE_PAYLOAD_CORRUPT, self.DETAIL)


@mutant("OPEN-09")
class UnacceptedZstdEndsTheStream(AgreedCompressionRules):
    """A payload in a compression that was not accepted ends the session."""

    def unreadable(self) -> Refused:
        return Refused(pb.ERROR_CODE_PAYLOAD_CORRUPT, self.DETAIL, terminal=True)


@mutant("OPEN-09")
class UnacceptedZstdIsInternal(AgreedCompressionRules):
    """A payload in a compression that was not accepted breaks the worker, which says INTERNAL."""

    def unreadable(self) -> Refused:
        return Refused(pb.ERROR_CODE_INTERNAL, self.DETAIL)


@mutant("OPEN-09")
class UnacceptedZstdCounts(Worker):
    """A payload in a compression that was not accepted is refused, and its tokens are counted."""

    def __init__(self, served: ServedShard) -> None:
        super().__init__(served, AgreedCompressionRules(served))

    def refuse_unit(self, session: Session, unit: Unit, refused: Refused) -> None:
        super().refuse_unit(session, unit, refused)
        if refused.detail == AgreedCompressionRules.DETAIL:
            session.held += unit.token_count
