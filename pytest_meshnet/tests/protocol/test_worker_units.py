"""A Worker applies units: cache expectations, answers, and what refuses one (protocol 2, 4, 8)."""

from __future__ import annotations

import pytest

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import Outcome, Work
from pytest_meshnet.tests.protocol.linked import SERVED, TAIL, Bench, Link, rows

STATELESS = pb.CACHE_MODE_STATELESS
DECODE = pb.CACHE_MODE_DECODE


@pytest.fixture
def link() -> Link:
    return Bench().session()


# Answers ---------------------------------------------------------------------------------------


def test_a_chunked_prefill_and_decodes_advance_the_state(link: Link) -> None:
    link.prefill(1, 2, final=False)
    link.prefill(3)
    link.decode(4)
    link.send(link.client.decode(rows(5), full=True))
    assert link.answers() == [
        "ack w1 past 2",
        "result w1 [1, 3]",
        "ack w2 past 3 hit",
        "result w2 [6]",
        "ack w3 past 4 hit",
        "result w3 [10]",
        "ack w4 past 5 hit",
        "result w4 [15]",
    ]


def test_an_ack_repeats_work_step_and_mode_and_tells_the_time_taken(link: Link) -> None:
    link.prefill(1, step=5, work_id="mine")
    link.answers()
    ack = link.messages[1].ack
    assert (ack.work_id, ack.idempotency_step, ack.execution_nanos) == ("mine", 5, 5)
    assert ack.cache_result.mode == pb.CACHE_MODE_PREFILL


@pytest.mark.parametrize("full", [False, True], ids=["step", "full-form"])
def test_the_envelope_of_a_result_repeats_its_request(link: Link, full: bool) -> None:
    link.prefill(1, 2)
    link.send(link.client.decode(rows(3), full=full))
    link.answers()
    seam, envelope = link.client.seam, link.messages[-1].chunk.envelope
    assert envelope.schema_version == pb.SCHEMA_VERSION_1
    assert (envelope.work_id, envelope.idempotency_step) == ("w2", 2)
    assert (envelope.route_session_id, envelope.route_epoch) == (seam.session_id, seam.epoch)
    assert (envelope.fingerprint, envelope.shard_range) == (seam.fingerprint, seam.shard_range)
    assert envelope.phase == pb.PHASE_DECODE
    assert envelope.position == pb.PositionSpan(first_position=2, token_count=1)
    assert envelope.cache_expectation == pb.CacheExpectation(mode=DECODE, expected_past_len=2)
    assert envelope.chunk.final_chunk


def test_the_envelope_of_a_chunk_comes_back_as_it_was(link: Link) -> None:
    message = link.client.chunk([rows(1, 2)], final=False, place=(3, 9), deadline=2**62)
    link.send(message)
    link.answers()
    assert link.messages[-1].chunk.envelope == message.chunk.envelope


def test_a_tail_answers_chunks_that_are_not_final_with_an_ack_only() -> None:
    assert TAIL.is_tail
    assert not SERVED.is_tail
    link = Bench(TAIL).session()
    link.prefill(1, 2, final=False)
    link.prefill(3)
    link.decode(4)
    assert link.answers() == [
        "ack w1 past 2",
        "ack w2 past 3 hit",
        "result w2 [6]",
        "ack w3 past 4 hit",
        "result w3 [10]",
    ]


def test_a_decode_in_full_form_is_whole_without_the_final_flag(link: Link) -> None:
    link.prefill(1)
    for value in (2, 3):
        link.send(link.client.chunk([rows(value)], mode=DECODE, final=False))
    link.bench.compute()
    assert link.bench.waiting[0].final
    assert link.answers()[3::2] == ["result w2 [3]", "result w3 [6]"]


def test_units_of_one_session_are_computed_one_after_the_other(link: Link) -> None:
    link.prefill(1)
    link.decode(2, expected=1)
    assert len(link.bench.waiting) == 1
    assert link.bench.compute().mode == "prefill"
    assert link.bench.compute().state == (1.0, 1)


def test_sessions_are_computed_side_by_side() -> None:
    bench = Bench()
    for name in ("a", "b"):
        bench.session(name).prefill(1)
    assert [work.session for work in bench.waiting] == ["a", "b"]


# Cache -----------------------------------------------------------------------------------------


