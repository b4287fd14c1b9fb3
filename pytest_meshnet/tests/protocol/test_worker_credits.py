"""A Worker counts credit and holds units against the settled sizes (protocol 3)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_meshnet.protocol.flow import FlowLimits
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import Received
from pytest_meshnet.tests.protocol.linked import HEAD, SERVED, TAIL, Bench, ids, rows


def test_a_unit_beyond_the_credit_is_refused_and_takes_none() -> None:
    link = Bench().session(credits_granted=2)
    link.prefill(1)
    link.decode(2, expected=1)
    link.decode(3, expected=2)
    assert link.heard() == ["FLOW_CONTROL_VIOLATION w3 held 0"]
    assert link.answers() == [
        "ack w1 past 1",
        "result w1 [1]",
        "ack w2 past 2 hit",
        "result w2 [3]",
    ]
    link.decode(3)
    link.decode(4, expected=3)
    assert link.answers()[1::2] == ["result w4 [6]", "result w5 [10]"]


def test_a_step_refused_for_lack_of_credit_is_not_spent() -> None:
    link = Bench().session(credits_granted=1)
    link.prefill(1)
    link.decode(2, expected=1)
    link.answers()
    link.decode(2, step=2)
    assert link.answers() == ["ack w2 past 2 hit", "result w2 [3]"]


def test_the_bound_in_flight_holds_whatever_the_credit() -> None:
    bench = Bench()
    link = bench.session(max_inflight_chunks=2)
    session = bench.worker.table.find("s")
    assert session is not None
    session.credit = 99
    for expected in range(3):
        link.prefill(1, expected=expected)
    assert link.heard() == ["FLOW_CONTROL_VIOLATION w3 held 0"]


def test_a_long_prefill_runs_on_one_credit() -> None:
    link = Bench().session(credits_granted=1)
    for number in range(20):
        link.prefill(1, final=number == 19)
        assert link.answers()[1] == f"result w{number + 1} [{number + 1}]"


def test_every_answer_returns_the_credit_of_its_unit() -> None:
    link = Bench().session(credits_granted=1)
    link.prefill(1)
    link.answers()
    for _ in range(5):
        link.decode(2, step=1)
        link.decode(2, expected=7)
        link.decode(2, position=7)
        link.decode(2, deadline=1)
        link.prefill(1, deadline=-1)
        link.send(link.client.cancel())
    refusals = link.answers()
    assert len(refusals) == 25
    assert "FLOW_CONTROL_VIOLATION" not in " ".join(refusals)
    link.decode(2)
    assert link.answers() == ["ack w22 past 2 hit", "result w22 [3]"]


def test_signals_and_client_grants_take_and_give_no_credit() -> None:
    link = Bench().session(credits_granted=1)
    grant = pb.SessionRequest(flow_control=pb.FlowControl(credits_granted=5))
    link.send(link.client.release(), link.client.cancel(), grant)
    link.prefill(1)
    link.prefill(2, expected=1)
    assert link.answers() == [
        "FLOW_CONTROL_VIOLATION w2 held 0",
        "ack w1 past 1",
        "result w1 [1]",
    ]


def test_each_session_has_credit_of_its_own() -> None:
    bench = Bench()
    for name in ("a", "b"):
        link = bench.session(name, credits_granted=1)
        link.prefill(1)
        assert link.heard() == []


# Sizes -----------------------------------------------------------------------------------------


def test_a_message_above_the_settled_size_is_refused_and_returns_its_credit() -> None:
    link = Bench().session(max_chunk_bytes=4_000, credits_granted=1)
    for _ in range(2):
        link.prefill(1, work_id="x" * 4_000)
        assert link.heard() == [f"FLOW_CONTROL_VIOLATION {'x' * 4_000} held 0"]
    link.prefill(1)
    assert link.answers() == ["ack w3 past 1", "result w3 [1]"]


def test_the_size_is_that_of_the_whole_message_to_the_byte() -> None:
    bench = Bench()
    link = bench.session(max_chunk_bytes=1_000)
    message = link.client.chunk([rows(1)])
    for size, answer in ((1_001, "FLOW_CONTROL_VIOLATION w1 held 0"), (1_000, "ack w1 past 1")):
        link.client.sent(message)
        bench.post(Received(link.number, message, size))
        assert link.answers()[0] == answer


def test_a_chunk_above_the_token_bound_is_refused() -> None:
    link = Bench().session(max_prefill_chunk_tokens=2)
    link.prefill(1, 2, 3)
    link.prefill(1, 2, 3, mode=pb.CACHE_MODE_STATELESS)
    link.prefill(1, 2)
    assert link.answers() == [
        "FLOW_CONTROL_VIOLATION w1 held 0",
        "FLOW_CONTROL_VIOLATION w2 held 0",
        "ack w3 past 2",
        "result w3 [1, 3]",
    ]


WIDE = replace(SERVED, hidden_size=100, limits=FlowLimits(prefill_tokens=64))


def test_a_head_refuses_a_chunk_whose_result_does_not_fit_when_fewer_tokens_may() -> None:
    link = Bench(replace(HEAD, hidden_size=1_000)).session(max_chunk_bytes=3_000)
    link.send(link.client.chunk([ids(1, 1)]))
    assert link.heard() == ["RESOURCE_EXHAUSTED w1 held 0"]
    link.send(link.client.chunk([ids(1)]))
    assert len(link.bench.waiting) == 1


@pytest.mark.parametrize("tokens", range(2, 10))
def test_a_middle_shard_takes_every_chunk_that_fits_since_its_result_is_no_larger(
    tokens: int,
) -> None:
    bench = Bench(WIDE)
    tensor = replace(rows(*[1] * 100 * tokens), shape=(1, tokens, 100))
    size = bench.stream("other").client.chunk([tensor]).ByteSize()
    link = bench.session(max_chunk_bytes=size)
    link.send(link.client.chunk([tensor]))
    assert link.heard() == []


def test_a_tail_is_not_bound_by_a_result_that_no_chunking_makes_smaller() -> None:
    link = Bench(replace(TAIL, vocab_size=10_000)).session(max_chunk_bytes=4_000)
    link.prefill(1, 2, 3)
    assert len(link.bench.waiting) == 1
