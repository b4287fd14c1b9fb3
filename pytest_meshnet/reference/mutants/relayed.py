"""Hops that look into frames, and workers that lean on their connection. RELAY catches them."""

from __future__ import annotations

from collections.abc import Callable

from google.protobuf.message import DecodeError

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import Close, HalfClosed, Outcome
from pytest_meshnet.protocol.machines.rules import Rules
from pytest_meshnet.protocol.machines.session import Refused, ServedShard, Session, Unit
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.protocol.tensors import Tensor
from pytest_meshnet.reference.catalogue import mutant, suite_mutant
from pytest_meshnet.reference.mutants.lifetimes import IgnoresDeadlines
from pytest_meshnet.reference.mutants.patching import replace
from pytest_meshnet.runtime.relay import Hop

# RELAY-01 ----------------------------------------------------------------------------------------


def _every_hop_changes(change: Callable[[bytes], bytes]) -> None:
    """Let every hop put `change(frame)` on its line."""
    right = Hop.put
    replace(Hop, "put", lambda hop, frame: right(hop, change(frame)))


def _written_again(frame: bytes, *, unknown: bool) -> bytes:
    try:
        message = pb.SessionRequest.FromString(frame)
    except DecodeError:
        return frame
    if not unknown:
        message.DiscardUnknownFields()
    return message.SerializeToString()


@suite_mutant("RELAY-01")
def hop_that_drops_unknown_fields() -> None:
    """A hop reads each frame by its own schema and writes what it knows."""
    _every_hop_changes(lambda frame: _written_again(frame, unknown=False))


@suite_mutant("RELAY-01")
def hop_that_writes_frames_again() -> None:
    """A hop keeps unknown fields, and writes the fields in its own order and spelling."""
    _every_hop_changes(lambda frame: _written_again(frame, unknown=True))


@suite_mutant("RELAY-01")
def hop_that_cuts_large_frames() -> None:
    """A frame ends at 64 KiB."""
    _every_hop_changes(lambda frame: frame[: 2**16])


@suite_mutant("RELAY-01")
def hop_that_loses_empty_frames() -> None:
    """A frame without bytes is taken for none."""
    right = Hop.put
    replace(Hop, "put", lambda hop, frame: right(hop, frame) if frame else None)


@suite_mutant("RELAY-01")
def hop_that_overflows() -> None:
    """The queue keeps 100 frames, and of more the newest are lost without a word."""
    right, counts = Hop.put, dict[int, int]()

    def put(hop: Hop, frame: bytes) -> None:
        counts[id(hop)] = counts.get(id(hop), 0) + 1
        if counts[id(hop)] <= 100:
            right(hop, frame)

    replace(Hop, "put", put)


@suite_mutant("RELAY-01")
def hop_that_cleans_text() -> None:
    """Bytes that are no ASCII are replaced, as by a channel for text."""
    _every_hop_changes(lambda frame: frame.decode("ascii", "replace").encode())


# RELAY-02 ----------------------------------------------------------------------------------------


@mutant("RELAY-02")
class TrustsTheConnectionForEpochs(Rules):
    """A stream is new, so its session is: no epoch is stale."""

    def check_epoch(self, epoch: int, highest: int) -> None:
        """Let it pass."""


@mutant("RELAY-02")
class KeepsStateByPeer(Worker):
    """The cache belongs to the peer, and behind a relay all sessions are of one peer."""

    def __init__(self, served: ServedShard) -> None:
        super().__init__(served)
        self._cache: tuple[int, bool, object | None] = (0, False, None)

    def accept(self, stream: int, message: pb.SessionOpen) -> None:
        super().accept(stream, message)
        session = self.table.on_stream(stream)
        if session is not None:
            session.held, session.finished, session.state = self._cache

    def commit(self, session: Session, unit: Unit, outcome: Outcome) -> None:
        super().commit(session, unit, outcome)
        self._cache = (session.held, session.finished, session.state)


@mutant("RELAY-02")
class TakesDeadlinesFromTheTransport(IgnoresDeadlines):
    """Only a deadline of the call would count, and a relay gives none."""


