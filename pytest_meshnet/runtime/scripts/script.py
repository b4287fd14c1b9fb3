"""Scripts: what a client does to a Shard, step after step, as plain data that people can read.

Numbers are relative to what the model says at that point (one step beyond the last, one token below
what is held), so that a script keeps its meaning when steps are taken out of it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

Kind = Literal[
    "open",
    "fresh",
    "append",
    "decode",
    "stateless",
    "repeat",
    "release",
    "cancel",
    "half-close",
    "drop",
    "unary-release",
    "unary-cancel",
]
Flaw = Literal[
    "",
    "checksum",
    "length",
    "position",
    "deadline",
    "phase",
    "session",
    "newer-epoch",
    "older-epoch",
    "fingerprint",
    "range",
    "schema",
]
UNITS: frozenset[Kind] = frozenset({"fresh", "append", "decode", "stateless"})
UNARY: frozenset[Kind] = frozenset({"unary-release", "unary-cancel"})
FORMAT = "meshnet-script-1"


class BadScript(Exception):
    """A text that is no script; the message says where."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing a client does.

    `stream` and `session` are small numbers; an open puts a session on a stream, and unary calls
    name a session. `epoch` counts from the highest one accepted for the session. A unit carries
    `tokens` drawn by `key`, expects `at` tokens more than are held, and has the step number `ahead`
    of the last one applied. `full` sends a decode step as a chunk; `flaw` is what is wrong with it.
    """

    kind: Kind
    stream: int = 0
    session: int = 0
    epoch: int = 0
    tokens: int = 1
    key: int = 0
    final: bool = True
    at: int = 0
    ahead: int = 1
    full: bool = False
    flaw: Flaw = ""

    def __str__(self) -> str:
        where = "" if self.kind in UNARY else f"stream {self.stream}: "
        said = [f"{where}{self.kind}"]
        if self.kind == "open" or self.kind in UNARY:
            said.append(f"session {self.session} epoch {_signed('highest', self.epoch)}")
        if self.kind in UNITS:
            said += self._unit()
        return ", ".join(said)

    def _unit(self) -> list[str]:
        said = [] if self.kind == "decode" else [f"{self.tokens} token(s)"]
        said.append(f"inputs {self.key}")
        if self.kind in ("fresh", "append"):
            said.append("final" if self.final else "not final")
        if self.kind in ("append", "decode") and self.at:
            said.append(f"expects {_signed('held', self.at)}")
        if self.ahead != 1:
            said.append(f"step {_signed('last', self.ahead)}")
        if self.full:
            said.append("full form")
        if self.flaw:
            said.append(f"wrong {self.flaw}")
        return said


def _signed(what: str, offset: int) -> str:
    return f"{what}{offset:+d}" if offset else what


Script = tuple[Step, ...]


def render(script: Sequence[Step]) -> str:
    """The script for a person, one numbered line a step."""
    return "\n".join(f"{number:3}. {step}" for number, step in enumerate(script, 1))


def to_json(script: Sequence[Step]) -> str:
    """The script as JSON; what has its default is left out."""
    steps = [_told(step) for step in script]
    return json.dumps({"format": FORMAT, "steps": steps})


_DEFAULTS = asdict(Step("open"))


def _told(step: Step) -> dict[str, Any]:
    told = asdict(step).items()
    return {name: value for name, value in told if name == "kind" or value != _DEFAULTS[name]}


def from_json(text: str) -> Script:
    """Read what `to_json` wrote. Raises BadScript."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise BadScript(f"no JSON ({error}): give a file that a failing sequence left") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise BadScript(f"no object with format {FORMAT!r}: give a file that a failing run left")
    steps = document.get("steps")
    if not isinstance(steps, list):
        raise BadScript("no list of steps under 'steps'")
    return tuple(_step(number, step) for number, step in enumerate(steps, 1))


def _step(number: int, told: Any) -> Step:
    if not isinstance(told, dict):
        raise BadScript(f"step {number} is no object")
    known = {field.name for field in fields(Step)}
    for name, value in told.items():
        if name not in known:
            names = ", ".join(sorted(known))
            raise BadScript(f"step {number} has an unknown field {name!r}: known are {names}")
        if name not in _WORDS and type(value) is not type(_DEFAULTS[name]):
            raise BadScript(f"step {number} has {name} {value!r}, which is of another type")
        if isinstance(value, int) and abs(value) > MOST:
            raise BadScript(f"step {number} has {name} {value}: at most {MOST} either way")
    for name, words in _WORDS.items():
        if told.get(name, "" if name == "flaw" else None) not in words:
            raise BadScript(f"step {number} has {name} {told.get(name)!r}: say one of {words}")
    step = Step(**told)
    if min(step.stream, step.session) < 0 or step.tokens < 1:
        raise BadScript(f"step {number} counts streams and sessions from 0 and tokens from 1")
    return step


_WORDS: dict[str, tuple[str, ...]] = {"kind": get_args(Kind), "flaw": get_args(Flaw)}
# Keeps what is drawn and what is opened small, whatever a file says.
MOST = 1000
