"""Workers that overlook a false envelope, or refuse it by another code. They break PREFILL-09."""

from __future__ import annotations

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import Received
from pytest_meshnet.protocol.machines.rules import Rules
from pytest_meshnet.protocol.machines.session import Refused, Session, Unit
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.reference.catalogue import mutant

# What is overlooked -----------------------------------------------------------------------------


class _Overlooks(Rules):
    """Checks a copy of the envelope in which `correct` has set one field right."""

    def correct(self, session: Session, envelope: pb.Envelope) -> None:
        raise NotImplementedError

    def check_envelope(self, session: Session, envelope: pb.Envelope) -> None:
        seen = pb.Envelope()
        seen.CopyFrom(envelope)
        self.correct(session, seen)
        super().check_envelope(session, seen)


@mutant("PREFILL-09")
class OverlooksOtherSessions(_Overlooks):
    """A chunk may name another session than its stream."""

    def correct(self, session: Session, envelope: pb.Envelope) -> None:
        if envelope.route_session_id:
            envelope.route_session_id = session.session_id


@mutant("PREFILL-09")
class OverlooksNoSession(_Overlooks):
    """A chunk may name no session."""

    def correct(self, session: Session, envelope: pb.Envelope) -> None:
        envelope.route_session_id = envelope.route_session_id or session.session_id


@mutant("PREFILL-09")
class OverlooksOlderEpochs(_Overlooks):
    """A chunk may name an older epoch."""

    def correct(self, session: Session, envelope: pb.Envelope) -> None:
        if 0 < envelope.route_epoch < session.epoch:
            envelope.route_epoch = session.epoch


@mutant("PREFILL-09")
class OverlooksNoEpoch(_Overlooks):
    """A chunk may name no epoch."""

    def correct(self, session: Session, envelope: pb.Envelope) -> None:
        envelope.route_epoch = envelope.route_epoch or session.epoch


@mutant("PREFILL-09")
class OverlooksNewerEpochs(_Overlooks):
    """A chunk may name an epoch that was never opened."""

    def correct(self, session: Session, envelope: pb.Envelope) -> None:
        envelope.route_epoch = min(envelope.route_epoch, session.epoch)


@mutant("PREFILL-09")
class OverlooksTheArtifact(_Overlooks):
    """The artifact digest is looked at when a session opens, and never again."""

    def correct(self, session: Session, envelope: pb.Envelope) -> None:
        if envelope.HasField("fingerprint"):
            digest = session.fingerprint.model_artifact_digest
            envelope.fingerprint.model_artifact_digest = digest


@mutant("PREFILL-09")
class OverlooksTheRecipe(_Overlooks):
    """The recipe digest is looked at when a session opens, and never again."""

    def correct(self, session: Session, envelope: pb.Envelope) -> None:
        if envelope.HasField("fingerprint"):
            digest = session.fingerprint.runtime_recipe_digest
            envelope.fingerprint.runtime_recipe_digest = digest


@mutant("PREFILL-09")
class OverlooksNoFingerprint(_Overlooks):
    """A chunk may come without a fingerprint."""

    def correct(self, session: Session, envelope: pb.Envelope) -> None:
        if not envelope.HasField("fingerprint"):
            envelope.fingerprint.CopyFrom(session.fingerprint)


@mutant("PREFILL-09")
class OverlooksTheFirstLayer(_Overlooks):
    """A chunk may name another first layer."""

    def correct(self, session: Session, envelope: pb.Envelope) -> None:
        if envelope.HasField("shard_range"):
            envelope.shard_range.start_layer = session.shard_range.start_layer


@mutant("PREFILL-09")
class OverlooksTheLastLayer(_Overlooks):
    """A chunk may name another end of the range."""

    def correct(self, session: Session, envelope: pb.Envelope) -> None:
        if envelope.HasField("shard_range"):
            envelope.shard_range.end_layer = session.shard_range.end_layer


@mutant("PREFILL-09")
class OverlooksTheEffectiveStart(_Overlooks):
    """A chunk may name another effective start than its session."""

    def correct(self, session: Session, envelope: pb.Envelope) -> None:
        if envelope.HasField("shard_range"):
            start = session.shard_range.effective_start_layer
            envelope.shard_range.effective_start_layer = start


@mutant("PREFILL-09")
class OverlooksNoRange(_Overlooks):
    """A chunk may come without a range."""

    def correct(self, session: Session, envelope: pb.Envelope) -> None:
        if not envelope.HasField("shard_range"):
            envelope.shard_range.CopyFrom(session.shard_range)


@mutant("PREFILL-09")
class OverlooksNoSchema(_Overlooks):
    """A chunk may come without a schema version."""

    def correct(self, session: Session, envelope: pb.Envelope) -> None:
        envelope.schema_version = envelope.schema_version or pb.SCHEMA_VERSION_1


@mutant("PREFILL-09")
class OverlooksNewerSchemas(_Overlooks):
    """A chunk may come in a schema version that nobody speaks."""

    def correct(self, session: Session, envelope: pb.Envelope) -> None:
        envelope.schema_version = min(envelope.schema_version, pb.SCHEMA_VERSION_1)


@mutant("PREFILL-09")
class ChecksEnvelopesOfPrefillOnly(_Overlooks):
    """The envelope of a decode step in its full form is not looked at."""

    def check_envelope(self, session: Session, envelope: pb.Envelope) -> None:
        if envelope.phase != pb.PHASE_DECODE:
            Rules.check_envelope(self, session, envelope)


@mutant("PREFILL-09")
class RoutesByEnvelope(Worker):
    """A chunk goes to the session that it names, whatever stream it came on."""

    def on_unit(self, session: Session, event: Received) -> None:
        named = self.table.find(event.message.chunk.envelope.route_session_id)
        super().on_unit(named or session, event)


@mutant("PREFILL-09")
class ForeignChunkEndsTheState(Worker):
    """A chunk that names another session is refused, and yet drops the state of its stream."""

    def refuse_unit(self, session: Session, unit: Unit, refused: Refused) -> None:
        if unit.envelope and unit.envelope.route_session_id != session.session_id:
            session.drop_state()
        super().refuse_unit(session, unit, refused)


class _OtherCode(Rules):
    """Refuses a false envelope as corrupt where a code of its own is due."""

    mistaken: int

    def check_envelope(self, session: Session, envelope: pb.Envelope) -> None:
        try:
            super().check_envelope(session, envelope)
        except Refused as refused:
            if refused.code == self.mistaken:
                raise Refused(pb.ERROR_CODE_PAYLOAD_CORRUPT, refused.detail) from None
            raise


@mutant("PREFILL-09")
class OlderEpochIsCorrupt(_OtherCode):
    """A chunk of an older epoch is PAYLOAD_CORRUPT."""

    mistaken = pb.ERROR_CODE_EPOCH_STALE


@mutant("PREFILL-09")
class ChunkFingerprintIsCorrupt(_OtherCode):
    """A chunk with another fingerprint is PAYLOAD_CORRUPT."""

    mistaken = pb.ERROR_CODE_FINGERPRINT_MISMATCH


@mutant("PREFILL-09")
class ChunkRangeIsCorrupt(_OtherCode):
    """A chunk with another range is PAYLOAD_CORRUPT."""

    mistaken = pb.ERROR_CODE_SHARD_RANGE_MISMATCH


@mutant("PREFILL-09")
class ChunkSchemaIsCorrupt(_OtherCode):
    """A chunk with another schema is PAYLOAD_CORRUPT."""

    mistaken = pb.ERROR_CODE_SCHEMA_UNSUPPORTED
