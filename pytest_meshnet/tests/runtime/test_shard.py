"""The Shard under test: its draws, its lengths, its places, and what counts as equal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from pytest_meshnet.protocol.flow import FlowLimits
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.runtime.descriptor import TimeLimits, load
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.shard import ShardUnderTest, check_settled
from pytest_meshnet.tests import small


def shard_of(
    layers: tuple[int, int] = (1, 3),
    served: Callable[[Worker], None] = lambda worker: None,
    **changes: object,
) -> ShardUnderTest:
    """The reference worker on these layers; `changes` are those of its descriptor."""
    return small.shard_of("", small.described(*layers, **changes), served)


# Inputs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("layers", [(0, 2), (1, 3)], ids=["token-ids", "hidden-states"])
def test_a_longer_draw_begins_with_a_shorter_one(layers: tuple[int, int]) -> None:
    shard = shard_of(layers)
    long = shard.tokens(40, key=3)
    for count in (1, 5, 17):
        assert shard.tokens(count, key=3) == long.rows(0, count)
    assert shard.tokens(5, key=4) != long.rows(0, 5)


def test_inputs_follow_the_boundary_of_the_effective_start() -> None:
    head = shard_of((0, 2))
    assert (head.tokens(3).name, head.tokens(3).shape) == ("token_ids", (1, 3))
    assert head.tokens(3, effective_start=1).shape == (1, 3, 16)
    assert head.output_boundary().name == "hidden_states"
    tail = shard_of((2, 4))
    assert tail.tokens(3).name == "hidden_states"
    assert (tail.output_boundary().name, tail.output_boundary().trailing) == ("logits", (256,))


def test_hidden_states_are_drawn_at_the_declared_scale() -> None:
    model = replace(load("reference", small=True).model, input_scale=8.0)
    states = shard_of(model=model).tokens(200).to_float32()
    assert 7.5 < states.std() < 8.5


def test_lengths_and_chunks_stay_within_the_declared_context() -> None:
    shard = shard_of()
    shard.target.report.max_context_tokens = 9
    assert (shard.length(5), shard.length(50)) == (5, 9)
    assert shard.fitted([3, 4, 5], spare=1) == [3, 4, 1]
    assert shard.fitted([9, 4]) == [9]
    assert shard.fitted([2, 2], spare=9) == []
    shard.target.report.max_context_tokens = 0
    assert shard.length(50) == 50


# Sessions ---------------------------------------------------------------------------------------


def test_what_is_undisturbed_is_a_prefill_and_its_decode_steps_in_a_session_of_its_own() -> None:
    shard = shard_of()
    tokens = shard.tokens(5)
    rows = shard.undisturbed(tokens.rows(0, 3), tokens.rows(3, 4), tokens.rows(4, 5))
    assert rows.shape == (5, 16)
    shard.check_equal(rows, shard.undisturbed(tokens), "steps against prefill")
    assert shard.health().active_sessions == 0


def full_for(times: int) -> Callable[[Worker], None]:
    """Let the worker find every place taken so many times."""

    def served(worker: Worker) -> None:
        honest, left = worker.rules.check_capacity, [times]

        def check_capacity(places_held: int) -> None:
            left[0] -= 1
            honest(worker.served.max_sessions if left[0] >= 0 else places_held)

        worker.rules.check_capacity = check_capacity  # type: ignore[method-assign]

    return served


def test_an_open_is_tried_again_while_an_ended_session_still_holds_its_place() -> None:
    with shard_of(served=full_for(3)).session() as session:
        assert session.client.accepted is not None


def test_a_place_that_is_never_freed_is_a_finding_once_the_cleanup_time_is_over() -> None:
    shard = shard_of(served=full_for(10**9), time=TimeLimits(cleanup=0.05))
    with pytest.raises(Nonconformance, match="RESOURCE_EXHAUSTED"):
        shard.session()


def test_any_other_refusal_of_an_open_is_a_finding_at_once() -> None:
    shard = shard_of()
    seam = shard.seam()
    seam.shard_range.end_layer += 1
    with pytest.raises(Nonconformance, match="SHARD_RANGE_MISMATCH"):
        shard.session(seam)
    assert shard.trace.text().count("-> open") == 1


def test_a_session_settles_what_was_proposed() -> None:
    with shard_of().session(proposed=FlowLimits(prefill_tokens=3)) as session:
        assert session.client.limits.prefill_tokens == 3


# Equality ---------------------------------------------------------------------------------------


def row(*values: float) -> np.ndarray:  # type: ignore[type-arg]
    return np.array([values], dtype=np.float32)


def test_equal_is_what_stays_within_the_tolerance_of_the_boundary() -> None:
    shard = shard_of()
    allowed = shard.tolerance.absolute + shard.tolerance.relative * 2
    shard.check_equal(row(2 + 0.9 * allowed), row(2.0), "one")
    with pytest.raises(Nonconformance, match=r"one: equal within .*\n.*1 of 1 values.*1\.1 times"):
        shard.check_equal(row(2 + 1.1 * allowed), row(2.0), "one")


def test_the_absolute_part_grows_with_the_input_scale() -> None:
    model = replace(load("reference", small=True).model, input_scale=10.0)
    shard = shard_of(model=model)
    shard.check_equal(row(9 * shard.tolerance.absolute), row(0.0), "one")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_equals_nothing(value: float) -> None:
    shard = shard_of()
    for actual, expected in ((value, 1.0), (1.0, value), (value, value)):
        assert shard.differ(row(actual), row(expected))


def test_results_of_other_shapes_are_not_equal() -> None:
    with pytest.raises(Nonconformance, match=r"shape \(1, 2\)"):
        shard_of().check_equal(row(1.0), row(1.0, 1.0), "one")


def test_the_worst_value_is_named() -> None:
    with pytest.raises(Nonconformance, match=r"2 of 3 values differ, the worst at \(0, 2\): 9"):
        shard_of().check_equal(row(1.0, 3.0, 9.0), row(1.0, 1.0, 1.0), "one")


def test_results_differ_only_when_they_are_certainly_not_equal() -> None:
    shard = shard_of()
    assert not shard.differ(row(1.0), row(1.001))
    assert shard.differ(row(1.0), row(2.0))


def test_the_report_is_what_the_worker_said() -> None:
    assert shard_of().report.max_context_tokens == 256
    assert isinstance(shard_of().report, pb.CapabilityReport)


@pytest.mark.parametrize(
    ("proposed", "settled", "said"),
    [
        (FlowLimits(), FlowLimits(1, 8, 4096, 0), "max_prefill_chunk_tokens above 0"),
        (FlowLimits(), FlowLimits(1, 0, 4096, 8), "max_inflight_chunks above 0"),
        (FlowLimits(), FlowLimits(1, 8, 0, 8), "max_chunk_bytes above 0"),
        (
            FlowLimits(prefill_tokens=3),
            FlowLimits(1, 8, 4096, 4),
            "max_prefill_chunk_tokens above 0 and at most 3, as proposed",
        ),
        (
            FlowLimits(inflight=2),
            FlowLimits(1, 3, 4096, 4),
            "max_inflight_chunks above 0 and at most 2",
        ),
        (
            FlowLimits(chunk_bytes=99),
            FlowLimits(1, 3, 100, 4),
            "max_chunk_bytes above 0 and at most 99",
        ),
        (FlowLimits(credits=1), FlowLimits(2, 3, 100, 4), "credits_granted up to 1"),
    ],
)
def test_limits_that_nobody_could_drive_a_session_by_are_a_finding(
    proposed: FlowLimits, settled: FlowLimits, said: str
) -> None:
    accepted = pb.SessionAccepted(flow_control=settled.to_proto())
    with pytest.raises(Nonconformance, match=said):
        check_settled(proposed, accepted)


def test_limits_at_what_was_proposed_and_no_credit_yet_are_none() -> None:
    proposed = FlowLimits(2, 3, 100, 4)
    for settled in (proposed, FlowLimits(0, 1, 1, 1)):
        check_settled(proposed, pb.SessionAccepted(flow_control=settled.to_proto()))
