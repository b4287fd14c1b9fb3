"""A Worker cancels and releases, in band and by unary calls (protocol 9, 10)."""

from __future__ import annotations

import pytest

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.tests.protocol.linked import SERVED, Bench, Link


@pytest.fixture
def link() -> Link:
    """A session that holds two tokens."""
    link = Bench().session()
    link.prefill(1, 2)
    link.answers()
    return link


def _cancelled(link: Link, work_id: str = "", session: str = "s", epoch: int = 1) -> int:
    request = pb.CancelRequest(route_session_id=session, route_epoch=epoch, work_id=work_id)
    reply = link.bench.call(request)
    assert isinstance(reply, pb.CancelResponse)
    assert not reply.HasField("error")
    return reply.cancelled_work_items


def _released(link: Link, session: str = "s", epoch: int = 1) -> bool:
    reply = link.bench.call(pb.ReleaseRequest(route_session_id=session, route_epoch=epoch))
    assert isinstance(reply, pb.ReleaseResponse)
    assert not reply.HasField("error")
    return reply.released


def _in_flight(link: Link, count: int = 3) -> None:
    """Decode steps w2, w3, ...: the first runs, the others wait."""
    for number in range(count):
        link.decode(number, expected=2 + number)


# Cancel ----------------------------------------------------------------------------------------


def test_cancelling_all_gives_each_unit_one_status_and_nothing_after(link: Link) -> None:
    _in_flight(link)
    link.send(link.client.cancel())
    assert link.heard() == [f"CANCELLED w{number} held 2" for number in (2, 3, 4)]
    assert link.bench.abandoned == [2]
    assert link.answers() == []


def test_the_unary_cancel_does_the_same_and_counts(link: Link) -> None:
    _in_flight(link)
    assert _cancelled(link) == 3
    assert link.answers() == [f"CANCELLED w{number} held 2" for number in (2, 3, 4)]
    assert _cancelled(link) == 0


@pytest.mark.parametrize("unary", [True, False])
def test_a_running_unit_can_be_cancelled_alone(link: Link, unary: bool) -> None:
    _in_flight(link)
    if unary:
        assert _cancelled(link, "w2") == 1
    else:
        link.send(link.client.cancel("w2"))
    assert link.answers() == [
        "CANCELLED w2 held 2",
        "CACHE_MISS w3 held 2",
        "CACHE_MISS w4 held 2",
    ]


@pytest.mark.parametrize("unary", [True, False])
def test_a_waiting_unit_can_be_cancelled_alone(link: Link, unary: bool) -> None:
    _in_flight(link)
    if unary:
        assert _cancelled(link, "w3") == 1
    else:
        link.send(link.client.cancel("w3"))
    assert link.answers() == [
        "CANCELLED w3 held 2",
        "ack w2 past 3 hit",
        "result w2 [3]",
        "CACHE_MISS w4 held 3",
    ]


@pytest.mark.parametrize("work_id", ["", "w1", "never-sent"])
def test_cancelling_what_is_not_in_flight_is_zero_and_silent(link: Link, work_id: str) -> None:
    assert _cancelled(link, work_id) == 0
    link.send(link.client.cancel(work_id))
    assert link.answers() == []


def test_cancelling_an_unknown_session_or_epoch_is_zero(link: Link) -> None:
    _in_flight(link, 1)
    assert _cancelled(link, session="unknown") == 0
    assert _cancelled(link, epoch=2) == 0
    assert link.answers() == ["ack w2 past 3 hit", "result w2 [3]"]


def test_the_state_after_a_cancel_is_the_one_before_and_the_step_is_not_spent(link: Link) -> None:
    _in_flight(link, 1)
    link.send(link.client.cancel())
    link.decode(7, expected=2, step=2)
    assert link.answers() == ["CANCELLED w2 held 2", "ack w2 past 3 hit", "result w2 [10]"]


def test_a_unit_behind_a_cancelled_one_waits_until_that_has_stopped(link: Link) -> None:
    _in_flight(link, 1)
    link.send(link.client.cancel())
    link.decode(7, expected=2)
    assert [work.number for work in link.bench.waiting] == [2]
    assert link.answers()[1:] == ["ack w3 past 3 hit", "result w3 [10]"]


def test_a_cancelled_fresh_prefill_leaves_what_was_held(link: Link) -> None:
    link.prefill(9, fresh=True)
    link.send(link.client.cancel())
    link.decode(3, expected=2)
    assert link.answers() == ["CANCELLED w2 held 2", "ack w3 past 3 hit", "result w3 [6]"]


