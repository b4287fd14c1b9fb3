"""Sessions with a tail that gives typed results, and what tests of it have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytest_meshnet.protocol.additions.features import Feature
from pytest_meshnet.protocol.additions.sampling import SamplingContract, TailResult, TailWant
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.exchange import Exchange
from pytest_meshnet.protocol.tensors import Tensor
from pytest_meshnet.runtime.errors import Nonconformance, NotProvoked
from pytest_meshnet.runtime.results import check_code, may_pass
from pytest_meshnet.runtime.session import Session
from pytest_meshnet.runtime.shard import ShardUnderTest
from pytest_meshnet.runtime.trace import describe

FEATURES = (Feature.TAIL_RESULT, Feature.DECODE_BUNDLE)
WANTS = (TailWant.TOKEN, TailWant.LOGITS, TailWant.BOTH)


def try_typed(shard: ShardUnderTest, contract: SamplingContract) -> Session | None:
    """A session under a contract, or None where the tail refuses it with a code.

    A tail need not give every kind of result. Use what is returned as a context manager. Raises
    NotProvoked where the refusal is for now only, and so says nothing about the contract.
    """
    session = shard.try_session(features=FEATURES, sampling=contract)
    if isinstance(session, pb.ShardStatus):
        check_code(session)
        if may_pass(session):
            told = describe(pb.SessionResponse(status=session))
            raise NotProvoked(f"the tail has no session for this contract now: {told}")
        return None
    if Feature.TAIL_RESULT not in session.client.features:
        session.drop()
        raise Nonconformance(
            "accepted with FEATURE_TAIL_RESULT, which the profile tail claims",
            f"accepted with features {sorted(session.client.features)}",
        )
    return session


def typed(shard: ShardUnderTest, contract: SamplingContract) -> Session:
    """A session under a contract that must be accepted. Use as a context manager."""
    session = try_typed(shard, contract)
    if session is None:
        raise Nonconformance("a session with tail results accepted", "the open was refused")
    return session


def supported(shard: ShardUnderTest, *wants: TailWant) -> TailWant:
    """The first of `wants` that the tail gives. Raises NotProvoked where it gives none."""
    for want in wants:
        session = try_typed(shard, SamplingContract(want=want))
        if session is not None:
            with session:
                return want
    raise NotProvoked(f"the tail refuses contracts that want {' or '.join(w.name for w in wants)}")


def inputs(shard: ShardUnderTest, count: int, key: int = 0) -> list[Tensor]:
    """`count` inputs of one token each."""
    tokens = shard.tokens(shard.length(count), key)
    return [tokens.rows(index, index + 1) for index in range(tokens.shape[1])]


def steps(
    session: Session, shard: ShardUnderTest, prompt: int, count: int, key: int = 0
) -> list[TailResult]:
    """Prefill `prompt` tokens and decode `count` more; the results of all final units."""
    found = inputs(shard, prompt + count, key)
    prompt = min(prompt, len(found))
    tokens = shard.tokens(len(found), key)
    last = session.send_chunks(tokens.rows(0, prompt), [prompt])[-1]
    exchanges = [last]
    results = [session.tail(last)]
    for step in found[prompt:]:
        exchanges.append(session.send_unit(session.client.decode(step)))
        results.append(session.tail(exchanges[-1]))
    return results


def check_result(shard: ShardUnderTest, result: TailResult, want: TailWant) -> None:
    """Require what was wanted: a token of the vocabulary, one row of logits of its width."""
    vocab = shard.target.model.vocab_size
    if want.token and (result.token is None or result.token.token_id >= vocab):
        raise Nonconformance(
            f"a token below {vocab}, which the contract wants", f"token {result.token}"
        )
    if want.logits and (result.logits is None or result.logits.shape != (1, 1, vocab)):
        shape = None if result.logits is None else list(result.logits.shape)
        raise Nonconformance(f"logits [1, 1, {vocab}], which the contract wants", f"logits {shape}")


def tokens_of(results: Sequence[TailResult]) -> list[int]:
    """The tokens of results. Raises Nonconformance where one has none."""
    if any(result.token is None for result in results):
        raise Nonconformance("a token in every tail result", "a result without one")
    return [result.token.token_id for result in results if result.token is not None]


def only_acked(exchange: Exchange) -> None:
    """Require an ack and no result."""
    if not exchange.applied or exchange.results:
        raise Nonconformance(
            f"an ack only for work {exchange.work_id!r}",
            f"{len(exchange.results)} results" if exchange.applied else "no ack as new work",
        )


def seeded(seed: int, **fields: object) -> SamplingContract:
    """A contract that samples at temperature 1 from the whole distribution."""
    return replace(SamplingContract(temperature=1.0, seed=seed), **fields)  # type: ignore[arg-type]
