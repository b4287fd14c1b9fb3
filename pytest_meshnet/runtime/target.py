"""A target in use: its Shard reached or started, its facts, and whether it still lives."""

from __future__ import annotations

import copy
import secrets
from collections.abc import Callable, Mapping

from pytest_meshnet.ledger.applicability import Fact
from pytest_meshnet.protocol.additions.boundary import BoundarySpec
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.runtime.descriptor import Descriptor, Launch, ShardSpec
from pytest_meshnet.runtime.errors import Nonconformance, Refusal, TargetLost
from pytest_meshnet.runtime.grpc_transport import GrpcTransport
from pytest_meshnet.runtime.launch import RunningShard
from pytest_meshnet.runtime.model_facts import ModelFacts, boundary_of, model_of
from pytest_meshnet.runtime.transport import Transport, UnaryFailed

# A runtime that crashes is started again for the tests that follow, but not for ever.
MAX_RESTARTS = 5

InProcess = Callable[[], Transport]


def choose_shard(descriptor: Descriptor, name: str | None) -> ShardSpec:
    """The Shard to examine. Raises Refusal when there are several and none was named.

    Those that stand beside it for some profiles do not count.
    """
    names = ", ".join(shard.name for shard in descriptor.shards)
    if name is None:
        candidates = [shard for shard in descriptor.shards if not shard.profiles]
        if len(candidates) == 1 or len(descriptor.shards) == 1:
            return (candidates or descriptor.shards)[0]
        raise Refusal(
            f"{descriptor.name} has several Shards ({names}): name one with --shard "
            "(pytest: --meshnet-shard)"
        )
    for shard in descriptor.shards:
        if shard.name == name:
            return shard
    raise Refusal(f"{descriptor.name} has no Shard {name!r}: it has {names}")


