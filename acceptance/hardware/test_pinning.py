"""A lease on a real device: what a child process sees, where it computes, and who finds out."""

from __future__ import annotations

import os
from contextlib import ExitStack

import pytest

from pytest_meshnet.hardware.inventory import read
from pytest_meshnet.hardware.placement.gpu import Gpu
from pytest_meshnet.hardware.placement.senses import real

from .running import holding, masks, seen_and_foretold


@pytest.mark.gpu
def test_a_process_with_the_environment_of_a_lease_computes_on_its_device(gpu: Gpu) -> None:
    """A program that knows nothing of leases makes a context on its first device."""
    with holding(gpu):
        placement = gpu.observe()
    assert placement.verdict == "proven", f"expected proven, got: {placement}"


@pytest.mark.multi_gpu(2)
def test_each_of_two_workers_computes_on_the_device_of_its_rank(gpu: Gpu) -> None:
    """One process a device, each with a mask of its own."""
    with ExitStack() as stack:
        for rank in range(2):
            stack.enter_context(holding(gpu, rank))
        placement = gpu.observe()
    assert placement.verdict == "proven", f"expected proven, got: {placement}"


@pytest.mark.gpu
@pytest.mark.parametrize("what", masks(""))
def test_cuda_reads_a_mask_as_foretold(gpu: Gpu, what: str) -> None:
    """Our reading of CUDA_VISIBLE_DEVICES against the driver's own."""
    if gpu.device.vendor != "nvidia" or gpu.device.mig is not None:
        pytest.skip("the masks of this test name one whole NVIDIA GPU")
    mask = masks(str(gpu.device.uuid))[what]
    with holding(gpu):
        shown, foretold = seen_and_foretold(read(real().drivers), mask, os.environ)
    assert shown == foretold, f"CUDA_VISIBLE_DEVICES={mask!r}: CUDA shows {shown}, not {foretold}"
