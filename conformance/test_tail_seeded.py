"""TAIL-05: sampling follows its seed, whoever else samples beside it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import pytest

from pytest_meshnet.protocol.additions.sampling import SamplingContract, TailResult, TailWant
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.shard import ShardUnderTest

from .side_by_side import places
from .tails import inputs, seeded, steps, supported, tokens_of, typed

STEPS = 8


def _contract(shard: ShardUnderTest, seed: int, **fields: object) -> SamplingContract:
    return seeded(seed, want=supported(shard, TailWant.BOTH, TailWant.TOKEN), **fields)


def _run(shard: ShardUnderTest, contract: SamplingContract, key: int = 0) -> list[TailResult]:
    with typed(shard, contract) as session:
        return steps(session, shard, 2, STEPS - 1, key)


def _check_same(expected: Sequence[TailResult], found: Sequence[TailResult], what: str) -> None:
    """The same tokens. Where logits differ by rounding, a draw near a boundary may fall aside."""
    pairs = list(zip(tokens_of(expected), tokens_of(found), strict=True))
    apart = [index for index, (one, other) in enumerate(pairs) if one != other]
    exact = [i for i in apart if _bits(expected[i]) and _bits(expected[i]) == _bits(found[i])]
    if exact or len(apart) > len(pairs) // 4:
        raise Nonconformance(
            f"{what}: tokens {[one for one, _ in pairs]}", f"{[other for _, other in pairs]}"
        )


def _bits(result: TailResult) -> bytes:
    return b"" if result.logits is None else bytes(result.logits.data)


BOUNDS = {
    "whole": {},
    "top-k": {"top_k": 40},
    "top-p": {"top_p": 0.9},
    "warm": {"temperature": 2.0},
}


@pytest.mark.requirement("TAIL-05")
@pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS)
@pytest.mark.parametrize("seed", [0, 2**64 - 1])
def test_the_same_seed_and_contract_give_the_same_tokens(
    tail_shard: ShardUnderTest, seed: int, bounds: dict[str, object]
) -> None:
    """The same session three times, with another seed's in between."""
    contract = _contract(tail_shard, seed, **bounds)
    first = _run(tail_shard, contract)
    second = _run(tail_shard, contract)
    _run(tail_shard, _contract(tail_shard, seed ^ 5, **bounds))
    third = _run(tail_shard, contract)
    _check_same(first, second, "the same session again")
    _check_same(first, third, "the same session after one with another seed")


@pytest.mark.requirement("TAIL-05")
@pytest.mark.parametrize("other", [0, 3, 4], ids=["greedy", "same-seed", "other-seed"])
def test_another_session_does_not_disturb_the_draws(tail_shard: ShardUnderTest, other: int) -> None:
    """Two sessions step by step, one of them before every step of the other."""
    contract = _contract(tail_shard, 3)
    alone = _run(tail_shard, contract)
    beside = _contract(tail_shard, other) if other else SamplingContract(want=contract.want)
    if places(tail_shard, 2) < 2:
        # One place: the other session runs before, and not in between.
        _run(tail_shard, beside, key=1)
        _check_same(alone, _run(tail_shard, contract), "after another session")
        return
    units, others = inputs(tail_shard, 2 + STEPS - 1), inputs(tail_shard, 2 + STEPS - 1, key=1)
    with ExitStack() as stack:
        one = stack.enter_context(typed(tail_shard, contract))
        two = stack.enter_context(typed(tail_shard, beside))
        found = []
        steps(two, tail_shard, 2, 0, key=1)
        found += steps(one, tail_shard, 2, 0)
        for step, disturbing in zip(units[2:], others[2:], strict=True):
            two.tail(two.send_unit(two.client.decode(disturbing)))
            found.append(one.tail(one.send_unit(one.client.decode(step))))
    _check_same(alone, found, "interleaved with another session")
