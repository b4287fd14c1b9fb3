"""Scripts of every kind for hypothesis to draw: mostly legal, so that illegal steps meet state.

A step is drawn from a list, the simplest first, which makes drawing and shrinking quick.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, get_args

from pytest_meshnet.runtime.scripts.script import Flaw, Script, Step

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

LONGEST = 32
"""Steps of the longest script."""

_SHORTEST = 16
# How often each stream appears among the choices: most steps meet the state of the first.
_SHARES = (8, 2, 1)
_FLAWS: tuple[Flaw, ...] = tuple(flaw for flaw in get_args(Flaw) if flaw)
_TERMINAL = ("older-epoch", "fingerprint", "range", "schema")


def scripts() -> SearchStrategy[Script]:
    """Scripts that begin by opening a session."""
    from hypothesis import strategies as st

    steps = st.lists(st.sampled_from(choices()), min_size=_SHORTEST, max_size=LONGEST)
    return steps.map(lambda drawn: (Step("open", epoch=2), *filter(None, drawn)))


@cache
def choices() -> tuple[Step | None, ...]:
    """Every step that is drawn from, as often as it is likely. None is a step left out."""
    shared = [
        replace(step, stream=stream)
        for stream, share in enumerate(_SHARES)
        for step in (*_legal(), *_illegal())
        for _ in range(share)
    ]
    return (None, *shared)


def _legal() -> Iterator[Step]:
    for key in (0, 1):
        yield from (Step("decode", key=key, full=full) for full in (False, True) for _ in range(6))
        yield from (
            Step("fresh", key=key, tokens=n, final=f) for n in (1, 3) for f in (True, False)
        )
        yield from [Step("fresh", key=key, tokens=2)] * 14
        yield from (
            Step("append", key=key, tokens=n, final=f) for n in (1, 2) for f in (True, False)
        )
        yield Step("stateless", key=key, tokens=2)
    yield Step("decode", ahead=5)
    yield Step("append", ahead=3)
    yield from [Step("release")] * 2
    yield Step("cancel")
    yield Step("half-close")
    yield Step("drop")
    for session in (0, 1, 0):
        yield from [Step("open", session=session, epoch=2)] * 3
        yield Step("open", session=session, epoch=1)
        yield from (Step(kind, session=session) for kind in ("unary-release", "unary-cancel"))


def _illegal() -> Iterator[Step]:
    yield from [Step("repeat")] * 8
    for ahead in (0, -1, -3):
        yield Step("decode", ahead=ahead)
        yield Step("append", ahead=ahead, key=1)
        yield Step("fresh", ahead=ahead, tokens=2)
        yield Step("stateless", ahead=ahead)
    for at in (-1, 1):
        yield from (Step("decode", at=at, full=full) for full in (False, True) for _ in range(2))
        yield Step("append", at=at)
    for session in (0, 1):
        yield from [Step("open", session=session), Step("open", session=session, epoch=-1)] * 3
        for epoch in (-1, 1):
            yield Step("unary-release", session=session, epoch=epoch)
            yield Step("unary-cancel", session=session, epoch=epoch)
    for flaw in _FLAWS:
        yield Step("append" if flaw in _TERMINAL else "decode", flaw=flaw)
    for flaw in ("checksum", "length", "position"):
        yield Step("append", flaw=flaw)
    for flaw in ("checksum", "length", "deadline", "session"):
        yield Step("fresh", flaw=flaw, tokens=2)
        yield Step("stateless", flaw=flaw)
