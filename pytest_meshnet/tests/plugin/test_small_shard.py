"""The fixture `small_shard`: the Shard under test, or one started with reduced limits."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_meshnet import suite_fixtures
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.runtime.descriptor import Descriptor, Launch, ShardSpec, load


class FakeTarget:
    """Stands in for a Target; remembers what became of it."""

    def __init__(self, descriptor: Descriptor, spec: ShardSpec, reads: Any = None) -> None:
        self.descriptor, self.spec, self.reads = descriptor, spec, reads
        self.report = pb.CapabilityReport(max_concurrent_sessions=3, max_context_tokens=8)
        self.told: list[str] = []

    def connect(self) -> None:
        self.told.append("connect")

    def ensure_alive(self) -> None:
        self.told.append("ensure_alive")

    def unseen_crash(self) -> str:
        return ""

    def log(self) -> str:
        return f"told {', '.join(self.told)}"

    def close(self) -> None:
        self.told.append("close")


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(suite_fixtures, "Target", FakeTarget)
    return SimpleNamespace(stash=pytest.Stash())


def _target(places: int, reduced: bool = True) -> FakeTarget:
    descriptor = load("reference")
    spec = descriptor.shards[0]
    target = FakeTarget(descriptor, spec if reduced else replace(spec, reduced_limits=None))
    target.report.max_concurrent_sessions = places
    return target


@pytest.mark.parametrize(("places", "reduced"), [(64, True), (1, True), (65, False)])
def test_the_shard_under_test_is_taken_where_it_is_small_or_has_no_smaller_form(
    config: Any, places: int, reduced: bool
) -> None:
    target = _target(places, reduced)
    assert suite_fixtures._small_target(config, target) is target


@pytest.mark.parametrize("places", [65, 0], ids=["larger", "not told"])
def test_a_larger_one_is_started_once_with_reduced_limits_and_kept_alive(
    config: Any, places: int
) -> None:
    target = _target(places)
    small = suite_fixtures._small_target(config, target)
    assert small is not target
    assert isinstance(small.spec.launch, Launch)
    assert small.spec.launch == target.spec.reduced_limits
    assert suite_fixtures._small_target(config, target) is small
    assert small.told == ["connect", "ensure_alive", "ensure_alive"]


def test_what_was_started_is_ended_with_the_run(config: Any) -> None:
    small = suite_fixtures._small_target(config, _target(65))
    assert suite_fixtures.logs(config) == {"small_shard": "told connect, ensure_alive"}
    suite_fixtures.disconnect(config)
    assert suite_fixtures.logs(config) == {}
    suite_fixtures.disconnect(config)
    assert small.told[-1:] == ["close"]
    assert small.told.count("close") == 1
