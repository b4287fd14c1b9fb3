"""A driven session: every wait has an end, and whatever is not due is a finding."""

from __future__ import annotations

import pytest

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.runtime.errors import Nonconformance, TargetLost
from pytest_meshnet.runtime.transport import StreamEnd
from pytest_meshnet.tests.runtime.scripted import (
    Answer,
    Frame,
    ack,
    refusal,
    result,
    scripted,
    states,
    stream_of,
    unopened,
)


def applying(message: pb.SessionRequest) -> list[Frame]:
    return [ack(message), result(message)]


def silence(_message: pb.SessionRequest) -> list[Frame]:
    return []


def ending(code: str, *before: Answer) -> Answer:
    return lambda message: [*(one for say in before for one in say(message)), StreamEnd(code)]


def refusing(code: int = pb.ERROR_CODE_CACHE_MISS, **kwargs: bool) -> Answer:
    return lambda message: [refusal(message, code, **kwargs)]


# Waits ------------------------------------------------------------------------------------------


def test_a_wait_is_bounded_by_the_declared_answer_time() -> None:
    session = scripted(applying)
    session.exchange(session.client.chunk([states(1)]))
    assert all(0 < timeout <= 30 for timeout in stream_of(session).timeouts)


def test_silence_is_a_finding_that_says_what_was_waited_for() -> None:
    session = scripted(silence)
    with pytest.raises(Nonconformance, match="the answer to work 'w1' step 1") as found:
        session.exchange(session.client.chunk([states(1)]))
    assert found.value.actual == "nothing arrived"


def test_silence_after_a_status_that_named_no_unit_shows_that_status() -> None:
    session = scripted(refusing(anonymous=True))
    with pytest.raises(Nonconformance, match="names no unit in flight: status CACHE_MISS"):
        session.exchange(session.client.chunk([states(1)]))


def test_silence_of_a_target_that_was_ended_from_outside_is_a_loss() -> None:
    session = scripted(silence, TargetLost("gone"))
    with pytest.raises(TargetLost, match="gone"):
        session.exchange(session.client.chunk([states(1)]))


def test_a_wait_for_credit_takes_answers_in() -> None:
    session = scripted(applying)
    session.client.credit = 1
    exchanges = session.send_chunks(states(3), [1, 1, 1])
    assert [one.ack is not None for one in exchanges] == [True, True, False]


def test_a_wait_for_credit_that_never_comes_is_a_finding() -> None:
    session = scripted(silence)
    session.client.credit = 0
    with pytest.raises(Nonconformance, match="returns credit"):
        session.send_unit(session.client.chunk([states(1)]))


def test_an_answer_that_is_not_due_is_a_finding() -> None:
    session = scripted(lambda message: [ack(message), ack(message), result(message)])
    with pytest.raises(Nonconformance, match="waits for none"):
        session.exchange(session.client.chunk([states(1)]))


# Ends of streams --------------------------------------------------------------------------------


def test_an_end_of_the_stream_is_a_finding_while_an_answer_is_due() -> None:
    session = scripted(ending("OK"))
    exchange = session.send_unit(session.client.chunk([states(1)]))
    for _ in range(2):
        with pytest.raises(Nonconformance, match="the stream ended with OK"):
            session.wait(exchange)


def test_an_end_by_a_lost_target_is_a_loss_whether_waited_for_or_not() -> None:
    session = scripted(ending("UNAVAILABLE"), TargetLost("killed"))
    exchange = session.send_unit(session.client.chunk([states(1)]))
    with pytest.raises(TargetLost):
        session.wait_for_end()
    with pytest.raises(TargetLost):
        session.wait(exchange)


def test_an_end_by_a_crash_is_the_finding_of_the_crash() -> None:
    session = scripted(
        ending("UNAVAILABLE"), Nonconformance("a runtime that serves on", "it ended")
    )
    exchange = session.send_unit(session.client.chunk([states(1)]))
    with pytest.raises(Nonconformance, match="serves on"):
        session.wait(exchange)


def test_an_orderly_end_is_no_loss_even_if_the_target_goes_away_then() -> None:
    session = scripted(ending("OK"), TargetLost("stopped after that"))
    exchange = session.send_unit(session.client.chunk([states(1)]))
    with pytest.raises(Nonconformance, match="the stream ended with OK"):
        session.wait(exchange)


def test_an_end_with_unavailable_by_a_target_that_lives_is_like_any_other() -> None:
    session = scripted(ending("UNAVAILABLE"))
    session.send_unit(session.client.chunk([states(1)]))
    assert session.wait_for_end() is None
    assert session.ended == StreamEnd("UNAVAILABLE")


def test_an_end_says_which_terminal_status_came_before() -> None:
    session = scripted(ending("OK", refusing(terminal=True, anonymous=True)))
    session.send_unit(session.client.chunk([states(1)]))
    assert session.wait_for_end() is session.client.ended
    session.client.credit = 0
    with pytest.raises(Nonconformance, match="ended with OK after status CACHE_MISS"):
        session.send_unit(session.client.chunk([states(1)]))


def test_the_answer_to_an_open_is_accepted_or_the_terminal_status() -> None:
    session = unopened(refusing(terminal=True, anonymous=True))
    status = session.try_open(session.client.open())
    assert isinstance(status, pb.ShardStatus)
    assert status.error.code == pb.ERROR_CODE_CACHE_MISS
    with pytest.raises(Nonconformance, match="expected: accepted\nactual:   status CACHE_MISS"):
        unopened(refusing(terminal=True, anonymous=True)).open()


def test_an_open_without_an_answer_is_a_finding() -> None:
    with pytest.raises(Nonconformance, match="accepted or a terminal status"):
        unopened(silence).open()


# Finishing --------------------------------------------------------------------------------------


def test_leaving_a_session_reads_to_the_end_and_finds_what_came_late() -> None:
    session = scripted(applying)
    message = session.client.chunk([states(1)])
    stream_of(session).at_half_close = [result(message), StreamEnd("OK")]
    with pytest.raises(Nonconformance, match="one more result"), session:
        session.exchange(message)


def test_leaving_a_session_that_does_not_end_drops_it_quietly() -> None:
    session = scripted(silence)
    stream_of(session).at_half_close = []
    with session:
        pass
    assert (stream_of(session).half_closed, stream_of(session).dropped) == (True, True)


def test_leaving_a_session_that_has_ended_does_nothing() -> None:
    session = scripted(ending("OK"))
    with session:
        session.send_unit(session.client.chunk([states(1)]))
        session.wait_for_end()
    assert (stream_of(session).half_closed, stream_of(session).dropped) == (False, False)


def test_a_failing_test_drops_its_session_without_another_wait() -> None:
    session = scripted(silence)
    with pytest.raises(ZeroDivisionError), session:
        raise ZeroDivisionError
    assert (stream_of(session).half_closed, stream_of(session).dropped) == (False, True)
