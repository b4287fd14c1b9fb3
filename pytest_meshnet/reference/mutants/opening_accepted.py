"""Workers whose accepted says what it must not: identity, schema, limits.

These mutants break OPEN-02, -03 and -08.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from pytest_meshnet.protocol.flow import FlowLimits
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.rules import Rules
from pytest_meshnet.protocol.machines.session import Refused, ServedShard, Session
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.reference.catalogue import mutant

# Identity -------------------------------------------------------------------------------------


@mutant("OPEN-02")
class AcceptedNamesNoSession(Worker):
    """accepted leaves the session id out."""

    def accepted(self, session: Session) -> pb.SessionAccepted:
        said = super().accepted(session)
        said.route_session_id = ""
        return said


@mutant("OPEN-02")
class AcceptedShortensTheSession(Worker):
    """accepted echoes the first 128 characters of the session id."""

    def accepted(self, session: Session) -> pb.SessionAccepted:
        said = super().accepted(session)
        said.route_session_id = session.session_id[:128]
        return said


@mutant("OPEN-02")
class AcceptedNamesNoEpoch(Worker):
    """accepted leaves the epoch out."""

    def accepted(self, session: Session) -> pb.SessionAccepted:
        said = super().accepted(session)
        said.route_epoch = 0
        return said


@mutant("OPEN-02")
class AcceptedCutsTheEpoch(Worker):
    """accepted echoes the lower 32 bits of the epoch."""

    def accepted(self, session: Session) -> pb.SessionAccepted:
        said = super().accepted(session)
        said.route_epoch = session.epoch % 2**32
        return said


@mutant("OPEN-02")
class AcceptedHasNoFingerprint(Worker):
    """accepted leaves the fingerprint out."""

    def accepted(self, session: Session) -> pb.SessionAccepted:
        said = super().accepted(session)
        said.ClearField("fingerprint")
        return said


@mutant("OPEN-02")
class AcceptedRepeatsTheOffer(Worker):
    """accepted carries the fingerprint that the client offered, not the one served."""

    def accepted(self, session: Session) -> pb.SessionAccepted:
        said = super().accepted(session)
        said.fingerprint.CopyFrom(session.fingerprint)
        return said


# Schema version ---------------------------------------------------------------------------------


@mutant("OPEN-03")
class TakesNoSchemaForTheFirst(Rules):
    """UNSPECIFIED is taken for version 1."""

    def check_schema(self, version: int, *, terminal: bool) -> None:
        super().check_schema(version or pb.SCHEMA_VERSION_1, terminal=terminal)


@mutant("OPEN-03")
class UnspecifiedSchemaIsCorrupt(Rules):
    """UNSPECIFIED is refused, but as a corrupt payload."""

    def check_schema(self, version: int, *, terminal: bool) -> None:
        if version == pb.SCHEMA_VERSION_UNSPECIFIED:
            raise Refused(pb.ERROR_CODE_PAYLOAD_CORRUPT, "no schema version", terminal=terminal)
        super().check_schema(version, terminal=terminal)


@mutant("OPEN-03")
class NewerSchemaIsCorrupt(Rules):
    """A newer version is refused, but as a corrupt payload."""

    def check_schema(self, version: int, *, terminal: bool) -> None:
        if version > pb.SCHEMA_VERSION_1:
            raise Refused(pb.ERROR_CODE_PAYLOAD_CORRUPT, "schema from afar", terminal=terminal)
        super().check_schema(version, terminal=terminal)


class _NewerSchemas(Rules):
    def check_schema(self, version: int, *, terminal: bool) -> None:
        super().check_schema(min(version, pb.SCHEMA_VERSION_1), terminal=terminal)


class _FallsBack(Worker):
    def __init__(self, served: ServedShard) -> None:
        super().__init__(served, _NewerSchemas(served))
        self.offered = 0

    def open(self, stream: int, message: pb.SessionOpen) -> None:
        self.offered = message.schema_version
        super().open(stream, message)


@mutant("OPEN-03")
class EchoesAnUnknownSchema(_FallsBack):
    """A newer version is accepted and echoed, though the worker has never heard of it."""

    def accepted(self, session: Session) -> pb.SessionAccepted:
        said = super().accepted(session)
        said.schema_version = self.offered  # type: ignore[assignment]
        return said


@mutant("OPEN-03")
class AnswersAnUnlistedSchema(_FallsBack):
    """A newer version is accepted with the one before it, listed or not."""

    def accepted(self, session: Session) -> pb.SessionAccepted:
        said = super().accepted(session)
        said.schema_version = max(self.offered - 1, 1)  # type: ignore[assignment]
        return said


@mutant("OPEN-03")
class AnswersItsNewestSchema(_FallsBack):
    """Any other version is accepted with the newest the worker lists, even above the offer."""

    def capability(self) -> pb.CapabilityReport:
        report = super().capability()
        report.supported_schema_versions.append(3)  # type: ignore[arg-type]
        return report

    def accepted(self, session: Session) -> pb.SessionAccepted:
        said = super().accepted(session)
        if self.offered > 1:
            said.schema_version = 3  # type: ignore[assignment]
        return said


# Limits -----------------------------------------------------------------------------------------


class _OneLimit(Rules):
    limit: ClassVar[str]

    def settled_limits(self, proposed: pb.FlowControl) -> FlowLimits:
        wanted = getattr(FlowLimits.from_proto(proposed), self.limit)
        changed = {self.limit: self.settled(wanted, getattr(self.served.limits, self.limit))}
        return replace(super().settled_limits(proposed), **changed)

    def settled(self, proposed: int, declared: int) -> int:
        raise NotImplementedError


class _Zero(_OneLimit):
    def settled(self, proposed: int, declared: int) -> int:
        return 0 if proposed else declared


class _Stubborn(_OneLimit):
    def settled(self, proposed: int, declared: int) -> int:
        return declared


class _Obliging(_OneLimit):
    def settled(self, proposed: int, declared: int) -> int:
        return proposed or declared


@mutant("OPEN-08")
class SettlesNoInflight(_Zero):
    """accepted has no bound on chunks in flight where the client proposed one."""

    limit = "inflight"


@mutant("OPEN-08")
class SettlesNoChunkBytes(_Zero):
    """accepted has no bound on the bytes of a chunk where the client proposed one."""

    limit = "chunk_bytes"


@mutant("OPEN-08")
class SettlesNoPrefillTokens(_Zero):
    """accepted has no bound on the tokens of a chunk where the client proposed one."""

    limit = "prefill_tokens"


@mutant("OPEN-08")
class WithholdsCredit(_Zero):
    """accepted grants no credit where the client proposed some, and no grant follows."""

    limit = "credits"


@mutant("OPEN-08")
class IgnoresProposedCredits(_Stubborn):
    """accepted grants the worker's credits, also to a client that wants fewer."""

    limit = "credits"