def test_a_prefill_expecting_nothing_starts_afresh(link: Link) -> None:
    link.prefill(1, 2)
    link.prefill(5, fresh=True)
    link.decode(1, expected=1)
    assert link.answers()[2:] == [
        "ack w2 past 1",
        "result w2 [5]",
        "ack w3 past 2 hit",
        "result w3 [6]",
    ]


def test_a_prefill_may_append_and_is_unfinished_until_its_own_final_chunk(link: Link) -> None:
    link.prefill(1, 2)
    link.prefill(3, final=False)
    link.answers()
    link.decode(4)
    assert link.answers() == ["CACHE_MISS w3 held 3"]
    link.prefill(4)
    link.decode(5)
    assert link.answers()[1::2] == ["result w4 [10]", "result w5 [15]"]


@pytest.mark.parametrize("expected", [1, 3, 2**63])
def test_a_continuing_chunk_must_expect_what_is_held(link: Link, expected: int) -> None:
    link.prefill(1, 2, final=False)
    link.answers()
    link.prefill(3, expected=expected)
    assert link.answers() == ["CACHE_MISS w2 held 2"]
    assert not link.messages[-1].status.error.retryable
    link.prefill(3)
    assert link.answers() == ["ack w3 past 3 hit", "result w3 [6]"]


@pytest.mark.parametrize("expected", [0, 1, 3, 2**64 - 1])
def test_a_decode_must_expect_what_is_held(link: Link, expected: int) -> None:
    link.prefill(1, 2)
    link.answers()
    link.decode(3, expected=expected)
    assert link.answers() == ["CACHE_MISS w2 held 2"]
    link.decode(3)
    assert link.answers() == ["ack w3 past 3 hit", "result w3 [6]"]


@pytest.mark.parametrize("expected", [0, 1])
def test_a_decode_without_state_is_a_miss_at_zero(link: Link, expected: int) -> None:
    link.decode(1, expected=expected)
    assert link.answers() == ["CACHE_MISS w1 held 0"]


def test_a_decode_before_the_final_chunk_is_a_miss(link: Link) -> None:
    link.prefill(1, 2, final=False)
    link.answers()
    link.decode(3)
    assert link.answers() == ["CACHE_MISS w2 held 2"]


def test_stateless_work_attends_to_itself_and_leaves_the_state_alone(link: Link) -> None:
    link.prefill(1, 2, final=False)
    link.prefill(7, 8, mode=STATELESS)
    link.prefill(3)
    link.send(link.client.chunk([rows(9)], mode=STATELESS))
    link.decode(4, expected=3)
    assert link.answers()[2:] == [
        "ack w2 past 0",
        "result w2 [7, 15]",
        "ack w3 past 3 hit",
        "result w3 [6]",
        "ack w4 past 0",
        "result w4 [9]",
        "ack w5 past 4 hit",
        "result w5 [10]",
    ]


def test_stateless_work_spends_its_step(link: Link) -> None:
    link.prefill(1, mode=STATELESS, step=5)
    link.prefill(1, step=5, work_id="again")
    assert link.answers() == ["ack w5 past 0", "result w5 [1]", "duplicate again past 0"]


def test_a_model_that_fails_costs_one_unit_and_not_the_state(link: Link) -> None:
    link.prefill(1)
    link.answers()
    link.decode(2)
    link.bench.compute(fail=True)
    assert link.heard() == ["INTERNAL w2 held 1"]
    link.decode(2, step=2)
    assert link.answers() == ["ack w2 past 2 hit", "result w2 [3]"]


class Recording:
    """Remembers what it was given."""

    def __init__(self) -> None:
        self.works: list[Work] = []

    def run(self, work: Work) -> Outcome:
        self.works.append(work)
        return Outcome(f"state {len(self.works)}", (rows(0),), 1)


def test_the_model_is_given_the_committed_state_and_nothing_else(link: Link) -> None:
    link.bench.model = Recording()
    link.prefill(1, final=False)
    link.prefill(2, mode=STATELESS)
    link.prefill(3, expected=1)
    link.prefill(4, fresh=True)
    link.answers()
    assert [work.state for work in link.bench.model.works] == [None, None, "state 1", None]
    assert [work.first_position for work in link.bench.model.works] == [0, 0, 1, 0]
    assert [work.final for work in link.bench.model.works] == [False, True, True, True]
