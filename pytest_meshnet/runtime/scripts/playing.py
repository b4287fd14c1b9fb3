"""Playing a script on a Shard: send a step, wait for its answer, hold it against the model.

Results are compared when every stream of the script has ended, with those of a session that holds
the same tokens and nothing else, so that a runtime with a single place can be examined too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.exchange import Exchange, Seam
from pytest_meshnet.protocol.tensors import Tensor
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.results import lacks_place, rows_of
from pytest_meshnet.runtime.scripts.messages import unit_message
from pytest_meshnet.runtime.scripts.model import Answer, History, Message, Model, one_of
from pytest_meshnet.runtime.scripts.script import UNITS, Script, Step, render, to_json
from pytest_meshnet.runtime.session import Session
from pytest_meshnet.runtime.trace import code_name

if TYPE_CHECKING:
    from pytest_meshnet.runtime.shard import Rows, ShardUnderTest

ROOM = 20
"""The most tokens that a script lets a session hold."""
STREAMS = 3

Told = Callable[[int, Step, str], None]


class Values:
    """Draws the inputs of scripts, and knows what an undisturbed session answers to them."""

    def __init__(self, shard: ShardUnderTest) -> None:
        self.shard = shard
        self.room = shard.length(ROOM)
        self._drawn: dict[int, Tensor] = {}
        self._rows: dict[History, Rows] = {}

    def rows_of_key(self, key: int, start: int, stop: int) -> Tensor:
        """The inputs at positions [start, stop) of the draw `key`."""
        if key not in self._drawn:
            self._drawn[key] = self.shard.tokens(self.room + 1, key)
        return self._drawn[key].rows(start, stop)

    def check(self, history: History, tokens: int, rows: Rows, what: str) -> None:
        """Hold the result of the last `tokens` of a history against the undisturbed one."""
        import numpy as np

        if history not in self._rows:
            self._run(history)
        wanted = 1 if self.shard.is_tail else tokens
        starts = range(len(history) - wanted + 1, len(history) + 1)
        expected = np.concatenate([self._rows[history[:stop]] for stop in starts])
        if not np.array_equal(rows, expected):
            self.shard.check_equal(rows, expected, what)

    def _run(self, history: History) -> None:
        """Fill in the rows of a history and of all that it begins with."""
        parts = [self.rows_of_key(key, at, at + 1) for at, key in enumerate(history)]
        shape = (1, len(parts), *parts[0].shape[2:])
        whole = replace(parts[0], shape=shape, data=b"".join(bytes(part.data) for part in parts))
        if self.shard.is_tail:
            rows = self.shard.undisturbed(parts[0], *parts[1:])
        else:
            rows = self.shard.undisturbed(whole)
        for stop in range(1, len(history) + 1):
            self._rows[history[:stop]] = rows[stop - 1 : stop]


@dataclass(slots=True)
class _Open:
    """A session on a stream, with its units and which history each new step led to."""

    session: Session
    units: list[Exchange] = field(default_factory=list)
    led_to: dict[int, tuple[History, int]] = field(default_factory=dict)
    refusals_due: int = 0


def play(
    script: Script, shard: ShardUnderTest, values: Values | None = None, told: Told | None = None
) -> int:
    """Play a script and return how many of its steps had a meaning.

    `told` hears of each step and its answer. Raises Nonconformance with the script.
    """
    player = _Player(shard, values or Values(shard), told or (lambda *_: None))
    try:
        return player.play(script)
    except Nonconformance as finding:
        raise Nonconformance(
            finding.expected,
            f"{finding.actual}\nafter this script:\n{render(script[: player.number])}",
            f"pytest-meshnet replay FILE --target T, where FILE holds\n{to_json(script)}",
            frame=finding.frame,
        ) from finding
    finally:
        player.drop_all()


class _Player:
    def __init__(self, shard: ShardUnderTest, values: Values, told: Told) -> None:
        self.number = 0
        self._shard, self._values, self._told = shard, values, told
        self._model = Model(values.room)
        self._open: dict[int, _Open] = {}
        self._ended: list[_Open] = []
        self._seams = [shard.seam() for _ in range(STREAMS)]
        places = shard.report.max_concurrent_sessions or STREAMS
        self._streams = min(STREAMS, places)
        # After a stream was lost its place may be taken for a while.
        self._lost_one = False
        self._handlers: dict[str, Callable[[Message], Answer]] = {
            "open": self._send_open,
            "release": lambda one: self._send_signal(one, lambda s: s.client.release()),
            "cancel": lambda one: self._send_signal(one, lambda s: s.client.cancel()),
            "half-close": self._half_close,
            "drop": self._drop,
            "unary-release": self._unary_release,
            "unary-cancel": self._unary_cancel,
        }

    def drop_all(self) -> None:
        """Leave nothing open behind a finding."""
        for one in self._open.values():
            one.session.drop()

    def play(self, script: Script) -> int:
        played = 0
        for self.number, step in enumerate(script, 1):
            placed = replace(
                step, stream=step.stream % self._streams, session=step.session % STREAMS
            )
            message = self._model.message(placed)
            message = None if message is None else self._fitted(message)
            if message is None:
                self._told(self.number, placed, "skipped: it has no meaning here")
                continue
            played += 1
            self._take(placed, message)
        for stream in list(self._open):
            message = Message("half-close", stream, 0, 0)
            self._take(Step("half-close", stream), message)
        for one in self._ended:
            self._check_results(one)
        state = self._shard.health().state
        if state != pb.SERVING_STATE_SERVING:
            raise Nonconformance("a Shard that goes on serving", f"serving state {state}")
        return played

    def _take(self, step: Step, message: Message) -> None:
        allowed = self._model.allowed(message)
        found = self._sent(message)
        if not any(answer.allows(found) for answer in allowed):
            self._told(self.number, step, f"{found}, but only {one_of(allowed)} is allowed")
            raise Nonconformance(f"step {self.number} ({step}) {one_of(allowed)}", str(found))
        self._told(self.number, step, str(found))
        self._model.move(message, found)
        self._note(message, found)

    def _fitted(self, message: Message) -> Message | None:
        """A unit above the settled limits is for other tests."""
        one = self._open.get(message.stream)
        if one is None or message.kind not in UNITS:
            return message
        limits = one.session.client.limits
        return message if message.tokens <= limits.prefill_tokens else None

    def _note(self, message: Message, found: Answer) -> None:
        """Keep which tokens an applied unit left behind; give an ended stream away."""
        one = self._open.get(message.stream)
        if one is None or message.kind.startswith("unary"):
            return
        if found.word == "applied":
            line = self._model.lines[message.stream]
            stateless = message.kind == "stateless"
            history = (message.key,) * message.tokens if stateless else line.held
            one.led_to[message.number] = history, message.tokens
        strays = len(one.session.client.strays)
        if strays > one.refusals_due or (found.word == "ended" and strays < one.refusals_due):
            raise Nonconformance(
                f"{one.refusals_due} status(es) that name no unit",
                f"{strays} by step {self.number}",
            )
        if message.stream not in self._model.lines:
            self._lost_one = True
            self._ended.append(self._open.pop(message.stream))
            one.session.drop()

    # Sending -----------------------------------------------------------------------------------

    def _sent(self, message: Message) -> Answer:
        one = self._open.get(message.stream)
        if message.kind in UNITS:
            return self._send_unit(message, one) if one else self._send_first(message)
        return self._handlers[message.kind](message)

    def _seam(self, message: Message) -> Seam:
        return replace(self._seams[message.session], epoch=message.epoch)

    def _send_open(self, message: Message) -> Answer:
        one = self._open.get(message.stream)
        if one is not None:
            one.session.send(self._shard.unopened(self._seam(message)).client.open())
            one.refusals_due += 1
            return Answer("nothing")
        until = time.monotonic() + self._shard.target.descriptor.time.cleanup
        while True:
            session = self._shard.unopened(self._seam(message))
            answer = session.try_open(session.client.open())
            if isinstance(answer, pb.SessionAccepted):
                self._open[message.stream] = _Open(session)
                return Answer("accepted")
            session.drop()
            waits = lacks_place(answer) and self._lost_one
            if not waits or time.monotonic() > until:
                return _refusal(answer)

    def _send_unit(self, message: Message, one: _Open) -> Answer:
        session = one.session
        request = unit_message(session.client, message, self._values.rows_of_key)
        fenced = self._model.lines[message.stream].fenced
        exchange = session.send(request) if fenced else session.send_unit(request)
        assert exchange is not None, "a unit has an exchange"
        one.units.append(session.wait(exchange))
        if exchange.ack is None:
            status = exchange.status or session.client.ended
            assert status is not None, "the wait ended with an answer"
            return _refusal(session.refused(exchange, status.error.code))
        past_len = exchange.ack.cache_result.past_len
        if exchange.ack.duplicate:
            return Answer("duplicate", past_len=past_len)
        session.applied(exchange)
        mode = exchange.ack.cache_result.mode
        if mode != exchange.mode:
            raise Nonconformance(f"cache mode {exchange.mode} as in the work", f"mode {mode}")
        return Answer("applied", past_len=past_len, hit=exchange.ack.cache_result.cache_hit)

    def _send_first(self, message: Message) -> Answer:
        """A message on a stream that was not opened: what comes is read to the end."""
        session = self._shard.unopened(self._seam(message))
        return self._first(session, unit_message(session.client, message, self._values.rows_of_key))

    def _first(self, session: Session, request: pb.SessionRequest) -> Answer:
        session.send(request)
        session.half_close()
        status = session.wait_for_end()
        return Answer("ended") if status is None else _refusal(status)

    def _send_signal(
        self, message: Message, build: Callable[[Session], pb.SessionRequest]
    ) -> Answer:
        one = self._open.get(message.stream)
        if one is None:
            session = self._shard.unopened(self._seam(message))
            return self._first(session, build(session))
        one.session.send(build(one.session))
        return Answer("nothing")

    def _half_close(self, message: Message) -> Answer:
        session = self._open[message.stream].session
        session.half_close()
        status = session.wait_for_end()
        return Answer("ended") if status is None else _refusal(status)

    def _drop(self, message: Message) -> Answer:
        self._open[message.stream].session.drop()
        return Answer("nothing")

    def _unary_release(self, message: Message) -> Answer:
        error, released = self._shard.release(self._seam(message))
        return Answer("told", _code_of(error), released=released)

    def _unary_cancel(self, message: Message) -> Answer:
        error, count = self._shard.cancel(self._seam(message))
        if count:
            raise Nonconformance("0 units cancelled, for none is in flight", f"{count}")
        return Answer("told", _code_of(error), released=False if error.code else None)

    # Results -----------------------------------------------------------------------------------

    def _check_results(self, one: _Open) -> None:
        """Every result, sent once or again, is that of the tokens that its step left behind."""
        for exchange in one.units:
            if not exchange.results:
                continue
            if exchange.step not in one.led_to:
                raise Nonconformance(
                    f"no result for step {exchange.step}, which was never applied", "a result"
                )
            history, tokens = one.led_to[exchange.step]
            for result in exchange.results:
                rows = rows_of([replace(exchange, results=[result])])
                self._values.check(history, tokens, rows, f"the result of step {exchange.step}")


_NEVER_RETRYABLE = {
    "CACHE_MISS",
    "FINGERPRINT_MISMATCH",
    "SCHEMA_UNSUPPORTED",
    "SHARD_RANGE_MISMATCH",
    "EPOCH_STALE",
}


def _refusal(status: pb.ShardStatus) -> Answer:
    code, error = _code_of(status.error), status.error
    if error.retryable and code in _NEVER_RETRYABLE:
        raise Nonconformance(f"{code} not retryable", "retryable true")
    # Only a miss must tell the length; elsewhere 0 is what a field says that was not set.
    told = error.actual_past_len or (0 if code == "CACHE_MISS" else None)
    return Answer("refused", code, None if status.terminal else told, terminal=status.terminal)


def _code_of(error: pb.ShardError) -> str:
    return code_name(error.code) if error.code else ""
