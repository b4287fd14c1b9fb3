"""A relay that loses, repeats, reorders, delays or damages frames never leads to a wrong result."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_meshnet.runtime.faults import FAULT_KINDS, Fault, FaultKind, Plan
from pytest_meshnet.runtime.shard import ShardUnderTest

from .lossy import LossySession, Sequence

# An open, two chunks, the decode steps and the two steps behind them; answers are about twice that.
FRAMES = 8


def check_plan(shard: ShardUnderTest, sequence: Sequence, plan: Plan, *, patient: bool) -> None:
    """Run a session under a plan, then one on a perfect line, which must be undisturbed by it."""
    LossySession(shard, plan, sequence).run(patient=patient)
    prompt = sequence.tokens.rows(0, 2)
    with shard.session() as session:
        rows = session.prefill(prompt)
    shard.check_equal(rows[-1:], sequence.rows[1:2], "a session after one on a lossy line")


@pytest.mark.requirement("RELAY-03")
@pytest.mark.parametrize("patient", [False, True], ids=["eager", "patient"])
@pytest.mark.parametrize("frame", range(1, 6), ids=["chunk-1", "chunk-2", "step-1", "2", "3"])
@pytest.mark.parametrize("kind", FAULT_KINDS)
def test_one_faulty_request_never_leads_to_a_wrong_result(
    shard: ShardUnderTest, kind: FaultKind, frame: int, patient: bool
) -> None:
    """Faults rows 1, 101, 144, 157, 161. A flip inverts the lowest bit: still a legal token id."""
    amount = 0 if kind == "flip" else 1
    sequence = Sequence.drawn(shard)
    check_plan(shard, sequence, Plan((Fault(kind, frame, amount),)), patient=patient)


@pytest.mark.requirement("RELAY-03")
@pytest.mark.parametrize("kind", FAULT_KINDS)
def test_one_faulty_answer_never_leads_to_a_wrong_result(
    shard: ShardUnderTest, kind: FaultKind
) -> None:
    """Faults row 101: the client sends again what it saw no answer to."""
    sequence = Sequence.drawn(shard)
    for frame in range(1, 8):
        plan = Plan(responses=(Fault(kind, frame),))
        check_plan(shard, sequence, plan, patient=True)


FAULTS = st.lists(
    st.builds(Fault, st.sampled_from(FAULT_KINDS), st.integers(0, FRAMES), st.integers(1, 3)),
    max_size=3,
).map(tuple)


@pytest.mark.requirement("RELAY-03")
@given(requests=FAULTS, responses=FAULTS, patient=st.booleans())
@example(requests=(), responses=(), patient=False)
@example(requests=(Fault("repeat", 1), Fault("repeat", 3, 2)), responses=(), patient=False)
@settings(max_examples=25)
def test_any_faults_end_in_a_coded_error_or_a_correct_result(
    shard: ShardUnderTest,
    requests: tuple[Fault, ...],
    responses: tuple[Fault, ...],
    patient: bool,
) -> None:
    """Any few faults in both directions, in a session that waits for answers or does not."""
    check_plan(shard, Sequence.drawn(shard), Plan(requests, responses), patient=patient)


@pytest.mark.requirement("RELAY-03")
@pytest.mark.parametrize("number", range(6))
def test_faults_drawn_from_the_seed_of_the_run_lead_to_no_wrong_result(
    shard: ShardUnderTest, number: int
) -> None:
    """Another seed of the run draws other plans; the same seed draws the same."""
    plan = Plan.drawn(1000 * shard.seed + number, FRAMES)
    check_plan(shard, Sequence.drawn(shard), plan, patient=bool(number % 2))
