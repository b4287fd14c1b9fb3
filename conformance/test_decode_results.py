"""However a token gets in, by prefill or decode, in small or full form, its result is the same."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.exchange import Exchange
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.results import joined
from pytest_meshnet.runtime.shard import ShardUnderTest


@pytest.mark.requirement("DECODE-05")
@pytest.mark.parametrize("prompt", [1, 4])
@pytest.mark.parametrize(
    "forms", [[True], [True] * 3, [False, True, False, True]], ids=["one", "three", "by-turns"]
)
def test_the_full_form_of_a_decode_step_gives_the_same_result(
    shard: ShardUnderTest, forms: list[bool], prompt: int
) -> None:
    """Some or all steps travel as ActivationChunks, against DecodeSteps only."""
    tokens = shard.tokens(prompt + len(forms))
    steps = [tokens.rows(prompt + index, prompt + index + 1) for index in range(len(forms))]
    expected = shard.undisturbed(tokens.rows(0, prompt), *steps)
    with shard.session() as session:
        session.prefill(tokens.rows(0, prompt))
        rows = joined(
            *(session.decode(step, full=full) for step, full in zip(steps, forms, strict=True))
        )
    shard.check_equal(rows, expected[len(expected) - len(rows) :], "full form against DecodeStep")


@pytest.mark.requirement("DECODE-06")
@given(prompt=st.integers(1, 8), steps=st.integers(1, 6), key=st.integers(0, 2**16))
@example(prompt=1, steps=1, key=1)
@example(prompt=1, steps=6, key=2)
@example(prompt=4, steps=1, key=3)
@settings(max_examples=12)
def test_prefill_and_decode_give_the_same_last_result(
    shard: ShardUnderTest, prompt: int, steps: int, key: int
) -> None:
    """The same tokens all by prefill, and one by one behind a prompt of one token or more."""
    length = shard.length(prompt + steps)
    prompt = min(prompt, length - 1)
    tokens = shard.tokens(length, key)
    expected = shard.undisturbed(tokens)
    with shard.session() as session:
        session.prefill(tokens.rows(0, prompt))
        for position in range(prompt, length):
            rows = session.decode(tokens.rows(position, position + 1))
    what = f"{length - prompt} decode steps after {prompt} tokens against prefill"
    shard.check_equal(rows, expected[-1:], what)


@pytest.mark.requirement("DECODE-09")
def test_the_cache_result_says_what_the_work_was_and_whether_state_was_continued(
    shard: ShardUnderTest,
) -> None:
    """One session through every mode: established, continued, appended, stateless, started anew."""
    prefill, decode, stateless = (
        pb.CACHE_MODE_PREFILL,
        pb.CACHE_MODE_DECODE,
        pb.CACHE_MODE_STATELESS,
    )
    token = shard.tokens(1)
    with shard.session() as session:
        client = session.client

        def check(message: pb.SessionRequest, what: str, mode: int, hit: bool) -> None:
            check_cache(session.applied(session.exchange(message)), what, mode, hit)

        check(client.chunk([token], mode=stateless), "stateless on nothing", stateless, False)
        check(client.chunk([token], final=False), "the first chunk", prefill, False)
        check(client.chunk([token]), "the second chunk", prefill, True)
        check(client.decode(token), "a DecodeStep", decode, True)
        check(client.chunk([token], mode=stateless), "stateless beside state", stateless, False)
        check(client.decode(token, full=True), "a decode in full form", decode, True)
        check(client.chunk([token]), "an append", prefill, True)
        check(client.chunk([token], fresh=True), "a prefill expecting zero", prefill, False)
        check(client.decode(token), "a DecodeStep after that", decode, True)


def check_cache(exchange: Exchange, what: str, mode: int, hit: bool) -> None:
    """Hold the mode and the hit of an ack against what the unit was."""
    assert exchange.ack is not None, f"{what}: not acknowledged"
    found = exchange.ack.cache_result
    if (found.mode, found.cache_hit) != (mode, hit):
        raise Nonconformance(
            f"{what}: mode {pb.CacheMode.Name(mode)}, cache_hit {hit}",
            f"mode {found.mode}, cache_hit {found.cache_hit}",
        )
