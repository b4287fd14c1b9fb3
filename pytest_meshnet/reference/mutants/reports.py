"""Workers that report wrongly about themselves. They break the groups CAP and HEALTH."""

from __future__ import annotations

from itertools import count

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import DrainRequested, UnaryCalled
from pytest_meshnet.protocol.machines.rules import Rules
from pytest_meshnet.protocol.machines.session import Refused, ServedShard, Session, Unit
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.reference.catalogue import mutant


class _OtherReport(Worker):
    """Edits its capability report."""

    def edit(self, report: pb.CapabilityReport) -> None:
        raise NotImplementedError

    def capability(self) -> pb.CapabilityReport:
        report = super().capability()
        self.edit(report)
        return report


@mutant("CAP-01")
class NamesNoDevice(_OtherReport):
    """The report leaves the device out."""

    def edit(self, report: pb.CapabilityReport) -> None:
        report.device = ""


@mutant("CAP-01")
class DeclaresNoContext(_OtherReport):
    """The report declares a context of zero tokens."""

    def edit(self, report: pb.CapabilityReport) -> None:
        report.max_context_tokens = 0


@mutant("CAP-01")
class ListsNoSchemaVersion(_OtherReport):
    """The report lists no schema version that it speaks."""

    def edit(self, report: pb.CapabilityReport) -> None:
        del report.supported_schema_versions[:]


@mutant("CAP-01")
class DeclaresNoChunkBound(_OtherReport):
    """The report declares no bound on the bytes of a chunk."""

    def edit(self, report: pb.CapabilityReport) -> None:
        report.flow_control.max_chunk_bytes = 0


@mutant("CAP-02")
class ValidatedAtNoTime(_OtherReport):
    """The report says validated and not when."""

    def edit(self, report: pb.CapabilityReport) -> None:
        report.validated, report.validated_at_unix_nanos = True, 0


@mutant("CAP-02")
class ValidatedTomorrow(_OtherReport):
    """The report was validated a day from now."""

    def edit(self, report: pb.CapabilityReport) -> None:
        report.validated = True
        report.validated_at_unix_nanos = self.now + 24 * 3600 * 1_000_000_000


@mutant("CAP-02")
class UnvalidatedWithoutReason(_OtherReport):
    """The report is not validated and does not say why."""

    def edit(self, report: pb.CapabilityReport) -> None:
        report.validated, report.validated_at_unix_nanos, report.detail = False, 0, ""


@mutant("CAP-03")
class DeclaresMoreThanItOffers(_OtherReport):
    """The report declares twice the chunk tokens that accepted offers."""

    def edit(self, report: pb.CapabilityReport) -> None:
        report.flow_control.max_prefill_chunk_tokens *= 2


@mutant("CAP-03")
class DeclaresAnotherFingerprint(_OtherReport):
    """The report carries labels that accepted does not."""

    def edit(self, report: pb.CapabilityReport) -> None:
        report.fingerprint.recipe_version += "-next"


@mutant("CAP-03")
class EnforcesHalfOfTheDeclaredTokens(Rules):
    """A chunk is refused at half the declared token bound."""

    def check_tokens(self, session: Session, unit: Unit) -> None:
        if unit.token_count > session.limits.prefill_tokens // 2:
            raise Refused(pb.ERROR_CODE_FLOW_CONTROL_VIOLATION, "the chunk is too long")
        super().check_tokens(session, unit)


@mutant("CAP-03")
class DeclaresTwiceItsContext(_OtherReport):
    """The report declares twice the tokens that a session may hold."""

    def edit(self, report: pb.CapabilityReport) -> None:
        report.max_context_tokens *= 2


@mutant("CAP-03")
class DeclaresHalfOfItsContext(_OtherReport):
    """The report declares half of the tokens that a session may hold."""

    def edit(self, report: pb.CapabilityReport) -> None:
        report.max_context_tokens //= 2


@mutant("CAP-04")
class CountsItsReports(_OtherReport):
    """Every report names another device."""

    def __init__(self, served: ServedShard) -> None:
        super().__init__(served)
        self.reports = count(1)

    def edit(self, report: pb.CapabilityReport) -> None:
        report.device += f"-{next(self.reports)}"


