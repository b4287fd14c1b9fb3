"""Release: in band and by the unary call; and the two ways a worker comes and goes."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.exchange import Seam
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.results import joined
from pytest_meshnet.runtime.shard import ShardUnderTest

from .side_by_side import declared_places


@pytest.mark.requirement("RELEASE-01")
@pytest.mark.parametrize("before", ["prefill", "unfinished", "decode", "nothing"])
def test_an_in_band_release_is_silent_and_leaves_a_usable_empty_stream(
    shard: ShardUnderTest, before: str
) -> None:
    """After the release a decode is missed at 0, and a prefill on the same stream starts afresh."""
    tokens = shard.tokens(4)
    prompt, step = tokens.rows(0, 3), tokens.rows(3, 4)
    expected = shard.undisturbed(prompt, step)
    with shard.session() as session:
        held = 0
        if before != "nothing":
            session.prefill_chunks(prompt, [3], finish=before != "unfinished")
            held = 3
        if before == "decode":
            session.decode(step)
            held = 4
        session.send(session.client.release())
        message = session.client.decode(step, expected=held)
        status = session.refused(session.exchange(message), pb.ERROR_CODE_CACHE_MISS)
        if status.error.actual_past_len != 0:
            raise Nonconformance(
                "actual_past_len 0 after a release", f"{status.error.actual_past_len}"
            )
        if session.client.strays:
            raise Nonconformance("no answer to a release", f"{session.client.strays[0]}")
        rows = joined(session.prefill(prompt, fresh=True), session.decode(step))
    shard.check_equal(rows, expected, "a prefill on a released stream")


@pytest.mark.requirement("RELEASE-02", "RELEASE-03")
@pytest.mark.parametrize("used", [False, True], ids=["unused", "used"])
def test_a_unary_release_is_true_once_and_false_without_an_error_thereafter(
    shard: ShardUnderTest, used: bool
) -> None:
    """A live session is released three times; its state must be gone after the first."""
    seam = shard.seam()
    with shard.session(seam) as session:
        if used:
            session.prefill(shard.tokens(2))
        answers = [shard.release(seam) for _ in range(3)]
        if used and session.client.ended is None and session.ended is None:
            message = session.client.decode(shard.tokens(1), expected=2)
            exchange = session.wait_or_end(session.send_unit(message))
            if exchange.ack is not None:
                raise Nonconformance("no state after a release", "a decode was applied")
    for number, (error, released) in enumerate(answers):
        if error.code != pb.ERROR_CODE_UNSPECIFIED or released != (number == 0):
            raise Nonconformance(
                f"released {number == 0} without an error for release {number + 1}",
                f"released {released}, error code {error.code}",
            )


@pytest.mark.requirement("RELEASE-03")
@pytest.mark.parametrize("which", ["unknown", "ended", "future-epoch"])
def test_a_release_of_what_is_not_there_is_false_without_an_error(
    shard: ShardUnderTest, which: str
) -> None:
    """A session that never was, one that has ended, and an epoch that nobody opened."""
    seam = shard.seam(epoch=3)
    if which == "ended":
        with shard.session(seam) as session:
            session.prefill(shard.tokens(1))
    elif which == "future-epoch":
        with shard.session(seam) as session:
            session.prefill(shard.tokens(1))
            _check_nothing_released(shard, shard.seam(seam.session_id, epoch=4))
            session.decode(shard.tokens(1, key=3))
        return
    _check_nothing_released(shard, seam, patient=which == "ended")


def _check_nothing_released(shard: ShardUnderTest, seam: Seam, *, patient: bool = False) -> None:
    error, released = shard.release(seam)
    if patient and released:  # It may have come before the worker saw the end of the stream.
        error, released = shard.release(seam)
    if released or error.code != pb.ERROR_CODE_UNSPECIFIED:
        raise Nonconformance(
            "released false without an error", f"released {released}, error code {error.code}"
        )


@pytest.mark.requirement("RELEASE-04")
def test_a_full_worker_accepts_a_session_right_after_a_unary_release(
    small_shard: ShardUnderTest,
) -> None:
    """Every place is held by a live stream; one is released, and its place must serve at once."""
    shard = small_shard
    seams = [shard.seam() for _ in range(declared_places(shard))]
    with contextlib.ExitStack() as stack:
        for seam in seams:
            stack.enter_context(shard.session(seam)).prefill(shard.tokens(1))
        _, released = shard.release(seams[0])
        if not released:
            raise Nonconformance("released true for a live session", "false")
        newcomer = stack.enter_context(shard.unopened())
        newcomer.open()
        newcomer.prefill(shard.tokens(1))


@pytest.mark.requirement("RELEASE-05")
def test_stopping_and_starting_twice_leaves_nothing_behind(
    another_shard: Callable[..., ShardUnderTest], tmp_path: Path
) -> None:
    """A worker with a scratch folder of its own is started, used and stopped, twice."""
    for _ in range(2):
        shard = another_shard(TMPDIR=str(tmp_path))
        with shard.session() as session:
            session.prefill(shard.tokens(2))
        target = shard.target
        pid, address = target.pid, target.address
        target.close()
        assert pid is not None, "a started worker has a process"
        left = [
            what
            for what, there in {
                "a process of its group": _group_lives(pid),
                f"a listener at {address}": _listens(address),
                f"files {sorted(path.name for path in tmp_path.rglob('*'))}": any(
                    tmp_path.iterdir()
                ),
            }.items()
            if there
        ]
        if left:
            raise Nonconformance("nothing left behind by a stopped worker", ", ".join(left))


def _group_lives(pid: int) -> bool:
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


@pytest.mark.requirement("RELEASE-06")
def test_a_killed_worker_ends_the_stream_and_a_retry_gives_the_undisturbed_run(
    another_shard: Callable[..., ShardUnderTest],
) -> None:
    """The worker is killed between two decode steps; another one starts at token zero."""
    first = another_shard()
    tokens = first.tokens(5)
    prompt, steps = tokens.rows(0, 3), (tokens.rows(3, 4), tokens.rows(4, 5))
    expected = first.undisturbed(prompt, *steps)
    seam = first.seam(epoch=1)
    session = first.session(seam)
    session.prefill(prompt)
    session.decode(steps[0])
    first.target.kill()
    session.send(session.client.decode(steps[1]))
    if session.await_end() == "OK":
        raise Nonconformance("an error on the stream of a killed worker", "a clean end")
    second = another_shard()
    with second.session(second.seam(seam.session_id, epoch=2)) as retry:
        rows = joined(retry.prefill(prompt), *(retry.decode(step) for step in steps))
    second.check_equal(rows, expected, "a retry from token zero on a restarted worker")