def test_a_second_cancel_of_a_running_unit_says_nothing_more(link: Link) -> None:
    _in_flight(link, 1)
    link.send(link.client.cancel(), link.client.cancel())
    assert _cancelled(link) == 0
    assert link.answers() == ["CANCELLED w2 held 2"]
    assert link.bench.abandoned == [2]


def test_both_copies_of_a_unit_are_cancelled(link: Link) -> None:
    link.decode(3, step=2)
    link.decode(3, step=2, expected=2)
    assert _cancelled(link, "w2") == 2
    assert link.answers() == ["CANCELLED w2 held 2"] * 2


def test_a_cancel_is_local_to_its_session(link: Link) -> None:
    other = link.bench.session("other")
    other.prefill(5)
    _in_flight(link, 1)
    link.send(link.client.cancel())
    assert other.answers() == ["ack w1 past 1", "result w1 [5]"]


def test_cancelled_work_that_fails_afterwards_is_not_told(link: Link) -> None:
    _in_flight(link, 1)
    link.send(link.client.cancel())
    link.heard()
    link.bench.compute(fail=True)
    assert link.answers() == []


# Release in band -------------------------------------------------------------------------------


def test_a_release_is_not_answered_and_leaves_the_stream_usable_and_empty(link: Link) -> None:
    link.send(link.client.release())
    link.decode(3, expected=2)
    link.decode(3, expected=0)
    link.prefill(4)
    assert link.answers() == [
        "CACHE_MISS w2 held 0",
        "CACHE_MISS w3 held 0",
        "ack w4 past 1",
        "result w4 [4]",
    ]


def test_a_release_lets_go_of_the_state_itself(link: Link) -> None:
    link.send(link.client.release())
    session = link.bench.worker.table.find("s")
    assert session is not None
    assert session.state is None


def test_a_release_comes_after_the_units_before_it(link: Link) -> None:
    _in_flight(link, 2)
    link.send(link.client.release())
    link.decode(9, expected=4)
    assert link.answers() == [
        "ack w2 past 3 hit",
        "result w2 [3]",
        "ack w3 past 4 hit",
        "result w3 [4]",
        "CACHE_MISS w4 held 0",
    ]


@pytest.mark.parametrize(("field", "value"), [("route_session_id", "t"), ("route_epoch", 9)])
def test_a_release_of_another_session_is_void(link: Link, field: str, value: object) -> None:
    message = link.client.release()
    setattr(message.release, field, value)
    link.send(message)
    link.decode(3, expected=2)
    assert link.answers() == ["ack w2 past 3 hit", "result w2 [6]"]


@pytest.mark.parametrize("unary", [True, False])
def test_a_release_frees_a_place_at_once(link: Link, unary: bool) -> None:
    for number in range(SERVED.max_sessions - 1):
        link.bench.session(f"other {number}")
    if unary:
        assert _released(link)
    else:
        link.send(link.client.release())
    assert link.bench.health().active_sessions == SERVED.max_sessions - 1
    link.bench.session("successor")


def test_a_released_session_that_finds_no_place_again_goes_on_waiting(link: Link) -> None:
    others = [link.bench.session(f"other {n}") for n in range(SERVED.max_sessions - 1)]
    link.send(link.client.release())
    others.append(link.bench.session("successor"))
    link.prefill(3)
    assert link.heard() == ["RESOURCE_EXHAUSTED w2 held 0"]
    assert link.messages[-1].status.error.retryable
    others[0].lose()
    link.prefill(3)
    assert link.answers() == ["ack w3 past 1", "result w3 [3]"]
    assert link.bench.health().active_sessions == SERVED.max_sessions


# Unary release ---------------------------------------------------------------------------------


def test_the_unary_release_tells_whether_there_was_something(link: Link) -> None:
    assert _released(link, "unknown") is False
    assert _released(link, epoch=9) is False
    assert _released(link) is True
    assert _released(link) is False


def test_the_unary_release_cancels_what_is_in_flight(link: Link) -> None:
    _in_flight(link, 2)
    assert _released(link)
    assert link.heard() == ["CANCELLED w2 held 2", "CANCELLED w3 held 2"]
    link.prefill(5, fresh=True)
    assert link.answers() == ["ack w4 past 1", "result w4 [5]"]


def test_a_session_that_worked_again_can_be_released_again(link: Link) -> None:
    assert _released(link)
    link.prefill(5, fresh=True)
    link.answers()
    assert _released(link)


def test_a_release_is_local_to_its_session(link: Link) -> None:
    other = link.bench.session("other")
    other.prefill(5)
    assert _released(link)
    assert other.answers() == ["ack w1 past 1", "result w1 [5]"]


def test_a_release_after_the_stream_has_ended_finds_nothing(link: Link) -> None:
    link.lose()
    assert _released(link) is False
