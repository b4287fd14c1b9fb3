"""A Worker fences epochs: single-use, the newer ends the older, fences outlive streams (6)."""

from __future__ import annotations

import pytest

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines import table
from pytest_meshnet.protocol.machines.table import NO_EPOCH, SessionTable
from pytest_meshnet.tests.protocol.linked import Bench, Link


@pytest.fixture
def bench() -> Bench:
    return Bench()


def _try(bench: Bench, epoch: int, session: str = "s") -> list[str]:
    link = bench.stream(session, epoch)
    link.send(link.client.open())
    return link.heard()


ACCEPTED = ["accepted"]
STALE = ["EPOCH_STALE - terminal", "closed"]


@pytest.mark.parametrize("epoch", [0, 4, 5])
@pytest.mark.parametrize("end", ["alive", "lost", "half-closed", "released"])
def test_an_epoch_at_or_below_the_highest_is_stale_whatever_became_of_its_stream(
    bench: Bench, epoch: int, end: str
) -> None:
    link = bench.session("s", 5)
    if end == "lost":
        link.lose()
    elif end == "half-closed":
        link.half_close()
    elif end == "released":
        link.send(link.client.release())
    assert _try(bench, epoch) == STALE
    assert _try(bench, 6) == ACCEPTED


def test_a_stale_open_leaves_the_running_session_alone(bench: Bench) -> None:
    link = bench.session("s", 5)
    link.prefill(1)
    link.answers()
    assert _try(bench, 5) == STALE
    link.decode(2)
    assert link.answers() == ["ack w2 past 2 hit", "result w2 [3]"]


def test_the_first_epoch_may_be_zero_and_the_last_the_largest(bench: Bench) -> None:
    assert _try(bench, 0) == ACCEPTED
    assert _try(bench, 2**64 - 1) == ACCEPTED
    assert _try(bench, 2**64 - 1) == STALE


def test_a_refused_open_does_not_spend_its_epoch(bench: Bench) -> None:
    link = bench.stream("s", 5)
    message = link.client.open()
    message.open.shard_range.end_layer += 1
    link.send(message)
    assert _try(bench, 5) == ACCEPTED


def test_a_newer_epoch_ends_the_older_stream_and_abandons_its_work(bench: Bench) -> None:
    older = bench.session("s", 1)
    older.prefill(1, 2)
    older.decode(3, expected=2)
    newer = bench.session("s", 2)
    assert older.heard() == STALE
    assert bench.abandoned == [1]
    older.decode(9)
    newer.decode(1, expected=2)
    assert newer.answers() == ["CACHE_MISS w1 held 0"]
    assert older.answers() == []


def test_a_newer_epoch_starts_empty(bench: Bench) -> None:
    older = bench.session("s", 1)
    older.prefill(1, 2)
    older.answers()
    newer = bench.session("s", 2)
    newer.decode(3, expected=2)
    newer.prefill(3)
    assert newer.answers() == ["CACHE_MISS w1 held 0", "ack w2 past 1", "result w2 [3]"]


def test_work_of_an_older_epoch_that_ends_late_changes_nothing(bench: Bench) -> None:
    older = bench.session("s", 1)
    older.prefill(1, 2)
    newer = bench.session("s", 2)
    newer.prefill(5)
    assert bench.compute().epoch == 1
    assert newer.heard() == []
    assert newer.answers() == ["ack w1 past 1", "result w1 [5]"]


def test_epochs_of_different_sessions_do_not_meet(bench: Bench) -> None:
    assert _try(bench, 5, "a") == ACCEPTED
    assert _try(bench, 1, "b") == ACCEPTED


def _release(bench: Bench, epoch: int) -> pb.ReleaseResponse:
    reply = bench.call(pb.ReleaseRequest(route_session_id="s", route_epoch=epoch))
    assert isinstance(reply, pb.ReleaseResponse)
    return reply


def _cancel(bench: Bench, epoch: int) -> pb.CancelResponse:
    reply = bench.call(pb.CancelRequest(route_session_id="s", route_epoch=epoch))
    assert isinstance(reply, pb.CancelResponse)
    return reply


@pytest.fixture
def newer(bench: Bench) -> Link:
    """Epoch 2 of a session, after epoch 1 was there."""
    bench.session("s", 1)
    return bench.session("s", 2)


def test_release_and_cancel_of_an_older_epoch_are_stale_and_change_nothing(newer: Link) -> None:
    newer.prefill(1)
    release, cancel = _release(newer.bench, 1), _cancel(newer.bench, 1)
    assert (release.released, release.error.code) == (False, pb.ERROR_CODE_EPOCH_STALE)
    assert (cancel.cancelled_work_items, cancel.error.code) == (0, pb.ERROR_CODE_EPOCH_STALE)
    assert newer.answers() == ["ack w1 past 1", "result w1 [1]"]


def test_release_and_cancel_of_an_older_epoch_stay_stale_behind_the_stream(newer: Link) -> None:
    newer.lose()
    assert _release(newer.bench, 1).error.code == pb.ERROR_CODE_EPOCH_STALE
    assert _cancel(newer.bench, 1).error.code == pb.ERROR_CODE_EPOCH_STALE
    assert not _release(newer.bench, 2).HasField("error")


@pytest.mark.parametrize("epoch", [1, 3])
def test_signals_in_band_for_another_epoch_are_void(newer: Link, epoch: int) -> None:
    newer.prefill(1)
    release = newer.client.release()
    release.release.route_epoch = epoch
    cancel = newer.client.cancel()
    cancel.cancel.route_epoch = epoch
    newer.send(release, cancel)
    newer.decode(2, expected=1)
    assert newer.answers()[-1] == "result w2 [3]"


# How long a fence stands -----------------------------------------------------------------------


def test_a_fence_stands_until_65536_other_sessions_have_come() -> None:
    fences = SessionTable()
    fences.fence("s", 7)
    for number in range(65_535):
        fences.fence(f"other {number}", 1)
    assert fences.highest_epoch("s") == 7
    fences.fence("the last", 1)
    assert fences.highest_epoch("s") == NO_EPOCH
    assert fences.highest_epoch("other 0") == 1


def test_a_session_that_comes_back_renews_its_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "FENCE_SESSIONS", 2)
    fences = SessionTable()
    for session, epoch in (("s", 1), ("a", 1), ("s", 2), ("b", 1)):
        fences.fence(session, epoch)
    assert fences.highest_epoch("s") == 2
    for _ in range(9):
        fences.fence("b", 2)
    assert fences.highest_epoch("s") == 2


def test_the_fence_of_a_live_session_is_never_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "FENCE_SESSIONS", 2)
    bench = Bench()
    alive = bench.session("alive", 5)
    for number in range(20):
        bench.session(f"other {number}").lose()
    assert _try(bench, 5, "alive") == STALE
    assert _try(bench, 1, "other 19") == STALE
    assert _try(bench, 1, "other 0") == ACCEPTED
    alive.prefill(1)
    assert alive.answers() == ["ack w1 past 1", "result w1 [1]"]


def test_fences_do_not_grow_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "FENCE_SESSIONS", 10)
    fences = SessionTable()
    for number in range(1_000):
        fences.fence(str(number), 1)
    known = [number for number in range(1_000) if fences.highest_epoch(str(number)) != NO_EPOCH]
    assert known == list(range(990, 1_000))
