"""Playing a written exchange on a Shard and holding every answer against what is written.

What no line mentions and the protocol excludes is found by the session's own bookkeeping: answers
to nothing, second answers, results of refused work.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_meshnet.authoring.exchange.answers import Facts, differs, facts
from pytest_meshnet.authoring.exchange.calls import CALLS
from pytest_meshnet.authoring.exchange.messages import request, whole
from pytest_meshnet.authoring.exchange.notation import (
    UNARY,
    UNITS,
    BadExchange,
    Frame,
    Line,
    Script,
)
from pytest_meshnet.authoring.exchange.streams import Stream, Unit
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.exchange import Seam
from pytest_meshnet.protocol.tensors import Tensor
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.results import lacks_place, rows_of
from pytest_meshnet.runtime.session import Session
from pytest_meshnet.runtime.trace import describe

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from pytest_meshnet.runtime.shard import Rows, ShardUnderTest

ROOM = 32
"""The most tokens that an exchange lets a session hold."""

_LATER = "envelope.shard_range.effective_start_layer"

Told = Callable[[Line, str], None]


class DoesNotFit(Exception):
    """The Shard's limits are too small for the exchange, which says nothing about the Shard."""


def play(script: Script, shard: ShardUnderTest, told: Told | None = None) -> None:
    """Play a script. `told` hears of each line and what came of it.

    Raises Nonconformance at the first answer that is not as written, DoesNotFit, BadExchange.
    """
    player = _Player(shard, told or (lambda *_: None))
    try:
        for line in script:
            if isinstance(line, Line):
                player.take(line)
        player.end_all()
    finally:
        player.drop_all()


