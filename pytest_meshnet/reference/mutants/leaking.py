"""Workers whose health goes on to count what is long gone; `lost` says how much that is."""

from __future__ import annotations

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.worker import Worker


class LosesUnits(Worker):
    """Lost units stay in the queue."""

    lost = 0

    def health(self, resident_bytes: int) -> pb.HealthReport:
        report = super().health(resident_bytes)
        report.queued_chunks += self.lost
        return report


class LosesTokens(Worker):
    """Lost tokens stay in the pressure."""

    lost = 0

    def health(self, resident_bytes: int) -> pb.HealthReport:
        report = super().health(resident_bytes)
        places = self.served.max_sessions * self.served.max_context
        report.kv_pressure = min(1.0, report.kv_pressure + self.lost / places)
        return report
