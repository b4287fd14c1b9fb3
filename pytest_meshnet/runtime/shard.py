"""The Shard under test, as the suites see it: inputs to feed it, sessions on it, equality."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_meshnet.protocol.additions.features import Feature
from pytest_meshnet.protocol.additions.sampling import SamplingContract
from pytest_meshnet.protocol.flow import FlowLimits
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.exchange import Seam
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.runtime.descriptor import Tolerance
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.footprint import Footprint, grown_since, process_counts
from pytest_meshnet.runtime.results import joined, lacks_place
from pytest_meshnet.runtime.session import Session
from pytest_meshnet.runtime.target import Target
from pytest_meshnet.runtime.trace import Trace, describe
from pytest_meshnet.runtime.transport import Transport, UnaryFailed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Rows = NDArray[np.float32]


def check_settled(proposed: FlowLimits, accepted: pb.SessionAccepted) -> None:
    """Require limits that a session can be driven by: none is zero or above what was proposed.

    Raises Nonconformance; credit may be zero, for a grant may follow.
    """
    settled = FlowLimits.from_proto(accepted.flow_control)
    bounds = (
        ("max_inflight_chunks", settled.inflight, proposed.inflight),
        ("max_chunk_bytes", settled.chunk_bytes, proposed.chunk_bytes),
        ("max_prefill_chunk_tokens", settled.prefill_tokens, proposed.prefill_tokens),
    )
    found = describe(pb.SessionResponse(accepted=accepted))
    for name, number, bound in bounds:
        if number == 0 or (bound and number > bound):
            limit = f"above 0 and at most {bound}, as proposed" if bound else "above 0"
            raise Nonconformance(f"{name} {limit}", found, "settle the smaller of both sides")
    if proposed.credits and settled.credits > proposed.credits:
        limit = f"credits_granted up to {proposed.credits}, as proposed"
        raise Nonconformance(limit, found, "settle the smaller of both sides")


_CALL = "call"
"""What stands in a trace in place of the stream of a unary call."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """The tensor that crosses a seam: its name, its dtype, and the shape behind [1, n]."""

    name: str
    dtype: DType
    trailing: tuple[int, ...]


class ShardUnderTest:
    """One Shard for one test. `prefix` makes its session ids unique within the run."""

    def __init__(self, target: Target, prefix: str, seed: int) -> None:
        self.target = target
        self.trace = Trace()
        self.seed = seed
        # Seconds for which a unit certainly stays in flight; 0 where nothing is certain.
        self.unit_seconds = 0.0
        self._prefix = prefix
        self._numbers = itertools.count(1)

    @property
    def transport(self) -> Transport:
        """The way to the Shard."""
        return self.target.transport

    @property
    def report(self) -> pb.CapabilityReport:
        """The capability that the Shard reported when it was reached."""
        return self.target.report

    @property
    def answer_time(self) -> float:
        """Seconds from a message to its last answer."""
        return self.target.descriptor.time.answer

    @property
    def layers(self) -> range:
        """The served layers."""
        return range(self.target.spec.start_layer, self.target.spec.end_layer)

    @property
    def is_tail(self) -> bool:
        """Whether the Shard owns the output head."""
        return self.target.is_tail

    def input_boundary(self, effective_start: int | None = None) -> Boundary:
        """What a unit must carry when execution begins at `effective_start`, or at the first."""
        start = self.layers.start if effective_start is None else effective_start
        if start == 0:
            return Boundary("token_ids", DType.INT32, ())
        model = self.target.model
        return Boundary("hidden_states", model.boundary_dtypes[0], (model.hidden_size,))

    def output_boundary(self) -> Boundary:
        """What a result carries."""
        model = self.target.model
        if self.is_tail:
            return Boundary("logits", DType.FLOAT32, (model.vocab_size,))
        return Boundary("hidden_states", model.boundary_dtypes[0], (model.hidden_size,))

    def tokens(self, count: int, key: int = 0, effective_start: int | None = None) -> Tensor:
        """Draw the input of `count` tokens: [1, count] ids or [1, count, hidden] states.

        A pure function of the run's seed, `key` and the model's facts; the rows of a longer draw
        begin with those of a shorter one.
        """
        import numpy as np

        boundary = self.input_boundary(effective_start)
        model = self.target.model
        random = np.random.default_rng([self.seed, key])
        if boundary.name == "token_ids":
            ids = random.integers(0, model.vocab_size, size=(1, count))
            return Tensor.from_array(boundary.name, ids, boundary.dtype)
        states = random.standard_normal((1, count, *boundary.trailing), dtype=np.float32)
        return Tensor.from_float32(boundary.name, states * model.input_scale, boundary.dtype)

    def length(self, wanted: int) -> int:
        """The tokens a test may use: `wanted`, or fewer where the declared context is smaller."""
        context = self.report.max_context_tokens
        return min(wanted, context) if context else wanted

    def fitted(self, counts: Sequence[int], spare: int = 0) -> list[int]:
        """The chunks of `counts`, cut off where they and `spare` tokens fill the context."""
        room = self.length(sum(counts) + spare) - spare
        starts = [sum(counts[:index]) for index in range(len(counts))]
        parts = zip(counts, starts, strict=True)
        return [min(count, room - start) for count, start in parts if start < room]

    def seam(
        self, session_id: str | None = None, epoch: int = 1, effective_start: int | None = None
    ) -> Seam:
        """The identity of a new Route Session on this Shard."""
        start = self.layers.start if effective_start is None else effective_start
        return Seam(
            session_id=session_id or f"{self._prefix}-{next(self._numbers)}",
            epoch=epoch,
            fingerprint=self.report.fingerprint,
            shard_range=pb.ShardRange(
                start_layer=self.layers.start,
                end_layer=self.layers.stop,
                effective_start_layer=start,
            ),
            is_tail=self.is_tail,
            reads=self.target.reads,
        )

    def unopened(self, seam: Seam | None = None) -> Session:
        """A stream on which nothing was sent. Use as a context manager."""
        return Session(self.target, seam or self.seam(), self.trace)

    def session(
        self,
        seam: Seam | None = None,
        proposed: FlowLimits | None = None,
        *,
        features: Collection[Feature] = (),
        sampling: SamplingContract | None = None,
    ) -> Session:
        """An accepted session on its own stream. Use as a context manager.

        `features` of 1.1 are offered; what holds is in the client's `features`.
        """
        found = self.try_session(seam, proposed, features=features, sampling=sampling)
        if isinstance(found, pb.ShardStatus):
            raise Nonconformance("accepted", describe(pb.SessionResponse(status=found)))
        return found

    def try_session(
        self,
        seam: Seam | None = None,
        proposed: FlowLimits | None = None,
        *,
        features: Collection[Feature] = (),
        sampling: SamplingContract | None = None,
    ) -> Session | pb.ShardStatus:
        """A session as `session` gives it, or the status that refuses it."""

        def open_of(session: Session) -> pb.SessionRequest:
            return session.client.open(proposed, features=features, sampling=sampling)

        session, answer = self.attempt(open_of, seam or self.seam())
        if isinstance(answer, pb.ShardStatus):
            session.finish()
            return answer
        with ExitStack() as unless_settled:
            unless_settled.callback(session.drop)
            check_settled(proposed or FlowLimits(), answer)
            unless_settled.pop_all()
        return session

    def attempt(
        self, open_of: Callable[[Session], pb.SessionRequest], seam: Seam | None = None
    ) -> tuple[Session, pb.SessionAccepted | pb.ShardStatus]:
        """A stream on which an open was sent, and what it was answered.

        A runtime may take until the declared cleanup time to free the place of a session that
        ended: lack of a place is an answer only when it lasts.
        """
        until = time.monotonic() + self.target.descriptor.time.cleanup
        while True:
            session = self.unopened(seam)
            with ExitStack() as unless_answered:
                unless_answered.callback(session.drop)
                answer = session.try_open(open_of(session))
                if not lacks_place(answer) or time.monotonic() > until:
                    unless_answered.pop_all()
                    return session, answer
                session.wait_for_end()

    def undisturbed(self, prompt: Tensor, *steps: Tensor, seam: Seam | None = None) -> Rows:
        """What a session of its own gives that prefills `prompt` and decodes `steps`, as rows.

        The result that a unit "would have had". Opened and ended here, so that it fits a runtime
        with a single place; call it while no other session is open.
        """
        with self.session(seam) as session:
            return joined(session.prefill(prompt), *(session.decode(step) for step in steps))

    # Unary calls -------------------------------------------------------------------------------

    def health(self) -> pb.HealthReport:
        """What Health says now."""
        request = pb.HealthRequest(schema_version=pb.SCHEMA_VERSION_1)
        return self.transport.health(request, self.answer_time)

    def footprint(self) -> Footprint:
        """What the runtime holds on to now."""
        report, pid = self.health(), self.target.pid
        if pid is None:
            return Footprint(report.active_sessions, report.queued_chunks)
        threads, descriptors, resident = process_counts(pid)
        return Footprint(
            report.active_sessions, report.queued_chunks, threads, descriptors, resident
        )

    def check_footprint(self, before: Footprint) -> None:
        """Require, within the declared cleanup time, what was held `before` and hardly more.

        A few threads and descriptors of slack are a pool that breathes; 32 MiB are an allocator's.
        """
        until = time.monotonic() + self.target.descriptor.time.cleanup
        while (grown := grown_since(before, self.footprint())) and time.monotonic() < until:
            continue
        if grown:
            raise Nonconformance("what was held before", ", ".join(grown))

    def release(self, seam: Seam) -> tuple[pb.ShardError, bool]:
        """Release by the unary call: the error, empty where there was none, and `released`."""
        request = pb.ReleaseRequest(
            schema_version=pb.SCHEMA_VERSION_1,
            route_session_id=seam.session_id,
            route_epoch=seam.epoch,
        )
        self.trace.sent(_CALL, request)
        try:
            response = self.transport.release(request, self.answer_time)
        except UnaryFailed as failed:
            response = pb.ReleaseResponse(error=self._carried(failed, "Release"))
        self.trace.received(_CALL, response)
        return response.error, response.released

    def cancel(self, seam: Seam, work_id: str = "") -> tuple[pb.ShardError, int]:
        """Cancel by the unary call: the error, empty where there was none, and the count."""
        request = pb.CancelRequest(
            schema_version=pb.SCHEMA_VERSION_1,
            route_session_id=seam.session_id,
            route_epoch=seam.epoch,
            work_id=work_id,
        )
        self.trace.sent(_CALL, request)
        try:
            response = self.transport.cancel(request, self.answer_time)
        except UnaryFailed as failed:
            response = pb.CancelResponse(error=self._carried(failed, "Cancel"))
        self.trace.received(_CALL, response)
        return response.error, response.cancelled_work_items

    def _carried(self, failed: UnaryFailed, call: str) -> pb.ShardError:
        """The ShardError of a failed call; a status without one is a finding, or a loss."""
        if failed.error is not None:
            return failed.error
        raise self.target.loss(f"the answer to {call}") or Nonconformance(
            f"an answer to {call}, or a status that carries a ShardError", str(failed)
        )

    # Equality ----------------------------------------------------------------------------------

    @property
    def tolerance(self) -> Tolerance:
        """The declared tolerance of this Shard's results.

        The logits of a tail are float32, computed from states of the boundary dtype: that of the
        boundary counts.
        """
        return self.target.descriptor.tolerances[self.target.model.boundary_dtypes[0]]

    def check_equal(self, actual: Rows, expected: Rows, what: str) -> None:
        """Raise Nonconformance unless both arrays are equal within the declared tolerance.

        `what` says what is compared ("chunked prefill against whole prefill"). NaN equals nothing.
        """
        import numpy as np

        if actual.shape != expected.shape:
            raise Nonconformance(f"{what}: shape {expected.shape}", f"shape {actual.shape}")
        scale = self.target.model.input_scale
        ratios = self.tolerance.ratios(actual, expected, scale)
        bad = ratios > 1
        if bad.any():
            worst = np.unravel_index(int(np.argmax(ratios)), bad.shape)
            raise Nonconformance(
                f"{what}: equal within {self.tolerance.absolute * scale:.3g} + "
                f"{self.tolerance.relative:.3g} * |value|",
                f"{int(bad.sum())} of {bad.size} values differ, the worst at "
                f"{tuple(int(i) for i in worst)}: {actual[worst]:.6g} instead of "
                f"{expected[worst]:.6g}, {ratios[worst]:.3g} times what is allowed",
                "compare both runs row by row; a first wrong row points at positions or masks",
            )

    def differ(self, one: Rows, other: Rows) -> bool:
        """Whether two results are certainly not the same within the declared tolerance."""
        try:
            self.check_equal(one, other, "comparison")
        except Nonconformance:
            return True
        return False
