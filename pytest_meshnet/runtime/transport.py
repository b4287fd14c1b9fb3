"""What the suite needs from a way to reach a runtime. One file a strategy: gRPC, in process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """How a stream ended: a gRPC status name ("OK", "UNAVAILABLE") and its detail."""

    code: str
    detail: str = ""


class UnaryFailed(Exception):
    """A unary call ended with a gRPC status instead of a reply. `code` is the status name.

    `error` is the ShardError that travelled in the details of the status (google.rpc.Status), if
    there was one.
    """

    def __init__(self, code: str, detail: str, error: pb.ShardError | None = None) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail
        self.error = error


class Stream(Protocol):
    """One Session stream."""

    def send(self, message: pb.SessionRequest | bytes) -> None:
        """Queue a message, or bytes as they are. Never blocks; nothing happens after the end."""

    def receive(self, timeout: float) -> pb.SessionResponse | StreamEnd:
        """Return what comes next. Raises TimeoutError after `timeout` seconds of silence.

        After the end of the stream every call returns it again.
        """

    def stop_reading(self) -> None:
        """Take nothing more off the network until the next receive."""

    def half_close(self) -> None:
        """Say that nothing more will be sent."""

    def drop(self) -> None:
        """Reset the stream, as a lost connection would."""


class Transport(Protocol):
    """A way to reach one Shard."""

    def open_stream(self) -> Stream:
        """Open a Session stream."""

    def capability(self, request: pb.CapabilityRequest, timeout: float) -> pb.CapabilityReport:
        """GetCapability. Raises UnaryFailed, as do all unary calls."""

    def health(self, request: pb.HealthRequest, timeout: float) -> pb.HealthReport:
        """Health."""

    def release(self, request: pb.ReleaseRequest, timeout: float) -> pb.ReleaseResponse:
        """Release."""

    def cancel(self, request: pb.CancelRequest, timeout: float) -> pb.CancelResponse:
        """Cancel."""

    def close(self) -> None:
        """Give everything back."""
