"""A Worker lets streams end: lost, half-closed, terminated (protocol 7)."""

from __future__ import annotations

import pytest

from pytest_meshnet.tests.protocol.linked import SERVED, Bench, Link, rows


@pytest.fixture
def link() -> Link:
    return Bench().session()


def test_a_lost_stream_drops_state_and_place_and_abandons_its_work(link: Link) -> None:
    link.prefill(1, 2)
    link.decode(3, expected=2)
    link.lose()
    assert link.bench.abandoned == [1]
    report = link.bench.health()
    assert (report.active_sessions, report.queued_chunks, report.kv_pressure) == (0, 0, 0)
    assert link.answers() == []
    assert not link.bench.waiting


def test_a_lost_stream_without_a_session_is_forgotten() -> None:
    bench = Bench()
    link = bench.stream()
    link.lose()
    link.send(link.client.open())
    assert link.answers() == []


def test_lost_streams_leave_all_places_free(link: Link) -> None:
    for number in range(10 * SERVED.max_sessions):
        other = link.bench.session(f"lost {number}")
        other.prefill(1, 2)
        other.lose()
    assert link.bench.health().active_sessions == 1


def test_the_client_of_a_lost_stream_comes_back_with_a_higher_epoch_and_nothing_held(
    link: Link,
) -> None:
    link.prefill(1, 2)
    link.answers()
    link.lose()
    again = link.bench.session("s", 2)
    again.decode(3, expected=2)
    assert again.answers() == ["CACHE_MISS w1 held 0"]


def test_a_half_close_delivers_what_is_outstanding_and_then_closes(link: Link) -> None:
    link.prefill(1, 2, final=False)
    link.prefill(3)
    link.decode(4)
    link.half_close()
    assert link.heard() == []
    assert link.answers() == [
        "ack w1 past 2",
        "result w1 [1, 3]",
        "ack w2 past 3 hit",
        "result w2 [6]",
        "ack w3 past 4 hit",
        "result w3 [10]",
        "closed",
    ]
    assert link.bench.health().active_sessions == 0
    assert link.bench.health().kv_pressure == 0


def test_a_half_close_with_nothing_outstanding_closes_at_once(link: Link) -> None:
    link.half_close()
    assert link.heard() == ["closed"]
    assert link.bench.health().active_sessions == 0


def test_a_half_close_before_open_closes_without_a_status() -> None:
    link = Bench().stream()
    link.half_close()
    assert link.heard() == ["closed"]


def test_a_half_close_behind_a_refused_unit_closes_once(link: Link) -> None:
    link.prefill(1)
    link.decode(2, expected=9)
    link.half_close()
    assert link.answers() == [
        "ack w1 past 1",
        "result w1 [1]",
        "CACHE_MISS w2 held 1",
        "closed",
    ]


def test_a_half_close_behind_a_terminal_refusal_closes_once(link: Link) -> None:
    link.prefill(1)
    message = link.client.chunk([], tokens=1)
    message.chunk.envelope.fingerprint.Clear()
    link.send(message)
    link.half_close()
    assert link.answers()[2:] == ["FINGERPRINT_MISMATCH w2 terminal", "closed"]


def test_what_waits_behind_a_terminal_refusal_is_void(link: Link) -> None:
    link.prefill(1)
    message = link.client.chunk([rows(2)])
    message.chunk.envelope.fingerprint.Clear()
    link.send(message)
    link.decode(3, step=1)
    assert link.answers()[2:] == ["FINGERPRINT_MISMATCH w2 terminal", "closed"]


def test_a_half_close_waits_for_cancelled_work_that_still_runs(link: Link) -> None:
    link.prefill(1)
    link.send(link.client.cancel())
    link.half_close()
    assert link.heard() == ["CANCELLED w1 held 0"]
    assert link.answers() == ["closed"]


def test_a_stream_lost_after_its_half_close_is_gone_at_once(link: Link) -> None:
    link.prefill(1)
    link.half_close()
    link.lose()
    assert link.bench.health().active_sessions == 0
    assert link.answers() == []


def test_nothing_is_answered_after_a_terminal_status(link: Link) -> None:
    link.prefill(1)
    link.answers()
    message = link.client.chunk([], tokens=1)
    message.chunk.envelope.schema_version = 0
    link.send(message, link.client.open(), link.client.cancel())
    link.prefill(1)
    link.half_close()
    link.lose()
    assert link.answers() == ["SCHEMA_UNSUPPORTED w2 terminal", "closed"]


def test_a_prefill_that_was_cut_off_is_not_there_for_the_next_epoch(link: Link) -> None:
    link.prefill(1, 2, final=False)
    link.answers()
    link.half_close()
    again = link.bench.session("s", 2)
    again.prefill(3, expected=2)
    assert again.answers() == ["CACHE_MISS w1 held 0"]
