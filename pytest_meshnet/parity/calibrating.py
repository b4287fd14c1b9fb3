"""Measuring what a calibration needs: every honest route, and every control that can be made."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_meshnet.parity.bench import ParityBench
from pytest_meshnet.parity.calibration import Calibration, Subject, calibrated
from pytest_meshnet.parity.controls import applicable
from pytest_meshnet.parity.metrics import Comparison

WITHOUT_EFFECT = frozenset({"boundary-rounded"})
"""Controls that do nothing where the boundary is as narrow as they make it."""


def measure(bench: ParityBench, about: Subject, bound: float | None = None) -> Calibration:
    """Measure the production lane of a bench and return its calibration.

    Raises NoSeparation when honest routes and controls do not separate, or not at `bound`, and
    NotProvoked for a bench that has no route.
    """
    dtype = bench.production_dtype
    honest = {one.label: _largest(one.whole.values()) for one in bench.production_records()}
    chosen = [one for one in applicable(bench.seam) if one.name not in WITHOUT_EFFECT]
    controls = {}
    for number, one in enumerate(chosen):
        bench.report(one.name, number, len(chosen))
        comparisons = bench.controlled(one, dtype)
        if comparisons is not None:
            controls[one.name] = _largest(comparisons.values())
    return calibrated(about, honest, controls, bound=bound)


def _largest(comparisons: Iterable[Comparison]) -> float:
    return max(one.max_error for one in comparisons)
