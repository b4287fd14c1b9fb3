"""An Inference Route driven from outside: token ids in at the head, logits out at the tail.

Every Shard is reached only through the protocol. What one gives is passed to the next as it came;
when something is lost, all Shards are opened again at a higher epoch and start from token zero.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from pytest_meshnet.protocol.additions.features import Feature, known_features
from pytest_meshnet.protocol.additions.sampling import SamplingContract, TailWant
from pytest_meshnet.protocol.additions.sideband import INDICES
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.exchange import Exchange
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.runtime.errors import Nonconformance, TargetLost
from pytest_meshnet.runtime.generation import Choice, Generation, ShardWork, greedy
from pytest_meshnet.runtime.session import Session
from pytest_meshnet.runtime.shard import ShardUnderTest
from pytest_meshnet.runtime.target import Target

if TYPE_CHECKING:
    from pytest_meshnet.runtime.generation import Rows

T = TypeVar("T")
Seam = tuple[Tensor, ...]
Alteration = Callable[[int, Seam], Seam]
_Message = Callable[[Session, Seam], pb.SessionRequest]
Step = Generator[None, None, T]
"""A computation that pauses whenever a unit is under way, so that others may send theirs."""

MAX_EPOCHS = 3

GREEDY = SamplingContract(temperature=0.0, want=TailWant.BOTH)
"""What a tail that samples is asked for: its token, and the logits that it was chosen from."""


class RouteLost(Exception):
    """A stream or a Shard of the route went away in the middle of a generation."""


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


@dataclass(frozen=True, slots=True)
class TailAnswer:
    """Logits [vocabulary] (float32) of a last position.

    `token` is the greedy one of a tail that samples, None of one that does not.
    """

    logits: Rows
    token: int | None

    def chosen(self, choose: Choice, position: int) -> int:
        """The next token: the tail's own where it was asked for what is wanted."""
        if self.token is not None and choose is greedy:
            return self.token
        return choose(self.logits, position)


@dataclass(slots=True)
class _Hop:
    """One Shard with its session, what left it, and what it reported."""

    shard: ShardUnderTest
    session: Session
    states: list[Rows] = field(default_factory=list)
    nanos: list[int] = field(default_factory=list)
    unchanged: int = 0

    def work(self) -> ShardWork:
        return ShardWork(
            start_layer=self.shard.layers.start,
            end_layer=self.shard.layers.stop,
            units=len(self.nanos),
            execution_nanos=sum(self.nanos),
            least_nanos=min(self.nanos, default=0),
            unchanged=self.unchanged,
        )


class RouteSession:
    """One generation on every Shard of a route, at one epoch. Use as a context manager."""

    def __init__(self, route: Route, session_id: str, epoch: int) -> None:
        self._alter = route.alter
        self._hops: list[_Hop] = []
        self._open = ExitStack()
        self._position = 0
        with ExitStack() as opening, self._losses():
            for shard in route.shards:
                session = _opened(shard, session_id, epoch)
                opening.enter_context(session)
                self._hops.append(_Hop(shard, session))
            self._open = opening.pop_all()

    def __enter__(self) -> RouteSession:
        self._open.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._open.__exit__(*error)  # type: ignore[arg-type]

    @contextmanager
    def _losses(self) -> Iterator[None]:
        """Tell what is lost, and may be begun again, from what is wrong."""
        try:
            yield
        except TargetLost as lost:
            raise RouteLost(lost.reason) from lost
        except Nonconformance as found:
            sessions = (hop.session for hop in self._hops)
            if any(one.ended is not None and one.client.ended is None for one in sessions):
                raise RouteLost(f"{found.expected}: {found.actual}") from found
            raise

    # One pass over all Shards ------------------------------------------------------------------

    def prefill(self, ids: Sequence[int], chunk_tokens: int | None = None) -> Step[TailAnswer]:
        """Prefill token ids in chunks, and return what the tail makes of the last position.

        A chunk has at most `chunk_tokens` tokens, and no more than any Shard takes at once.
        """
        tensor = _token_ids(ids)
        width = self._chunk_tokens(len(ids), chunk_tokens)
        starts = range(0, len(ids), width)
        answer = None
        for index, start in enumerate(starts):
            stop = min(start + width, len(ids))
            message = _chunk_message(stop == len(ids), (index, len(starts)))
            answer = yield from self._pass((tensor.rows(start, stop),), message)
        assert answer is not None, "the last chunk is final, so the tail answered it"
        return answer

    def decode(self, token: int) -> Step[TailAnswer]:
        """Append one token, and return what the tail makes of it."""
        answer = yield from self._pass((_token_ids([token]),), _decode_message)
        assert answer is not None, "a decode step is final"
        return answer

    def _pass(self, seam: Seam, message: _Message) -> Step[TailAnswer | None]:
        with self._losses():
            for place, hop in enumerate(self._hops):
                exchange = hop.session.send_unit(message(hop.session, seam))
                yield
                hop.session.applied(hop.session.wait(exchange))
                hop.nanos.append(exchange.ack.execution_nanos if exchange.ack else 0)
                if place == len(self._hops) - 1:
                    return _answer(exchange)
                self._keep(hop, exchange, seam)
                seam = self._alter(place, exchange.tensors)
        return None

    def _keep(self, hop: _Hop, exchange: Exchange, before: Seam) -> None:
        states = _named(exchange.tensors, "hidden_states", exchange)
        hop.unchanged += any(bytes(one.data) == bytes(states.data) for one in before)
        hop.states.append(states.to_float32().reshape(-1, states.shape[-1]))

    def _chunk_tokens(self, tokens: int, wanted: int | None) -> int:
        widths = [tokens if wanted is None else wanted]
        for hop in self._hops:
            boundary = hop.shard.input_boundary()
            whole = [Tensor(boundary.name, boundary.dtype, (1, tokens, *boundary.trailing), b"")]
            for one in hop.shard.report.boundary.inputs:
                if one.name == INDICES:
                    shape = (1, tokens, *one.trailing_shape)
                    whole.append(Tensor(INDICES, DType.INT32, shape, b""))
            widths.append(max(span.count for span in hop.session.client.plan(whole)))
        return min(widths)

    # What it came to ---------------------------------------------------------------------------

    def states(self) -> dict[int, Rows]:
        """Return the hidden states that entered each layer at which a Shard begins."""
        import numpy as np

        return {
            hop.shard.layers.stop: np.concatenate(hop.states)
            for hop in self._hops[:-1]
            if hop.states
        }

    def work(self) -> tuple[ShardWork, ...]:
        """Return what each Shard reported, in the order of the route."""
        return tuple(hop.work() for hop in self._hops)


