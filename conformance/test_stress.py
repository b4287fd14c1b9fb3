"""Stress: many sessions with cancels, repeats, lost streams and new epochs, drawn from a seed.

The number of moves is bounded, not the time. Everything is driven by one thread, which sends to
some sessions before it waits for others.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Sequence

import pytest

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.exchange import Exchange
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.results import rows_of
from pytest_meshnet.runtime.session import Session
from pytest_meshnet.runtime.shard import ShardUnderTest

from .in_flight import position, unary_cancel
from .side_by_side import Part, drawn_part, places

MOVES = 500
PROMPT, STEPS = 3, 8
PARTS = 5


class Slot:
    """One Route Session through all its epochs. What it sent is checked when it is collected."""

    def __init__(self, shard: ShardUnderTest, parts: Sequence[Part], draw: random.Random) -> None:
        self._shard = shard
        self._parts = parts
        self._draw = draw
        self._epoch = 1
        self._name = shard.seam().session_id
        self.session = self._opened()
        self._begin()

    def _opened(self) -> Session:
        return self._shard.session(self._shard.seam(self._name, epoch=self._epoch))

    def _begin(self) -> None:
        """Prefill afresh, in a part drawn anew."""
        self.role = self._draw.choice(self._parts)
        prompt = self.role.prompt
        self._sent = self.session.send_chunks(prompt, [prompt.shape[1]], fresh=True)
        self._last: Exchange | None = None

    # Moves ---------------------------------------------------------------------------------------

    def step(self) -> None:
        """Send one more decode step, or begin anew where the part is at its end."""
        client = self.session.client
        at = client.sent_len - self.role.prompt.shape[1]
        if not client.may_send or at >= len(self.role.steps):
            self.collect()
        if at >= len(self.role.steps):
            self._begin()
        else:
            self._sent.append(self.session.send_unit(client.decode(self.role.steps[at])))

    def repeat(self) -> None:
        """Send the last applied unit again: a duplicate."""
        self.collect()
        if self._last is None:
            return
        answer = self.session.exchange(self._last.request)
        if answer.ack is None or not answer.ack.duplicate:
            raise Nonconformance("a duplicate for a unit sent again", "it was taken for new")

    def cancel(self) -> None:
        """Cancel in band whatever is in flight, and go on from where that leaves the session."""
        self.session.send(self.session.client.cancel())
        self._settle()

    def unary_cancel(self) -> None:
        """Cancel by the unary call."""
        unary_cancel(self._shard, self.session)
        self._settle()

    def disconnect(self) -> None:
        """Lose the stream with all that is in flight, and come back with a higher epoch."""
        self.session.drop()
        self._epoch += 1
        self.session = self._opened()
        self._begin()

    def bump(self) -> None:
        """Open a higher epoch while the stream of the older one is alive."""
        older = self.session
        self._epoch += 1
        self.session = self._opened()
        self._begin()
        older.drop()

    # What came of them ---------------------------------------------------------------------------

    def collect(self, *, cancelled: bool = False) -> None:
        """Wait for what was sent and hold each result against the part alone."""
        for exchange in self._sent:
            self.session.wait(exchange)
            if cancelled and exchange.ack is None:
                self.session.refused(exchange, pb.ERROR_CODE_CANCELLED, pb.ERROR_CODE_CACHE_MISS)
                continue
            self.session.applied(exchange)
            self._last = exchange
            self._check(exchange)
        self._sent = []

    def _check(self, exchange: Exchange) -> None:
        if not exchange.final:
            return
        # The last row of the prompt comes before those of the steps.
        done = exchange.first_position + exchange.token_count - self.role.prompt.shape[1]
        row = len(self.role.expected) - len(self.role.steps) - 1 + done
        expected = self.role.expected[row : row + 1]
        what = f"position {exchange.first_position} of a session under stress"
        self._shard.check_equal(rows_of([exchange])[-1:], expected, what)

    def _settle(self) -> None:
        self.collect(cancelled=True)
        held, acked = position(self.session, self.role.prompt), self.session.client.past_len
        if held not in (0, acked):
            raise Nonconformance(f"0 or {acked} tokens held, as acknowledged", f"{held}")
        # What is held may still be of the part before, whose end the cancelled prefill was to be.
        if self._last is None or held < self.role.prompt.shape[1]:
            self._begin()

    # The end -------------------------------------------------------------------------------------

    def settle_credit(self) -> None:
        """Come to rest in a part of its own, with nothing in flight and all the credit."""
        self.collect()
        self._begin()
        self.collect()
        credit, granted = self.session.client.credit, self.session.client.limits.credits
        if credit < granted:
            raise Nonconformance(f"{granted} credits with nothing in flight", f"{credit}")

    def spend_all(self) -> None:
        """Send as many steps as there is credit for, none of which may be refused."""
        while self.session.client.may_send:
            at = self.session.client.sent_len - self.role.prompt.shape[1]
            if at >= len(self.role.steps):
                return
            self.step()


_WEIGHTS: dict[Callable[[Slot], None], int] = {
    Slot.step: 70,
    Slot.repeat: 8,
    Slot.cancel: 8,
    Slot.unary_cancel: 4,
    Slot.disconnect: 5,
    Slot.bump: 5,
}


@pytest.mark.requirement("KV-03", "ROBUST-05")
@pytest.mark.parametrize("round_", [1, 2])
def test_many_sessions_under_stress_end_at_the_baseline_and_equal_to_themselves_alone(
    shard: ShardUnderTest, round_: int
) -> None:
    """A few hundred moves of sessions that take all places but one, then everything is counted."""
    # faults.md 37, 48, 80, 120, 147
    draw = random.Random(f"{shard.seed}-{round_}")
    steps = max(1, min(STEPS, shard.length(PROMPT + STEPS) - PROMPT))
    parts = [drawn_part(shard, [PROMPT], steps, key=key) for key in range(PARTS)]
    count = max(1, places(shard) - 1)  # One is free for an epoch that meets the one before.
    _play(shard, parts, draw, count, 2 * count)  # What is allocated once belongs to the baseline.
    before = shard.footprint()
    _play(shard, parts, draw, count, MOVES)
    shard.check_footprint(before)


def _play(
    shard: ShardUnderTest, parts: Sequence[Part], draw: random.Random, count: int, moves: int
) -> None:
    slots: list[Slot] = []
    with contextlib.ExitStack() as unless_done:
        unless_done.callback(_drop, slots)
        for _ in range(count):
            slots.append(Slot(shard, parts, draw))
        for _ in range(moves):
            (move,) = draw.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
            move(draw.choice(slots))
        for slot in slots:
            slot.settle_credit()
        for slot in slots:
            slot.spend_all()
        for slot in slots:
            slot.collect()
        unless_done.pop_all()
    for slot in slots:
        slot.session.finish()


def _drop(slots: Sequence[Slot]) -> None:
    for slot in slots:
        slot.session.drop()
