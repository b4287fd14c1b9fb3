"""Sessions side by side, driven by one thread: every one sends before any is waited for.

Each has a part to play, prefill and decode steps, whose rows it gives when it is alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_meshnet.protocol.machines.exchange import Exchange
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.results import LEAST_KEPT, is_eviction, rows_of
from pytest_meshnet.runtime.session import Session
from pytest_meshnet.runtime.shard import ShardUnderTest

if TYPE_CHECKING:
    from pytest_meshnet.runtime.shard import Rows

MOST = 64
"""Sessions that a test opens at most."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one session is given, and the rows it gives for that when it is alone."""

    cuts: tuple[int, ...]
    prompt: Tensor
    steps: tuple[Tensor, ...]
    expected: Rows


def places(shard: ShardUnderTest, most: int = MOST) -> int:
    """Sessions that fit at once, at most `most`; two where the runtime does not tell."""
    return min(most, shard.report.max_concurrent_sessions or 2)


def declared_places(shard: ShardUnderTest) -> int:
    """Sessions that fit at once. Raises Nonconformance where the runtime does not tell."""
    told = shard.report.max_concurrent_sessions
    if told < 1:
        raise Nonconformance("GetCapability with max_concurrent_sessions above 0", f"{told}")
    return told


def part(shard: ShardUnderTest, cuts: Sequence[int], steps: int, tokens: Tensor) -> Part:
    """A part over `tokens`, cut to the context. Call it while no other session is open."""
    fitted = shard.fitted(cuts, spare=steps)
    length = sum(fitted)
    prompt = tokens.rows(0, length)
    singles = tuple(tokens.rows(at, at + 1) for at in range(length, length + steps))
    return Part(tuple(fitted), prompt, singles, shard.undisturbed(prompt, *singles))


def drawn_part(shard: ShardUnderTest, cuts: Sequence[int], steps: int, key: int) -> Part:
    """A part over input that no other key gives."""
    return part(shard, cuts, steps, shard.tokens(sum(cuts) + steps, key=key))


def marker(shard: ShardUnderTest, number: int, count: int) -> Tensor:
    """One row `count` times, another for each number: a result betrays whose it is."""
    boundary = shard.input_boundary()
    if boundary.dtype is DType.INT32:
        import numpy as np

        token = number % shard.target.model.vocab_size
        return Tensor.from_array(boundary.name, np.full((1, count), token), boundary.dtype)
    one = shard.tokens(1, key=1000 + number)
    return Tensor(one.name, one.dtype, (1, count, *boundary.trailing), bytes(one.data) * count)


class Player:
    """One session in its part. What it sent is waited for in `collect` only."""

    def __init__(self, session: Session, role: Part, *, evictable: bool = False) -> None:
        self.session = session
        self.role = role
        self.evicted = False
        self._evictable = evictable
        self._sent: list[Exchange] = []
        self._done: list[Exchange] = []
        self._moves = self._script()

    def _script(self) -> Iterator[None]:
        session, role = self.session, self.role
        start = 0
        for index, count in enumerate(role.cuts):
            rows, last = role.prompt.rows(start, start + count), index == len(role.cuts) - 1
            start += count
            self._sent += session.send_chunks(rows, [count], finish=last)
            yield
        for step in role.steps:
            self._sent.append(session.send_unit(session.client.decode(step)))
            yield

    def send(self) -> bool:
        """Send what comes next. Returns whether there was anything."""
        return not self.evicted and next(self._moves, self) is None

    def collect(self) -> None:
        """Wait for everything that was sent, and require that it was applied.

        An evictable session that answers CACHE_MISS at 0 has played its part: a Shard may keep
        fewer states than sessions (KV-07).
        """
        for one in map(self.session.wait, self._sent):
            self.evicted = self.evicted or (self._evictable and is_eviction(one))
            if not self.evicted:
                self._done.append(self.session.applied(one))
        self._sent.clear()

    def rows(self) -> Rows:
        """Everything it was given so far."""
        return rows_of(self._done)

    @property
    def has_rows(self) -> bool:
        """Whether it was given anything; a tail gives nothing in mid-prefill."""
        return any(one.results for one in self._done)


def still_holds(session: Session, token: Tensor) -> bool:
    """Whether the state is held: a step that expects too much is refused with the true length."""
    past_len = session.client.past_len
    probe = session.client.decode(token, expected=past_len + 1, position=past_len + 1)
    return not is_eviction(session.exchange(probe))


@contextlib.contextmanager
def players(
    shard: ShardUnderTest, parts: Sequence[Part], *, evictable: bool = False
) -> Iterator[list[Player]]:
    """A session for each part, all open at once. `evictable`: all but two may lose their state."""
    with contextlib.ExitStack() as stack:
        sessions = [stack.enter_context(shard.session()) for _ in parts]
        yield [
            Player(session, role, evictable=evictable and len(parts) > LEAST_KEPT)
            for session, role in zip(sessions, parts, strict=True)
        ]


def play(cast: Sequence[Player], *, turning: bool = False) -> None:
    """Move by move: every session sends, then every one is waited for.

    `turning` lets every other move begin with the last session.
    """
    order, moving = list(cast), True
    while moving:
        sent = [one.send() for one in order]
        moving = any(sent)
        for one in order:
            one.collect()
        if turning:
            order.reverse()


def check_alone(shard: ShardUnderTest, cast: Sequence[Player], what: str) -> None:
    """Require of each session the rows of its part, and where they differ say whose they are.

    Of an evicted session those it gave before are required, and two sessions must be left.
    """
    left = [one for one in cast if not one.evicted]
    if len(left) < min(LEAST_KEPT, len(cast)):
        raise Nonconformance(f"at least {LEAST_KEPT} sessions keep their state", f"{len(left)} do")
    for number, one in enumerate(cast):
        if one.evicted and not one.has_rows:
            continue
        rows = one.rows()
        expected = one.role.expected[: len(rows)] if one.evicted else one.role.expected
        try:
            shard.check_equal(rows, expected, f"session {number} {what}")
        except Nonconformance as found:
            owner = _owner(shard, rows, cast)
            if owner is None:
                raise
            raise Nonconformance(
                f"session {number} {what}: its own rows",
                f"the rows of session {owner}",
                "look at how results of a batch find their way back",
            ) from found


def _owner(shard: ShardUnderTest, rows: Rows, cast: Sequence[Player]) -> int | None:
    for number, other in enumerate(cast):
        if rows.shape == other.role.expected.shape and not shard.differ(rows, other.role.expected):
            return number
    return None
