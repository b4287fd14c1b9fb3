"""What the tests of the suites ask for: the target of the run and the Shard they examine.

A plugin of its own, registered only when a suite is collected; nothing here costs an unrelated run.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

import pytest

from pytest_meshnet.ledger.applicability import Fact
from pytest_meshnet.options import Settings, settings
from pytest_meshnet.parity.bench import ParityBench
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.runtime.codec_testee import CodecTestee
from pytest_meshnet.runtime.descriptor import Descriptor, ShardSpec, load
from pytest_meshnet.runtime.errors import Nonconformance, NotProvoked, Refusal
from pytest_meshnet.runtime.probe import sends_grants
from pytest_meshnet.runtime.shard import ShardUnderTest
from pytest_meshnet.runtime.target import InProcess, Target, choose_shard
from pytest_meshnet.runtime.transport import UnaryFailed
from pytest_meshnet.suite import limits
from pytest_meshnet.suite import parity as parities
from pytest_meshnet.suite.evidence import Attachments, attachments_of
from pytest_meshnet.suite.parity import figures_of_lane

# What the need "sessions<=64" of the ledger asks for.
MOST_PLACES = 64
MOST_CONTEXT = 4096
# How long a unit of a slow Shard takes: far longer than a unary call, far shorter than a limit.
STALL_MS = 60

_TARGET = pytest.StashKey[Target]()
_SMALL = pytest.StashKey[Target]()
_SLOW = pytest.StashKey[Target]()
_TESTEE = pytest.StashKey[CodecTestee]()
_SHARDS = pytest.StashKey[list[ShardUnderTest]]()
_COUNTER = pytest.StashKey[list[int]]()


def pytest_configure(config: pytest.Config) -> None:
    """Set hypothesis up for tests over a network, and apply a suite mutant before any import."""
    import hypothesis

    chosen = settings(config)
    hypothesis.settings.register_profile(
        "meshnet",
        deadline=None,
        derandomize=chosen.certificate,
        database=None,
        print_blob=False,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    hypothesis.settings.load_profile("meshnet")
    if name := _mutant_of(chosen):
        from pytest_meshnet.reference.catalogue import apply_suite_mutant

        apply_suite_mutant(name)
    config.pluginmanager.register(_companions(), "meshnet-companions")


def _companions() -> Any:
    """The fixtures of the Shards beside the one under test; they build on those here."""
    return import_module("pytest_meshnet.companion_fixtures")


def _mutant_of(chosen: Settings) -> str:
    return chosen.target.partition(":")[2] if chosen.is_reference else ""


def descriptor_of(config: pytest.Config) -> Descriptor:
    """The descriptor of the run's target. Raises Refusal."""
    chosen = settings(config)
    if name := _mutant_of(chosen):
        from pytest_meshnet.reference.catalogue import UnknownName, entry

        try:
            entry(name)
        except UnknownName as error:
            raise Refusal(str(error)) from None
    return load(chosen.target, small=chosen.transport == "in-process")


def connect(config: pytest.Config, claimed: frozenset[str]) -> Mapping[str, Fact]:
    """Reach or start the target once in this process, and return what decides applicability.

    `claimed` are the profiles for which Shards beside it must be there. Raises Refusal.
    """
    if not descriptor_of(config).shards:
        return {}  # a whole route is described, and made by the tests of parity
    target = connected(config)
    target.ensure_alive()
    seen = _observed(ShardUnderTest(target, f"probe-{target.run_tag}", 0))
    beside: Mapping[str, Fact] = _companions().connect(config, claimed)
    return {**target.facts(), **seen, **beside}


def claims(config: pytest.Config) -> Mapping[str, Fact]:
    """Return what the connected target says of itself that decides nothing.

    Names that begin with "recipe" are what two runs must have in common to be compared.
    """
    described = descriptor_of(config)
    # Of a route that is described as a whole no single Shard speaks.
    report = connected(config).report if described.shards else pb.CapabilityReport()
    told: dict[str, str | bool] = {
        "backend": report.backend,
        "device": report.device,
        "validated": report.validated if described.shards else "",
        "artifact digest": report.fingerprint.model_artifact_digest,
        "recipe digest": report.fingerprint.runtime_recipe_digest,
        "recipe": f"{report.fingerprint.recipe_id} {report.fingerprint.recipe_version}".strip(),
    }
    configured = {"vendor": described.vendor, "version": described.version}
    found = {name: Fact(value, "capability") for name, value in told.items() if value != ""}
    return found | {name: Fact(value, "descriptor") for name, value in configured.items() if value}


def _observed(shard: ShardUnderTest) -> dict[str, Fact]:
    """What a session shows that no declaration tells.

    A Shard that breaks in it leaves the facts unknown: the tests will say what is wrong with it.
    """
    try:
        return {"grants": Fact(sends_grants(shard), "observed")}
    except (Nonconformance, UnaryFailed):
        return {}


