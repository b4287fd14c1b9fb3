"""What a tail refuses says something about it only when it refuses for good."""

from __future__ import annotations

import pytest

from conformance.tails import supported, try_typed
from pytest_meshnet.protocol.additions.sampling import SamplingContract, TailWant
from pytest_meshnet.runtime.errors import Nonconformance, NotProvoked
from pytest_meshnet.tests.runtime.workers import (
    BusyAtFirst,
    NotNow,
    TokensOnly,
    ruled_by,
    small_shard,
)

BOTH = SamplingContract(want=TailWant.BOTH)


def test_a_contract_that_is_refused_for_good_is_one_that_the_tail_does_not_give() -> None:
    tail = small_shard(ruled_by(TokensOnly), name="tail")
    assert try_typed(tail, BOTH) is None
    assert supported(tail, TailWant.BOTH, TailWant.TOKEN) is TailWant.TOKEN


def test_a_contract_that_is_refused_for_now_leaves_its_test_undone() -> None:
    with pytest.raises(NotProvoked, match=r"now: status .*CANCELLED"):
        try_typed(small_shard(ruled_by(NotNow), name="tail"), BOTH)
    with pytest.raises(NotProvoked, match=r"now: status .*RESOURCE_EXHAUSTED"):
        try_typed(small_shard(ruled_by(BusyAtFirst), cleanup=-1.0, name="tail"), BOTH)


def test_a_session_waits_for_a_place_and_needs_the_feature() -> None:
    assert try_typed(small_shard(ruled_by(BusyAtFirst), name="tail"), BOTH) is not None
    with pytest.raises(Nonconformance, match="FEATURE_TAIL_RESULT"):
        try_typed(small_shard(name="middle"), BOTH)
