"""Decode steps move the position by one, and only from where the state ends."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.tensors import Tensor
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.results import joined, rows_of
from pytest_meshnet.runtime.session import Session
from pytest_meshnet.runtime.shard import ShardUnderTest

FULL_FORM = pytest.mark.parametrize("full", [False, True], ids=["decode-step", "full-form"])


@pytest.mark.requirement("DECODE-01")
@given(prompt=st.integers(1, 4), forms=st.lists(st.booleans(), min_size=1, max_size=4))
@example(prompt=1, forms=[False, False, False])
@example(prompt=3, forms=[True, True])
@settings(max_examples=12)
def test_each_decode_step_advances_past_len_by_one(
    shard: ShardUnderTest, prompt: int, forms: list[bool]
) -> None:
    """Steps in either form, one after the other; each ack tells the new length."""
    tokens = shard.tokens(prompt + len(forms))
    with shard.session() as session:
        session.prefill(tokens.rows(0, prompt))
        for position, full in enumerate(forms, start=prompt):
            session.decode(tokens.rows(position, position + 1), full=full)
            found = session.client.past_len
            if found != position + 1:
                raise Nonconformance(
                    f"past_len {position + 1} after a step at {position}", f"past_len {found}"
                )


@pytest.mark.requirement("DECODE-02")
@FULL_FORM
@pytest.mark.parametrize("off", [-1, 1], ids=["too-low", "too-high"])
@pytest.mark.parametrize("decoded", [0, 2], ids=["after-prefill", "after-decode"])
def test_a_wrong_length_is_a_cache_miss_that_tells_the_right_one(
    shard: ShardUnderTest, decoded: int, off: int, full: bool
) -> None:
    """A new step expects one token less or more than is held; nothing but the status may come."""
    # faults.md 39
    held = 2 + decoded
    tokens = shard.tokens(held + 1)
    with shard.session() as session:
        session.prefill(tokens.rows(0, 2))
        for position in range(2, held):
            session.decode(tokens.rows(position, position + 1))
        check_miss(session, tokens.rows(held, held + 1), held, held + off, full=full)


def check_miss(
    session: Session, step: Tensor, held: int, expected_past_len: int, *, full: bool
) -> None:
    """Send a step that expects another length, and hold its status against what is held."""
    message = session.client.decode(step, full=full, expected=expected_past_len)
    status = session.refused(session.exchange(message), pb.ERROR_CODE_CACHE_MISS)
    found = (status.error.actual_past_len, status.error.retryable)
    if found != (held, False):
        raise Nonconformance(
            f"CACHE_MISS with actual_past_len {held}, retryable False",
            f"actual_past_len {found[0]}, retryable {found[1]}",
        )


@pytest.mark.requirement("DECODE-03")
@FULL_FORM
@pytest.mark.parametrize("missed", [[-1], [1], [1, -1, 1]], ids=["low", "high", "again"])
def test_after_a_miss_the_right_step_gives_the_result_it_would_have_had(
    shard: ShardUnderTest, missed: list[int], full: bool
) -> None:
    """The missed steps carry another token, so that a trace of them shows; two steps follow."""
    tokens = shard.tokens(5)
    prompt, steps = tokens.rows(0, 3), (tokens.rows(3, 4), tokens.rows(4, 5))
    expected = shard.undisturbed(prompt, *steps)
    with shard.session() as session:
        session.prefill(prompt)
        for off in missed:
            message = session.client.decode(shard.tokens(1, key=9), full=full, expected=3 + off)
            status = session.refused(session.exchange(message), pb.ERROR_CODE_CACHE_MISS)
        message = session.client.decode(steps[0], full=full, expected=status.error.actual_past_len)
        rows = rows_of([session.applied(session.exchange(message))])
        rows = joined(rows, session.decode(steps[1], full=full))
    shard.check_equal(rows, expected[-2:], "the steps after a miss")


@pytest.mark.requirement("DECODE-04")
@FULL_FORM
@pytest.mark.parametrize("expected_past_len", [0, 1, 5])
@pytest.mark.parametrize("before", ["nothing", "stateless"])
def test_a_decode_without_state_is_a_cache_miss_at_zero(
    shard: ShardUnderTest, before: str, expected_past_len: int, full: bool
) -> None:
    """The first unit of a session, or the first after work that leaves no state; then a prefill."""
    tokens = shard.tokens(3)
    prompt, step = tokens.rows(0, 2), tokens.rows(2, 3)
    expected = shard.undisturbed(prompt, step)
    with shard.session() as session:
        if before == "stateless":
            message = session.client.chunk([tokens.rows(0, 1)], mode=pb.CACHE_MODE_STATELESS)
            session.applied(session.exchange(message))
        message = session.client.decode(step, full=full, expected=expected_past_len)
        status = session.refused(session.exchange(message), pb.ERROR_CODE_CACHE_MISS)
        if status.error.actual_past_len != 0:
            raise Nonconformance("actual_past_len 0", f"{status.error.actual_past_len}")
        rows = joined(session.prefill(prompt), session.decode(step))
    shard.check_equal(rows, expected, "a prefill after a decode without state")


@pytest.mark.requirement("DECODE-07")
@pytest.mark.parametrize(
    ("expected_past_len", "position"), [(3, 2), (3, 4), (3, 0), (2, 3), (4, 3), (0, 3)]
)
def test_a_decode_step_whose_position_differs_from_its_expected_length_is_refused(
    shard: ShardUnderTest, expected_past_len: int, position: int
) -> None:
    """Three tokens are held; one of the two numbers of the step is right, then both are."""
    tokens = shard.tokens(4)
    prompt, step = tokens.rows(0, 3), tokens.rows(3, 4)
    expected = shard.undisturbed(prompt, step)
    with shard.session() as session:
        session.prefill(prompt)
        message = session.client.decode(
            shard.tokens(1, key=9), expected=expected_past_len, position=position
        )
        session.refused(session.exchange(message))
        shard.check_equal(session.decode(step), expected[-1:], "the step after the refusal")


@pytest.mark.requirement("DECODE-08")
@FULL_FORM
@pytest.mark.parametrize("count", [0, 2, 3], ids=["none", "two", "three"])
def test_a_decode_payload_that_is_not_one_token_is_refused(
    shard: ShardUnderTest, count: int, full: bool
) -> None:
    """A whole tensor with no, two or three rows, counted right in the full form; then one row."""
    tokens = shard.tokens(4)
    prompt, step = tokens.rows(0, 3), tokens.rows(3, 4)
    expected = shard.undisturbed(prompt, step)
    with shard.session() as session:
        session.prefill(prompt)
        message = session.client.decode(shard.tokens(3, key=9).rows(0, count), full=full)
        session.refused(session.exchange(message))
        shard.check_equal(session.decode(step), expected[-1:], "the step after the refusal")
