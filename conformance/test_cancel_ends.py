"""Streams that end in mid-work: dropped, half-closed, cut off, or ended by the worker."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.exchange import Seam
from pytest_meshnet.protocol.tensors import Tensor
from pytest_meshnet.runtime.errors import Nonconformance, NotProvoked
from pytest_meshnet.runtime.results import check_code, rows_of
from pytest_meshnet.runtime.session import Session
from pytest_meshnet.runtime.shard import ShardUnderTest

from .in_flight import (
    ATTEMPTS,
    PROMPT,
    back_to,
    check_silent,
    covered_steps,
    drawn,
    expected_rows,
    outcomes,
    take_off,
    unary_cancel,
)
from .side_by_side import declared_places

MOST_DROPS = 16


@pytest.mark.requirement("CANCEL-08")
@pytest.mark.parametrize("when", ["prefill", "first-chunk", "decode", "idle"])
def test_a_dropped_connection_frees_its_session(slow_shard: ShardUnderTest, when: str) -> None:
    """Faults row 119: the client resets its stream while chunks or steps run and wait."""
    shard = slow_shard
    baseline = shard.health()
    with shard.session() as session:
        if when in {"prefill", "first-chunk"}:
            if when == "prefill":
                session.prefill_chunks(shard.tokens(2, key=5), [2], finish=False)
            _send_open_chunks(session, shard)
        else:
            tokens = drawn(shard, 3)
            count = covered_steps(session, shard, 3) if when == "decode" else 0
            take_off(session, shard, tokens, count)
        session.drop()
        back_to(shard, baseline, f"after a connection dropped in {when}")


def _send_open_chunks(session: Session, shard: ShardUnderTest) -> None:
    """Send chunks of one token that do not finish their prefill, as many as credit covers."""
    for index in range(max(1, min(session.client.credit, shard.length(5) - 2))):
        session.send(session.client.chunk([shard.tokens(1, key=index)], final=False))


@pytest.mark.requirement("CANCEL-08")
@pytest.mark.parametrize("finish", [False, True], ids=["in-prefill", "in-decode"])
def test_dropped_connections_do_not_add_up(small_shard: ShardUnderTest, finish: bool) -> None:
    """Faults row 120: more connections drop than there are places; a new one finds its place."""
    shard = small_shard
    baseline = shard.health()
    for _ in range(min(MOST_DROPS, 2 * declared_places(shard))):
        with shard.session() as session:
            session.prefill_chunks(shard.tokens(2), [2], finish=finish)
            session.send(session.client.chunk([shard.tokens(1, key=7)], final=False))
            session.drop()
    back_to(shard, baseline, "after many dropped connections")
    with shard.session() as session:
        session.prefill(shard.tokens(2))


def check_nothing_held(session: Session, tokens: Tensor, believed: int) -> None:
    """Require that neither a step nor a chunk finds the state that its client believes in."""
    client, token = session.client, tokens.rows(0, 1)
    for message in (
        client.decode(token, expected=believed),
        client.chunk([token], expected=believed),
    ):
        status = session.refused(session.exchange(message), pb.ERROR_CODE_CACHE_MISS)
        if status.error.actual_past_len != 0:
            raise Nonconformance(
                "actual_past_len 0 in an epoch that has just begun",
                f"{status.error.actual_past_len}",
            )


@pytest.mark.requirement("CANCEL-09")
@pytest.mark.parametrize("ending", ["drop", "half-close", "half-close-in-flight"])
@pytest.mark.parametrize("chunks", [[2], [1, 2]], ids=["one-chunk", "two-chunks"])
def test_a_prefill_cut_off_by_the_end_of_its_stream_is_never_used(
    shard: ShardUnderTest, chunks: list[int], ending: str
) -> None:
    """The final chunk never comes. The next epoch finds nothing and must begin at token zero."""
    tokens = shard.tokens(4)
    expected = shard.undisturbed(tokens.rows(0, 3), tokens.rows(3, 4))
    seam, sent = shard.seam(epoch=1), sum(chunks)
    with shard.session(seam) as session:
        open_chunks = session.send_chunks(tokens.rows(0, sent), chunks, finish=False)
        if ending != "half-close-in-flight":
            for exchange in open_chunks:
                session.applied(session.wait(exchange))
        if ending == "drop":
            session.drop()
    # A result that a tail owes for no open chunk was a finding when the stream was read to its end.
    with shard.session(shard.seam(seam.session_id, epoch=2)) as again:
        check_nothing_held(again, tokens, sent)
        rows = [again.prefill(tokens.rows(0, 3)), again.decode(tokens.rows(3, 4))]
    shard.check_equal(rows[-1], expected[-1:], "a prefill that was cut off and sent again")


@pytest.mark.requirement("CANCEL-09")
def test_a_prefill_whose_final_chunk_was_cancelled_is_not_complete(
    slow_shard: ShardUnderTest,
) -> None:
    """A step expects what the chunks before it made: that is a length, and no finished prefill."""
    shard = slow_shard
    tokens = shard.tokens(4)
    with shard.session() as session:
        if not any(_cancels_the_final_chunk(shard, session, tokens) for _ in range(ATTEMPTS)):
            raise NotProvoked(f"the final chunk had finished before its cancel, {ATTEMPTS} times")
        step = session.client.decode(tokens.rows(3, 4), expected=2)
        session.refused(session.exchange(step), pb.ERROR_CODE_CACHE_MISS)
    check_silent(session)


def _cancels_the_final_chunk(shard: ShardUnderTest, session: Session, tokens: Tensor) -> bool:
    """Prefill afresh and cancel the final chunk. Returns whether it was met in flight."""
    session.prefill_chunks(tokens.rows(0, 2), [2], fresh=True, finish=False)
    final = session.send_unit(session.client.chunk([tokens.rows(2, 3)]))
    unary_cancel(shard, session)
    if session.wait(final).status is None:
        session.applied(final)
        return False
    session.refused(final, pb.ERROR_CODE_CANCELLED)
    return True


@pytest.mark.requirement("CANCEL-10")
@pytest.mark.parametrize("units", [0, 1, 3], ids=["nothing", "one-step", "steps"])
def test_a_half_close_delivers_everything_and_then_ok(
    slow_shard: ShardUnderTest, shard: ShardUnderTest, units: int
) -> None:
    """Faults row 149: steps are sent, the sending side is closed at once, all answers must come."""
    tokens = drawn(shard, 3)
    expected = expected_rows(shard, tokens)
    baseline = slow_shard.health()
    seam = slow_shard.seam(epoch=1)
    with slow_shard.session(seam) as session:
        count = min(units, covered_steps(session, slow_shard, 3))
        flight = take_off(session, slow_shard, tokens, count)
        session.half_close()
        applied = outcomes(flight)
        check_clean_end(session)
    rows = rows_of(flight.exchanges)
    if applied:
        slow_shard.check_equal(rows, expected[:applied], "steps answered after a half-close")
    check_state_dropped(slow_shard, seam, tokens, PROMPT + applied, baseline)


@pytest.mark.requirement("CANCEL-10")
@pytest.mark.parametrize("finish", [False, True], ids=["open", "final"])
def test_a_half_close_behind_chunks_delivers_every_ack_and_then_ok(
    slow_shard: ShardUnderTest, finish: bool
) -> None:
    """Faults row 149: the same with the chunks of a prefill, finished or not."""
    tokens = slow_shard.tokens(3)
    baseline = slow_shard.health()
    seam = slow_shard.seam(epoch=1)
    with slow_shard.session(seam) as session:
        sent = session.send_chunks(tokens, [1, 1, 1], finish=finish)
        session.half_close()
        for exchange in sent:
            session.applied(session.wait(exchange))
        check_clean_end(session)
    check_state_dropped(slow_shard, seam, tokens, 3, baseline)


def check_clean_end(session: Session) -> None:
    """Require that the stream ends with OK, and without a terminal status."""
    status = session.wait_for_end()
    assert session.ended is not None, "the stream was read to its end"
    if status is not None or session.ended.code != "OK":
        told = "a terminal status" if status is not None else session.ended.code
        raise Nonconformance("OK at the end of a half-closed stream", told)
    check_silent(session)


def check_state_dropped(
    shard: ShardUnderTest, seam: Seam, tokens: Tensor, believed: int, baseline: pb.HealthReport
) -> None:
    """Require that an ended session holds nothing, neither in Health nor in its next epoch."""
    back_to(shard, baseline, "after a half-close")
    with shard.session(shard.seam(seam.session_id, epoch=2)) as again:
        check_nothing_held(again, tokens, believed)


Edit = Callable[[pb.Envelope], object]

FATAL: dict[str, tuple[Edit, int]] = {
    "fingerprint": (
        lambda envelope: setattr(envelope.fingerprint, "model_artifact_digest", "sha256:other"),
        pb.ERROR_CODE_FINGERPRINT_MISMATCH,
    ),
    "range": (
        lambda envelope: setattr(envelope.shard_range, "end_layer", 10_000),
        pb.ERROR_CODE_SHARD_RANGE_MISMATCH,
    ),
    "schema": (
        lambda envelope: setattr(envelope, "schema_version", 77),
        pb.ERROR_CODE_SCHEMA_UNSUPPORTED,
    ),
}


@pytest.mark.requirement("CANCEL-11")
@pytest.mark.parametrize("units_before", [0, 2], ids=["at-once", "behind-units"])
@pytest.mark.parametrize(("edit", "code"), FATAL.values(), ids=FATAL)
def test_the_terminal_status_reaches_a_client_that_writes_on(
    shard: ShardUnderTest, edit: Edit, code: int, units_before: int
) -> None:
    """A chunk that ends the stream is followed by a burst that nobody will read."""
    tokens = shard.tokens(5)
    with shard.session() as session:
        session.prefill(tokens.rows(0, 2))
        for index in range(min(units_before, session.client.credit - 1)):
            session.send(session.client.decode(tokens.rows(2 + index, 3 + index)))
        fatal = session.client.chunk([tokens.rows(4, 5)])
        edit(fatal.chunk.envelope)
        session.send(fatal)
        _write_on(session, tokens)
        _check_own_status(session, code)


@pytest.mark.requirement("CANCEL-11")
def test_the_refusal_of_an_open_reaches_a_client_that_writes_on(shard: ShardUnderTest) -> None:
    """The client sends its first chunks with an open that is refused, and does not wait."""
    tokens = shard.tokens(5)
    with shard.unopened() as session:
        message = session.client.open()
        message.open.fingerprint.model_artifact_digest = "sha256:other"
        session.send(message)
        _write_on(session, tokens)
        _check_own_status(session, pb.ERROR_CODE_FINGERPRINT_MISMATCH)


def _write_on(session: Session, tokens: Tensor) -> None:
    for _ in range(50):
        session.send(session.client.chunk([tokens.rows(0, 1)], fresh=True))
        session.send(session.client.cancel("none"))


def _check_own_status(session: Session, code: int) -> None:
    status = session.wait_for_end()
    if status is None:
        assert session.ended is not None, "the stream was read to its end"
        raise Nonconformance(
            f"a terminal {pb.ErrorCode.Name(code)} before the end of the stream",
            f"only its end, {session.ended.code}",
            "write the status before the stream is closed, and read on or discard what still comes",
        )
    check_code(status, code)