@mutant("OPEN-08")
class IgnoresProposedInflight(_Stubborn):
    """accepted has the worker's bound in flight, though the client proposed a lower one."""

    limit = "inflight"


@mutant("OPEN-08")
class IgnoresProposedChunkBytes(_Stubborn):
    """accepted has the worker's bound of bytes, though the client proposed a lower one."""

    limit = "chunk_bytes"


@mutant("OPEN-08")
class IgnoresProposedPrefillTokens(_Stubborn):
    """accepted has the worker's bound of tokens, though the client proposed a lower one."""

    limit = "prefill_tokens"


@mutant("OPEN-08")
class ObligesInCredits(_Obliging):
    """accepted grants the credits that the client proposed, however many."""

    limit = "credits"


@mutant("OPEN-08")
class ObligesInInflight(_Obliging):
    """accepted has the client's bound in flight, though it is above what is declared."""

    limit = "inflight"


@mutant("OPEN-08")
class ObligesInChunkBytes(_Obliging):
    """accepted has the client's bound of bytes, though it is above what is declared."""

    limit = "chunk_bytes"


@mutant("OPEN-08")
class ObligesInPrefillTokens(_Obliging):
    """accepted has the client's bound of tokens, though it is above what is declared."""

    limit = "prefill_tokens"
