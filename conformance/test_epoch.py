"""Epochs are single-use: an older one neither works, nor ends, nor shows through a newer one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.exchange import Seam
from pytest_meshnet.protocol.tensors import Tensor
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.results import check_code, joined
from pytest_meshnet.runtime.session import Session
from pytest_meshnet.runtime.shard import ShardUnderTest

LIVE = pytest.mark.parametrize("live", [True, False], ids=["live-stream", "closed-stream"])

# Enough to push a fence out of a small cache, few enough to open one after the other.
OTHER_SESSIONS = 40


def seam_at(shard: ShardUnderTest, seam: Seam, epoch: int) -> Seam:
    """The same Route Session under another epoch."""
    return shard.seam(seam.session_id, epoch)


def check_stale_open(shard: ShardUnderTest, seam: Seam) -> None:
    """Require that an open is refused as stale, and that the refusal ends its stream."""
    with shard.unopened(seam) as session:
        answer = session.try_open(session.client.open())
        if isinstance(answer, pb.SessionAccepted):
            raise Nonconformance(f"EPOCH_STALE for epoch {seam.epoch}", "accepted")
        check_code(answer, pb.ERROR_CODE_EPOCH_STALE)


@pytest.mark.requirement("EPOCH-01")
@LIVE
@pytest.mark.parametrize("lower", [1, 4, 6])
def test_an_open_below_the_highest_epoch_is_stale(
    shard: ShardUnderTest, lower: int, live: bool
) -> None:
    """Epoch 7 is accepted; a lower one is opened beside its stream or after it."""
    seam = shard.seam(epoch=7)
    tokens = shard.tokens(3)
    prompt, step = tokens.rows(0, 2), tokens.rows(2, 3)
    expected = shard.undisturbed(prompt, step)
    with shard.session(seam) as session:
        rows = session.prefill(prompt)
        if live:
            check_stale_open(shard, seam_at(shard, seam, lower))
        rows = joined(rows, session.decode(step))
    shard.check_equal(rows, expected, "the newer epoch around a stale open")
    check_stale_open(shard, seam_at(shard, seam, lower))


@pytest.mark.requirement("EPOCH-02")
@LIVE
@pytest.mark.parametrize("epoch", [1, 7, 2**63])
def test_an_epoch_cannot_be_opened_twice(shard: ShardUnderTest, epoch: int, live: bool) -> None:
    """The very epoch that was accepted is opened again, beside its stream or after it."""
    # faults.md 164
    seam = shard.seam(epoch=epoch)
    tokens = shard.tokens(3)
    prompt, step = tokens.rows(0, 2), tokens.rows(2, 3)
    expected = shard.undisturbed(prompt, step)
    with shard.session(seam) as session:
        rows = session.prefill(prompt)
        if live:
            check_stale_open(shard, seam)
        rows = joined(rows, session.decode(step))
    shard.check_equal(rows, expected, "an epoch around its second open")
    check_stale_open(shard, seam)


Work = Callable[[Session, Tensor], pb.SessionRequest]

WORKS: dict[str, Work] = {
    "decode": lambda old, token: old.client.decode(token),
    "append": lambda old, token: old.client.chunk([token]),
    "fresh-prefill": lambda old, token: old.client.chunk([token], fresh=True),
    "stateless": lambda old, token: old.client.chunk([token], mode=pb.CACHE_MODE_STATELESS),
}


@pytest.mark.requirement("EPOCH-03")
@pytest.mark.parametrize("work", WORKS.values(), ids=WORKS)
def test_work_on_the_stream_of_an_older_epoch_is_stale_and_changes_nothing(
    shard: ShardUnderTest, work: Work
) -> None:
    """Both epochs hold state of equal length when the older stream sends a unit that would fit."""
    tokens = shard.tokens(3)
    prompt, step = tokens.rows(0, 2), tokens.rows(2, 3)
    expected = shard.undisturbed(prompt, step)
    seam = shard.seam(epoch=3)
    older = shard.session(seam)
    try:
        older.prefill(shard.tokens(2, key=9))
        with shard.session(seam_at(shard, seam, 4)) as newer:
            rows = newer.prefill(prompt)
            _check_stale_work(older, work(older, shard.tokens(1, key=8)))
            rows = joined(rows, newer.decode(step))
    finally:
        older.drop()
    shard.check_equal(rows, expected, "the newer epoch around work of the older one")


def _check_stale_work(older: Session, message: pb.SessionRequest) -> None:
    exchange = older.send(message)
    assert exchange is not None, "work is a unit"
    older.wait_or_end(exchange)
    status = exchange.status or older.client.ended
    if status is None:
        came = "a result" if exchange.results else "an ack" if exchange.ack else "the end alone"
        raise Nonconformance("EPOCH_STALE for work of the older epoch", came)
    check_code(status, pb.ERROR_CODE_EPOCH_STALE)
    if exchange.ack is not None or exchange.results:
        raise Nonconformance("only a status for work of the older epoch", "an ack or a result too")


@pytest.mark.requirement("EPOCH-04")
@LIVE
def test_a_new_epoch_holds_nothing_of_the_old_one(shard: ShardUnderTest, live: bool) -> None:
    """The first unit of the new epoch continues where the old one ended; it must be missed at 0."""
    tokens = shard.tokens(3)
    prompt, step = tokens.rows(0, 2), tokens.rows(2, 3)
    seam = shard.seam(epoch=1)
    older = shard.session(seam)
    try:
        older.prefill(prompt)
        if not live:
            older.finish()
        with shard.session(seam_at(shard, seam, 2)) as newer:
            message = newer.client.decode(step, expected=2)
            status = newer.refused(newer.exchange(message), pb.ERROR_CODE_CACHE_MISS)
    finally:
        older.drop()
    if status.error.actual_past_len != 0:
        raise Nonconformance(
            "actual_past_len 0 in a new epoch", f"actual_past_len {status.error.actual_past_len}"
        )


@pytest.mark.requirement("EPOCH-05")
@pytest.mark.parametrize("epoch", [1, 4])
def test_a_release_of_an_older_epoch_is_stale_and_releases_nothing(
    shard: ShardUnderTest, epoch: int
) -> None:
    """Epoch 5 holds state; a unary release names an older one that may never have been."""
    tokens = shard.tokens(3)
    prompt, step = tokens.rows(0, 2), tokens.rows(2, 3)
    expected = shard.undisturbed(prompt, step)
    seam = shard.seam(epoch=5)
    with shard.session(seam) as session:
        rows = session.prefill(prompt)
        error, released = shard.release(seam_at(shard, seam, epoch))
        _check_stale_answer(error, released=int(released))
        rows = joined(rows, session.decode(step))
    shard.check_equal(rows, expected, "the newer epoch around a stale release")


@pytest.mark.requirement("EPOCH-05")
@pytest.mark.parametrize("work_id", ["", "w1"], ids=["all", "one"])
@pytest.mark.parametrize("epoch", [1, 4])
def test_a_cancel_of_an_older_epoch_is_stale_and_cancels_nothing(
    shard: ShardUnderTest, epoch: int, work_id: str
) -> None:
    """Chunks of epoch 5 are on their way while a unary cancel names an older epoch."""
    tokens = shard.tokens(shard.length(5))
    expected = shard.undisturbed(tokens)
    seam = shard.seam(epoch=5)
    with shard.session(seam) as session:
        sent = session.send_chunks(tokens, [1] * tokens.shape[1])
        error, count = shard.cancel(seam_at(shard, seam, epoch), work_id)
        _check_stale_answer(error, cancelled=count)
        rows = joined(*(session.result(exchange) for exchange in sent))
    shard.check_equal(rows[-1:], expected[-1:], "a prefill of the newer epoch around the cancel")


def _check_stale_answer(error: pb.ShardError, **counts: int) -> None:
    if error.code != pb.ERROR_CODE_EPOCH_STALE:
        raise Nonconformance("error EPOCH_STALE", f"error code {error.code}")
    for what, count in counts.items():
        if count != 0:
            raise Nonconformance(f"nothing {what}", f"{count} {what}")


@pytest.mark.requirement("EPOCH-06")
@pytest.mark.parametrize("others", [0, OTHER_SESSIONS], ids=["at-once", "after-others"])
@pytest.mark.parametrize("ending", ["half-close", "drop", "release"])
def test_the_fence_of_an_epoch_outlives_its_stream(
    shard: ShardUnderTest, ending: str, others: int
) -> None:
    """Epoch 9 ends in every way there is; older ones stay stale while others come and go."""
    seam = shard.seam(epoch=9)
    with shard.session(seam) as session:
        session.prefill(shard.tokens(2))
        if ending == "release":
            shard.release(seam)
        elif ending == "drop":
            session.drop()
    for _ in range(others):
        with shard.session():
            pass
    for epoch in (9, 8, 1):
        check_stale_open(shard, seam_at(shard, seam, epoch))
    with shard.session(seam_at(shard, seam, 10)) as session:
        session.prefill(shard.tokens(1))
