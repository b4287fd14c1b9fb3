"""The client's side of an Activation Seam: messages out, answers correlated, nothing else.

Whether there is credit to send is for the driver to ask (`may_send`); the machine counts. The
messages themselves are built in `outgoing.py`.
"""

from __future__ import annotations

from collections import Counter

from pytest_meshnet.protocol.additions.features import Feature, known_features
from pytest_meshnet.protocol.additions.sampling import TailResult
from pytest_meshnet.protocol.codec import decode_bundle
from pytest_meshnet.protocol.errors import ProtocolError
from pytest_meshnet.protocol.flow import FlowLimits
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.exchange import Exchange, ProtocolViolation, Seam
from pytest_meshnet.protocol.machines.outgoing import SeamMessages


class SeamClient(SeamMessages):
    """One Route Session from the client's side. Feed it responses, take messages from it.

    `past_len` is the length that the Shard acknowledged, `sent_len` the length once everything in
    flight is applied. `credit` is what is left to spend. `features` hold in the session: offered
    and accepted. `strays` are non-terminal statuses that
    name no unit in flight, `ended` is the terminal status.
    """

    def __init__(self, seam: Seam) -> None:
        super().__init__(seam)
        self.accepted: pb.SessionAccepted | None = None
        self.features: frozenset[Feature] = frozenset()
        self._offered: frozenset[Feature] = frozenset()
        self.credit = 0
        self.past_len = 0
        self.ended: pb.ShardStatus | None = None
        self.strays: list[pb.ShardStatus] = []
        self.grants: list[pb.FlowControl] = []
        self._pending: dict[tuple[str, int], list[Exchange]] = {}
        self._applied: dict[tuple[str, int], Exchange] = {}
        self._times_sent: Counter[int] = Counter()
        # Answers come in any order: the length is what the newest applied step says. A release
        # makes everything sent before it old.
        self._newest_step = -1

    # Out ---------------------------------------------------------------------------------------

    @property
    def may_send(self) -> bool:
        """Whether credit and the in-flight bound allow one more unit."""
        return self.credit > 0 and self.in_flight < self.limits.inflight

    @property
    def in_flight(self) -> int:
        """Units sent and not yet acknowledged or refused."""
        return sum(
            exchange.ack is None and exchange.status is None
            for waiting in self._pending.values()
            for exchange in waiting
        )

    def sent(self, message: pb.SessionRequest) -> Exchange | None:
        """Register a message as sent. Returns the exchange of a unit, None for a signal."""
        kind = message.WhichOneof("kind")
        if kind == "open":
            self._offered = known_features(message.open.features)
        if kind == "chunk":
            exchange = Exchange.of_chunk(message, is_tail=self.seam.is_tail)
        elif kind == "decode":
            exchange = Exchange.of_decode(message)
        else:
            if kind == "release" and self._is_own(message.release):
                self.past_len = self.sent_len = 0
                self._newest_step = max(self._times_sent, default=-1)
            return None
        self._times_sent[exchange.step] += 1
        self._pending.setdefault((exchange.work_id, exchange.step), []).append(exchange)
        self.credit -= 1
        if exchange.mode != pb.CACHE_MODE_STATELESS:
            self.sent_len = exchange.first_position + exchange.token_count
        return exchange

    def _is_own(self, signal: pb.ReleaseSignal) -> bool:
        own = (self.seam.session_id, self.seam.epoch)
        return (signal.route_session_id, signal.route_epoch) == own

    # In ----------------------------------------------------------------------------------------

    def receive(self, response: pb.SessionResponse) -> Exchange | None:
        """Take a response in. Returns the exchange it belongs to, None where it names no unit.

        Raises ProtocolViolation for an answer to nothing, a second answer, a result more than its
        step was sent, an acceptance that comes twice or late, a result that the codec refuses, or
        one in the other form than the session agreed on.
        """
        kind = response.WhichOneof("kind")
        if kind == "accepted":
            self._accept(response.accepted)
            return None
        if kind == "flow_control":
            self.grants.append(response.flow_control)
            self.credit += response.flow_control.credits_granted
            return None
        if kind == "status":
            return self._refused(response.status)
        if kind == "ack":
            return self._acknowledged(response.ack)
        if kind == "chunk":
            return self._result(response.chunk)
        if kind == "tail":
            return self._tail_result(response.tail)
        raise ProtocolViolation("a response of no known kind")

    def _accept(self, accepted: pb.SessionAccepted) -> None:
        if self.accepted is not None:
            raise ProtocolViolation("a second accepted on one stream")
        if self.ended is not None:
            raise ProtocolViolation("accepted after the stream was refused")
        self.accepted = accepted
        self.features = self._offered & known_features(accepted.features)
        self.limits = FlowLimits.from_proto(accepted.flow_control)
        self.credit = self.limits.credits

    def _refused(self, status: pb.ShardStatus) -> Exchange | None:
        if status.terminal:
            self.ended = status
        exchange = self._waiting(status.work_id, status.idempotency_step)
        if exchange is None:
            if not status.terminal:
                self.strays.append(status)
            return None
        exchange.status = status
        self._answer(exchange)
        return exchange

    def _acknowledged(self, ack: pb.Ack) -> Exchange:
        exchange = self._waiting(ack.work_id, ack.idempotency_step)
        if exchange is None:
            raise ProtocolViolation(
                f"an ack for work {ack.work_id!r} step {ack.idempotency_step}, which waits for none"
            )
        exchange.ack = ack
        self._answer(exchange)
        return exchange

    def _waiting(self, work_id: str, step: int) -> Exchange | None:
        """The oldest exchange of that unit without an ack or a status."""
        for exchange in self._pending.get((work_id, step), ()):
            if exchange.ack is None and exchange.status is None:
                return exchange
        return None

    def _answer(self, exchange: Exchange) -> None:
        self.credit += 1
        key = (exchange.work_id, exchange.step)
        if exchange.applied:
            self._applied[key] = exchange
            self._advance(exchange)
        self._settle(key)
        if not self.in_flight:
            self.sent_len = self.past_len

    def _advance(self, exchange: Exchange) -> None:
        changes_state = exchange.mode != pb.CACHE_MODE_STATELESS
        if exchange.ack is not None and changes_state and exchange.step > self._newest_step:
            self._newest_step = exchange.step
            self.past_len = exchange.ack.cache_result.past_len

    def _settle(self, key: tuple[str, int]) -> None:
        waiting = [exchange for exchange in self._pending.get(key, ()) if not exchange.done]
        if waiting:
            self._pending[key] = waiting
        else:
            self._pending.pop(key, None)

    def _result(self, chunk: pb.ActivationChunk) -> Exchange:
        envelope = chunk.envelope
        key = (envelope.work_id, envelope.idempotency_step)
        if self.gives_tail_results:
            raise ProtocolViolation(
                f"activation tensors for work {key[0]!r} from a tail that agreed on tail results"
            )
        exchange = self._awaiting_result(key)
        try:
            tensors = decode_bundle(chunk.bundle)
        except ProtocolError as error:
            raise ProtocolViolation(f"the result of work {key[0]!r} is corrupt: {error}") from error
        exchange.results.append((envelope, tensors))
        self._settle(key)
        return exchange

    def _tail_result(self, message: pb.TailResult) -> Exchange:
        key = (message.work_id, message.idempotency_step)
        if not self.gives_tail_results:
            raise ProtocolViolation(f"a tail result for work {key[0]!r}, which was not agreed on")
        exchange = self._awaiting_result(key)
        try:
            result = TailResult.from_proto(message)
        except ProtocolError as error:
            raise ProtocolViolation(
                f"the tail result of work {key[0]!r} is corrupt: {error}"
            ) from error
        exchange.add_tail(result)
        self._settle(key)
        return exchange

    @property
    def gives_tail_results(self) -> bool:
        """Whether this session gets a TailResult where it would get the tail's logits."""
        return self.seam.is_tail and Feature.TAIL_RESULT in self.features

    def _awaiting_result(self, key: tuple[str, int]) -> Exchange:
        """The exchange that a result belongs to; a duplicate may bring the original once more."""
        named = f"work {key[0]!r} step {key[1]}"
        pending = self._pending.get(key, [])
        first = [one for one in pending if not one.results]
        exchange = next(iter([*first, *pending]), None) or self._applied.get(key)
        if exchange is None:
            raise ProtocolViolation(f"a result for {named}, which was not asked for or refused")
        if not exchange.wants_result:
            raise ProtocolViolation(f"a result for {named}, which is due only an ack")
        if len(exchange.results) >= self._times_sent[exchange.step]:
            raise ProtocolViolation(f"one more result for {named} than it was sent")
        return exchange
