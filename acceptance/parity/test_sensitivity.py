"""PARITY-06: the calibrated bound, and the negative controls that a parity run must find."""

from __future__ import annotations

import pytest

from pytest_meshnet.parity.bench import ParityBench
from pytest_meshnet.parity.controls import Control, applicable
from pytest_meshnet.parity.lanes import exact, within
from pytest_meshnet.protocol.tensors import DType
from pytest_meshnet.runtime.errors import NotProvoked

from .judging import check

pytestmark = pytest.mark.timeout(900)

PROMPTS = 2
"""Prompts on which a control must be found: the second can meet what the first left behind."""


@pytest.mark.requirement("PARITY-06")
def test_the_logit_error_stays_below_the_bound_calibrated_for_the_model(
    parity: ParityBench,
) -> None:
    """The largest error up to the divergence, on every route of the production lane."""
    if parity.calibration is None:
        raise NotProvoked("no calibration is kept with the model: pytest-meshnet parity calibrate")
    bound = parity.calibration.bound
    found = [
        f"{record.label}: {line}"
        for record in parity.production_records()
        for line in within(record.whole, bound)
    ]
    check(found, f"logit errors of at most {bound:.4g}, the calibrated bound")


@pytest.mark.requirement("PARITY-06")
def test_every_negative_control_is_found_by_the_lane_meant_for_it(parity: ParityBench) -> None:
    """Routes that are wrong in one known way, driven as honest ones are."""
    controls = list(applicable(parity.seam))
    if not controls:
        raise NotProvoked("no route can be started with a control: give route.start")
    found = [
        f"{one.name} ({one.text}) is not found by the {one.lane} lane"
        for one in controls
        if not _found(parity, one)
    ]
    check(found, "findings on every route that is wrong", "the lane cannot be trusted as it is")


def _found(parity: ParityBench, one: Control) -> bool:
    comparisons = parity.controlled(one, parity.seam.spec.dtypes[0], PROMPTS)
    if comparisons is None:
        return True
    if parity.calibration is not None and one.lane == "bound":
        return bool(within(comparisons, parity.calibration.bound))
    if DType.FLOAT32 in parity.seam.spec.dtypes:
        return bool(exact(comparisons))
    if parity.calibration is None:
        raise NotProvoked("no calibration is kept with the model: pytest-meshnet parity calibrate")
    return bool(within(comparisons, parity.calibration.bound))
