"""Where a server really computes: its process in the driver's own list, beside its word."""

from __future__ import annotations

import os

from pytest_meshnet.campaign.plan.surroundings import Machine
from pytest_meshnet.hardware.placement.gpu import Gpu, Placement


def place(machine: Machine, pid: int, claimed: tuple[str, ...] | None) -> Placement | None:
    """Look at a running server and its children; None when there is nothing to look at or with.

    `claimed` are the UUIDs that the server reports for itself.
    """
    if machine.device is None or machine.senses is None:
        return None
    gpu = Gpu((machine.device,), machine.inventory, machine.senses, os.environ, lambda _: None)
    try:
        gpu.watch(pid)
    except ProcessLookupError:
        return None
    for uuid in claimed or ():
        gpu.claim(uuid)
    return gpu.observe()
