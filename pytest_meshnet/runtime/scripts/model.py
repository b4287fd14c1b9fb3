"""The session semantics said a second time, as plainly as possible: numbers in dicts.

Nothing here is shared with the reference worker. For each message the model gives every answer that
the protocol allows; told which one came, it moves on. It knows a client that waits for each answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from pytest_meshnet.runtime.scripts.script import Flaw, Kind, Step

Word = Literal["accepted", "applied", "duplicate", "refused", "nothing", "ended", "told"]

History = tuple[int, ...]
"""The tokens that are held: the key of the draw that each came from."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer, allowed or found.

    `code` is the name of an error code without its prefix. In an allowed answer it may be "*", any
    but UNSPECIFIED and INTERNAL. A `past_len`, `hit` or `released` of None leaves that open, or was
    not told.
    """

    word: Word
    code: str = ""
    past_len: int | None = None
    hit: bool | None = None
    terminal: bool = False
    released: bool | None = None

    def allows(self, found: Answer) -> bool:
        """Whether `found` is this answer."""
        pairs = (
            (self.past_len, found.past_len),
            (self.hit, found.hit),
            (self.released, found.released),
        )
        return (
            (self.word, self.terminal) == (found.word, found.terminal)
            and self._allows_code(found.code)
            and all(None in pair or pair[0] == pair[1] for pair in pairs)
        )

    def _allows_code(self, code: str) -> bool:
        if self.code == "*":
            return code not in ("", "UNSPECIFIED", "INTERNAL")
        return code == self.code

    def __str__(self) -> str:
        code = "any code" if self.code == "*" else self.code
        said = [self.word, code, "terminal" if self.terminal else ""]
        if self.past_len is not None:
            said.append(f"past_len {self.past_len}")
        if self.hit is not None:
            said.append("cache hit" if self.hit else "no cache hit")
        if self.released is not None:
            said.append(f"released {self.released}")
        return " ".join(filter(None, said))


@dataclass(frozen=True, slots=True)
class Message:
    """A step with its numbers worked out."""

    kind: Kind
    stream: int
    session: int
    epoch: int
    tokens: int = 1
    key: int = 0
    final: bool = True
    expected: int = 0
    number: int = 0
    full: bool = False
    flaw: Flaw = ""


@dataclass(slots=True)
class Line:
    """A stream and the session that was opened on it. `finished` None is a decode too early.

    After a cancel in mid-prefill `doubtful` says that `held` may have been dropped with it.
    """

    session: int
    epoch: int
    held: History = ()
    finished: bool | None = False
    last: int = 0
    fenced: bool = False
    doubtful: bool = False
    sent: Message | None = None

    def dropped(self) -> Line:
        """The same with nothing held."""
        return replace(self, held=(), finished=False, doubtful=False)


@dataclass(slots=True)
class Model:
    """What a client knows of a Shard. `room` is how many tokens a session may hold."""

    room: int
    highest: dict[int, int] = field(default_factory=dict)
    lines: dict[int, Line] = field(default_factory=dict)
    # Whether a release of the session's highest epoch would find something; None: who knows.
    occupied: dict[int, bool | None] = field(default_factory=dict)

    # What a step comes to ----------------------------------------------------------------------

    def message(self, step: Step) -> Message | None:
        """Work the numbers of a step out; None for a step without a meaning here."""
        line = self.lines.get(step.stream)
        if step.kind in ("unary-release", "unary-cancel", "open"):
            epoch = max(1, self.highest.get(step.session, 0) + step.epoch)
            return Message(step.kind, step.stream, step.session, epoch)
        if line is None:
            if step.kind in ("repeat", "drop", "half-close"):
                return None
            line = Line(step.session, self.highest.get(step.session, 0) + 1)
        if step.kind == "repeat":
            return line.sent
        return self._unit(step, line)

    def _unit(self, step: Step, line: Line) -> Message | None:
        starts = step.kind in ("fresh", "stateless")
        expected = 0 if starts else max(0, len(line.held) + step.at)
        tokens = 1 if step.kind == "decode" else step.tokens
        # Whether stateless work has positions of its own is nobody's business.
        unclear = (step.kind, step.flaw) == ("stateless", "position")
        if expected + tokens > self.room or unclear:
            return None
        return Message(
            kind=step.kind,
            stream=step.stream,
            session=line.session,
            epoch=line.epoch,
            tokens=tokens,
            key=step.key,
            final=step.final or step.kind in ("decode", "stateless"),
            expected=expected,
            number=max(1, line.last + step.ahead),
            full=step.full or step.flaw not in _COMPACT,
            flaw=step.flaw,
        )

    # What may be answered ----------------------------------------------------------------------

    def allowed(self, message: Message) -> tuple[Answer, ...]:
        """Every answer that the protocol allows."""
        if message.kind == "unary-release":
            return self._allowed_release(message)
        if message.kind == "unary-cancel":
            return (_STALE_CALL if self._is_old(message) else Answer("told"),)
        line = self.lines.get(message.stream)
        if message.kind == "open":
            return self._allowed_open(message, line)
        if line is None:
            return (Answer("refused", "*", terminal=True),)
        return self._allowed_on_line(message, line)

    def _allowed_on_line(self, message: Message, line: Line) -> tuple[Answer, ...]:
        stale = Answer("refused", "EPOCH_STALE", terminal=True)
        if message.kind in ("release", "cancel", "drop"):
            return (Answer("nothing"),)
        if message.kind == "half-close":
            return (Answer("ended"), stale) if line.fenced else (Answer("ended"),)
        if line.fenced:
            return (stale,)
        there = self._allowed_unit(message, line)
        return (*there, *self._allowed_unit(message, line.dropped())) if line.doubtful else there

    def _is_old(self, message: Message) -> bool:
        return message.epoch < self.highest.get(message.session, 0)

    def _allowed_release(self, message: Message) -> tuple[Answer, ...]:
        if self._is_old(message):
            return (_STALE_CALL,)
        newest = message.epoch == self.highest.get(message.session, 0)
        there = self.occupied.get(message.session, False) if newest else False
        return (Answer("told", released=there),)

    def _allowed_open(self, message: Message, line: Line | None) -> tuple[Answer, ...]:
        if line is not None:
            # A second open: its refusal names no unit, the player counts it.
            return (Answer("nothing"),)
        if message.epoch <= self.highest.get(message.session, 0):
            return (Answer("refused", "EPOCH_STALE", terminal=True),)
        return (Answer("accepted"),)

    def _allowed_unit(self, message: Message, line: Line) -> tuple[Answer, ...]:
        held = len(line.held)
        faults = self._faults(message, line)
        if message.number <= line.last:
            # Who the message belongs to may be asked before which step it is.
            others = [fault for fault in faults if message.flaw in _IDENTITY]
            return (Answer("duplicate", past_len=held), *others)
        applied = self._applied_answer(message)
        # A decode before the final chunk should miss; it must only where nothing is held.
        early = message.kind == "decode" and line.finished is not True
        if early and held and message.expected == held and not message.flaw:
            return (*faults, applied)
        return tuple(faults) or (applied,)

    def _applied_answer(self, message: Message) -> Answer:
        if message.kind == "stateless":
            return Answer("applied", past_len=0, hit=False)
        after = message.expected + message.tokens
        return Answer("applied", past_len=after, hit=message.expected > 0)

    def _faults(self, message: Message, line: Line) -> list[Answer]:
        """What may be said about each thing that is wrong; with several, any of them is right."""
        faults = []
        held = len(line.held)
        continues = message.kind == "decode" or (message.kind == "append" and message.expected > 0)
        early = message.kind == "decode" and line.finished is not True
        if early or (continues and message.expected != held):
            faults.append(Answer("refused", "CACHE_MISS", past_len=held))
        if message.flaw:
            code = _CODES.get(message.flaw, "*")
            terminal = message.flaw in _TERMINAL
            faults.append(Answer("refused", code, None if terminal else held, terminal=terminal))
        return faults

    # What follows from it ----------------------------------------------------------------------

    def move(self, message: Message, found: Answer) -> None:
        """Take in the answer that came, one of those allowed."""
        if message.kind == "unary-release":
            if not self._is_old(message) and message.epoch == self.highest.get(message.session, 0):
                self._empty(message.session, message.epoch, occupied=False)
        elif message.kind == "open":
            if found.word == "accepted":
                self._accepted(message)
        elif message.kind == "unary-cancel":
            self._cancelled(message.session, message.epoch)
        elif message.stream in self.lines:
            line = self.lines[message.stream]
            self._move_line(message, found, line)

    def _move_line(self, message: Message, found: Answer, line: Line) -> None:
        if message.kind in ("drop", "half-close") or found.terminal:
            del self.lines[message.stream]
            if not line.fenced:
                self.occupied[line.session] = None
        elif message.kind == "release" and not line.fenced:
            self._empty(line.session, line.epoch, occupied=None)
        elif message.kind == "cancel":
            self._cancelled(line.session, line.epoch)
        elif message.kind != "release":
            self._settle(message, found, line)
            line.sent = message
            if found.word == "applied":
                self._applied(message, line)
            elif self.occupied[line.session] is False:
                self.occupied[line.session] = None

    def _cancelled(self, session: int, epoch: int) -> None:
        """A cancel in mid-prefill may give up the prefill, or only what is in flight of it."""
        for line in self.lines.values():
            its = (line.session, line.epoch) == (session, epoch) and not line.fenced
            if its and line.held and line.finished is not True:
                line.doubtful = True
                self.occupied[session] = None

    def _settle(self, message: Message, found: Answer, line: Line) -> None:
        """Take out of an answer whether what was in doubt is still held."""
        if not line.doubtful or line.fenced:
            return
        dropped = line.dropped()
        kept = any(one.allows(found) for one in self._allowed_unit(message, line))
        gone = any(one.allows(found) for one in self._allowed_unit(message, dropped))
        line.doubtful = kept and gone
        if not gone:
            self.occupied[line.session] = True
        elif not kept:
            line.held, line.finished = dropped.held, dropped.finished

    def _accepted(self, message: Message) -> None:
        for line in self.lines.values():
            line.fenced = line.fenced or line.session == message.session
        self.highest[message.session] = message.epoch
        self.occupied[message.session] = None
        self.lines[message.stream] = Line(message.session, message.epoch)

    def _empty(self, session: int, epoch: int, *, occupied: bool | None) -> None:
        self.occupied[session] = occupied
        for line in self.lines.values():
            if (line.session, line.epoch) == (session, epoch):
                line.held, line.finished, line.doubtful = (), False, False

    def _applied(self, message: Message, line: Line) -> None:
        line.last = message.number
        if message.kind == "stateless":
            if not line.held:
                self.occupied[line.session] = None
            return
        early = message.kind == "decode" and line.finished is not True
        line.doubtful = False
        line.held = line.held[: message.expected] + (message.key,) * message.tokens
        line.finished = None if early else message.final
        self.occupied[line.session] = True


def one_of(answers: Sequence[Answer]) -> str:
    """The allowed answers for a person."""
    return ", or ".join(map(str, answers))


_STALE_CALL = Answer("told", "EPOCH_STALE", released=False)
_CODES: dict[Flaw, str] = {
    "checksum": "PAYLOAD_CORRUPT",
    "deadline": "DEADLINE_EXCEEDED",
    "older-epoch": "EPOCH_STALE",
    "fingerprint": "FINGERPRINT_MISMATCH",
    "range": "SHARD_RANGE_MISMATCH",
    "schema": "SCHEMA_UNSUPPORTED",
}
_TERMINAL: frozenset[Flaw] = frozenset({"older-epoch", "fingerprint", "range", "schema"})
_IDENTITY: frozenset[Flaw] = _TERMINAL | {"session", "newer-epoch"}
# What can be wrong with a DecodeStep; for the rest a step is sent in its full form.
_COMPACT: frozenset[Flaw] = frozenset({"", "checksum", "length", "position", "deadline"})