def granted(config: pytest.Config) -> bool:
    """Whether a grant came in any session of the run, in the first look or in a test."""
    targets = [config.stash[key] for key in (_TARGET, _SMALL, _SLOW) if key in config.stash]
    return any("flow_control" in target.came for target in targets)


def connected(config: pytest.Config) -> Target:
    """The run's target, reached or started by the first call. Raises Refusal."""
    if _TARGET not in config.stash:
        chosen = settings(config)
        descriptor = descriptor_of(config)
        spec = choose_shard(descriptor, chosen.shard)
        config.stash[_TARGET] = target = target_of(config, descriptor, spec)
        target.connect()
    return config.stash[_TARGET]


def target_of(config: pytest.Config, descriptor: Descriptor, spec: ShardSpec) -> Target:
    """One Shard of the run's target, not yet connected."""
    chosen = settings(config)
    return Target(
        descriptor,
        spec,
        place=_place(),
        in_process=_in_process(chosen, descriptor, spec),
        reads=_reads(chosen),
    )


def _reads(chosen: Settings) -> tuple[int, ...]:
    both = (pb.COMPRESSION_NONE, pb.COMPRESSION_ZSTD)
    return both if chosen.offer == "zstd" else both[:1]


def _place() -> int:
    """0, or the number of this xdist worker."""
    match = re.fullmatch(r"gw(\d+)", os.environ.get("PYTEST_XDIST_WORKER", ""))
    return int(match[1]) if match else 0


def _in_process(chosen: Settings, descriptor: Descriptor, spec: ShardSpec) -> InProcess | None:
    if chosen.transport != "in-process":
        return None
    from pytest_meshnet.reference.catalogue import build_small
    from pytest_meshnet.runtime.in_process import InProcessTransport

    return lambda: InProcessTransport(*build_small(_mutant_of(chosen), descriptor, spec))


def logs(config: pytest.Config) -> Mapping[str, str]:
    """What each runtime that was started has written so far, by the fixture that started it."""
    starts = {"shard": _TARGET, "small_shard": _SMALL, "slow_shard": _SLOW}
    found = {name: config.stash[key].log() for name, key in starts.items() if key in config.stash}
    found.update(_companions().logs(config))
    return {name: text for name, text in found.items() if text}


def disconnect(config: pytest.Config) -> str:
    """End what `connect` and the fixtures of this plugin started.

    Returns how one of them crashed after the last test that looked, or an empty text.
    """
    crash: str = _companions().disconnect(config)
    if _TESTEE in config.stash:
        config.stash[_TESTEE].dispose()
        del config.stash[_TESTEE]
    parities.close(config)
    for key in (_SLOW, _SMALL, _TARGET):
        if key in config.stash:
            crash = config.stash[key].unseen_crash() or crash
            config.stash[key].close()
            del config.stash[key]
    return crash


def trace_text(item: pytest.Item, broken: str) -> str | None:
    """The last frames of a test, None when it exchanged none.

    The frame whose line is in `broken` is marked.
    """
    texts = [shard.trace.text(broken=broken) for shard in item.stash.get(_SHARDS, [])]
    return "\n".join(text for text in texts if text) or None


@pytest.fixture
def target(pytestconfig: pytest.Config) -> Target:
    """The running target. Raises TargetLost when it was ended from outside."""
    target = connected(pytestconfig)
    target.ensure_alive()
    return target


@pytest.fixture
def attachments(request: pytest.FixtureRequest) -> Attachments:
    """Where the test leaves what its evidence should hold: texts, bytes, prompts."""
    return attachments_of(request.node)


@pytest.fixture
def shard(request: pytest.FixtureRequest, target: Target) -> ShardUnderTest:
    """The Shard under test, with a trace of its own and session ids that no other test uses."""
    return examined(request, target)


@pytest.fixture
def parity(pytestconfig: pytest.Config) -> ParityBench:
    """The routes of the target beside its oracle. Raises Refusal where none is described."""
    mutant = _mutant_of(settings(pytestconfig))
    return parities.bench_of(pytestconfig, descriptor_of(pytestconfig), mutant, _place())


@pytest.fixture
def relayed_shard(request: pytest.FixtureRequest, target: Target) -> ShardUnderTest:
    """The Shard under test behind a relay, which passes on nothing but frames."""
    from pytest_meshnet.runtime.relay import RelayTransport

    return examined(request, target.through(RelayTransport))


def examined(request: pytest.FixtureRequest, target: Target) -> ShardUnderTest:
    """A Shard for the test at hand, with a trace of its own and session ids no other test uses."""
    chosen = settings(request.config)
    name = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name).strip("-")[:60]
    number = request.config.stash.setdefault(_COUNTER, [0])
    number[0] += 1
    prefix = f"{name}-{target.run_tag}-{number[0]}"
    shard = ShardUnderTest(target, prefix, chosen.seed)
    request.node.stash.setdefault(_SHARDS, []).append(shard)
    return shard


