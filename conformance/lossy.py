"""A session over a lossy line, judged by what it may never give: a wrong result.

Every unit carries the tokens of one fixed sequence at their own positions, so that whatever the
line does, a unit applied at position p was applied to the first p tokens, and there is one right
result for it. What comes back is held against that, however late or often it comes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_meshnet.protocol.codec import decode_bundle
from pytest_meshnet.protocol.errors import ProtocolError
from pytest_meshnet.protocol.flow import FlowLimits
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.client import SeamClient
from pytest_meshnet.protocol.machines.exchange import Exchange
from pytest_meshnet.protocol.tensors import Tensor
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.faults import Plan
from pytest_meshnet.runtime.relay import RelayTransport
from pytest_meshnet.runtime.results import check_code, lacks_place, rows_of
from pytest_meshnet.runtime.shard import ShardUnderTest
from pytest_meshnet.runtime.trace import describe
from pytest_meshnet.runtime.transport import StreamEnd

if TYPE_CHECKING:
    from pytest_meshnet.runtime.shard import Rows

SHORTEST_SILENCE, LONGEST_SILENCE = 0.04, 1.0
"""Seconds between which a client on a lossy line waits for a frame before it goes on. How long it
is depends on how fast the Shard answers; nothing is judged by it."""

DECODES = 3


@dataclass(frozen=True, slots=True)
class Sequence:
    """The tokens of a test in units of `sizes`, with one token more and the right row of each.

    The first two units are the chunks of a prefill, the others decode steps. `silence` is how long
    it is quiet when a frame was lost, in seconds.
    """

    tokens: Tensor
    rows: Rows
    sizes: tuple[int, ...]
    silence: float

    @classmethod
    def drawn(cls, shard: ShardUnderTest) -> Sequence:
        """Draw it for a Shard and take its rows undisturbed. Call it while no session is open."""
        chunk = min(2, shard.report.flow_control.max_prefill_chunk_tokens or 2)
        count = shard.length(2 * chunk + DECODES + 1)
        tokens = shard.tokens(count)
        steps = [tokens.rows(at, at + 1) for at in range(1, count)]
        began = time.monotonic()
        rows = shard.undisturbed(tokens.rows(0, 1), *steps)
        silence = 3 * (time.monotonic() - began) / count
        sizes = (chunk, chunk, *[1] * (count - 2 * chunk - 1))
        return cls(tokens, rows, sizes, min(LONGEST_SILENCE, max(SHORTEST_SILENCE, silence)))

    @property
    def starts(self) -> list[int]:
        """Where each unit begins."""
        return [sum(self.sizes[:index]) for index in range(len(self.sizes))]


@dataclass(slots=True)
class Sent:
    """One unit and what came back for it. `given_up` says that nobody waits for it any more."""

    exchange: Exchange
    acks: int = 0
    duplicates: int = 0
    statuses: int = 0
    results: int = 0
    given_up: bool = False

    @property
    def answered(self) -> bool:
        """Whether the runtime said what became of it."""
        return bool(self.acks or self.duplicates or self.statuses)


class LossySession:
    """One session under a plan of faults. Every method raises Nonconformance on a finding."""

    def __init__(self, shard: ShardUnderTest, plan: Plan, sequence: Sequence) -> None:
        self.units: dict[tuple[str, int], Sent] = {}
        self._shard = shard
        self._plan = plan
        self._sequence = sequence
        self._seam = shard.seam()
        # What the newest ack or miss said is held.
        self._position = 0
        self._limits: FlowLimits | None = None
        self._granted = 0
        self._terminal: pb.ShardStatus | None = None
        self._end: StreamEnd | None = None
        self._connect()

    def run(self, *, patient: bool) -> None:
        """Send the sequence and judge all that comes back until the stream ends.

        `patient` waits for the answer to each unit, sends it once more after silence, and goes on
        where the runtime says that it stands; otherwise all is sent as credit allows.
        """
        try:
            self._open()
            if self._limits is not None:
                (self._send_patiently if patient else self._send_all)()
                self._continue_where_it_stands()
            self._stream.half_close()
            self._read_to_the_end()
        finally:
            self._stream.drop()
        self._judge_answers()

    # Opening -----------------------------------------------------------------------------------

    def _connect(self) -> None:
        self._client = SeamClient(self._seam)
        self._stream = RelayTransport(self._shard.transport, self._plan).open_stream()
        self._terminal = self._end = None

    def _open(self) -> None:
        """Open until accepted, once more for as long as a session that ended may keep its place.

        Only where the line may have lost the open or its answer is anything else no finding.
        """
        until = time.monotonic() + self._shard.target.descriptor.time.cleanup
        self._try_open()
        while self._terminal and lacks_place(self._terminal) and time.monotonic() < until:
            self._stream.drop()
            self._connect()
            self._try_open()
        if self._limits is None and not self._may_lose_the_opening:
            raise self._shard.target.loss("accepted") or Nonconformance("accepted", self._unopened)

    def _try_open(self) -> None:
        self._send(self._client.open())
        silence = self._sequence.silence if self._may_lose_the_opening else self._shard.answer_time
        self._listen(lambda: self._limits is not None or self._over, silence)

    @property
    def _may_lose_the_opening(self) -> bool:
        """Whether the line keeps the first frame of a direction, or ends behind it."""
        faults = (*self._plan.requests, *self._plan.responses)
        return any(one.frame == 0 and one.kind not in ("repeat", "flip") for one in faults)

    @property
    def _unopened(self) -> str:
        if self._terminal:
            return describe(pb.SessionResponse(status=self._terminal))
        return describe(self._end) if self._end else "silence"

    # Sending -----------------------------------------------------------------------------------

    def _send(self, message: pb.SessionRequest) -> None:
        self._shard.trace.sent("lossy", message)
        exchange = self._client.sent(message)
        if exchange is not None:
            self.units.setdefault((exchange.work_id, exchange.step), Sent(exchange))
        self._stream.send(message)

    def _unit_at(self, start: int) -> pb.SessionRequest:
        index = self._sequence.starts.index(start)
        tensor = self._sequence.tokens.rows(start, start + self._sequence.sizes[index])
        if index > 1:
            return self._client.decode(tensor, expected=start)
        return self._client.chunk([tensor], final=index == 1, expected=start, place=(index, 2))

    def _send_all(self) -> None:
        for start in self._sequence.starts:
            self._make_room()
            self._send(self._unit_at(start))

    def _send_patiently(self) -> None:
        starts, attempts = self._sequence.starts, 2 * len(self._sequence.sizes)
        while self._position in starts and attempts and not self._over:
            attempts -= 1
            message = self._unit_at(self._position)
            self._await(message) or self._await(message)

    def _await(self, message: pb.SessionRequest) -> bool:
        """Send a unit and read until it is answered. Returns whether it was."""
        self._make_room()
        self._send(message)
        sent = list(self.units.values())[-1]
        return self._listen(lambda: sent.answered)

    def _continue_where_it_stands(self) -> None:
        """Ask for the true position by a step that must miss, then take one step there.

        Whatever the faults did to what is held shows in the result of that step.
        """
        count = self._sequence.tokens.shape[1]
        self._await(self._client.decode(self._sequence.tokens.rows(0, 1), expected=count))
        if 0 < self._position < count and not self._over:
            token = self._sequence.tokens.rows(self._position, self._position + 1)
            self._await(self._client.decode(token, expected=self._position))

    @property
    def _over(self) -> bool:
        return self._terminal is not None or self._end is not None

    def _make_room(self) -> None:
        """Wait for credit. After silence what was not answered counts as lost on the way."""
        if not self._listen(lambda: self._in_flight < self._room):
            for sent in self.units.values():
                sent.given_up = True

    @property
    def _room(self) -> int:
        assert self._limits is not None, "units follow the acceptance"
        return min(self._limits.credits + self._granted, self._limits.inflight)

    @property
    def _in_flight(self) -> int:
        return sum(not one.answered and not one.given_up for one in self.units.values())

    # Judging what comes ------------------------------------------------------------------------

    def _listen(self, enough: Callable[[], bool], silence: float | None = None) -> bool:
        """Take in frames until `enough`, silence, or the end. Returns whether it was enough."""
        while not enough() and self._end is None:
            try:
                self._take_in(silence or self._sequence.silence)
            except TimeoutError:
                return False
        return enough()

    def _read_to_the_end(self) -> None:
        while self._end is None:
            try:
                self._take_in(self._shard.answer_time)
            except TimeoutError as silence:
                raise Nonconformance("the end of a half-closed stream", str(silence)) from None

    def _take_in(self, timeout: float) -> None:
        frame = self._stream.receive(timeout)
        self._shard.trace.received("lossy", frame)
        if isinstance(frame, StreamEnd):
            self._end = frame
            return
        kind = frame.WhichOneof("kind")
        if kind == "accepted":
            self._limits = FlowLimits.from_proto(frame.accepted.flow_control)
        elif kind == "flow_control":
            self._granted += frame.flow_control.credits_granted
        elif kind == "status":
            self._judge_status(frame.status)
        elif kind == "ack":
            self._judge_ack(frame.ack)
        else:
            self._judge_result(frame.chunk)

    def _judge_status(self, status: pb.ShardStatus) -> None:
        check_code(status)
        if status.terminal:
            self._terminal = status
        if status.error.code == pb.ERROR_CODE_CACHE_MISS:
            self._stands_at(status.error.actual_past_len)
        if (sent := self.units.get((status.work_id, status.idempotency_step))) is not None:
            sent.statuses += 1

    def _stands_at(self, length: int) -> None:
        """Note what the runtime says that it holds: the end of a unit, or nothing."""
        ends = [0, *self._sequence.starts[1:], sum(self._sequence.sizes)]
        if length not in [*ends, self._sequence.tokens.shape[1]]:
            raise Nonconformance(f"a length where a unit ends, one of {ends}", f"{length}")
        self._position = length

    def _judge_ack(self, ack: pb.Ack) -> None:
        sent = self._named(ack.work_id, ack.idempotency_step, "an ack")
        self._stands_at(ack.cache_result.past_len)
        if ack.duplicate:
            sent.duplicates += 1
            return
        sent.acks += 1
        exchange = sent.exchange
        if sent.acks > 1 and not self._happens("repeat", "responses"):
            raise Nonconformance(
                f"work {exchange.work_id!r} applied once",
                f"acknowledged as new work {sent.acks} times",
            )
        right = exchange.first_position + exchange.token_count
        if ack.cache_result.past_len != right:
            raise Nonconformance(
                f"past_len {right} after work {exchange.work_id!r}", f"{ack.cache_result.past_len}"
            )

    def _judge_result(self, chunk: pb.ActivationChunk) -> None:
        sent = self._named(chunk.envelope.work_id, chunk.envelope.idempotency_step, "a result")
        flips = self._happens("flip", "responses")
        if flips and any(not tensor.checksum.value for tensor in chunk.bundle.tensors):
            return  # Nobody could tell that the line changed it.
        try:
            tensors = decode_bundle(chunk.bundle)
        except ProtocolError as error:
            if not flips:
                raise Nonconformance("a result that decodes", str(error)) from error
            return
        sent.results += 1
        exchange = sent.exchange
        exchange.results = [(chunk.envelope, tensors)]
        end = exchange.first_position + exchange.token_count
        first = end - 1 if self._shard.is_tail else exchange.first_position
        self._shard.check_equal(
            rows_of([exchange]),
            self._sequence.rows[first:end],
            f"the result for tokens {first} to {end} over a line with {self._plan}",
        )

    def _named(self, work_id: str, step: int, what: str) -> Sent:
        sent = self.units.get((work_id, step))
        if sent is None:
            raise Nonconformance(f"{what} for a unit that was sent", f"work {work_id!r} {step}")
        return sent

    def _happens(self, kind: str, direction: str) -> bool:
        return any(fault.kind == kind for fault in getattr(self._plan, direction))

    def _judge_answers(self) -> None:
        """Where the line lost nothing, silence is no answer."""
        if self._terminal is not None or self._plan.kinds() & {"drop", "cut"}:
            return
        for sent in self.units.values():
            work = sent.exchange.work_id
            if not sent.answered:
                raise Nonconformance(f"an answer to work {work!r}", "the stream ended without one")
            due = sent.exchange.wants_result and sent.acks > 0
            if due and not sent.results and not self._happens("flip", "responses"):
                raise Nonconformance(f"a result for work {work!r}, which was applied", "none came")
