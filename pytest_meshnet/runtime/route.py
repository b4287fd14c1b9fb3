"""An Inference Route driven from outside: token ids in at the head, logits out at the tail.

Every Shard is reached only through the protocol. When something is lost, all Shards are opened
again at a higher epoch and start from token zero.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from pytest_meshnet.runtime.errors import Evicted, Nonconformance
from pytest_meshnet.runtime.generation import Choice, Generation, greedy
from pytest_meshnet.runtime.results import LEAST_KEPT
from pytest_meshnet.runtime.route_session import Alteration, RouteLost, RouteSession, Seam, Step, T
from pytest_meshnet.runtime.shard import ShardUnderTest
from pytest_meshnet.runtime.target import Target

MAX_EPOCHS = 3
"""How often a generation is begun before its route is given up."""


def unaltered(place: int, seam: Seam) -> Seam:
    """Pass on what the Shard at `place` gave."""
    del place
    return seam


def side_by_side(steps: Sequence[Step[T]]) -> list[T]:
    """Run computations so that each has a unit under way while the others send theirs."""
    running = dict(enumerate(steps))
    results: dict[int, T] = {}
    while running:
        for number, step in list(running.items()):
            try:
                next(step)
            except StopIteration as end:
                results[number] = end.value
                del running[number]
    return [results[number] for number in range(len(steps))]


class Route:
    """Connected Shards in the order in which they are driven.

    `alter` may change what crosses a seam, for controls that must be found. Whether the Shards
    cover every layer is for whoever puts them together: a control may leave one out.
    """

    def __init__(self, targets: Sequence[Target], alter: Alteration = unaltered) -> None:
        self.targets = tuple(targets)
        self.alter = alter
        tag = targets[0].run_tag
        # Sessions with one Shard alone have ids that no generation of the route has.
        self.shards = tuple(ShardUnderTest(one, f"alone-{tag}", 0) for one in targets)
        self._numbers = itertools.count(1)
        self._name = f"route-{tag}"

    def session(self, session_id: str, epoch: int) -> RouteSession:
        """Open a generation on every Shard. Use as a context manager. Raises RouteLost."""
        return RouteSession(self.shards, self.alter, session_id, epoch)

    @property
    def places(self) -> int:
        """Sessions that every Shard of the route takes at once."""
        return min(one.report.max_concurrent_sessions for one in self.shards)

    @property
    def context(self) -> int | None:
        """Tokens that every Shard of the route holds for a session; None where none tells."""
        told = [one.report.max_context_tokens for one in self.shards]
        return min((one for one in told if one), default=None)

    def altered(self, alter: Alteration) -> Route:
        """The same Shards with something between them. Sessions of both may run at once."""
        other = Route(self.targets, alter)
        other._numbers, other.shards = self._numbers, self.shards
        return other

    def generate(
        self,
        prompt: Sequence[int],
        count: int,
        *,
        chunk_tokens: int | None = None,
        choose: Choice = greedy,
    ) -> Generation:
        """Return `count` tokens after `prompt`.

        Raises RouteLost when the route is lost again and again, and Nonconformance for anything
        that a Shard must not do.
        """
        step = self.steps(prompt, count, chunk_tokens=chunk_tokens, choose=choose)
        return side_by_side([step])[0]

    def generate_together(self, prompts: Sequence[Sequence[int]], count: int) -> list[Generation]:
        """Do the same for several prompts at once: their units are under way side by side.

        A Shard may keep fewer states than sessions, and always two (KV-07, KV-01): what it drops
        of more is generated again when the others have ended.
        """
        steps = [self.steps(prompt, count) for prompt in prompts]
        if len(prompts) <= LEAST_KEPT:
            return side_by_side(steps)
        made = side_by_side([_kept(step) for step in steps])
        kept = sum(one is not None for one in made)
        if kept < LEAST_KEPT:
            raise Nonconformance(f"at least {LEAST_KEPT} sessions keep their state", f"{kept} do")
        return [
            one if one is not None else self._again(prompt, count)
            for one, prompt in zip(made, prompts, strict=True)
        ]

    def _again(self, prompt: Sequence[int], count: int) -> Generation:
        made = self.generate(prompt, count)
        return replace(made, epochs=made.epochs + 1)

    def steps(
        self,
        prompt: Sequence[int],
        count: int,
        *,
        chunk_tokens: int | None = None,
        choose: Choice = greedy,
    ) -> Step[Generation]:
        """Be the computation of `generate`, for `side_by_side`."""
        session_id = f"{self._name}-{next(self._numbers)}"
        for epoch in itertools.count(1):
            try:
                with self.session(session_id, epoch) as session:
                    made = yield from continued(session, prompt, count, chunk_tokens, choose)
                    return replace(made, epochs=epoch)
            except RouteLost:
                if epoch == MAX_EPOCHS:
                    raise
                self.recover()
        raise AssertionError("counting has no end")

    def recover(self) -> None:
        """Start again what ended. Raises TargetLost for a Shard that the suite does not start."""
        for target in self.targets:
            target.revive()

    def close(self) -> None:
        """End what was started."""
        for target in self.targets:
            target.close()


def _kept(step: Step[T]) -> Step[T | None]:
    """The same computation, whose result is None where a Shard dropped its state."""
    try:
        return (yield from step)
    except Evicted:
        return None


def continued(
    session: RouteSession,
    prompt: Sequence[int],
    count: int,
    chunk_tokens: int | None = None,
    choose: Choice = greedy,
) -> Step[Generation]:
    """Be the computation of `count` tokens after `prompt` in an open session, for `side_by_side`.

    Raises RouteLost.
    """
    import numpy as np

    answer = yield from session.prefill(prompt, chunk_tokens)
    scores = [answer.logits]
    tokens = [answer.chosen(choose, len(prompt))]
    while len(tokens) < count:
        answer = yield from session.decode(tokens[-1])
        scores.append(answer.logits)
        tokens.append(answer.chosen(choose, len(prompt) + len(tokens)))
    return Generation(
        prompt=tuple(prompt),
        tokens=tuple(tokens),
        scores=np.stack(scores),
        states=session.states(),
        work=session.work(),
    )
