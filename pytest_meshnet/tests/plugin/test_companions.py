"""The Shards that stand beside the one under test: which are needed, chosen, started and ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_meshnet import companion_fixtures, suite_fixtures
from pytest_meshnet.ledger.applicability import Fact
from pytest_meshnet.protocol.additions.sampling import SamplingContract, TailWant
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.rules import Rules
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.reference.catalogue import build_small
from pytest_meshnet.runtime.descriptor import Descriptor, ShardSpec, load
from pytest_meshnet.runtime.errors import Refusal
from pytest_meshnet.runtime.in_process import InProcessTransport
from pytest_meshnet.runtime.probe import gives_logits_and_token
from pytest_meshnet.runtime.target import Target
from pytest_meshnet.tests.runtime.workers import (
    BusyAtFirst,
    NotNow,
    TokensOnly,
    ruled_by,
    small_shard,
)

SMALL = load("reference", small=True)
BY_NAME = {spec.name: spec for spec in SMALL.shards}


def _target(descriptor: Descriptor, spec: ShardSpec) -> Target:
    return Target(
        descriptor,
        spec,
        in_process=lambda: InProcessTransport(*build_small("", descriptor, spec)),
    )


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A config whose targets are made in process, and the main one, connected."""
    config = SimpleNamespace(stash=pytest.Stash())
    made: list[str] = []

    def make(config: Any, descriptor: Descriptor, spec: ShardSpec) -> Target:
        made.append(spec.name)
        return _target(descriptor, spec)

    monkeypatch.setattr(companion_fixtures, "target_of", make)
    main = _target(SMALL, BY_NAME["middle"])
    main.connect()
    monkeypatch.setattr(companion_fixtures, "connected", lambda config: main)
    return SimpleNamespace(config=config, main=main, made=made)


def _with_shards(*names: str) -> Descriptor:
    return replace(SMALL, shards=tuple(BY_NAME[name] for name in names))


def _check(descriptor: Descriptor, claimed: Sequence[str], main: str = "middle") -> None:
    target = _target(descriptor, BY_NAME[main])
    target.connect()
    companion_fixtures.check_companions(descriptor, target, claimed)


def test_every_shard_that_a_claim_needs_is_there_in_the_reference() -> None:
    _check(SMALL, ["tail", "sideband"])


@pytest.mark.parametrize(
    ("names", "profile", "words"),
    [
        (("middle", "splitting", "sharing"), "tail", "owns the output head"),
        (("middle", "tail", "sharing"), "sideband", "ends before a Shared layer"),
        (("middle", "tail", "splitting"), "sideband", "starts on a Shared layer"),
    ],
)
def test_a_claim_without_its_shard_is_refused_before_anything_is_tested(
    names: tuple[str, ...], profile: str, words: str
) -> None:
    descriptor = _with_shards(*names)
    with pytest.raises(Refusal, match=rf"profile {profile} is claimed and no Shard .* {words}"):
        _check(descriptor, [profile])
    _check(descriptor, ["core", "bundle"])


def test_the_shard_under_test_itself_may_be_the_tail() -> None:
    _check(_with_shards("tail"), ["tail"], main="tail")


def test_a_companion_is_started_once_for_all_that_ask_and_ended_with_the_run(run: Any) -> None:
    facts = companion_fixtures.connect(run.config, {"tail"})
    assert facts["logits_and_token"].value is True
    companion_fixtures.connect(run.config, {"tail"})
    assert run.made == ["tail"]
    assert companion_fixtures.logs(run.config) == {"beside_tail": ""}
    assert companion_fixtures.disconnect(run.config) == ""
    assert companion_fixtures.logs(run.config) == {}
    companion_fixtures.connect(run.config, {"tail"})
    assert run.made == ["tail", "tail"]


def test_nothing_is_started_for_profiles_that_need_no_other_shard(run: Any) -> None:
    assert companion_fixtures.connect(run.config, {"core", "bundle"}) == {}
    assert run.made == []


def test_a_shard_that_is_no_tail_is_refused_where_only_it_can_tell(run: Any) -> None:
    wrong = replace(BY_NAME["middle"], name="last", profiles=("tail",))
    mute = replace(SMALL, model=None, shards=(BY_NAME["middle"], wrong))
    run.main.descriptor = mute
    run.main._model = replace(run.main.model, layers=None)

    def make(config: Any, descriptor: Descriptor, spec: ShardSpec) -> Target:
        worker = InProcessTransport(*build_small("", SMALL, BY_NAME["middle"]))
        return Target(descriptor, spec, in_process=lambda: worker)

    companion_fixtures.target_of = make
    with pytest.raises(Refusal, match="Shard last stands for the profile tail"):
        companion_fixtures.connect(run.config, {"tail"})


class _Full(Rules):
    def check_capacity(self, places_held: int) -> None:
        super().check_capacity(99)


class _Broken(Rules):
    def settled_sampling(self, message: pb.SessionOpen) -> SamplingContract | None:
        contract = super().settled_sampling(message)
        assert contract is not None, "the probe asks for one"
        return replace(contract, want=TailWant.TOKEN)


@pytest.mark.parametrize(
    ("rules", "both"),
    [
        (Rules, True),
        (BusyAtFirst, True),
        (TokensOnly, False),
        (NotNow, None),
        (_Full, None),
        (_Broken, None),
    ],
)
def test_the_probe_says_whether_both_parts_of_a_result_can_be_had_or_that_it_is_not_known(
    rules: type[Rules], both: bool | None
) -> None:
    cleanup = -1.0 if rules is _Full else 5.0
    assert gives_logits_and_token(small_shard(ruled_by(rules), cleanup, name="tail")) is both


def test_a_tail_that_knows_no_tail_results_has_not_both_parts_of_one() -> None:
    mute = small_shard(lambda one: Worker(replace(one.served, speaks=())), name="tail")
    assert gives_logits_and_token(mute) is False


@pytest.mark.parametrize(
    ("rules", "facts"),
    [(NotNow, {}), (TokensOnly, {"logits_and_token": Fact(False, "observed")})],
)
def test_what_a_tail_has_no_session_for_now_is_no_fact(
    run: Any, monkeypatch: pytest.MonkeyPatch, rules: type[Rules], facts: dict[str, Fact]
) -> None:
    def make(config: Any, descriptor: Descriptor, spec: ShardSpec) -> Target:
        worker, model = build_small("", descriptor, spec)
        changed = InProcessTransport(ruled_by(rules)(worker), model)
        return Target(descriptor, spec, in_process=lambda: changed)

    monkeypatch.setattr(companion_fixtures, "target_of", make)
    assert companion_fixtures.connect(run.config, {"tail"}) == facts


def test_the_companions_build_on_the_fixtures_of_the_suite() -> None:
    assert companion_fixtures.examined is suite_fixtures.examined
