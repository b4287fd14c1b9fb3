"""One figure in a process of its own: `python -m pytest_meshnet.hardware.microbench FIGURE UUID`.

Prints one JSON object with the pid and the figure, or with `refused`; exit code 2 for a refusal.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from pytest_meshnet.hardware.microbench import (
    BenchmarkRefusal,
    ComputeDevice,
    ExpertShape,
    bandwidth,
    grouped_step,
    single_expert,
)
from pytest_meshnet.hardware.microbench.torch_device import TorchDevice

SHAPE, TOP_K = ExpertShape(hidden=2048, intermediate=512, experts=256), 8
"""A layer of many small experts, 1.5 GiB of weights in all; a figure always carries its shape."""

FIGURES = ("bandwidth", "single-expert", "grouped-step")


def measure(figure: str, uuid: str, device: ComputeDevice) -> dict[str, Any]:
    """Return one figure as plain JSON values. Raises BenchmarkRefusal."""
    if figure == "bandwidth":
        return bandwidth(device, uuid).document()
    if figure == "single-expert":
        return single_expert(device, uuid, SHAPE).document()
    if figure == "grouped-step":
        return grouped_step(device, uuid, SHAPE, TOP_K).document()
    raise BenchmarkRefusal(f"there is no figure {figure!r}: choose from {', '.join(FIGURES)}")


def main(arguments: Sequence[str]) -> int:
    """Run with (figure, UUID)."""
    told: dict[str, Any] = {"pid": os.getpid()}
    try:
        if len(arguments) != 2:
            raise BenchmarkRefusal("expected a figure and the UUID of the device")
        told |= measure(arguments[0], arguments[1], TorchDevice())
    except BenchmarkRefusal as refusal:
        told["refused"] = str(refusal)
    sys.stdout.write(json.dumps(told) + "\n")
    return 2 if "refused" in told else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