@mutant("CAP-04")
class DeclaresWhatIsFree(_OtherReport):
    """The declared sessions get fewer with each one that was opened."""

    def __init__(self, served: ServedShard) -> None:
        super().__init__(served)
        self.opened = 0

    def accept(self, stream: int, message: pb.SessionOpen) -> None:
        self.opened += 1
        super().accept(stream, message)

    def edit(self, report: pb.CapabilityReport) -> None:
        report.max_concurrent_sessions = max(1, report.max_concurrent_sessions - self.opened)


@mutant("CAP-05")
class EchoesUnaryVersions(Worker):
    """A unary answer repeats the schema version of its request, known or not."""

    def _on_unary(self, event: UnaryCalled) -> None:
        self.asked = event.request.schema_version
        super()._on_unary(event)

    def capability(self) -> pb.CapabilityReport:
        report = super().capability()
        report.schema_version = self.asked
        return report

    def health(self, resident_bytes: int) -> pb.HealthReport:
        report = super().health(resident_bytes)
        report.schema_version = self.asked
        return report


# Health ------------------------------------------------------------------------------------------


class _OtherHealth(Worker):
    """Edits its health report."""

    def edit(self, report: pb.HealthReport) -> None:
        raise NotImplementedError

    def health(self, resident_bytes: int) -> pb.HealthReport:
        report = super().health(resident_bytes)
        self.edit(report)
        return report


@mutant("HEALTH-01")
class NeverCountsSessions(_OtherHealth):
    """active_sessions is always zero."""

    def edit(self, report: pb.HealthReport) -> None:
        report.active_sessions = 0


@mutant("HEALTH-01")
class CountsEverySessionEver(Worker):
    """active_sessions counts every session that was ever opened."""

    def __init__(self, served: ServedShard) -> None:
        super().__init__(served)
        self.opened = 0

    def accept(self, stream: int, message: pb.SessionOpen) -> None:
        self.opened += 1
        super().accept(stream, message)

    def health(self, resident_bytes: int) -> pb.HealthReport:
        report = super().health(resident_bytes)
        report.active_sessions = self.opened
        return report


@mutant("HEALTH-02")
class PressureInPercent(_OtherHealth):
    """kv_pressure is given in percent."""

    def edit(self, report: pb.HealthReport) -> None:
        report.kv_pressure = 1.5 + 100 * report.kv_pressure


@mutant("HEALTH-02")
class PressureIsNoNumber(_OtherHealth):
    """kv_pressure of an idle worker is zero divided by zero."""

    def edit(self, report: pb.HealthReport) -> None:
        if report.active_sessions == 0:
            report.kv_pressure = float("nan")


@mutant("HEALTH-03")
class PressureNeverMoves(_OtherHealth):
    """kv_pressure is a constant."""

    def edit(self, report: pb.HealthReport) -> None:
        report.kv_pressure = 0.25


@mutant("HEALTH-04")
class ServesOneLessThanItSays(Rules):
    """The last place is never given, while Health says SERVING."""

    def check_capacity(self, places_held: int) -> None:
        super().check_capacity(places_held + 1)


@mutant("HEALTH-05")
class DrainsWithOpenDoors(Worker):
    """A draining worker says so and accepts new sessions."""

    def _on_drain(self, event: DrainRequested) -> None:
        super()._on_drain(event)
        self.drained = True

    def open(self, stream: int, message: pb.SessionOpen) -> None:
        draining, self.draining = self.draining, False
        try:
            super().open(stream, message)
        finally:
            self.draining = draining


@mutant("HEALTH-05")
class DrainsInSilence(_OtherHealth):
    """A draining worker refuses new sessions and says SERVING."""

    def edit(self, report: pb.HealthReport) -> None:
        report.state = pb.SERVING_STATE_SERVING


@mutant("HEALTH-05")
class DrainEndsRunningSessions(Worker):
    """A drain ends the sessions that run."""

    def _on_drain(self, event: DrainRequested) -> None:
        super()._on_drain(event)
        for session in self.table:
            ended = Refused(pb.ERROR_CODE_CANCELLED, "draining", retryable=True, terminal=True)
            self.send_status(session, "", 0, ended)


@mutant("HEALTH-06")
class AnswersUnaryCallsWhenIdle(Worker):
    """A unary call waits until no work is running."""

    def __init__(self, served: ServedShard) -> None:
        super().__init__(served)
        self.put_off: list[UnaryCalled] = []

    def _on_unary(self, event: UnaryCalled) -> None:
        if any(session.running is not None for session in self.table):
            self.put_off.append(event)
        else:
            super()._on_unary(event)
