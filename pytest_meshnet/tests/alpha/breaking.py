"""Breaking a record: every listed break, and what can happen to any claim.

A claim can be absent, or configured and not measured; a number can be negative, a boolean, not
finite, or of more than 64 bits.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .breaks import LISTED
from .run_breaks import RUN

GONE, TOLD = object(), object()


@dataclass(frozen=True)
class Break:
    criterion: str
    path: str
    value: Any
    code: str

    @property
    def id(self) -> str:
        return f"{self.criterion}-{self.code}-{self.path.rpartition('/')[2]}"


def everything(record: dict[str, Any]) -> Iterator[Break]:
    """Every break of every criterion of the list, each once."""
    found: dict[str, Break] = {}

    def add(one: Break) -> None:
        found[f"{one.id} {one.path} {one.value!r}"] = one

    for criterion, listed in LISTED.items():
        for path, value, code in listed:
            add(Break(criterion, path, value, code))
            for claim in _claims(record, path):
                add(Break(criterion, claim, GONE, "missing"))
                add(Break(criterion, claim, TOLD, "not-measured"))
                number = read(record, claim)["value"]
                if isinstance(number, bool) or not isinstance(number, (int, float)):
                    continue
                if criterion.startswith("target.") or criterion in _COMPARED:
                    continue
                for wrong, why in _NO_NUMBERS:
                    add(Break(criterion, claim, wrong, _code(criterion, why)))
    yield from found.values()


_NO_NUMBERS = (
    (-1, "negative"),
    (True, "not-a-number"),
    ("1", "not-a-number"),
    (math.inf, "not-finite"),
    (2**64, "too-large"),
)


def _code(criterion: str, code: str) -> str:
    """One criterion only says that another one failed."""
    return "speed-failed" if criterion.endswith(".quality_pass_with_speed_fail_verdict") else code


# These compare the value itself, whatever it is.
_COMPARED = {f"{RUN}.{key}" for key in ("context_tokens", "concurrency", "prompt_lane_tokens")}


def _claims(record: dict[str, Any], path: str) -> Iterator[str]:
    """The claim that a path ends in or leads through, of the first node for a star."""
    plain = path.replace("*", "0").partition("/value/")[0]
    if isinstance(read(record, plain), dict) and "source" in read(record, plain):
        yield plain


def read(record: Any, path: str) -> Any:
    for name in path.split("/") if path else ():
        record = record[int(name) if isinstance(record, list) else name]
    return record


def broken(record: dict[str, Any], one: Break) -> dict[str, Any]:
    """Write a break into a record, which changes, and return it."""
    if "*" in one.path:
        before, _, after = one.path.partition("*")
        for number in range(len(read(record, before.rstrip("/")))):
            broken(record, Break(one.criterion, f"{before}{number}{after}", one.value, one.code))
        return record
    where, _, last = one.path.rpartition("/")
    part = read(record, where)
    place: Any = int(last) if isinstance(part, list) else last
    value = copy.deepcopy(one.value)
    if one.value is GONE:
        part[place] = None
    elif one.value is TOLD:
        part[place] = part[place] | {"source": "configured"}
    elif isinstance(part[place], dict) and "source" in part[place]:
        part[place] = part[place] | {"value": value}
    else:
        part[place] = value
    return record
