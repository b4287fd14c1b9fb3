"""Places, memory and the context: what a session leaves behind, and where its state ends."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.runtime.errors import Nonconformance, NotProvoked
from pytest_meshnet.runtime.results import check_code, joined
from pytest_meshnet.runtime.session import Session
from pytest_meshnet.runtime.shard import ShardUnderTest

from .in_flight import back_to, check_alive, position
from .side_by_side import Part, drawn_part, places

Ending = Callable[[ShardUnderTest, Session], None]

ENDINGS: dict[str, Ending] = {
    "release": lambda _, session: void(session.send(session.client.release())),
    "unary-release": lambda shard, session: void(shard.release(session.client.seam)),
    "half-close": lambda _, session: session.finish(),
    "drop": lambda _, session: session.drop(),
}


def void(_: object) -> None:
    """Take no interest in what came."""


@pytest.mark.requirement("KV-05")
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("same_id", [False, True], ids=["another-session", "same-session"])
def test_a_place_shows_nothing_of_the_session_before(
    shard: ShardUnderTest, ending: str, same_id: bool
) -> None:
    """Every place was used for longer prompts; the next sessions miss, then start afresh."""
    # faults.md 77, 80
    role = drawn_part(shard, [3], 2, key=1)
    used = drawn_part(shard, [5, 2], 1, key=2)
    seams = [shard.seam() for _ in range(places(shard, 8))]
    with contextlib.ExitStack() as stack:
        for seam in seams:
            session = stack.enter_context(shard.session(seam))
            session.prefill_chunks(used.prompt, used.cuts)
            session.decode(used.steps[0])
            ENDINGS[ending](shard, session)
    for seam in seams:
        following = shard.seam(seam.session_id, epoch=2) if same_id else shard.seam()
        with shard.session(following) as session:
            held = used.prompt.shape[1] + 1
            _check_missed(session, role, held, f"after a {ending}")
            rows = session.prefill(role.prompt, fresh=True)
            rows = joined(rows, *(session.decode(step) for step in role.steps))
        shard.check_equal(rows, role.expected, f"a session in a place used before ({ending})")


@pytest.mark.requirement("KV-05")
@pytest.mark.parametrize("before", ["finished", "unfinished", "in-flight"])
def test_sessions_that_replace_one_another_in_turn_show_nothing_of_one_another(
    shard: ShardUnderTest, before: str
) -> None:
    """Two needles take turns in the places of lost sessions: A, B, A, B."""
    # faults.md 80
    needles = [drawn_part(shard, [2, 2], 2, key=3), drawn_part(shard, [4, 3], 2, key=4)]
    for number in range(4):
        role = needles[number % 2]
        with shard.session() as session:
            rows = session.prefill_chunks(role.prompt, role.cuts)
            rows = joined(rows, *(session.decode(step) for step in role.steps))
            shard.check_equal(rows, role.expected, f"needle {number} in a place used before")
        lost = shard.session()
        sent = lost.send_chunks(needles[1 - number % 2].prompt, [3], finish=before == "finished")
        if before != "in-flight":
            lost.wait(sent[-1])
        lost.drop()


def _check_missed(session: Session, role: Part, held: int, when: str) -> None:
    message = session.client.decode(role.steps[0], expected=held)
    status = session.refused(session.exchange(message), pb.ERROR_CODE_CACHE_MISS)
    if status.error.actual_past_len != 0:
        raise Nonconformance(
            f"actual_past_len 0 in a new session {when}", f"{status.error.actual_past_len}"
        )


# Memory ------------------------------------------------------------------------------------------

ROUNDS = 3
ABANDONED = 40
SLACK = 32 * 1024 * 1024


@pytest.mark.requirement("KV-07")
@pytest.mark.parametrize("how", ["unfinished", "finished", "unused"])
def test_abandoned_sessions_do_not_grow_memory_without_bound(
    shard: ShardUnderTest, how: str
) -> None:
    """Sessions are lost by the dozen; what later dozens add is held against what may breathe."""
    # faults.md 48
    tokens = shard.tokens(shard.length(24))
    _abandon(shard, how, ABANDONED // 2, tokens.shape[1])  # What is allocated once comes first.
    before, report = shard.footprint(), shard.health()
    for _ in range(ROUNDS):
        _abandon(shard, how, ABANDONED, tokens.shape[1])
    shard.check_footprint(before)
    resident = shard.health().resident_bytes
    if report.resident_bytes and resident > report.resident_bytes + SLACK:
        raise Nonconformance(
            f"resident_bytes near {report.resident_bytes} after {ROUNDS * ABANDONED} more "
            "abandoned sessions",
            f"{resident}",
        )


def _abandon(shard: ShardUnderTest, how: str, count: int, length: int) -> None:
    for key in range(count):
        session = shard.session()
        if how != "unused":
            session.prefill(shard.tokens(length, key=key), finish=how == "finished")
        session.drop()


@pytest.mark.requirement("KV-07")
def test_a_session_evicted_for_newer_ones_answers_with_a_miss(small_shard: ShardUnderTest) -> None:
    """More sessions than places; one that was accepted goes on from its state, or misses at 0."""
    # faults.md 36, 80
    shard = small_shard
    role = drawn_part(shard, [3], 1, key=5)
    with contextlib.ExitStack() as stack:
        accepted: list[Session] = []
        for number in range(places(shard) + 2):
            session = stack.enter_context(
                shard.session() if number < places(shard) else shard.unopened()
            )
            if session.client.accepted is None:
                answer = session.try_open(session.client.open())
                if isinstance(answer, pb.ShardStatus):
                    check_code(answer)
                    continue
            sent = session.send_chunks(role.prompt, role.cuts)
            if number >= places(shard) and session.wait(sent[-1]).status is not None:
                session.refused(sent[-1])  # Accepted, and then there was no memory for it.
                continue
            session.applied(session.wait(sent[-1]))
            accepted.append(session)
        for session in accepted:
            exchange = session.exchange(session.client.decode(role.steps[0]))
            if exchange.ack is not None:
                rows = session.result(exchange)
                shard.check_equal(rows, role.expected[-1:], "a session among more than fit")
                continue
            status = session.refused(exchange, pb.ERROR_CODE_CACHE_MISS)
            check_alive(session)
            if status.error.actual_past_len:
                raise Nonconformance(
                    "actual_past_len 0 of an evicted session", f"{status.error.actual_past_len}"
                )


# The context -------------------------------------------------------------------------------------


@pytest.mark.requirement("KV-08")
@pytest.mark.parametrize("how", ["chunk", "step", "full-step", "unfinished-prefill"])
def test_growing_past_the_context_is_refused_and_the_state_stays_usable(
    small_shard: ShardUnderTest, how: str
) -> None:
    """The context is filled but for a token or none, then overgrown in each of the ways."""
    shard = small_shard
    context = shard.report.max_context_tokens
    if not 2 <= context <= 4096:
        raise NotProvoked(f"a context of {context} tokens takes too long to fill")
    tokens = shard.tokens(context + 1)
    with shard.session() as session:
        room = int(how == "chunk" and _widest(session, shard) > 1)
        held = context - room
        session.prefill(tokens.rows(0, held), finish=how != "unfinished-prefill")
        message = _growth(session, shard, how, held, room)
        status = session.refused(session.exchange(message), pb.ERROR_CODE_RESOURCE_EXHAUSTED)
        check_alive(session)
        if status.error.actual_past_len != held:
            raise Nonconformance(
                f"actual_past_len {held} of the state held", f"{status.error.actual_past_len}"
            )
        found = position(session, tokens)
        if found != held:
            raise Nonconformance(f"{held} tokens held after the refusal", f"{found}")
        if not room:
            return
        rows = session.decode(tokens.rows(held, held + 1))
    expected = shard.undisturbed(tokens.rows(0, held), tokens.rows(held, held + 1))
    shard.check_equal(rows, expected[-1:], "the last token that the context holds")


def _widest(session: Session, shard: ShardUnderTest) -> int:
    return max(span.count for span in session.client.plan([shard.tokens(2)]))


def _growth(
    session: Session, shard: ShardUnderTest, how: str, held: int, room: int
) -> pb.SessionRequest:
    """A unit of one token more than there is room for."""
    if how in ("step", "full-step"):
        return session.client.decode(shard.tokens(1), full=how == "full-step")
    return session.client.chunk([shard.tokens(room + 1)], expected=held)


@pytest.mark.requirement("KV-08")
@pytest.mark.parametrize("after", ["decode", "prefill"])
def test_a_full_session_starts_afresh_and_its_neighbour_goes_on(
    small_shard: ShardUnderTest, after: str
) -> None:
    """What was refused for want of room took none: a new prefill in the same session works."""
    shard = small_shard
    context = shard.report.max_context_tokens
    if not 6 <= context <= 4096:
        raise NotProvoked(f"a context of {context} tokens takes too long to fill")
    role = drawn_part(shard, [3], 2, key=6)
    with shard.session() as session:
        session.prefill(shard.tokens(context))
        for _ in range(3):
            message = session.client.decode(role.steps[0])
            if after == "prefill":
                message = session.client.chunk([role.steps[0]])
            session.refused(session.exchange(message), pb.ERROR_CODE_RESOURCE_EXHAUSTED)
        rows = session.prefill(role.prompt, fresh=True)
        rows = joined(rows, *(session.decode(step) for step in role.steps))
    shard.check_equal(rows, role.expected, "a prefill after a full context")


@pytest.mark.requirement("KV-06")
@pytest.mark.parametrize("count", [1, 8, 40], ids=lambda count: f"{count}-tokens")
@pytest.mark.parametrize("repeats", [1, 5], ids=["once", "five-times"])
def test_stateless_work_leaves_nothing_behind(
    shard: ShardUnderTest, count: int, repeats: int
) -> None:
    """Pressure is compared around it; decodes that expect what it computed must miss at 0."""
    with shard.session() as session:
        tokens = shard.tokens(shard.length(count))
        width = max(span.count for span in session.client.plan([tokens]))
        before = shard.health()
        for _ in range(repeats):
            message = session.client.chunk([tokens.rows(0, width)], mode=pb.CACHE_MODE_STATELESS)
            session.applied(session.exchange(message))
        back_to(shard, before, "after stateless work")
        for expected in (width, 1):
            message = session.client.decode(shard.tokens(1), expected=expected)
            status = session.refused(session.exchange(message), pb.ERROR_CODE_CACHE_MISS)
            if status.error.actual_past_len != 0:
                raise Nonconformance(
                    "actual_past_len 0 after stateless work", f"{status.error.actual_past_len}"
                )
