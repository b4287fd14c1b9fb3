"""Measuring what a calibration needs: every honest route, and every control that can be made."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_meshnet.parity.bench import ParityBench
from pytest_meshnet.parity.calibration import Calibration, NoSeparation, Subject, calibrated
from pytest_meshnet.parity.controls import ControlBroken, applicable
from pytest_meshnet.parity.metrics import Comparison


def measure(bench: ParityBench, about: Subject, bound: float | None = None) -> Calibration:
    """Measure the production lane of a bench and return its calibration.

    Raises NoSeparation when honest routes and controls do not separate, or not at `bound`, or a
    control merely breaks, and NotProvoked for a bench that has no route.
    """
    dtype = bench.production_dtype
    honest = {one.label: _largest(one.whole.values()) for one in bench.production_records()}
    chosen = [one for one in applicable(bench.seam) if not one.float32_only]
    controls = {}
    for number, one in enumerate(chosen):
        bench.report(one.name, number, len(chosen))
        try:
            comparisons = bench.controlled(one, dtype)
        except ControlBroken as error:
            raise NoSeparation(str(error)) from error
        if comparisons is not None:
            controls[one.name] = _largest(comparisons.values())
    bench.report("", len(chosen), len(chosen))
    return calibrated(about, honest, controls, bound=bound)


def _largest(comparisons: Iterable[Comparison]) -> float:
    return max(one.max_error for one in comparisons)
