"""Shards that stand beside the one under test: the tail, and those around a split index group.

A certificate examines one Shard. Where a profile asks something of a Shard of another kind, the
descriptor names that one with `profiles`; it is started or reached when the first test needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import pytest

from pytest_meshnet.ledger.applicability import Fact
from pytest_meshnet.runtime.descriptor import Descriptor, ShardSpec
from pytest_meshnet.runtime.errors import Nonconformance, Refusal
from pytest_meshnet.runtime.model_facts import ModelFacts
from pytest_meshnet.runtime.probe import gives_logits_and_token
from pytest_meshnet.runtime.shard import ShardUnderTest
from pytest_meshnet.runtime.target import Target
from pytest_meshnet.runtime.transport import UnaryFailed
from pytest_meshnet.suite import limits
from pytest_meshnet.suite_fixtures import connected, examined, target_of

_COMPANIONS = pytest.StashKey[dict[str, Target]]()

Kind = Callable[[ShardSpec, ModelFacts], bool]

TAIL, SIDEBAND = "tail", "sideband"


def is_tail(spec: ShardSpec, model: ModelFacts) -> bool:
    """Whether a Shard owns the output head."""
    return spec.end_layer == model.layers


def splits_a_group(spec: ShardSpec, model: ModelFacts) -> bool:
    """Whether the layer behind a Shard shares indices that were chosen before or in it."""
    share = model.index_share
    return share is not None and share.across(spec.end_layer) is not None


def starts_shared(spec: ShardSpec, model: ModelFacts) -> bool:
    """Whether the first layer of a Shard shares indices that were chosen before it."""
    share = model.index_share
    return share is not None and share.across(spec.start_layer) is not None


def ends_whole(spec: ShardSpec, model: ModelFacts) -> bool:
    """Whether a Shard of a model with shared indices ends where no group is split."""
    return model.index_share is not None and not splits_a_group(spec, model)


KINDS: Mapping[str, tuple[tuple[Kind, str], ...]] = {
    TAIL: ((is_tail, "owns the output head"),),
    SIDEBAND: (
        (splits_a_group, "ends before a Shared layer"),
        (starts_shared, "starts on a Shared layer"),
        (ends_whole, "ends where no index group is split"),
    ),
}
"""What the tests of a profile need, and how a refusal calls it."""


def check_companions(descriptor: Descriptor, main: Target, claimed: Iterable[str]) -> None:
    """Raise Refusal when a claimed profile needs a Shard that the descriptor does not have."""
    for profile in KINDS.keys() & set(claimed):
        for kind, words in KINDS[profile]:
            if not any(_candidates(descriptor, main, profile, kind)):
                raise Refusal(
                    f"profile {profile} is claimed and no Shard of {descriptor.name} {words}: add "
                    f'a [[shards]] entry with profiles = ["{profile}"]'
                    + ("" if profile == TAIL else ", and model.index_share with the layers' roles")
                )


def _candidates(
    descriptor: Descriptor, main: Target, profile: str, kind: Kind
) -> Iterable[ShardSpec | None]:
    """The Shards of a kind that may be asked; None is the one under test itself."""
    if main.is_tail if kind is is_tail else kind(main.spec, main.model):
        yield None
    for spec in descriptor.shards:
        known = spec.model or descriptor.model or main.model
        # Without a number of layers only the Shard's own boundary spec tells, once it is reached.
        untold = kind is is_tail and known.layers is None
        if profile in spec.profiles and (untold or kind(spec, known)):
            yield spec


def connect(config: pytest.Config, claimed: Iterable[str]) -> Mapping[str, Fact]:
    """Check that every Shard is there that the claimed profiles need, and ask the tail for facts.

    A tail that breaks in the probe, or has no session for it now, leaves them unknown: the tests
    will say what is wrong with it.
    Raises Refusal.
    """
    main = connected(config)
    check_companions(main.descriptor, main, claimed)
    if TAIL not in claimed:
        return {}
    target = _companion(config, main, TAIL, is_tail)
    probe = ShardUnderTest(target, f"probe-tail-{target.run_tag}", 0)
    try:
        both = gives_logits_and_token(probe)
    except (Nonconformance, UnaryFailed):
        both = None
    return {} if both is None else {"logits_and_token": Fact(both, "observed")}


def logs(config: pytest.Config) -> dict[str, str]:
    """What each Shard that was started here has written so far, by its name in the descriptor."""
    running = config.stash.get(_COMPANIONS, {})
    return {f"beside_{name}": target.log() for name, target in running.items()}


def disconnect(config: pytest.Config) -> str:
    """End what was started here.

    Returns how one of them crashed after the last test that looked, or an empty text.
    """
    crash = ""
    for target in config.stash.setdefault(_COMPANIONS, {}).values():
        crash = target.unseen_crash() or crash
        target.close()
    config.stash[_COMPANIONS].clear()
    return crash


def _companion(config: pytest.Config, main: Target, profile: str, kind: Kind) -> Target:
    """The Shard of that kind: the one under test, or the first that stands beside it.

    Raises Refusal where there is none.
    """
    found = next(iter(_candidates(main.descriptor, main, profile, kind)), None)
    if found is None:
        check_companions(main.descriptor, main, [profile])
        return main
    running = config.stash.setdefault(_COMPANIONS, {})
    if found.name not in running:
        running[found.name] = target_of(config, main.descriptor, found)
        running[found.name].connect()
        if kind is is_tail and not running[found.name].is_tail:
            raise Refusal(
                f"Shard {found.name} stands for the profile {profile}, and the output head is not "
                "its own: correct its range, or [model] layers"
            )
    running[found.name].ensure_alive()
    return running[found.name]


def _examined_beside(
    request: pytest.FixtureRequest, main: Target, profile: str, kind: Kind
) -> ShardUnderTest:
    with limits.suspended(request.node):
        beside = _companion(request.config, main, profile, kind)
    return examined(request, beside)


@pytest.fixture
def tail_shard(request: pytest.FixtureRequest, target: Target) -> ShardUnderTest:
    """A Shard that owns the output head."""
    return _examined_beside(request, target, TAIL, is_tail)


@pytest.fixture
def splitting_shard(request: pytest.FixtureRequest, target: Target) -> ShardUnderTest:
    """A Shard that ends before a Shared layer, so that its results carry the sideband."""
    return _examined_beside(request, target, SIDEBAND, splits_a_group)


@pytest.fixture
def sharing_shard(request: pytest.FixtureRequest, target: Target) -> ShardUnderTest:
    """A Shard that starts on a Shared layer, so that its units carry the sideband."""
    return _examined_beside(request, target, SIDEBAND, starts_shared)


@pytest.fixture
def whole_shard(request: pytest.FixtureRequest, target: Target) -> ShardUnderTest:
    """A Shard of a model with shared indices that ends where no group is split."""
    return _examined_beside(request, target, SIDEBAND, ends_whole)
