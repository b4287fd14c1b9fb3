"""The client's side of a seam: answers find their units, and what is not due is a violation."""

from __future__ import annotations

from itertools import permutations

import pytest

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.client import SeamClient
from pytest_meshnet.protocol.machines.exchange import ProtocolViolation
from pytest_meshnet.tests.protocol.answers import SEAM, ack, opened, refusal, result, rows, sent

# Correlation ------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_answers_find_their_units_in_any_order_and_the_newest_step_tells_the_length(
    order: tuple[int, ...],
) -> None:
    client = opened()
    first, second = (sent(client, client.chunk([rows(2)])) for _ in range(2))
    answers = [ack(first, 2), result(first), ack(second, 4), result(second)]
    for index in order:
        client.receive(answers[index])
    assert first.done
    assert second.done
    assert [first.ack.cache_result.past_len, second.ack.cache_result.past_len] == [2, 4]
    assert (client.past_len, client.sent_len, client.in_flight) == (4, 4, 0)


def test_units_of_one_work_id_are_told_apart_by_their_step() -> None:
    client = opened()
    one = sent(client, client.chunk([rows(1)], work_id="w", step=5))
    other = sent(client, client.decode(rows(1), work_id="w", step=9))
    client.receive(ack(other, 2))
    assert (one.ack, other.applied) == (None, True)


def test_a_unit_is_done_with_ack_and_result_and_not_before() -> None:
    client = opened()
    exchange = sent(client, client.chunk([rows(1)]))
    client.receive(result(exchange))
    assert not exchange.done
    client.receive(ack(exchange, 1))
    assert exchange.done
    assert exchange.tensors == (rows(1),)


def test_a_tail_owes_a_result_for_the_final_chunk_and_for_decode_only() -> None:
    client = opened(is_tail=True)
    open_end = sent(client, client.chunk([rows(1)], final=False))
    final = sent(client, client.chunk([rows(1)]))
    decode = sent(client, client.decode(rows(1)))
    for exchange, past_len in ((open_end, 1), (final, 2), (decode, 3)):
        client.receive(ack(exchange, past_len))
    assert [open_end.done, final.done, decode.done] == [True, False, False]
    with pytest.raises(ProtocolViolation, match="due only an ack"):
        client.receive(result(open_end))


# What is not due --------------------------------------------------------------------------------


def test_a_second_ack_is_a_violation() -> None:
    client = opened()
    exchange = sent(client, client.chunk([rows(1)]))
    client.receive(ack(exchange, 1))
    with pytest.raises(ProtocolViolation, match="waits for none"):
        client.receive(ack(exchange, 1))


def test_an_ack_of_a_refused_unit_is_a_violation() -> None:
    client = opened()
    exchange = sent(client, client.chunk([rows(1)]))
    client.receive(refusal(exchange.work_id, exchange.step))
    with pytest.raises(ProtocolViolation, match="waits for none"):
        client.receive(ack(exchange, 1))


def test_a_result_of_a_refused_unit_is_a_violation() -> None:
    client = opened()
    exchange = sent(client, client.chunk([rows(1)]))
    client.receive(refusal(exchange.work_id, exchange.step))
    with pytest.raises(ProtocolViolation, match="not asked for or refused"):
        client.receive(result(exchange))


@pytest.mark.parametrize("acked", [False, True], ids=["before-the-ack", "after-the-ack"])
def test_a_second_result_is_a_violation(acked: bool) -> None:
    client = opened()
    exchange = sent(client, client.chunk([rows(1)]))
    client.receive(result(exchange))
    if acked:
        client.receive(ack(exchange, 1))
    with pytest.raises(ProtocolViolation, match="one more result"):
        client.receive(result(exchange))


def test_a_result_of_work_that_was_never_sent_is_a_violation() -> None:
    client = opened()
    exchange = sent(opened(), client.chunk([rows(1)]))
    with pytest.raises(ProtocolViolation, match="not asked for or refused"):
        client.receive(result(exchange))


def test_a_result_that_the_codec_refuses_is_a_violation() -> None:
    client = opened()
    exchange = sent(client, client.chunk([rows(1)]))
    message = result(exchange)
    message.chunk.bundle.tensors[0].checksum.value = b"\0\0\0\0"
    with pytest.raises(ProtocolViolation, match="corrupt"):
        client.receive(message)


def test_accepted_comes_once_and_not_after_a_refusal() -> None:
    client = opened()
    with pytest.raises(ProtocolViolation, match="second accepted"):
        client.receive(pb.SessionResponse(accepted=pb.SessionAccepted()))
    refused = SeamClient(SEAM)
    refused.receive(refusal("", 0, terminal=True))
    with pytest.raises(ProtocolViolation, match="after the stream was refused"):
        refused.receive(pb.SessionResponse(accepted=pb.SessionAccepted()))


def test_a_response_of_no_known_kind_is_a_violation() -> None:
    with pytest.raises(ProtocolViolation, match="no known kind"):
        opened().receive(pb.SessionResponse())


# Duplicates -------------------------------------------------------------------------------------


