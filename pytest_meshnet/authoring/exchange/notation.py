"""How an exchange of frames is written: one frame a line, in the words that a trace prints.

    -> open session=s epoch=1
    <- accepted
    -> chunk PREFILL work=w1 step=1 tokens=0+4
    <- ack work=w1 past_len=4
    <- chunk work=w1
    # A remark.
    b -> open session=s epoch=2
    <- ack work=w2 past_len=5 or status CANCELLED work=w2
    <- ? chunk work=w2

`->` goes to the Shard, `<-` is an answer that must come, `<- ?` one that may. A label before the
arrow names one of several streams. Answers of one unit come in any order. A key that is no word of
the notation is the path of a field in the message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Direction = Literal["->", "<-"]

SENT = (
    "open", "chunk", "decode", "again", "release", "cancel", "half-close", "drop",
    "GetCapability", "Health", "Release", "Cancel",
)  # fmt: skip
ANSWERED = (
    "accepted", "ack", "chunk", "status", "end", "GetCapability", "Health", "Release", "Cancel",
)  # fmt: skip
UNARY = frozenset({"GetCapability", "Health", "Release", "Cancel"})
UNITS = frozenset({"chunk", "decode", "again"})

_LINE = re.compile(r"(?:(?P<label>[a-z]) )?(?P<arrow>->|<-) (?P<may>\? )?(?P<rest>\S.*)")


class BadExchange(ValueError):
    """A text that is no exchange; the message names the line and what was expected."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame to send, or one way to answer: its kind, bare words and key=value pairs."""

    kind: str
    words: tuple[str, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict)

    def get(self, key: str, default: str = "") -> str:
        """Return the value of a key."""
        return self.values.get(key, default)

    def __str__(self) -> str:
        pairs = (f"{key}={value}" for key, value in self.values.items())
        return " ".join([self.kind, *self.words, *pairs])


@dataclass(frozen=True, slots=True)
class Line:
    """One line of an exchange. `frames` are alternatives; what is sent has exactly one.

    `may` marks an answer that need not come. `label` is the stream, empty for the only one.
    """

    number: int
    label: str
    direction: Direction
    frames: tuple[Frame, ...]
    may: bool = False

    @property
    def frame(self) -> Frame:
        """The frame, or the first alternative."""
        return self.frames[0]

    @property
    def text(self) -> str:
        """What crosses the wire, without label and arrow."""
        return ("? " if self.may else "") + " or ".join(map(str, self.frames))

    def __str__(self) -> str:
        return f"{self.label} {self.direction} {self.text}".lstrip()


@dataclass(frozen=True, slots=True)
class Remark:
    """A line for people."""

    text: str

    def __str__(self) -> str:
        return f"# {self.text}"


Script = tuple[Line | Remark, ...]


def parse(text: str) -> Script:
    """Read an exchange. Raises BadExchange."""
    found: list[Line | Remark] = []
    for number, raw in enumerate(text.strip("\n").splitlines(), 1):
        line = raw.strip()
        if line.startswith("#"):
            found.append(Remark(line[1:].strip()))
        elif line:
            found.append(_line(number, line))
    if not any(isinstance(one, Line) for one in found):
        raise BadExchange("no frame in it: write `-> open session=s epoch=1`, a frame a line")
    return tuple(found)


def _line(number: int, text: str) -> Line:
    match = _LINE.fullmatch(text)
    if match is None:
        raise BadExchange(
            f"line {number} is {text!r}: expected `-> KIND key=value ...` or `<- ...`"
        )
    sent = match["arrow"] == "->"
    frames = tuple(_frame(number, part) for part in match["rest"].split(" or "))
    known = SENT if sent else ANSWERED
    for one in frames:
        if one.kind not in known:
            raise BadExchange(f"line {number} has kind {one.kind!r}: expected {', '.join(known)}")
    if sent and (len(frames) > 1 or match["may"]):
        raise BadExchange(f"line {number} sends one of several frames: send exactly one")
    return Line(
        number, match["label"] or "", "->" if sent else "<-", frames, may=bool(match["may"])
    )


def _frame(number: int, text: str) -> Frame:
    kind, *parts = text.split()
    words = [part for part in parts if "=" not in part]
    values: dict[str, str] = {}
    for part in parts:
        key, equals, value = part.partition("=")
        if equals:
            if key in values or not value:
                raise BadExchange(f"line {number}: {key} needs exactly one value")
            values[key] = value
    return Frame(kind, tuple(words), values)
