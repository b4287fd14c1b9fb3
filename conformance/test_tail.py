"""TAIL-01 to 04: typed results of a tail, the identity of their sampling, and greedy choice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pytest_meshnet.protocol.additions.features import Feature
from pytest_meshnet.protocol.additions.sampling import SamplingContract, TailResult, TailWant
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.runtime.errors import Nonconformance, NotProvoked
from pytest_meshnet.runtime.session import Session
from pytest_meshnet.runtime.shard import ShardUnderTest

from .tails import (
    WANTS,
    check_result,
    inputs,
    only_acked,
    steps,
    supported,
    tokens_of,
    try_typed,
    typed,
)

GREEDY = SamplingContract()

# Typed result ------------------------------------------------------------------------------------


@pytest.mark.requirement("TAIL-01")
@pytest.mark.parametrize("want", WANTS, ids=lambda want: want.name.lower())
def test_final_chunks_and_decode_steps_have_one_typed_result_and_other_chunks_an_ack(
    tail_shard: ShardUnderTest, want: TailWant
) -> None:
    """Several prefills and steps on one stream; whatever comes beside what is due is a finding."""
    # faults.md 40
    found = inputs(tail_shard, 6)
    session = try_typed(tail_shard, replace(GREEDY, want=want))
    if session is None:
        # A tail need not give every kind of result, but it gives one.
        supported(tail_shard, *WANTS)
        return
    with session:
        for begin in range(2):
            *others, last = found[: len(found) - 2] or found
            for index, part in enumerate(others):
                message = session.client.chunk([part], final=False, fresh=index == 0)
                only_acked(session.exchange(message))
            message = session.client.chunk([last], fresh=not others)
            check_result(tail_shard, session.tail(session.send_unit(message)), want)
            for step in found[len(found) - 2 :] if len(found) > 2 else []:
                exchange = session.send_unit(session.client.decode(step, full=bool(begin)))
                check_result(tail_shard, session.tail(exchange), want)


def _in_bundle(session: Session, step: Tensor) -> pb.SessionRequest:
    bundled = Feature.DECODE_BUNDLE in session.client.features
    return session.client.decode([step] if bundled else step)


UNITS: Mapping[str, Callable[[Session, Tensor], pb.SessionRequest]] = {
    "decode-step": lambda session, step: session.client.decode(step),
    "full-form": lambda session, step: session.client.decode(step, full=True),
    "bundle": _in_bundle,
    "stateless": lambda session, step: session.client.chunk([step], mode=pb.CACHE_MODE_STATELESS),
    "appended-prefill": lambda session, step: session.client.chunk([step]),
    "fresh-prefill": lambda session, step: session.client.chunk([step], fresh=True),
}


@pytest.mark.requirement("TAIL-01")
@pytest.mark.parametrize("kind", UNITS)
def test_every_kind_of_final_unit_has_one_typed_result(
    tail_shard: ShardUnderTest, kind: str
) -> None:
    """Whatever form the unit has, its result is typed and under its work id and step."""
    want = supported(tail_shard, *WANTS)
    with typed(tail_shard, replace(GREEDY, want=want)) as session:
        steps(session, tail_shard, 1, 0)
        step = inputs(tail_shard, 2)[-1]
        for _ in range(2):
            exchange = session.send_unit(UNITS[kind](session, step))
            check_result(tail_shard, session.tail(exchange), want)


@pytest.mark.requirement("TAIL-01")
def test_a_refused_unit_and_a_duplicate_have_no_result_of_their_own(
    tail_shard: ShardUnderTest,
) -> None:
    """A miss is a status alone; a repeated step may bring its first result again, and no other."""
    want = supported(tail_shard, *WANTS)
    step = inputs(tail_shard, 2)[-1]
    with typed(tail_shard, replace(GREEDY, want=want)) as session:
        steps(session, tail_shard, 1, 0)
        session.refused(
            session.exchange(session.client.decode(step, expected=7)), pb.ERROR_CODE_CACHE_MISS
        )
        message = session.client.decode(step)
        first = session.send_unit(message)
        result = session.tail(first)
        again = session.exchange(message)
    for other in [*first.tails[1:], *again.tails]:
        if _without_logits(other) != _without_logits(result):
            raise Nonconformance(f"the original result {_without_logits(result)}",
                                 f"{_without_logits(other)}")  # fmt: skip


def _without_logits(result: TailResult) -> tuple[object, ...]:
    return result.work_id, result.step, result.token, result.sampling_digest


@pytest.mark.requirement("TAIL-01")
def test_the_logits_are_those_of_the_last_position(tail_shard: ShardUnderTest) -> None:
    """A prefill of all tokens ends where a shorter one ends after its decode steps."""
    want = supported(tail_shard, TailWant.LOGITS, TailWant.BOTH, TailWant.TOKEN)
    contract = replace(GREEDY, want=want)
    count = len(inputs(tail_shard, 5))
    with typed(tail_shard, contract) as session:
        stepwise = steps(session, tail_shard, 1, count - 1)
    ends = []
    for length in range(2, count + 1):
        with typed(tail_shard, contract) as session:
            (whole,) = steps(session, tail_shard, length, 0)
        ends.append((whole, stepwise[length - 1]))
    if want.logits:
        for length, (whole, step) in enumerate(ends, start=2):
            what = f"logits of a prefill of {length} against those of its last step"
            tail_shard.check_equal(_row(whole), _row(step), what)
        return
    # Of a tail that gives tokens only: a near tie may fall either way.
    tokens = [tokens_of(pair) for pair in ends]
    if sum(one != other for one, other in tokens) > len(tokens) // 2:
        raise Nonconformance(
            f"tokens {[other for _, other in tokens]}, as after the last step of each length",
            f"{[one for one, _ in tokens]}",
        )


def _row(result: TailResult) -> Any:
    if result.logits is None:
        raise Nonconformance("logits, which the contract wants", "a result without them")
    return result.logits.to_float32()[0]


# Sampling identity -------------------------------------------------------------------------------

BASE = SamplingContract(
    temperature=0.5, top_k=20, top_p=0.9, seed=11, chat_template_digest="c0ffee",
    reasoning_effort="low",
)  # fmt: skip
CHANGES: Mapping[str, Mapping[str, object]] = {
    "temperature": {"temperature": 0.75},
    "top_k": {"top_k": 21},
    "top_p": {"top_p": 0.95},
    "seed": {"seed": 2**64 - 1},
    "template": {"chat_template_digest": "c0ffef"},
    "reasoning": {"reasoning_effort": "high"},
}


def _digests(shard: ShardUnderTest, contract: SamplingContract) -> set[str] | None:
    """The digests in the results of a session; None where the tail refuses the contract."""
    session = try_typed(shard, contract)
    if session is None:
        return None
    with session:
        return {result.sampling_digest for result in steps(session, shard, 2, 2)}


def _check_digest(found: set[str], contract: SamplingContract) -> None:
    if found != {contract.digest()}:
        raise Nonconformance(
            f"sampling_digest {contract.digest()} in every result", f"{sorted(found)}",
            "the digest is that of the canonical JSON: see goldens/sampling-vectors.json",
        )  # fmt: skip


@pytest.mark.requirement("TAIL-02")
@pytest.mark.parametrize("change", CHANGES)
def test_every_result_carries_the_digest_of_its_own_contract(
    tail_shard: ShardUnderTest, change: str
) -> None:
    """Two sessions that differ in one field, one after the other; digest by digest."""
    base = replace(BASE, want=supported(tail_shard, *WANTS))
    other = replace(base, **CHANGES[change])  # type: ignore[arg-type]
    for contract in (base, other, base):
        found = _digests(tail_shard, contract)
        if found is None:
            raise NotProvoked(f"the tail refuses a contract that differs in {change}")
        _check_digest(found, contract)


@pytest.mark.requirement("TAIL-02")
def test_the_wanted_result_is_part_of_the_digest(tail_shard: ShardUnderTest) -> None:
    """The same contract but for what it wants, in every way that the tail accepts."""
    accepted = 0
    for want in WANTS:
        contract = replace(BASE, want=want)
        if (found := _digests(tail_shard, contract)) is not None:
            accepted += 1
            _check_digest(found, contract)
    if accepted == 0:
        raise Nonconformance("one kind of result at least", "every contract refused")


@pytest.mark.requirement("TAIL-02")
@pytest.mark.parametrize(
    "contract",
    [SamplingContract(), SamplingContract(temperature=1.0), SamplingContract(temperature=1e-7)],
    ids=["greedy", "whole-number", "exponent"],
)
def test_a_float_is_digested_as_its_shortest_decimal(
    tail_shard: ShardUnderTest, contract: SamplingContract
) -> None:
    """0.0 and not 0, 1.0 and not 1, 1e-07 and not 0.0000001."""
    contract = replace(contract, want=supported(tail_shard, *WANTS))
    found = _digests(tail_shard, contract)
    if found is None:
        raise NotProvoked(f"the tail refuses temperature {contract.temperature}")
    _check_digest(found, contract)


# Greedy ------------------------------------------------------------------------------------------

BOTH = replace(GREEDY, want=TailWant.BOTH)


@pytest.mark.requirement("TAIL-03")
@pytest.mark.parametrize("key", range(4))
@pytest.mark.parametrize("bounds", [{}, {"top_k": 3, "top_p": 0.5}], ids=["plain", "bounded"])
def test_at_temperature_zero_the_token_has_the_largest_logit(
    tail_shard: ShardUnderTest, key: int, bounds: dict[str, Any]
) -> None:
    """Token and logits of the same result; bounds and seed change nothing at temperature 0."""
    with typed(tail_shard, replace(BOTH, seed=key, **bounds)) as session:
        results = steps(session, tail_shard, 1 + key % 3, 4, key)
    for result in results:
        check_result(tail_shard, result, TailWant.BOTH)
        row = _row(result)[0]
        token = tokens_of([result])[0]
        if not row[token] == row.max():
            raise Nonconformance(
                f"token {int(row.argmax())} with the largest logit {row.max():.6g}",
                f"token {token} with {row[token]:.6g}",
            )


@pytest.mark.requirement("TAIL-04")
def test_among_equal_logits_the_lowest_id_is_taken(tail_shard: ShardUnderTest) -> None:
    """Hidden states of nothing but zeros make most models' logits equal, all or many of them."""
    with typed(tail_shard, BOTH) as session:
        result = session.tail(session.send_unit(session.client.chunk([_zeros(tail_shard)])))
    row = _row(result)[0]
    tied = np.flatnonzero(row == row.max())
    if len(tied) < 2:
        raise NotProvoked("no two logits were equal and largest")
    (token,) = tokens_of([result])
    if token != tied[0]:
        raise Nonconformance(f"token {tied[0]}, the first of {len(tied)} equal ones", f"{token}")


def _zeros(shard: ShardUnderTest) -> Tensor:
    one = shard.tokens(1)
    if one.dtype is DType.INT32:
        raise NotProvoked("a head takes token ids: its logits cannot be made equal")
    return Tensor(one.name, one.dtype, one.shape, bytes(one.size))
