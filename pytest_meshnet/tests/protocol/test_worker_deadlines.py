"""A Worker keeps deadlines: absolute, in band, zero is none (protocol 11)."""

from __future__ import annotations

import pytest

from pytest_meshnet.protocol.machines.events import Tick
from pytest_meshnet.tests.protocol.linked import Bench, Link


@pytest.fixture
def link() -> Link:
    """A session that holds one token, at time 1000."""
    link = Bench().session()
    link.prefill(1)
    link.answers()
    return link


def _tick(link: Link, now: int) -> None:
    link.bench.now = now
    link.bench.post(Tick())


@pytest.mark.parametrize("deadline", [1, 999, 1_000, -1, -(2**63)])
def test_a_unit_that_comes_too_late_is_not_executed(link: Link, deadline: int) -> None:
    link.decode(2, deadline=deadline)
    link.prefill(2, deadline=deadline, expected=1)
    assert not link.bench.waiting
    assert link.heard() == ["DEADLINE_EXCEEDED w2 held 1", "DEADLINE_EXCEEDED w3 held 1"]
    link.decode(2, step=2)
    assert link.answers() == ["ack w2 past 2 hit", "result w2 [3]"]


@pytest.mark.parametrize("deadline", [0, 1_001, 2**63 - 1])
def test_a_unit_in_time_and_one_without_deadline_are_executed(link: Link, deadline: int) -> None:
    link.decode(2, deadline=deadline)
    assert link.answers() == ["ack w2 past 2 hit", "result w2 [3]"]


def test_a_deadline_that_passes_while_a_unit_waits_is_told_at_the_next_tick(link: Link) -> None:
    link.decode(2)
    link.decode(3, expected=2, deadline=2_000)
    link.decode(4, expected=2)
    _tick(link, 1_999)
    assert link.heard() == []
    _tick(link, 2_000)
    assert link.heard() == ["DEADLINE_EXCEEDED w3 held 1"]
    assert link.answers() == [
        "ack w2 past 2 hit",
        "result w2 [3]",
        "ack w4 past 3 hit",
        "result w4 [7]",
    ]


def test_a_deadline_that_passes_while_a_unit_waits_is_told_without_a_tick_too(link: Link) -> None:
    link.decode(2)
    link.decode(3, expected=2, deadline=2_000)
    link.bench.now = 3_000
    assert link.answers() == [
        "ack w2 past 2 hit",
        "result w2 [3]",
        "DEADLINE_EXCEEDED w3 held 2",
    ]


def test_a_unit_without_deadline_waits_for_ever(link: Link) -> None:
    link.decode(2)
    link.decode(3, expected=2)
    _tick(link, 2**63)
    assert link.answers()[-1] == "result w3 [6]"


def test_a_unit_that_runs_is_answered_though_its_deadline_passes(link: Link) -> None:
    link.decode(2, deadline=2_000)
    _tick(link, 3_000)
    assert link.answers() == ["ack w2 past 2 hit", "result w2 [3]"]


def test_a_duplicate_that_waits_has_no_deadline(link: Link) -> None:
    link.decode(2)
    link.decode(9, step=1, deadline=2_000)
    _tick(link, 3_000)
    assert link.heard() == []
    assert link.answers() == ["ack w2 past 2 hit", "result w2 [3]", "duplicate w1 past 2"]


def test_the_acked_sum_is_what_is_held_over_staggered_deadlines(link: Link) -> None:
    link.prefill(2, final=False)
    for number in range(5):
        link.prefill(3, expected=2 + number, deadline=2_000 + number * 100)
    _tick(link, 2_150)
    lines = link.answers()
    assert lines[:2] == ["DEADLINE_EXCEEDED w3 held 1", "DEADLINE_EXCEEDED w4 held 1"]
    assert lines[2:4] == ["ack w2 past 2 hit", "result w2 [3]"]
    assert lines[4:] == [f"CACHE_MISS w{number} held 2" for number in (5, 6, 7)]


def test_a_tick_over_every_session_and_an_empty_one_does_nothing(link: Link) -> None:
    link.bench.session("other").prefill(1, deadline=5_000)
    _tick(link, 4_000)
    assert link.heard() == []


def test_a_half_closed_stream_still_ends_after_its_last_unit_expired(link: Link) -> None:
    link.decode(2)
    link.decode(3, expected=2, deadline=2_000)
    link.half_close()
    _tick(link, 2_000)
    assert link.answers() == [
        "DEADLINE_EXCEEDED w3 held 1",
        "ack w2 past 2 hit",
        "result w2 [3]",
        "closed",
    ]
