"""PARITY-06: the calibrated bound, and the negative controls that a parity run must find."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from pytest_meshnet.parity.bench import ParityBench
from pytest_meshnet.parity.controls import Control, ControlBroken, applicable
from pytest_meshnet.parity.lanes import EXACT_ERROR, exact, within
from pytest_meshnet.parity.record import Comparisons
from pytest_meshnet.protocol.tensors import DType
from pytest_meshnet.runtime.errors import NotProvoked

from .judging import check

pytestmark = pytest.mark.timeout(900)

Judge = Callable[[Comparisons], list[str]]

MOST = (1, 2, None)
"""Prompts that a control is driven with until it is found: one is enough for most, the second can
meet what the first left behind, and the last is the whole corpus, as the honest routes had it."""


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
def test_every_negative_control_exceeds_the_bound_that_honest_routes_keep(
    parity: ParityBench,
) -> None:
    """Routes that are wrong in one known way, driven and judged as honest ones are.

    A refusal with a code finds one too; a crash, a lost stream or silence does not.
    """
    controls = [one for one in applicable(parity.seam) if _can_act(parity, one)]
    if not controls:
        raise NotProvoked("no route can be started with a control: give route.start")
    missed = []
    for one, following in pairwise([*controls, None]):
        if following is not None:
            parity.prepare(following, _lane(parity, following)[0])
        missed.append(_missed(parity, one))
    check(
        filter(None, missed), "findings on every route that is wrong", "the lane cannot be trusted"
    )


def _can_act(parity: ParityBench, one: Control) -> bool:
    """Whether the route offers the boundary at which a control does anything."""
    return not one.float32_only or DType.FLOAT32 in parity.seam.spec.dtypes


def _missed(parity: ParityBench, one: Control) -> str | None:
    """Why a control does not count as found."""
    dtype, judge, bound = _lane(parity, one)
    for most in MOST:
        try:
            comparisons = parity.controlled(one, dtype, most)
        except ControlBroken as error:
            return str(error)
        if comparisons is None or judge(comparisons):
            return None
    return f"{one.name} ({one.text}) keeps the bound of {bound:.4g} in {dtype.name.lower()}"


def _lane(parity: ParityBench, one: Control) -> tuple[DType, Judge, float]:
    """The boundary, the judgement and its bound: those of the honest routes, never a closer one."""
    if one.float32_only or parity.seam.spec.dtypes == (DType.FLOAT32,):
        return DType.FLOAT32, exact, EXACT_ERROR
    if parity.calibration is None:
        raise NotProvoked("no calibration is kept with the model: pytest-meshnet parity calibrate")
    bound = parity.calibration.bound
    return parity.production_dtype, lambda found: within(found, bound), bound
