"""Many sessions on one Shard: each gives what it gives alone, and never another's rows."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_meshnet.protocol.machines.exchange import Exchange
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.results import joined, rows_of
from pytest_meshnet.runtime.session import Session
from pytest_meshnet.runtime.shard import ShardUnderTest

from .side_by_side import (
    Part,
    check_alone,
    drawn_part,
    marker,
    part,
    places,
    play,
    players,
)


@pytest.mark.requirement("KV-01")
@pytest.mark.parametrize(
    ("one", "other"),
    [([3], [3]), ([2, 3], [4, 1, 2]), ([1], [6])],
    ids=["alike", "chunked", "short-and-long"],
)
def test_two_sessions_that_take_turns_give_what_each_gives_alone(
    shard: ShardUnderTest, one: list[int], other: list[int]
) -> None:
    """Every chunk and every step of one session comes between two of the other."""
    parts = [drawn_part(shard, one, 4, key=1), drawn_part(shard, other, 4, key=2)]
    with players(shard, parts) as cast:
        moving = True
        while moving:
            moving = False
            for player in cast:
                moving = player.send() or moving
                player.collect()
    check_alone(shard, cast, "in turns with another")


@pytest.mark.requirement("KV-01")
@given(order=st.lists(st.integers(0, 1), min_size=4, max_size=14))
@example(order=[0, 1] * 6)
@example(order=[1, 0, 0, 1, 1, 0])
@settings(max_examples=15)
def test_two_sessions_in_any_order_give_what_each_gives_alone(
    shard: ShardUnderTest, order: list[int]
) -> None:
    """Moves of both in a drawn order, all in flight together as far as credit allows."""
    parts = [drawn_part(shard, [2, 2], 4, key=3), drawn_part(shard, [3], 4, key=4)]
    with players(shard, parts) as cast:
        for number in order:
            cast[number].send()
        play(cast)
    check_alone(shard, cast, "interleaved with another")


@pytest.mark.requirement("KV-02")
@pytest.mark.parametrize("together", [True, False], ids=["in-flight-together", "one-by-one"])
def test_equal_work_ids_and_steps_in_two_sessions_do_not_collide(
    shard: ShardUnderTest, together: bool
) -> None:
    """Both sessions name each unit alike; a repeat in one is a duplicate there and only there."""
    # faults.md 52, 155
    tokens = [shard.tokens(3, key=key) for key in (5, 6)]
    expected = [shard.undisturbed(one.rows(0, 1), one.rows(1, 2), one.rows(2, 3)) for one in tokens]
    with shard.session() as first, shard.session() as second:
        sessions = (first, second)
        done: list[list[Exchange]] = [[], []]
        for number in range(3):
            for index, session in enumerate(sessions):
                rows = tokens[index].rows(number, number + 1)
                message = (
                    session.client.decode(rows, step=7 + number, work_id="same")
                    if number
                    else session.client.chunk([rows], step=7, work_id="same")
                )
                done[index].append(session.send_unit(message))
                if not together:
                    session.wait(done[index][-1])
            for session, sent in zip(sessions, done, strict=True):
                session.applied(session.wait(sent[-1]))
        _check_duplicate(first, done[0][-1])
        for index, sent in enumerate(done):
            shard.check_equal(rows_of(sent), expected[index], f"session {index} of equal names")


@pytest.mark.requirement("KV-02")
@pytest.mark.parametrize("names", ["same", "own"])
def test_a_low_step_of_one_session_is_not_old_for_what_another_has_used(
    shard: ShardUnderTest, names: str
) -> None:
    """One session is far ahead; the other's first steps are lower and must be applied."""
    tokens = shard.tokens(3, key=7)
    prompt, step, other = (tokens.rows(at, at + 1) for at in range(3))
    expected = shard.undisturbed(prompt, step)
    with shard.session() as ahead, shard.session() as behind:
        ahead.result(ahead.send_unit(ahead.client.chunk([prompt], step=10_000, work_id="w")))
        ahead.result(ahead.send_unit(ahead.client.decode(other, work_id="w")))
        name = "w" if names == "same" else "another"
        first = behind.client.chunk([prompt], step=1, work_id=name)
        rows = behind.result(behind.send_unit(first))
        second = behind.client.decode(step, step=2, work_id=name)
        rows = joined(rows, behind.result(behind.send_unit(second)))
        shard.check_equal(rows, expected, "a session whose steps are lower than another's")


def _check_duplicate(session: Session, applied: Exchange) -> None:
    repeat = session.exchange(applied.request)
    if repeat.ack is None or not repeat.ack.duplicate:
        raise Nonconformance("a duplicate for a step sent again", "it was taken for new")


@pytest.mark.requirement("KV-03")
@pytest.mark.parametrize("turning", [False, True], ids=["same-order", "turning-order"])
def test_as_many_sessions_as_there_are_places_each_give_what_they_give_alone(
    shard: ShardUnderTest, turning: bool
) -> None:
    """Every place has a session; prompts of 9 to 40 tokens in chunks of 8, then decode steps."""
    # faults.md 37, 79, 152
    parts = []
    for number in range(places(shard)):
        length = 9 + number * 13 % 32
        cuts = [8] * (length // 8) + ([length % 8] if length % 8 else [])
        parts.append(drawn_part(shard, cuts, 3, key=10 + number))
    with players(shard, parts, evictable=True) as cast:
        play(cast, turning=turning)
    check_alone(shard, cast, f"of {len(parts)} in parallel")


@pytest.mark.requirement("KV-03")
def test_prefill_and_decode_of_many_sessions_mix(shard: ShardUnderTest) -> None:
    """Sessions start one after the other, so that some decode while others prefill."""
    # faults.md 152
    lengths = [[4, 3], [2], [5], [1, 1, 1]]
    count = places(shard)
    parts = [drawn_part(shard, lengths[n % 4], 4, key=80 + n) for n in range(count)]
    with players(shard, parts, evictable=True) as cast:
        for late in range(count):
            for player in cast[: late + 1]:
                player.send()
        play(cast)
    check_alone(shard, cast, f"of {count} that began at different times")


@pytest.mark.requirement("KV-04")
@pytest.mark.parametrize("lengths", [[2], [3, 5, 1]], ids=["alike", "ragged"])
@pytest.mark.parametrize("turning", [False, True], ids=["same-order", "turning-order"])
def test_sessions_batched_together_never_receive_rows_of_one_another(
    shard: ShardUnderTest, lengths: list[int], turning: bool
) -> None:
    """Each session repeats a marker of its own; every row that comes back must be its own."""
    # faults.md 80, 150
    parts = []
    for number in range(places(shard)):
        count = lengths[number % len(lengths)]
        parts.append(part(shard, [count], 3, marker(shard, number, count + 3)))
    alike = [n for n, one in enumerate(parts) if n and not _apart(shard, one, parts[0])]
    assert not alike, f"markers tell sessions apart: expected none alike, session 0 is like {alike}"
    with players(shard, parts, evictable=True) as cast:
        play(cast, turning=turning)
    check_alone(shard, cast, "with a marker of its own")


def _apart(shard: ShardUnderTest, one: Part, other: Part) -> bool:
    """Whether the last rows, which are decode steps of either, are certainly not the same."""
    return shard.differ(one.expected[-1:], other.expected[-1:])
