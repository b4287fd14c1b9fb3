"""The streams of an exchange in play, with the units that were sent on each."""

from __future__ import annotations

from dataclasses import dataclass, field

from pytest_meshnet.authoring.exchange.notation import Line
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.exchange import Exchange
from pytest_meshnet.runtime.session import Session


@dataclass(slots=True)
class Unit:
    """A unit that was sent, and what of its answers was looked at."""

    exchange: Exchange
    judged: bool = False
    results_written: bool = False


@dataclass(slots=True)
class Stream:
    """A stream with its session, and the statuses without a unit that it is due."""

    session: Session
    opened: pb.SessionAccepted | pb.ShardStatus | None = None
    units: list[Unit] = field(default_factory=list)
    strays: list[Line] = field(default_factory=list)
    half_closed: bool = False
    open_judged: bool = False

    def unit(self, work: str) -> Unit | None:
        """The oldest unit of that work whose answer was not looked at, or else the newest."""
        named = [one for one in self.units if one.exchange.work_id == work]
        waiting = [one for one in named if not one.judged]
        return next(iter(waiting or named[-1:]), None)

    def unit_with_result(self, work: str) -> Unit | None:
        """The oldest unit of that work whose result was not looked at, or else the newest."""
        named = [one for one in self.units if one.exchange.work_id == work]
        waiting = [one for one in named if not one.results_written and one.exchange.status is None]
        return next(iter(waiting or named[-1:]), None)
