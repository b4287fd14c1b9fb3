"""A Worker knows a step again: duplicates, gaps, steps that were refused (protocol 5)."""

from __future__ import annotations

import pytest

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.tests.protocol.linked import Bench, Link, rows


@pytest.fixture
def link() -> Link:
    """A session that holds three tokens and applied step 2."""
    link = Bench().session()
    link.prefill(1, 2)
    link.decode(3)
    link.answers()
    return link


def test_a_repeated_decode_is_acked_with_the_length_now_and_not_applied(link: Link) -> None:
    link.decode(3, expected=2, step=2)
    link.decode(4, expected=3)
    assert link.answers() == ["duplicate w2 past 3", "ack w3 past 4 hit", "result w3 [10]"]


def test_a_repeated_prefill_is_acked_with_the_length_now_and_not_applied(link: Link) -> None:
    link.prefill(1, 2, fresh=True, step=1)
    link.decode(4, expected=3)
    assert link.answers() == ["duplicate w1 past 3", "ack w3 past 4 hit", "result w3 [10]"]


def test_a_duplicate_is_known_before_any_other_check(link: Link) -> None:
    worse = link.client.chunk([rows(9)], step=2, work_id="worse", phase=pb.PHASE_CANCEL)
    envelope = worse.chunk.envelope
    envelope.schema_version, envelope.route_epoch, envelope.deadline_unix_nanos = 0, 0, 1
    envelope.fingerprint.Clear()
    worse.chunk.bundle.tensors[0].byte_order = pb.BYTE_ORDER_BIG_ENDIAN
    link.send(worse)
    assert link.answers() == ["duplicate worse past 3"]


@pytest.mark.parametrize("step", [0, 1, 2])
def test_a_step_at_or_below_the_last_is_a_duplicate_whether_it_was_used_or_not(
    link: Link, step: int
) -> None:
    link.decode(7, step=step, work_id="old")
    assert link.answers() == ["duplicate old past 3"]


def test_a_step_that_was_jumped_over_is_a_duplicate(link: Link) -> None:
    link.decode(4, step=2**64 - 1)
    link.decode(5, step=2**63)
    assert [line.split()[0] for line in link.answers()] == ["ack", "result", "duplicate"]


def test_a_gap_is_legal(link: Link) -> None:
    link.decode(4, step=1_000)
    assert link.answers() == ["ack w1000 past 4 hit", "result w1000 [10]"]


def test_the_first_step_may_be_zero() -> None:
    link = Bench().session()
    link.prefill(1, step=0)
    link.prefill(1, step=0, fresh=True)
    assert link.answers() == ["ack w0 past 1", "result w0 [1]", "duplicate w0 past 1"]


def test_two_copies_in_flight_are_applied_once(link: Link) -> None:
    link.decode(4, step=3)
    link.decode(4, step=3, expected=3)
    assert len(link.bench.waiting) == 1
    assert link.answers() == ["ack w3 past 4 hit", "result w3 [10]", "duplicate w3 past 4"]


@pytest.mark.parametrize("expected", [2, 4])
def test_a_refused_step_is_not_spent(link: Link, expected: int) -> None:
    link.decode(4, step=3, expected=expected)
    assert link.answers() == ["CACHE_MISS w3 held 3"]
    link.decode(4, step=3)
    assert link.answers() == ["ack w3 past 4 hit", "result w3 [10]"]


def test_a_second_copy_takes_the_place_of_a_first_that_failed(link: Link) -> None:
    link.decode(4, step=3)
    link.decode(4, step=3, expected=3)
    link.bench.compute(fail=True)
    assert link.answers() == ["INTERNAL w3 held 3", "ack w3 past 4 hit", "result w3 [10]"]


def test_a_fresh_prefill_does_not_make_old_steps_usable(link: Link) -> None:
    link.prefill(5, fresh=True)
    link.decode(6, step=2, expected=1)
    assert link.answers() == ["ack w3 past 1", "result w3 [5]", "duplicate w2 past 1"]


def test_a_release_does_not_make_old_steps_usable(link: Link) -> None:
    link.send(link.client.release())
    link.prefill(5, step=2, fresh=True)
    link.prefill(5, step=3, fresh=True)
    assert link.answers() == ["duplicate w2 past 0", "ack w3 past 1", "result w3 [5]"]


def test_a_new_epoch_counts_its_steps_from_the_start(link: Link) -> None:
    newer = link.bench.session("s", 2)
    newer.prefill(1, step=1)
    assert newer.answers() == ["ack w1 past 1", "result w1 [1]"]
