"""Diagnostic figures of one device; each is recorded and none is a claim about a model."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from pytest_meshnet.hardware.placement.gpu import Gpu

from .running import figure

RTX3060_PEAK_GB_S = 360.0
"""192 bits of GDDR6 at 15 Gbit/s: no copy can be faster than the memory."""

Record = Callable[[str, object], None]


@pytest.mark.gpu
def test_the_copy_bandwidth_is_measured_on_the_leased_device(
    gpu: Gpu, record_property: Record
) -> None:
    """Thirty device-to-device copies of 512 MiB, with nobody else on the device."""
    gpu.must_be_alone = True
    told = figure(gpu, "bandwidth")
    record_property("device_copy_bandwidth", json.dumps(told))
    each = told["read_write_gb_s"]["each"]
    assert len(each) == 30, f"expected 30 repetitions, got {len(each)}"
    assert min(each) > 0, f"expected positive rates, got {each}"


@pytest.mark.rtx3060
def test_the_copy_bandwidth_of_an_rtx_3060_is_that_of_its_memory(
    gpu: Gpu, record_property: Record
) -> None:
    """A figure above the memory's own rate would be that of a cache, or of another card."""
    gpu.must_be_alone = True
    told = figure(gpu, "bandwidth")
    record_property("device_copy_bandwidth", json.dumps(told))
    median = told["read_write_gb_s"]["median"]
    assert median <= RTX3060_PEAK_GB_S, f"expected at most {RTX3060_PEAK_GB_S} GB/s, got {median}"


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "top_k"), [("single-expert", 1), ("grouped-step", 8)])
def test_the_expert_figures_are_measured_on_the_leased_device(
    gpu: Gpu, record_property: Record, name: str, top_k: int
) -> None:
    """One expert a call, and a grouped step, as two figures that are never derived."""
    gpu.must_be_alone = True
    told = figure(gpu, name)
    record_property(told["figure"], json.dumps(told))
    assert told["top_k"] == top_k, f"expected top_k {top_k}, got {told['top_k']}"
    assert told["median_ms"] > 0, f"expected a positive time, got {told['median_ms']} ms"