class Target:
    """One Shard of a runtime, reached for one process of the suite.

    `place` counts the suite's processes and chooses among equal endpoints. `in_process` makes a
    transport without a process, for the reference worker only. `reads` is the compression that
    sessions offer at open (Compression numbers).
    """

    def __init__(
        self,
        descriptor: Descriptor,
        shard: ShardSpec,
        *,
        place: int = 0,
        in_process: InProcess | None = None,
        reads: tuple[int, ...] = (pb.COMPRESSION_NONE,),
    ) -> None:
        self.descriptor = descriptor
        self.spec = shard
        self.reads = reads
        self._place = place
        self._in_process = in_process
        self._running: RunningShard | None = None
        self._ahead: RunningShard | None = None
        self._transport: Transport | None = None
        self._starts = 0
        self._crash_seen = False
        # The kinds of response that came in any session so far; `through` shares them.
        self.came: set[str | None] = set()
        # Tells this run's sessions from an earlier run's, whose fences live on at an endpoint.
        self.run_tag = secrets.token_hex(4)
        self.report = pb.CapabilityReport()
        self.boundary: BoundarySpec | None = None
        self._model = shard.model or descriptor.model

    def connect(self, launch: Launch | None = None, extra: Mapping[str, str] | None = None) -> None:
        """Start or reach the Shard and read its capability. Raises Refusal."""
        if self._in_process is not None:
            self._transport = self._in_process()
        elif (launch := launch or self.spec.launch) is not None:
            self._transport = self._start(launch, extra or {})
        else:
            self._transport = GrpcTransport(self._endpoint())
        self.report = self._capability()
        self._check_range()
        self.boundary = boundary_of(self.report)
        self._model = model_of(self.spec.model or self.descriptor.model, self.boundary)

    def launch_ahead(self) -> None:
        """Start the process that `connect` will wait for, so that several load side by side.

        Call it in the thread that lives as long as the Shard: a process ends with its starter.
        """
        if self._in_process is None and self.spec.launch is not None:
            self._ahead = RunningShard(self.spec.launch, self.descriptor.folder, {})

    def _start(self, launch: Launch, extra: Mapping[str, str]) -> Transport:
        self._starts += 1
        ahead, self._ahead = self._ahead, None
        self._running = ahead or RunningShard(launch, self.descriptor.folder, extra)
        transport = GrpcTransport(self._running.address)
        try:
            self._running.wait_until_serving(transport, self.descriptor.time.start)
        except Refusal:
            transport.close()
            self._running.stop(self.descriptor.time.stop)
            self._running = None
            raise
        return transport

    def _endpoint(self) -> str:
        endpoints = self.spec.endpoints
        if self._place >= len(endpoints):
            raise Refusal(
                f"{len(endpoints)} endpoint(s) for {self._place + 1} processes: give one endpoint "
                "each, a start command, or run without -n"
            )
        return endpoints[self._place]

    def _capability(self) -> pb.CapabilityReport:
        request = pb.CapabilityRequest(schema_version=pb.SCHEMA_VERSION_1)
        try:
            return self.transport.capability(request, self.descriptor.time.answer)
        except UnaryFailed as failed:
            where = self._running.address if self._running else self.spec.endpoints
            raise Refusal(
                f"{self.descriptor.name} at {where} does not answer GetCapability ({failed}): "
                "is it running, and is the address right?" + self._log_tail()
            ) from None

    def _log_tail(self) -> str:
        return f" Its last lines:\n{self._running.last_lines()}" if self._running else ""

    def _check_range(self) -> None:
        served = self.report.shard_range
        found = (served.start_layer, served.end_layer)
        expected = (self.spec.start_layer, self.spec.end_layer)
        if self.report.HasField("shard_range") and found != expected:
            raise Refusal(
                f"{self.descriptor.name} serves layers {found[0]}:{found[1]}, the descriptor says "
                f"{expected[0]}:{expected[1]}: correct shards.range or start the right Shard"
            )

    @property
    def transport(self) -> Transport:
        """The way to the Shard. Raises RuntimeError before connect."""
        if self._transport is None:
            raise RuntimeError("the target is not connected")
        return self._transport

    def through(self, wrap: Callable[[Transport], Transport]) -> Target:
        """The same running Shard, reached over a transport around this one's. Never close it."""
        other = copy.copy(self)
        other._transport = wrap(self.transport)
        return other

    @property
    def pid(self) -> int | None:
        """Process id of a started runtime."""
        return self._running.pid if self._running else None

    @property
    def address(self) -> str:
        """Where a started runtime listens ("host:port")."""
        assert self._running is not None
        return self._running.address

    def kill(self) -> None:
        """SIGKILL a started runtime, as a machine that fails would, and wait until it is gone."""
        assert self._running is not None
        self._running.kill()

    def drain(self) -> None:
        """Run the drain command of the descriptor on a started runtime. Raises Refusal."""
        assert self._running is not None
        assert self.spec.drain is not None
        self._running.command_on(self.spec.drain)

    def stop(self) -> None:
        """End a started runtime in good order; its log can still be read."""
        assert self._running is not None
        self._running.stop(self.descriptor.time.stop)

    def log(self) -> str:
        """What a started runtime wrote; empty for an endpoint."""
        return self._running.log() if self._running else ""

    @property
    def is_tail(self) -> bool:
        """Whether the Shard owns the output head."""
        if self.model.layers is None:
            return self.boundary is not None and self.boundary.is_tail
        return self.spec.end_layer == self.model.layers

    @property
    def model(self) -> ModelFacts:
        """The model that the Shard serves. Raises RuntimeError before connect may have told it."""
        if self._model is None:
            raise RuntimeError("the target is not connected, and its descriptor has no model")
        return self._model

    def facts(self) -> dict[str, Fact]:
        """What decides which requirements apply, each with its source."""
        spec, report = self.spec, self.report
        launchable = spec.launch is not None and self._in_process is None
        return {
            "launch": Fact(launchable, "descriptor"),
            "max_concurrent_sessions": Fact(report.max_concurrent_sessions, "capability"),
            "max_context_tokens": Fact(report.max_context_tokens, "capability"),
            "reduced_limits_variant": Fact(spec.reduced_limits is not None, "descriptor"),
            "layers": Fact(spec.end_layer - spec.start_layer, "descriptor"),
            "later_start": Fact(spec.later_start, "descriptor"),
            "tail": Fact(self.is_tail, "descriptor"),
            "stall_hook": Fact(spec.stall_hook and launchable, "descriptor"),
            "drain_command": Fact(spec.drain is not None and launchable, "descriptor"),
            "codec_testee": Fact(self.descriptor.codec is not None, "descriptor"),
        }

    # Whether it still lives --------------------------------------------------------------------

    def ensure_alive(self) -> None:
        """Start a runtime again that crashed in an earlier test.

        A crash that no test has seen, because it came after the last frame of one, is raised here
        as Nonconformance, once. Raises TargetLost or Refusal too.
        """
        if self._running is None or self._running.exit_code is None:
            return
        seen = self._crash_seen
        lost = self._ended()
        if isinstance(lost, TargetLost):
            raise lost
        if self._starts > MAX_RESTARTS:
            raise TargetLost(f"the runtime crashed {self._starts} times and is not started again")
        self.close()
        self.connect()
        self._crash_seen = False
        if not seen:
            raise lost

    def revive(self) -> None:
        """Start a runtime again that ended, for whatever reason; leave one that serves alone.

        Raises TargetLost for an endpoint that does not answer, and Refusal.
        """
        if self._running is not None:
            self._running.wait_for_exit(0)
            if self._running.exit_code is not None:
                self.close()
                self.connect()
        elif isinstance(lost := self.loss("Health"), TargetLost):
            raise lost

    def loss(self, what: str) -> Exception | None:
        """Why nothing answers: TargetLost, a crash as Nonconformance, or None when it does answer.

        A runtime that ends by itself broke during the test at hand; one ended from outside, by
        SIGTERM or SIGKILL, says nothing about conformance. An endpoint cannot tell which.
        """
        if self._in_process is not None:
            return None
        if self._running is not None and self._running.exit_code is not None:
            return self._loss()
        request = pb.HealthRequest(schema_version=pb.SCHEMA_VERSION_1)
        try:
            self.transport.health(request, self.descriptor.time.answer)
        except UnaryFailed as failed:
            return self._loss_without_answer(what, failed)
        return None

    def _loss_without_answer(self, what: str, failed: UnaryFailed) -> Exception:
        if self._running is not None:
            self._running.wait_for_exit(self.descriptor.time.cleanup)
            if self._running.exit_code is not None:
                return self._loss()
            return Nonconformance(
                f"an answer to {what}", f"silence, and Health fails too ({failed})", _LOG_HINT
            )
        return TargetLost(f"the endpoint stopped answering ({failed})")

    def _loss(self) -> Exception:
        lost = self._ended()
        self._crash_seen = not isinstance(lost, TargetLost)
        return lost

    def _ended(self) -> Exception:
        assert self._running is not None
        code = self._running.exit_code
        lines = self._running.last_lines()
        if code in (-9, -15):
            return TargetLost(
                f"the runtime was ended from outside (signal {-code}); last lines:\n{lines}"
            )
        return Nonconformance(
            "a runtime that serves on", f"its process ended with {code}; last lines:\n{lines}"
        )

    def unseen_crash(self) -> str:
        """How a started runtime ended by itself after the last look at it; empty if it did not."""
        if self._running is None or self._running.exit_code is None or self._crash_seen:
            return ""
        lost = self._ended()
        return "" if isinstance(lost, TargetLost) else str(lost)

    def close(self) -> None:
        """End what was started and give everything back."""
        if self._transport is not None:
            self._transport.close()
            self._transport = None
        for one in (self._running, self._ahead):
            if one is not None:
                one.stop(self.descriptor.time.stop)
        self._running = self._ahead = None


_LOG_HINT = "look for a blocked event loop: unary calls must answer while a stream is busy"