@pytest.fixture
def small_shard(request: pytest.FixtureRequest, target: Target) -> ShardUnderTest:
    """A Shard small enough to be filled: at most 64 places, and a context of at most 4096.

    The one under test, or where that has more and a start variant with reduced limits is declared,
    one started with it, which then serves the rest of the run.
    """
    with limits.suspended(request.node):
        small = _small_target(request.config, target)
    return examined(request, small)


def _small_target(config: pytest.Config, target: Target) -> Target:
    reduced = target.spec.reduced_limits
    report = target.report
    small = 0 < report.max_concurrent_sessions <= MOST_PLACES
    small = small and 0 < report.max_context_tokens <= MOST_CONTEXT
    if small or reduced is None:
        return target
    if _SMALL not in config.stash:
        spec = replace(target.spec, launch=reduced)
        config.stash[_SMALL] = Target(target.descriptor, spec, reads=target.reads)
        config.stash[_SMALL].connect()
    config.stash[_SMALL].ensure_alive()
    return config.stash[_SMALL]


@pytest.fixture
def slow_shard(request: pytest.FixtureRequest, target: Target) -> ShardUnderTest:
    """A Shard whose units stay in flight long enough to be met there; `unit_seconds` tells.

    In process the Shard itself, whose units wait until somebody receives. A started target that
    honours the stall variable is started once more with it, for the rest of the run. Elsewhere the
    Shard under test, of which nothing is certain.
    """
    if target.pid is None or not target.spec.stall_hook:
        shard = examined(request, target)
        in_process = settings(request.config).transport == "in-process"
        shard.unit_seconds = math.inf if in_process else 0.0
        return shard
    with limits.suspended(request.node):
        slow = _slow_target(request.config, target)
    shard = examined(request, slow)
    shard.unit_seconds = STALL_MS / 1000
    return shard


def _slow_target(config: pytest.Config, target: Target) -> Target:
    if _SLOW not in config.stash:
        assert target.spec.launch is not None, "a target with a process has a start command"
        launch = target.spec.launch
        stalled = {**launch.environment, "MESHNET_TEST_STALL_MS": str(STALL_MS)}
        spec = replace(target.spec, launch=replace(launch, environment=stalled))
        config.stash[_SLOW] = Target(target.descriptor, spec, reads=target.reads)
        config.stash[_SLOW].connect()
    config.stash[_SLOW].ensure_alive()
    return config.stash[_SLOW]


@pytest.fixture
def relayed_slow_shard(
    request: pytest.FixtureRequest, slow_shard: ShardUnderTest
) -> ShardUnderTest:
    """The slow Shard behind a relay."""
    from pytest_meshnet.runtime.relay import RelayTransport

    shard = examined(request, slow_shard.target.through(RelayTransport))
    shard.unit_seconds = slow_shard.unit_seconds
    return shard


@pytest.fixture
def codec_testee(request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> CodecTestee:
    """The runtime's own codec. A test that asks for it examines the runtime, not the suite."""
    if _TESTEE not in pytestconfig.stash:
        descriptor = connected(pytestconfig).descriptor
        assert descriptor.codec is not None, "the fact codec_testee says that there is one"
        testee = CodecTestee(descriptor.codec, descriptor.folder, descriptor.time)
        pytestconfig.stash[_TESTEE] = testee
    testee = pytestconfig.stash[_TESTEE]
    testee.while_starting = partial(limits.suspended, request.node)
    return testee


@pytest.fixture
def another_shard(
    request: pytest.FixtureRequest, target: Target
) -> Iterator[Callable[..., ShardUnderTest]]:
    """Starts one more runtime for a test that drains, slows or ends it.

    Call it with what to add to the environment. What was started is stopped after the test. Raises
    NotProvoked where the target has no start command of its own.
    """
    started: list[Target] = []

    def start(**environment: str) -> ShardUnderTest:
        if target.spec.launch is None or target.pid is None:
            raise NotProvoked("the target is not started by the suite")
        one = Target(target.descriptor, target.spec, reads=target.reads)
        started.append(one)
        with limits.suspended(request.node):
            one.connect(extra=environment)
        return examined(request, one)

    yield start
    for one in started:
        one.close()


__all__ = [
    "another_shard",
    "attachments",
    "codec_testee",
    "connect",
    "descriptor_of",
    "disconnect",
    "figures_of_lane",
    "granted",
    "logs",
    "parity",
    "relayed_shard",
    "relayed_slow_shard",
    "shard",
    "slow_shard",
    "small_shard",
    "target",
    "trace_text",
]
