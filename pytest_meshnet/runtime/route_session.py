"""One generation on every Shard of a route, at one epoch: what one gives is passed to the next."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from pytest_meshnet.protocol.additions.features import Feature, known_features
from pytest_meshnet.protocol.additions.sampling import SamplingContract, TailWant
from pytest_meshnet.protocol.additions.sideband import INDICES
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.exchange import Exchange
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.runtime.errors import Evicted, Nonconformance, TargetLost
from pytest_meshnet.runtime.generation import Choice, ShardWork, greedy
from pytest_meshnet.runtime.results import is_eviction
from pytest_meshnet.runtime.session import Session
from pytest_meshnet.runtime.shard import ShardUnderTest

if TYPE_CHECKING:
    from pytest_meshnet.runtime.generation import Rows

T = TypeVar("T")
Seam = tuple[Tensor, ...]
Alteration = Callable[[int, Seam], Seam]
_Message = Callable[[Session, Seam], pb.SessionRequest]
Step = Generator[None, None, T]
"""A computation that pauses whenever a unit is under way, so that others may send theirs."""

GREEDY = SamplingContract(temperature=0.0, want=TailWant.BOTH)
"""What a tail that samples is asked for: its token, and the logits that it was chosen from."""


class RouteLost(Exception):
    """A stream or a Shard of the route went away in the middle of a generation."""


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
    beginning: int | None = None

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

    def __init__(
        self, shards: Sequence[ShardUnderTest], alter: Alteration, session_id: str, epoch: int
    ) -> None:
        self._alter = alter
        self._hops: list[_Hop] = []
        self._open = ExitStack()
        self._position = 0
        with ExitStack() as opening, self._losses():
            for shard in shards:
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
                _applied(hop.session, exchange)
                if hop.beginning is None and exchange.ack is not None:
                    held = exchange.ack.cache_result.past_len
                    hop.beginning = held - exchange.token_count
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

    def epochs(self) -> tuple[int, ...]:
        """Return the epoch that each Shard accepted, in its own words."""
        accepted = (hop.session.client.accepted for hop in self._hops)
        return tuple(one.route_epoch for one in accepted if one is not None)

    def beginnings(self) -> tuple[int, ...]:
        """Return what each Shard held before its first unit, by the length of its Ack."""
        return tuple(hop.beginning for hop in self._hops if hop.beginning is not None)

    def work(self) -> tuple[ShardWork, ...]:
        """Return what each Shard reported, in the order of the route."""
        return tuple(hop.work() for hop in self._hops)


def _applied(session: Session, exchange: Exchange) -> None:
    """Wait until a unit was applied. Raises Evicted where its state had been dropped before."""
    try:
        session.applied(session.wait(exchange))
    except Nonconformance as found:
        if is_eviction(exchange):
            raise Evicted(found.expected, found.actual) from found
        raise


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