def _token_ids(ids: Sequence[int]) -> Tensor:
    import numpy as np

    return Tensor.from_array("token_ids", np.array([ids]), DType.INT32)


def _opened(shard: ShardUnderTest, session_id: str, epoch: int) -> Session:
    """A session with every feature of 1.1 that the Shard reports.

    A tail may refuse to give both token and logits; without a tail result it owes the logits.
    """
    features, seam = known_features(shard.report.features), shard.seam(session_id, epoch)
    if Feature.TAIL_RESULT in features:
        with suppress(Nonconformance):
            return shard.session(seam, features=features, sampling=GREEDY)
    return shard.session(seam, features=features - {Feature.TAIL_RESULT})


def _chunk_message(final: bool, place: tuple[int, int]) -> _Message:
    """Makes the chunk at `place` (index, count) of a prefill."""
    return lambda session, seam: session.client.chunk(seam, final=final, place=place)


def _decode_message(session: Session, seam: Seam) -> pb.SessionRequest:
    """A DecodeStep; in full form for several tensors where bundles were not agreed on."""
    if len(seam) == 1:
        return session.client.decode(seam[0])
    if Feature.DECODE_BUNDLE in session.client.features:
        return session.client.decode(seam)
    return session.client.chunk(seam, mode=pb.CACHE_MODE_DECODE)


def _named(tensors: Seam, name: str, exchange: Exchange) -> Tensor:
    for tensor in tensors:
        if tensor.name == name:
            return tensor
    found = ", ".join(tensor.name for tensor in tensors) or "nothing"
    raise Nonconformance(f"{name} in the result of work {exchange.work_id!r}", found)


def _answer(exchange: Exchange) -> TailAnswer | None:
    if not exchange.final:
        return None
    logits = _named(exchange.tensors, "logits", exchange).to_float32().reshape(-1)
    tokens = [one.token.token_id for one in exchange.tails if one.token is not None]
    return TailAnswer(logits, tokens[0] if tokens else None)


class Route:
    """Connected Shards in the order in which they are driven.

    `alter` may change what crosses a seam, for controls that must be found. Whether the Shards
    cover every layer is for whoever puts them together: a control may leave one out.
    """

    def __init__(self, targets: Sequence[Target], alter: Alteration = unaltered) -> None:
        self.targets = tuple(targets)
        self.alter = alter
        tag = targets[0].run_tag
        self.shards = tuple(ShardUnderTest(one, f"route-{tag}", 0) for one in targets)
        self._numbers = itertools.count(1)
        self._name = f"route-{tag}"

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
        other._numbers = self._numbers
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
        """Do the same for several prompts at once: their units are under way side by side."""
        return side_by_side([self.steps(prompt, count) for prompt in prompts])

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
                with RouteSession(self, session_id, epoch) as session:
                    made = yield from _continued(session, prompt, count, chunk_tokens, choose)
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


def _continued(
    session: RouteSession,
    prompt: Sequence[int],
    count: int,
    chunk_tokens: int | None,
    choose: Choice,
) -> Step[Generation]:
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