class _Player:
    def __init__(self, shard: ShardUnderTest, told: Told) -> None:
        self._shard, self._told = shard, told
        self._seams: dict[str, Seam] = {}
        self._streams: dict[str, Stream] = {}
        self._calls: list[tuple[str, Facts]] = []
        self._ended_one = False
        self._rows: dict[str, Rows] = {}
        self._drawn: dict[int, Tensor] = {}

    def take(self, line: Line) -> None:
        if line.direction == "->":
            self._send(line)
            self._told(line, "sent")
        else:
            self._told(line, self._await(line))

    # Sending -----------------------------------------------------------------------------------

    def _send(self, line: Line) -> None:
        frame = line.frame
        if frame.kind in UNARY:
            self._call(frame)
        elif frame.kind == "open":
            self._open(line)
        elif frame.kind in ("half-close", "drop"):
            self._leave(line)
        else:
            self._send_on(self._stream_of(line), frame)

    def _stream_of(self, line: Line) -> Stream:
        """The stream of a line; one that was not opened is begun with whatever the line sends."""
        if line.label not in self._streams:
            session = self._shard.unopened(self._seam(line.frame, line.label))
            self._streams[line.label] = Stream(session)
        return self._streams[line.label]

    def _send_on(self, stream: Stream, frame: Frame) -> None:
        session = stream.session
        if _LATER in frame.values and self._shard.layers.start == 0:
            raise DoesNotFit("it begins later with the inputs of the first layer, token ids here")
        message = self._again(stream, frame) or request(session.client, frame, self._draw)
        if frame.kind not in UNITS or stream.opened is None:
            session.send(message)
            return
        if "too-long" not in frame.words:
            self._check_fits(session, message)
        at_once = "at-once" in frame.words
        exchange = session.send(message) if at_once else session.send_unit(message)
        assert exchange is not None, "a unit has an exchange"
        stream.units.append(Unit(exchange))

    def _again(self, stream: Stream, frame: Frame) -> pb.SessionRequest | None:
        if frame.kind != "again":
            return None
        unit = stream.unit(frame.get("work"))
        if unit is None:
            raise BadExchange(f"`{frame}` repeats work that was never sent")
        return unit.exchange.request

    def _check_fits(self, session: Session, message: pb.SessionRequest) -> None:
        tokens = message.chunk.envelope.position.token_count
        allowed = session.client.limits.prefill_tokens
        if tokens > allowed:
            raise DoesNotFit(f"it sends {tokens} tokens in a chunk, the Shard allows {allowed}")

    def _draw(self, key: int, start: int, stop: int) -> Tensor:
        if stop > self._shard.length(ROOM):
            raise DoesNotFit(f"it needs {stop} tokens of context")
        if key not in self._drawn:
            self._drawn[key] = self._shard.tokens(self._shard.length(ROOM), key)
        return self._drawn[key].rows(start, stop)

    def _seam(self, frame: Frame, label: str) -> Seam:
        name = frame.get("session") or f"of stream {label}"
        if name not in self._seams:
            self._seams[name] = self._shard.seam()
        return replace(self._seams[name], epoch=whole(frame, frame.get("epoch", "1")))

    def _open(self, line: Line) -> None:
        present = self._streams.get(line.label)
        seam = self._seam(line.frame, line.label)
        if present is not None:
            other = self._shard.unopened(seam)
            present.session.send(request(other.client, line.frame, self._draw))
            other.drop()
            return
        until = time.monotonic() + self._shard.target.descriptor.time.cleanup
        while True:
            session = self._shard.unopened(seam)
            answer = session.try_open(request(session.client, line.frame, self._draw))
            self._streams[line.label] = Stream(session, answer)
            # The place of a session that ended may not be free yet.
            if not (self._ended_one and lacks_place(answer)) or time.monotonic() > until:
                return
            session.drop()

    def _leave(self, line: Line) -> None:
        stream = self._stream_of(line)
        self._ended_one = True
        if line.frame.kind == "half-close":
            stream.half_closed = True
            stream.session.half_close()
        else:
            self._streams.pop(line.label).session.drop()

    def _call(self, frame: Frame) -> None:
        answer = CALLS[frame.kind](self._shard, self._seam(frame, ""), frame)
        self._calls.append((frame.kind, self._renamed(facts(answer))))

    # Answers -----------------------------------------------------------------------------------

    def _await(self, line: Line) -> str:
        """Hold what came against a line and describe it."""
        if line.frame.kind in UNARY:
            kind, found = self._calls.pop(0) if self._calls else ("no call", {})
            return self._judge(line, kind, found, _told_of(found))
        stream = self._streams.get(line.label)
        if stream is None:
            raise BadExchange(f"line {line.number} awaits an answer on a stream that is not open")
        return self._await_on(stream, line)

    def _await_on(self, stream: Stream, line: Line) -> str:
        frame = line.frame
        if frame.kind == "end":
            return self._end(stream, line)
        if frame.kind == "chunk":
            return self._result(stream, line)
        unit = stream.unit(frame.get("work")) if frame.get("work") else None
        if unit is not None:
            return self._answer(stream, unit, line)
        return self._without_unit(stream, line)

    def _without_unit(self, stream: Stream, line: Line) -> str:
        opening = stream.opened
        if isinstance(opening, pb.ShardStatus):
            return self._judge_message(line, "status", pb.SessionResponse(status=opening))
        if opening is not None and not stream.open_judged:
            stream.open_judged = True
            return self._judge_message(line, "accepted", pb.SessionResponse(accepted=opening))
        if "terminal" in line.frame.words:
            return self._terminal(stream, line)
        stream.strays.append(line)
        return "looked for when the stream ends"

    def _answer(self, stream: Stream, unit: Unit, line: Line) -> str:
        exchange = stream.session.wait(unit.exchange)
        if line.may and exchange.ack is None and exchange.status is None:
            return "did not come"
        unit.judged = True
        if exchange.ack is not None:
            return self._judge_message(line, "ack", pb.SessionResponse(ack=exchange.ack))
        status = exchange.status or stream.session.client.ended
        assert status is not None, "the wait ended with an answer"
        return self._judge_message(line, "status", pb.SessionResponse(status=status))

    def _result(self, stream: Stream, line: Line) -> str:
        unit = stream.unit_with_result(line.frame.get("work"))
        if unit is None:
            raise BadExchange(f"line {line.number} awaits a result of work that was never sent")
        exchange = stream.session.wait(unit.exchange)
        unit.results_written = True
        if not exchange.wants_result:
            return "not due from a tail"
        if not exchange.results:
            if line.may:
                return "did not come"
            raise Nonconformance(str(line), "no result came")
        envelope, tensors = exchange.results[-1]
        rows = rows_of([replace(exchange, results=[(envelope, tensors)])])
        found = {"rows": str(len(rows)), **facts(pb.ActivationChunk(envelope=envelope))}
        said = self._judge(line, "chunk", self._renamed(found), f"chunk rows={len(rows)}")
        self._compare(line, rows)
        return said

    def _compare(self, line: Line, rows: Rows) -> None:
        """Keep a result, and hold its last rows against those of the one that it must equal."""
        work = line.frame.get("work")
        for key in ("same-as", "unlike"):
            other = line.frame.get(key)
            if not other:
                continue
            if other not in self._rows:
                raise BadExchange(f"line {line.number}: there is no result {other!r} before it")
            shared = min(len(rows), len(self._rows[other]))
            pair = rows[-shared:], self._rows[other][-shared:]
            if key == "same-as":
                what = f"the last {shared} row(s) of the result of {work} and {other}"
                self._shard.check_equal(*pair, what)
            elif not self._shard.differ(*pair):
                raise Nonconformance(f"another result of {work} than of {other}", "the same")
        self._rows.setdefault(f"{line.label}/{work}".lstrip("/"), rows)

    def _terminal(self, stream: Stream, line: Line) -> str:
        if stream.opened is None and not stream.half_closed:
            stream.session.half_close()  # a runtime may wait for that before it ends the stream
        status = stream.session.wait_for_end()
        if status is None:
            ended = stream.session.ended
            assert ended is not None, "it was waited for"
            what = "the stream ended without a terminal status"
            raise Nonconformance(str(line), what, frame=describe(ended))
        return self._judge_message(line, "status", pb.SessionResponse(status=status))

    def _end(self, stream: Stream, line: Line) -> str:
        stream.session.wait_for_end()
        ended = stream.session.ended
        assert ended is not None, "it was waited for"
        if line.frame.words and line.frame.words[0] != ended.code:
            raise Nonconformance(str(line), describe(ended))
        return describe(ended)

    def _judge_message(self, line: Line, kind: str, message: pb.SessionResponse) -> str:
        body: Message = getattr(message, kind)
        return self._judge(line, kind, self._renamed(facts(body)), describe(message))

    def _judge(self, line: Line, kind: str, found: Facts, said: str) -> str:
        wrong = [differs(frame, kind, found) for frame in line.frames]
        if all(wrong):
            raise Nonconformance(f"{line}", f"{said} ({wrong[0]})")
        return said

    def _renamed(self, found: Facts) -> Facts:
        """The facts with the names that the script gives to sessions."""
        names = {seam.session_id: name for name, seam in self._seams.items()}
        return {key: names.get(value, value) for key, value in found.items()}

    # The end -----------------------------------------------------------------------------------

    def end_all(self) -> None:
        """End every open stream in good order, and look for what was not written."""
        for label, stream in self._streams.items():
            stream.session.finish()
            self._check_strays(stream)
            for unit in stream.units:
                self._check_results(unit, f"{label} {unit.exchange.work_id}".lstrip())
        self._streams.clear()

    def _check_results(self, unit: Unit, name: str) -> None:
        """A unit brings the result that is written, and that again at most: never another."""
        exchange = unit.exchange
        if exchange.results and not unit.results_written:
            raise Nonconformance(f"no result for {name}", "a result came")
        sent = [rows_of([replace(exchange, results=[one])]) for one in exchange.results]
        for rows in sent[1:]:
            self._shard.check_equal(rows, sent[0], f"the result of {name}, sent again")

    def _check_strays(self, stream: Stream) -> None:
        found = [pb.SessionResponse(status=one) for one in stream.session.client.strays]
        for line, message in zip(stream.strays, found, strict=False):
            self._judge_message(line, "status", message)
        must = [line for line in stream.strays if not line.may]
        if not len(must) <= len(found) <= len(stream.strays):
            came = "; ".join(map(describe, found)) or "none"
            raise Nonconformance(f"{len(must)} status(es) that name no unit in flight", came)

    def drop_all(self) -> None:
        """Leave nothing open behind a finding."""
        for stream in self._streams.values():
            stream.session.drop()


def _told_of(found: Facts) -> str:
    return " ".join(f"{key}={value}" for key, value in found.items() if "." not in key)
