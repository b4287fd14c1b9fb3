"""Child processes on the devices of a test: a program that holds one, and one that measures."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pytest_meshnet.hardware.inventory import Inventory
from pytest_meshnet.hardware.pinning.visibility import visible
from pytest_meshnet.hardware.placement.gpu import Gpu
from pytest_meshnet.hardware.placement.judge import Seen
from pytest_meshnet.hardware.placement.senses import look_inside

HOLDER = Path(__file__).with_name("holder.py")
ROOT = Path(__file__).resolve().parents[2]

FIGURE_TIMEOUT_S = 90.0
"""Longest time of one figure, with the import of torch and the start of CUDA."""


@contextmanager
def holding(gpu: Gpu, rank: int | None = None) -> Iterator[None]:
    """Run a program that computes on the devices of a test, and tell the test where it is.

    With a rank the program gets only the device of that place, as a worker of several does.
    """
    environment = dict(gpu.environment)
    if rank is not None:
        environment["CUDA_VISIBLE_DEVICES"] = str(gpu.devices[rank].uuid)
    child = subprocess.Popen(
        [sys.executable, "-I", str(HOLDER)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None, "the output of the holder is a pipe"
        told = json.loads(child.stdout.readline())
        assert "error" not in told, f"expected a CUDA context on the device, got: {told['error']}"
        gpu.watch(told["pid"])
        gpu.report(told["pid"], [Seen(told["uuid"])], rank=rank)
        yield
    finally:
        child.communicate()


def figure(gpu: Gpu, name: str) -> dict[str, Any]:
    """Measure one figure in a process of its own, and tell the test where that was."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest_meshnet.hardware.microbench", name, str(gpu.device.uuid)],
        env=gpu.environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=FIGURE_TIMEOUT_S,
        check=False,
    )
    assert done.stdout, (
        f"expected a figure, the program ended with {done.returncode}: {done.stderr}"
    )
    told: dict[str, Any] = json.loads(done.stdout)
    assert "refused" not in told, f"expected the figure {name}, it was refused: {told['refused']}"
    gpu.report(told["pid"], [Seen(told["uuid"])])
    return told


def masks(uuid: str) -> dict[str, str]:
    """Return values of CUDA_VISIBLE_DEVICES by what is unusual about each."""
    return {
        "the full UUID": uuid,
        "a prefix of it": uuid[:12],
        "the UUID in capitals": uuid.upper(),
        "twice the same": f"{uuid},{uuid}",
        "an index": "0",
        "twice the same index": "0,0",
        "an invalid end": "0,99",
        "an invalid start": "99,0",
        "a negative start": "-1,0",
        "letters behind a digit": "0x",
        "an empty item": "0,,0",
        "an index behind a UUID": f"{uuid},0",
        "only a prefix": "GPU-",
        "nothing": "",
    }


def seen_and_foretold(
    inventory: Inventory, mask: str, base: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """Return the devices that CUDA shows with a mask, and those that our rules foretell."""
    environment = dict(base) | {"CUDA_VISIBLE_DEVICES": mask, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    _, seen = look_inside(environment, "nvidia")
    found = [inventory.find(uuid=one.uuid, pci=one.pci) for one in seen]
    shown = ["a device that NVML does not list" if one is None else one.label for one in found]
    return shown, [one.label for one in visible(inventory, environment).of("nvidia")]
