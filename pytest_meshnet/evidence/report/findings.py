"""What a failed phase tells a person: expected, actual, what to try, and the frames on the wire.

The texts come from the journal: a phase's message as an exception of the runtime room writes it,
and the attachment `frames` of the same test.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from pytest_meshnet.ledger.status import PhaseRecord

FRAMES = "frames"
"""The name of the attachment with the last frames of a test."""

_HERE = "   <== HERE"
"""What a trace writes behind the frame at which an expectation broke."""

_EXPECTED, _ACTUAL, _TRY = "expected: ", "\nactual:   ", "\ntry:      "
_FRAME = re.compile(r" *(?P<at>\d+\.\d{3} s) +(?P<stream>\S+) +(?P<way>->|<-) (?P<text>.*)")


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame: seconds since the test began, stream, direction and what it was.

    A line that is no frame, such as how many came before, has the direction "note". `broken` marks
    the frame at which an expectation broke.
    """

    at: str
    stream: str
    way: Literal["sent", "received", "note"]
    text: str
    broken: bool = False


@dataclass(frozen=True, slots=True)
class Told:
    """One failed phase. `expected` is empty where the message did not set the two apart.

    `inputs` are what a generator of inputs found, where a hint stands before them.
    """

    when: str
    attempt: int
    expected: str
    actual: str
    hint: str
    inputs: str


def told(phase: PhaseRecord) -> Told:
    """Take the message of a failed phase apart."""
    message = phase.message or phase.reason or phase.wasxfail or "no message was recorded"
    expected, actual, hint, inputs = "", message, "", ""
    if message.startswith(_EXPECTED) and _ACTUAL in message:
        expected, _, actual = message.removeprefix(_EXPECTED).partition(_ACTUAL)
        actual, _, hint = actual.partition(_TRY)
        hint, _, inputs = hint.partition("\n")
    return Told(phase.when, phase.attempt, expected, actual, hint, inputs)


def frames(text: str) -> tuple[Frame, ...]:
    """Read the lines of a wire trace; empty lines are left out."""
    return tuple(_frame(line) for line in text.split("\n") if line.strip())


def _frame(line: str) -> Frame:
    found = _FRAME.fullmatch(line)
    if found is None:
        return Frame("", "", "note", line.strip())
    way: Literal["sent", "received"] = "sent" if found["way"] == "->" else "received"
    text = found["text"]
    return Frame(found["at"], found["stream"], way, text.removesuffix(_HERE), text.endswith(_HERE))
