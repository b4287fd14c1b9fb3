"""Which sessions live on which streams, and which epochs are fenced."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from pytest_meshnet.protocol.machines.session import Session

# A fence may be forgotten once this many other sessions have come (protocol.md, 6). A fence costs
# about 200 bytes, so age alone is no reason to forget one.
FENCE_SESSIONS = 65_536

NO_EPOCH = -1


class SessionTable:
    """Streams, sessions and fences of one Worker."""

    def __init__(self) -> None:
        self._streams: dict[int, Session | None] = {}
        self._sessions: dict[str, Session] = {}
        self._fences: OrderedDict[str, int] = OrderedDict()

    def __iter__(self) -> Iterator[Session]:
        """The live sessions, safe against changes while iterating."""
        return iter(list(self._sessions.values()))

    def open_stream(self, stream: int) -> None:
        """A stream that has no session yet."""
        self._streams[stream] = None

    def knows(self, stream: int) -> bool:
        """Whether the stream was opened and has not ended."""
        return stream in self._streams

    def on_stream(self, stream: int) -> Session | None:
        """The session of a known stream, None before its open."""
        return self._streams[stream]

    def find(self, session_id: str) -> Session | None:
        """The live session of that id."""
        return self._sessions.get(session_id)

    def is_live(self, session: Session) -> bool:
        """Whether the session's stream still carries it."""
        return self._streams.get(session.stream) is session

    def add(self, session: Session) -> None:
        """Put a session on its stream."""
        self._streams[session.stream] = self._sessions[session.session_id] = session

    def end_stream(self, stream: int) -> Session | None:
        """Forget a stream and return the session it carried."""
        return self._streams.pop(stream, None)

    def remove(self, session: Session) -> None:
        """Forget session and stream; the fence stays."""
        self._streams.pop(session.stream, None)
        if self._sessions.get(session.session_id) is session:
            del self._sessions[session.session_id]

    def places_held(self) -> int:
        """Sessions that hold a place: opened, or used since their last release."""
        return sum(session.has_place for session in self._sessions.values())

    def highest_epoch(self, session_id: str) -> int:
        """The highest epoch accepted for a session, NO_EPOCH where none is known."""
        return self._fences.get(session_id, NO_EPOCH)

    def fence(self, session_id: str, epoch: int) -> None:
        """Remember the highest epoch of a session; forget the oldest fence beyond the bound."""
        self._fences[session_id] = epoch
        self._fences.move_to_end(session_id)
        while len(self._fences) > FENCE_SESSIONS + len(self._sessions):
            oldest, fenced = self._fences.popitem(last=False)
            if oldest in self._sessions:
                self._fences[oldest] = fenced
