"""One Route Session driven by a test: legal by default, every wait bounded, every frame traced."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from pytest_meshnet.protocol.additions.features import Feature
from pytest_meshnet.protocol.additions.sampling import SamplingContract, TailResult
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.client import SeamClient
from pytest_meshnet.protocol.machines.exchange import Exchange, ProtocolViolation, Seam
from pytest_meshnet.protocol.tensors import Tensor
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.results import answer_line, check_code, not_applied, rows_of
from pytest_meshnet.runtime.target import Target
from pytest_meshnet.runtime.trace import Trace, code_name, describe
from pytest_meshnet.runtime.transport import StreamEnd

if TYPE_CHECKING:
    from pytest_meshnet.runtime.shard import Rows

SessionMessage = pb.SessionRequest | bytes


class _Silence(Nonconformance):
    """Nothing came in time from a target that lives."""


class Session:
    """A stream with its SeamClient. Every method that waits raises Nonconformance in time."""

    def __init__(self, target: Target, seam: Seam, trace: Trace) -> None:
        self.client = SeamClient(seam)
        self.ended: StreamEnd | None = None
        self._target = target
        self._trace = trace
        self._name = seam.session_id.rpartition("-")[2]
        self._stream = target.transport.open_stream()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.finish()
        else:
            self.drop()

    # Opening -----------------------------------------------------------------------------------

    def open(
        self, features: Collection[Feature] = (), sampling: SamplingContract | None = None
    ) -> pb.SessionAccepted:
        """Open as the client would and require acceptance."""
        answer = self.try_open(self.client.open(features=features, sampling=sampling))
        if isinstance(answer, pb.ShardStatus):
            raise Nonconformance("accepted", describe(pb.SessionResponse(status=answer)))
        return answer

    def try_open(self, message: pb.SessionRequest) -> pb.SessionAccepted | pb.ShardStatus:
        """Send an open and return what came for it: accepted, or the terminal status."""
        self.send(message)
        until = self._deadline()
        while self.client.accepted is None and self.client.ended is None:
            self._receive(until, "accepted or a terminal status")
        answer = self.client.accepted or self.client.ended
        assert answer is not None
        return answer

    # Sending and waiting -----------------------------------------------------------------------

    def send(self, message: SessionMessage) -> Exchange | None:
        """Send at once, whatever the credit. Returns the exchange of a unit."""
        self._trace.sent(self._name, message)
        exchange = None if isinstance(message, bytes) else self.client.sent(message)
        self._stream.send(message)
        return exchange

    def send_unit(self, message: pb.SessionRequest) -> Exchange:
        """Send a unit as soon as there is credit for it."""
        until = self._deadline()
        while not self.client.may_send:
            self._receive(until, "an answer that returns credit")
        exchange = self.send(message)
        assert exchange is not None, "not a unit"
        return exchange

    def exchange(self, message: pb.SessionRequest) -> Exchange:
        """Send a unit and wait for everything it is due."""
        return self.wait(self.send_unit(message))

    def wait(self, exchange: Exchange) -> Exchange:
        """Wait until nothing more is due for a unit, or a terminal status ends its stream."""
        until = self._deadline()
        while not exchange.done and self.client.ended is None:
            self._receive(until, f"the answer to work {exchange.work_id!r} step {exchange.step}")
        return exchange

    def wait_or_end(self, exchange: Exchange) -> Exchange:
        """Wait until nothing more is due for a unit, or its stream has ended in any way."""
        until = self._deadline()
        while not exchange.done and self.client.ended is None and self.ended is None:
            what = f"the answer to work {exchange.work_id!r} step {exchange.step}"
            self._receive(until, what, ending=True)
        return exchange

    def result(self, exchange: Exchange) -> Rows:
        """Wait for a unit, require that it was applied, and return its result rows."""
        return rows_of([self.applied(self.wait(exchange))])

    def wait_for_end(self) -> pb.ShardStatus | None:
        """Read until the stream ends. Returns the terminal status, None when there was none."""
        until = self._deadline()
        while self.ended is None:
            self._receive(until, "the end of the stream", ending=True)
        return self.client.ended

    def drain(self) -> None:
        """Read whatever comes until the stream ends, without judging it.

        For streams that were given nonsense: what answers nonsense is nobody's exchange. Raises
        Nonconformance when the stream stays open.
        """
        self.await_end()

    def await_end(self) -> str:
        """Read until the stream ends, whatever of, and return its gRPC status name.

        For tests that end the runtime themselves. Raises Nonconformance when it stays open.
        """
        until = self._deadline()
        while self.ended is None:
            try:
                frame = self._stream.receive(max(0.0, until - time.monotonic()))
            except TimeoutError as silence:
                what = "the end of the stream"
                line = self._trace.silence(self._name, what)
                raise Nonconformance(what, str(silence), frame=line) from None
            self._trace.received(self._name, frame)
            if isinstance(frame, StreamEnd):
                self.ended = frame
        return self.ended.code

    def _deadline(self) -> float:
        return time.monotonic() + self._target.descriptor.time.answer

    def _receive(self, until: float, what: str, *, ending: bool = False) -> None:
        """Take in one frame. To wait beyond an end is a finding, unless it is waited for."""
        if self.ended is not None and not ending:
            raise self._breakdown(what) or self._gone(what)
        try:
            frame = self._stream.receive(max(0.0, until - time.monotonic()))
        except TimeoutError as silence:
            raise self._target.loss(what) or self._silent(what, str(silence)) from None
        self._trace.received(self._name, frame)
        if isinstance(frame, StreamEnd):
            self.ended = frame
            if (lost := self._breakdown(what)) is not None:
                raise lost
            return
        self._target.came.add(frame.WhichOneof("kind"))
        try:
            self.client.receive(frame)
        except ProtocolViolation as violation:
            what = "only answers that are due"
            raise Nonconformance(what, str(violation), frame=describe(frame)) from violation

    def _silent(self, what: str, silence: str) -> Nonconformance:
        strays = self.client.strays
        line = self._trace.silence(self._name, what)
        if not strays:
            return _Silence(what, silence, frame=line)
        last = describe(pb.SessionResponse(status=strays[-1]))
        return _Silence(what, f"{silence}; before, a status that names no unit in flight: {last}")

    def _gone(self, what: str) -> Nonconformance:
        assert self.ended is not None
        status = self.client.ended
        because = f" after {describe(pb.SessionResponse(status=status))}" if status else ""
        found = f"the stream ended with {self.ended.code}{because}"
        return Nonconformance(what, found, frame="" if status else describe(self.ended))

    def _breakdown(self, what: str) -> Exception | None:
        """Why the stream broke off, when its target is lost or crashed; None when that lives."""
        broke_off = self.ended is not None and self.ended.code == "UNAVAILABLE"
        return self._target.loss(what) if broke_off else None

    # Ending ------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Half-close and read to the end, so that whatever is not due is found.

        Whether a runtime ends the stream then is for other tests; here silence is enough.
        """
        if self.ended is None:
            self._stream.half_close()
            until = time.monotonic() + self._target.descriptor.time.cleanup
            with contextlib.suppress(_Silence):
                while self.ended is None:
                    self._receive(until, "the end of the stream", ending=True)
        if self.ended is None:
            self.drop()

    def half_close(self) -> None:
        """Say that nothing more will be sent."""
        self._stream.half_close()

    def stop_reading(self) -> None:
        """Take nothing off the network until the next wait, as a client that hangs would."""
        self._stream.stop_reading()

    def drop(self) -> None:
        """Reset the stream, as a lost connection would."""
        self._stream.drop()

    # What tests ask for ------------------------------------------------------------------------

    def applied(self, exchange: Exchange) -> Exchange:
        """Require that a unit was applied, with one result where one is due.

        Raises UnitRefused for a code that speaks about what the unit carried.
        """
        expected = f"work {exchange.work_id!r} applied"
        status = exchange.status or self.client.ended
        if exchange.ack is None and status is not None:
            raise not_applied(expected, status)
        if not exchange.applied:
            found = "acked as a duplicate" if exchange.ack else "no answer"
            raise Nonconformance(expected, found, frame=answer_line(exchange))
        if bool(exchange.results) != exchange.wants_result:
            raise Nonconformance(
                f"{int(exchange.wants_result)} result(s) for work {exchange.work_id!r}",
                f"{len(exchange.results)}",
                frame=answer_line(exchange),
            )
        return exchange

    def refused(self, exchange: Exchange, *codes: int) -> pb.ShardStatus:
        """Require that a unit was refused: one of `codes`, or any but UNSPECIFIED and INTERNAL.

        The terminal status of its stream refuses a unit too, whether or not it names it.
        """
        named = f" with {' or '.join(map(code_name, codes))}" if codes else ""
        expected = f"work {exchange.work_id!r} refused{named}"
        if exchange.ack is not None:
            what = "applied" if exchange.applied else "acked as a duplicate"
            raise Nonconformance(expected, f"it was {what}", frame=answer_line(exchange))
        status = exchange.status or self.client.ended
        if status is None:
            raise Nonconformance(expected, "no answer")
        check_code(status, *codes)
        if exchange.results:
            only = f"only a status for work {exchange.work_id!r}"
            raise Nonconformance(only, "a result came too", frame=answer_line(exchange))
        return status

    def tail(self, exchange: Exchange) -> TailResult:
        """Wait for a unit, require that it was applied, and return its one tail result."""
        tails = self.applied(self.wait(exchange)).tails
        if len(tails) != 1:
            raise Nonconformance(
                f"one tail result for work {exchange.work_id!r}", f"{len(tails)} tail results"
            )
        return tails[0]

    def prefill(
        self,
        tensor: Tensor,
        *,
        chunk_tokens: int | None = None,
        fresh: bool = False,
        finish: bool = True,
    ) -> Rows:
        """Prefill [1, n, ...] in chunks and return the result rows, all applied.

        Rows are [n, width] in float32; from a tail [1, vocabulary], those of the last position, and
        none without `finish`, which makes the last chunk final.
        """
        cuts = [span.count for span in self.client.plan([tensor], chunk_tokens)]
        return self.prefill_chunks(tensor, cuts, fresh=fresh, finish=finish)

    def prefill_chunks(
        self, tensor: Tensor, counts: Sequence[int], *, fresh: bool = False, finish: bool = True
    ) -> Rows:
        """Prefill in chunks of the given token counts, and return as `prefill` does."""
        exchanges = self.send_chunks(tensor, counts, fresh=fresh, finish=finish)
        return rows_of([self.applied(self.wait(exchange)) for exchange in exchanges])

    def send_chunks(
        self, tensor: Tensor, counts: Sequence[int], *, fresh: bool = False, finish: bool = True
    ) -> list[Exchange]:
        """Send chunks of the given token counts as credit allows, without waiting for answers.

        A count above the settled limits is sent as several chunks.
        """
        widest = max(span.count for span in self.client.plan([tensor]))
        cuts = [min(widest, count - at) for count in counts for at in range(0, count, widest)]
        exchanges = []
        start = 0
        for index, count in enumerate(cuts):
            last = index == len(cuts) - 1
            message = self.client.chunk(
                [tensor.rows(start, start + count)],
                final=last and finish,
                fresh=fresh and index == 0,
                place=(index, len(cuts)),
            )
            exchanges.append(self.send_unit(message))
            start += count
        return exchanges

    def decode(self, tensor: Tensor | Sequence[Tensor], *, full: bool = False) -> Rows:
        """Take one decode step with the [1, 1, ...] tensor and return its result, [1, width].

        `full` sends it as an ActivationChunk instead of a DecodeStep; several tensors are a bundle.
        """
        message = self.client.decode(tensor, full=full)
        return self.result(self.send_unit(message))
