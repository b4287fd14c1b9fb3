"""A relay that loses, repeats, reorders, delays or damages frames never leads to a wrong result."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_meshnet.runtime.errors import NotProvoked
from pytest_meshnet.runtime.faults import FAULT_KINDS, Fault, FaultKind, Plan
from pytest_meshnet.runtime.shard import ShardUnderTest

from .lossy import LossySession, Sequence

# An open, two chunks, the decode steps and the two steps behind them; answers are about twice that.
FRAMES = 8


@lru_cache(maxsize=1)
def sequence_for(shard: ShardUnderTest) -> Sequence:
    """The sequence of a test, whose right results are asked for once."""
    return Sequence.drawn(shard)


def check_plans(shard: ShardUnderTest, plans: Iterable[Plan], *, patient: bool) -> int:
    """Run a session under each plan, then one on a perfect line, which must not feel them.

    Returns how many units were sent under the plans: none where each of them lost the opening.
    """
    sequence = sequence_for(shard)
    units = 0
    for plan in plans:
        lossy = LossySession(shard, plan, sequence)
        lossy.run(patient=patient)
        units += len(lossy.units)
    with shard.session() as session:
        rows = session.prefill(sequence.tokens.rows(0, 2))
    shard.check_equal(rows[-1:], sequence.rows[1:2], "a session after those on a lossy line")
    return units


def telling_bit(shard: ShardUnderTest) -> int:
    """A bit of the first item that no result may ignore: another token, or a far larger state."""
    boundary = shard.input_boundary()
    return 8 * boundary.dtype.item_size - 2 if boundary.dtype.is_float else 0


@pytest.mark.requirement("RELAY-03")
@pytest.mark.parametrize("patient", [False, True], ids=["eager", "patient"])
@pytest.mark.parametrize("kind", FAULT_KINDS)
def test_one_faulty_request_never_leads_to_a_wrong_result(
    shard: ShardUnderTest, kind: FaultKind, patient: bool
) -> None:
    """Faults rows 1, 101, 144, 157, 161: each frame in turn, from the first chunk to the last."""
    amount = telling_bit(shard) if kind == "flip" else 1
    plans = [Plan((Fault(kind, frame, amount),)) for frame in range(1, 6)]
    check_plans(shard, plans, patient=patient)


@pytest.mark.requirement("RELAY-03")
@pytest.mark.parametrize("kind", FAULT_KINDS)
def test_one_faulty_answer_never_leads_to_a_wrong_result(
    shard: ShardUnderTest, kind: FaultKind
) -> None:
    """Faults row 101: the client sends again what it saw no answer to."""
    plans = [Plan(responses=(Fault(kind, frame),)) for frame in range(1, 8)]
    check_plans(shard, plans, patient=True)


FRAME = st.integers(0, FRAMES)
FAULTS = st.lists(
    st.builds(Fault, st.sampled_from(FAULT_KINDS[:-1]), FRAME, st.integers(1, 3))
    | st.builds(Fault, st.just("flip"), FRAME, st.integers(0, 255)),
    max_size=3,
).map(tuple)


@pytest.mark.requirement("RELAY-03")
@given(requests=FAULTS, responses=FAULTS, patient=st.booleans())
@example(requests=(), responses=(), patient=False)
@example(requests=(Fault("repeat", 1), Fault("repeat", 3, 2)), responses=(), patient=False)
@settings(max_examples=15)
def test_any_faults_end_in_a_coded_error_or_a_correct_result(
    shard: ShardUnderTest,
    requests: tuple[Fault, ...],
    responses: tuple[Fault, ...],
    patient: bool,
) -> None:
    """Any few faults in both directions, in a session that waits for answers or does not."""
    check_plans(shard, [Plan(requests, responses)], patient=patient)


@pytest.mark.requirement("RELAY-03")
@pytest.mark.parametrize("patient", [False, True], ids=["eager", "patient"])
def test_faults_drawn_from_the_seed_of_the_run_lead_to_no_wrong_result(
    shard: ShardUnderTest, patient: bool
) -> None:
    """Another seed of the run draws other plans; the same seed draws the same."""
    plans = [Plan.drawn(1000 * shard.seed + number, FRAMES) for number in range(4)]
    if not check_plans(shard, plans, patient=patient):
        raise NotProvoked("every plan of this seed loses the opening: no unit was sent")
