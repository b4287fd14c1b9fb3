"""What a driven session requires of its units: applied or refused, with whole results or none."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.results import check_code, joined
from pytest_meshnet.tests.runtime.scripted import (
    Answer,
    Frame,
    ack,
    refusal,
    result,
    scripted,
    states,
    stream_of,
)

# Applied ----------------------------------------------------------------------------------------


def applying(message: pb.SessionRequest) -> list[Frame]:
    return [ack(message), result(message)]


def test_an_applied_unit_has_an_ack_and_a_result() -> None:
    session = scripted(applying)
    exchange = session.exchange(session.client.chunk([states(2)]))
    assert session.applied(exchange) is exchange


def test_a_refused_unit_is_not_applied_and_its_status_is_shown() -> None:
    session = scripted(lambda message: [refusal(message)])
    exchange = session.exchange(session.client.chunk([states(1)]))
    with pytest.raises(Nonconformance, match="status CACHE_MISS work='w1'"):
        session.applied(exchange)


def test_a_duplicate_is_not_applied() -> None:
    session = scripted(lambda message: [ack(message, duplicate=True)])
    exchange = session.exchange(session.client.chunk([states(1)]))
    with pytest.raises(Nonconformance, match="acked as a duplicate"):
        session.applied(exchange)


def test_a_unit_that_was_not_answered_is_neither_applied_nor_refused() -> None:
    session = scripted(lambda message: [])
    exchange = session.send_unit(session.client.chunk([states(1)]))
    with pytest.raises(Nonconformance, match="no answer"):
        session.applied(exchange)
    with pytest.raises(Nonconformance, match="no answer"):
        session.refused(exchange)


def test_a_unit_that_was_acked_before_its_stream_was_ended_lacks_its_result() -> None:
    session = scripted(lambda message: [ack(message), refusal(message, terminal=True)])
    exchange = session.exchange(session.client.chunk([states(1)]))
    with pytest.raises(Nonconformance, match=r"1 result\(s\)"):
        session.applied(exchange)


def test_a_chunk_of_a_tail_that_is_not_final_is_applied_without_a_result() -> None:
    session = scripted(lambda message: [ack(message)], is_tail=True)
    exchange = session.exchange(session.client.chunk([states(1)], final=False))
    assert session.applied(exchange).results == []


# Refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("anonymous", [False, True], ids=["naming-it", "naming-nothing"])
def test_a_terminal_status_ends_the_wait_and_refuses_the_unit(anonymous: bool) -> None:
    session = scripted(lambda message: [refusal(message, terminal=True, anonymous=anonymous)])
    exchange = session.exchange(session.client.chunk([states(1)]))
    assert session.refused(exchange, pb.ERROR_CODE_CACHE_MISS) is session.client.ended


def test_an_applied_or_repeated_unit_was_not_refused() -> None:
    for answer, word in (
        (applying, "it was applied"),
        (lambda message: [ack(message, duplicate=True)], "it was acked as a duplicate"),
    ):
        session = scripted(answer)
        exchange = session.exchange(session.client.chunk([states(1)]))
        with pytest.raises(Nonconformance, match=word):
            session.refused(exchange)


def test_a_refusal_needs_one_of_the_named_codes() -> None:
    session = scripted(lambda message: [refusal(message)])
    exchange = session.exchange(session.client.chunk([states(1)]))
    with pytest.raises(Nonconformance, match="EPOCH_STALE or PAYLOAD_CORRUPT"):
        session.refused(exchange, pb.ERROR_CODE_EPOCH_STALE, pb.ERROR_CODE_PAYLOAD_CORRUPT)


def test_a_refusal_comes_without_a_result() -> None:
    session = scripted(lambda message: [result(message), refusal(message)])
    exchange = session.exchange(session.client.chunk([states(1)]))
    with pytest.raises(Nonconformance, match="a result came too"):
        session.refused(exchange)


@pytest.mark.parametrize("code", sorted(pb.ErrorCode.values()))
def test_where_no_code_is_named_all_but_two_will_do(code: int) -> None:
    status = pb.ShardStatus(error=pb.ShardError(code=code))  # type: ignore[arg-type]
    if code in (pb.ERROR_CODE_UNSPECIFIED, pb.ERROR_CODE_INTERNAL):
        with pytest.raises(Nonconformance, match="other than UNSPECIFIED and INTERNAL"):
            check_code(status)
    else:
        check_code(status)


def test_named_codes_exclude_all_others() -> None:
    named = (pb.ERROR_CODE_CANCELLED, pb.ERROR_CODE_INTERNAL)
    for code in pb.ErrorCode.values():
        status = pb.ShardStatus(error=pb.ShardError(code=code))
        if code in named:
            check_code(status, *named)
        else:
            with pytest.raises(Nonconformance, match="CANCELLED or INTERNAL"):
                check_code(status, *named)


# Chunks and rows --------------------------------------------------------------------------------


def test_a_prefill_is_cut_to_the_settled_limits() -> None:
    session = scripted(applying)
    rows = session.prefill(states(10))
    assert rows.shape == (10, 2)
    assert chunks_of(session) == [(0, 4, False), (4, 4, False), (8, 2, True)]


def test_chunks_wider_than_the_limits_are_sent_in_parts() -> None:
    session = scripted(applying)
    session.prefill_chunks(states(8), [6, 2], finish=False)
    assert chunks_of(session) == [(0, 4, False), (4, 2, False), (6, 2, False)]


def test_a_fresh_prefill_begins_at_zero_and_continues_from_there() -> None:
    session = scripted(applying)
    session.prefill(states(3))
    session.prefill(states(3), chunk_tokens=2, fresh=True)
    assert chunks_of(session) == [(0, 3, True), (0, 2, False), (2, 1, True)]


def chunks_of(session) -> list[tuple[int, int, bool]]:  # type: ignore[no-untyped-def]
    """First position, token count and final flag of every chunk sent."""
    envelopes = [m.chunk.envelope for m in stream_of(session).sent if m.HasField("chunk")]
    return [
        (one.position.first_position, one.position.token_count, one.chunk.final_chunk)
        for one in envelopes
    ]


@pytest.mark.parametrize("full", [False, True])
def test_a_decode_step_takes_either_form(full: bool) -> None:
    session = scripted(applying)
    assert session.decode(states(1), full=full).tolist() == [[0.0, 1.0]]
    assert stream_of(session).sent[-1].HasField("chunk" if full else "decode")


def answering(*tensors: Tensor) -> Answer:
    return lambda message: [ack(message), result(message, *tensors)]


def test_rows_are_those_of_the_boundary_tensor_wherever_it_stands() -> None:
    indices = Tensor.from_array("topk_indices", np.zeros((1, 1, 4)), DType.INT32)
    session = scripted(answering(indices, states(1)))
    assert session.prefill(states(1)).tolist() == [[0.0, 1.0]]


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (states(1, name="hidden"), r"hidden_states or logits.*\n.*'hidden'"),
        (Tensor("hidden_states", DType.FLOAT32, (), bytes(4)), r"shape \[\]"),
        (Tensor("hidden_states", DType.FLOAT32, (1, 0, 2), b""), r"shape \[1, 0, 2\]"),
        (Tensor("hidden_states", DType.FLOAT32, (2,), bytes(8)), r"shape \[2\]"),
    ],
    ids=["other-name", "scalar", "no-rows", "flat"],
)
def test_a_result_without_rows_is_a_finding(tensor: Tensor, words: str) -> None:
    session = scripted(answering(tensor))
    with pytest.raises(Nonconformance, match=words):
        session.prefill(states(1))


def test_joined_rows_leave_out_chunks_that_gave_none() -> None:
    one = np.ones((2, 3), dtype=np.float32)
    assert joined(joined(), one, joined(), one).shape == (4, 3)
    assert joined().size == 0


def test_rows_of_several_widths_are_a_finding() -> None:
    one, other = (np.ones((1, width), dtype=np.float32) for width in (2, 3))
    with pytest.raises(Nonconformance, match=r"widths \[2, 3\]"):
        joined(one, other)


def test_a_unit_that_should_be_refused_says_with_which_codes() -> None:
    session = scripted(applying)
    exchange = session.exchange(session.client.chunk([states(1)]))
    with pytest.raises(Nonconformance, match="work 'w1' refused with CACHE_MISS or CANCELLED\n"):
        session.refused(exchange, pb.ERROR_CODE_CACHE_MISS, pb.ERROR_CODE_CANCELLED)
    with pytest.raises(Nonconformance, match="work 'w1' refused\n"):
        session.refused(exchange)