@pytest.mark.parametrize("work_id", ["w1", "again"])
def test_a_duplicate_may_bring_the_original_result_once_more(work_id: str) -> None:
    client = opened()
    original = sent(client, client.chunk([rows(1)], work_id="w1", step=1))
    client.receive(ack(original, 1))
    client.receive(result(original))
    copy = sent(client, client.chunk([rows(1)], work_id=work_id, step=1))
    client.receive(ack(copy, 1, duplicate=True))
    assert copy.done
    assert not copy.applied
    client.receive(result(original))
    with pytest.raises(ProtocolViolation, match="one more result"):
        client.receive(result(original))


def test_two_copies_in_flight_take_one_ack_each() -> None:
    client = opened()
    message = client.chunk([rows(1)])
    one, other = sent(client, message), sent(client, message)
    client.receive(ack(one, 1))
    client.receive(ack(one, 1, duplicate=True))
    assert (one.applied, other.applied) == (True, False)
    client.receive(result(one))
    assert (len(one.results), client.in_flight) == (1, 0)


def test_a_duplicate_leaves_the_length_alone() -> None:
    client = opened()
    exchange = sent(client, client.chunk([rows(2)], step=4))
    client.receive(ack(exchange, 2))
    old = sent(client, client.chunk([rows(1)], step=3))
    client.receive(ack(old, 2, duplicate=True))
    assert (client.past_len, client.sent_len) == (2, 2)


# Lengths ----------------------------------------------------------------------------------------


def test_sent_len_runs_ahead_and_falls_back_when_a_unit_was_refused() -> None:
    client = opened()
    first = sent(client, client.chunk([rows(2)], final=False))
    second = sent(client, client.chunk([rows(2)]))
    assert (client.past_len, client.sent_len) == (0, 4)
    client.receive(ack(first, 2))
    assert (client.past_len, client.sent_len) == (2, 4)
    client.receive(refusal(second.work_id, second.step))
    assert (client.past_len, client.sent_len) == (2, 2)


def test_stateless_work_moves_no_length() -> None:
    client = opened()
    client.receive(ack(sent(client, client.chunk([rows(3)])), 3))
    stateless = sent(client, client.chunk([rows(1)], mode=pb.CACHE_MODE_STATELESS))
    assert client.sent_len == 3
    client.receive(ack(stateless, 0))
    assert (client.past_len, client.sent_len) == (3, 3)


@pytest.mark.parametrize(("name", "epoch"), [("-2", 0), ("", 1), ("", -1)])
def test_a_release_that_is_for_another_session_or_epoch_leaves_the_length(
    name: str, epoch: int
) -> None:
    client = opened()
    client.receive(ack(sent(client, client.chunk([rows(2)])), 2))
    message = client.release()
    message.release.route_session_id += name
    message.release.route_epoch += epoch
    assert client.sent(message) is None
    assert (client.past_len, client.sent_len) == (2, 2)


def test_a_release_empties_the_session_also_of_what_is_acknowledged_later() -> None:
    client = opened()
    late = sent(client, client.chunk([rows(3)]))
    assert client.sent(client.release()) is None
    assert (client.past_len, client.sent_len) == (0, 0)
    client.receive(ack(late, 3))
    assert (client.past_len, client.sent_len) == (0, 0)
    client.receive(ack(sent(client, client.chunk([rows(1)])), 1))
    assert client.past_len == 1


# Credit and statuses ----------------------------------------------------------------------------


def test_a_unit_takes_a_credit_and_its_final_answer_returns_it() -> None:
    client = opened(credits=3)
    units = [sent(client, client.chunk([rows(1)])) for _ in range(3)]
    assert (client.credit, client.may_send) == (0, False)
    client.receive(result(units[0]))
    assert client.credit == 0
    client.receive(ack(units[0], 1))
    client.receive(ack(units[1], 1, duplicate=True))
    client.receive(refusal(units[2].work_id, units[2].step))
    assert (client.credit, client.may_send) == (3, True)


def test_signals_take_no_credit() -> None:
    client = opened(credits=1)
    for message in (client.open(), client.release(), client.cancel("w1", "changed my mind")):
        assert client.sent(message) is None
    assert client.credit == 1


def test_a_grant_adds_credit_but_never_beyond_the_in_flight_bound() -> None:
    client = opened(credits=0, inflight=1)
    assert not client.may_send
    client.receive(pb.SessionResponse(flow_control=pb.FlowControl(credits_granted=5)))
    assert client.may_send
    sent(client, client.chunk([rows(1)]))
    assert (client.credit, client.may_send) == (4, False)


def test_a_terminal_status_ends_the_client_and_answers_the_unit_it_names() -> None:
    client = opened()
    named, other = (sent(client, client.chunk([rows(1)])) for _ in range(2))
    client.receive(refusal(named.work_id, named.step, terminal=True))
    assert client.ended is named.status
    assert (named.done, other.done) == (True, False)


def test_a_status_that_names_no_unit_in_flight_is_kept_apart() -> None:
    client = opened()
    exchange = sent(client, client.chunk([rows(1)]))
    client.receive(refusal("", 0))
    assert [one.work_id for one in client.strays] == [""]
    assert (exchange.status, client.ended) == (None, None)
