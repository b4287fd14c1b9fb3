"""What the checks of the doctor share: what was found out, and how one says what is wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_meshnet.runtime.descriptor import Descriptor, ShardSpec
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.grpc_transport import GrpcTransport
from pytest_meshnet.runtime.launch import RunningShard
from pytest_meshnet.runtime.session import Session
from pytest_meshnet.runtime.shard import ShardUnderTest

if TYPE_CHECKING:
    from pytest_meshnet.protocol.machines.exchange import Exchange


class Problem(Exception):
    """What a check found, what to do about it, and the line of the trace that shows it."""

    def __init__(self, found: str, cure: str, frame: str = "") -> None:
        super().__init__(found)
        self.found = found
        self.cure = cure
        self.frame = frame or found


class Skipped(Exception):
    """Why a check cannot be made on this runtime, which says nothing about it."""


@dataclass(slots=True)
class Patient:
    """What the checks have found out so far; each fills in what the next one needs."""

    name: str
    shard_name: str | None
    descriptor: Descriptor = field(init=False)
    spec: ShardSpec = field(init=False)
    transport: GrpcTransport = field(init=False)
    running: RunningShard | None = None
    shard: ShardUnderTest | None = None
    session: Session | None = None
    chunk: Exchange | None = None
    late: Nonconformance | None = None

    @property
    def examined(self) -> ShardUnderTest:
        """The Shard, once its capability is known."""
        assert self.shard is not None, "GetCapability comes before"
        return self.shard

    @property
    def opened(self) -> Session:
        """The session, once it is accepted."""
        assert self.session is not None, "open comes before"
        return self.session

    def log(self) -> str:
        """The last lines of a started runtime, for a person."""
        return f"\nits last lines:\n{self.running.last_lines()}" if self.running else ""

    def leave(self) -> None:
        """Give back what was opened and started."""
        if self.session is not None:
            self.session.drop()
        if hasattr(self, "transport"):
            self.transport.close()
        if self.running is not None:
            self.running.stop(self.descriptor.time.stop)