@mutant("RELAY-02")
class CancelsOnlyForItsConnection(Worker):
    """A unary cancel finds the sessions of its own connection, of which there are none."""

    def cancel(self, request: pb.CancelRequest) -> pb.CancelResponse:
        return pb.CancelResponse()


@mutant("RELAY-02")
class ReleasesOnlyForItsConnection(Worker):
    """A unary release finds the sessions of its own connection, of which there are none."""

    def release(self, request: pb.ReleaseRequest) -> pb.ReleaseResponse:
        return pb.ReleaseResponse()


@mutant("RELAY-02")
class TakesAHalfCloseForALostPeer(Worker):
    """Who sends no more is gone: what is outstanding is dropped and the stream ended."""

    def _on_half_closed(self, event: HalfClosed) -> None:
        session = self.table.end_stream(event.stream)
        if session is not None:
            self.end(session)
        self.effects.append(Close(event.stream))


@mutant("RELAY-02")
class TellsPositionsInMetadata(Rules):
    """The true position of a miss travels beside the frames, where a relay loses it."""

    def cache_miss(self, session: Session, detail: str) -> Refused:
        return Refused(pb.ERROR_CODE_CACHE_MISS, detail, actual_past_len=0)


@mutant("RELAY-02")
class LeavesDuplicatesToTheTransport(Rules):
    """A connection repeats nothing, so that no step is looked at twice."""

    def is_duplicate(self, session: Session, unit: Unit) -> bool:
        return False


# RELAY-03 ----------------------------------------------------------------------------------------


@mutant("RELAY-03")
class BelievesFlippedBits(Rules):
    """The line is taken for a perfect one: no checksum is looked at."""

    def decode(self, session: Session, unit: Unit) -> tuple[Tensor, ...]:
        tensors = list(unit.bundle.tensors) if unit.bundle is not None else []
        for tensor in [*tensors, *([unit.tensor] if unit.tensor is not None else [])]:
            tensor.checksum.algorithm = pb.CHECKSUM_ALGORITHM_NONE
            tensor.checksum.value = b""
        return super().decode(session, unit)


@mutant("RELAY-03")
class AppliesRepeatedFrames(Rules):
    """A frame that comes again is computed again, behind what it left the first time."""

    def is_duplicate(self, session: Session, unit: Unit) -> bool:
        return False

    def check_cache(self, session: Session, unit: Unit) -> None:
        """Let it pass."""


@mutant("RELAY-03")
class RestartsAtARepeatedFirstChunk(Rules):
    """A first chunk that comes again starts the prefill afresh."""

    def is_duplicate(self, session: Session, unit: Unit) -> bool:
        first = unit.phase == pb.PHASE_PREFILL and unit.expected_past_len == 0
        return not first and super().is_duplicate(session, unit)


@mutant("RELAY-03")
class ClosesGaps(Rules):
    """A unit behind one that was lost is applied where the state ends, or so to speak."""

    def check_cache(self, session: Session, unit: Unit) -> None:
        if unit.expected_past_len <= session.held:
            super().check_cache(session, unit)


@mutant("RELAY-03")
class CountsDamagedFrames(Worker):
    """A unit with a corrupt payload is refused and moves the position all the same."""

    def refuse_unit(self, session: Session, unit: Unit, refused: Refused) -> None:
        super().refuse_unit(session, unit, refused)
        if refused.code == pb.ERROR_CODE_PAYLOAD_CORRUPT and session.finished:
            session.held += unit.token_count


@mutant("RELAY-03")
class IsSilentAboutDamage(Worker):
    """A unit with a corrupt payload is thrown away without a word."""

    def refuse_unit(self, session: Session, unit: Unit, refused: Refused) -> None:
        if refused.code == pb.ERROR_CODE_PAYLOAD_CORRUPT:
            session.outstanding -= 1
            return
        super().refuse_unit(session, unit, refused)


@mutant("RELAY-03")
class CallsGapsInternal(Rules):
    """A unit that was lost shows in the next as an internal error."""

    def cache_miss(self, session: Session, detail: str) -> Refused:
        return Refused(pb.ERROR_CODE_INTERNAL, detail, actual_past_len=session.held)
