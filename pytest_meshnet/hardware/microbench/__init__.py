"""Diagnostic figures of one device: copy bandwidth, one expert alone, and a grouped step.

The arithmetic and the refusals are here, over a small device interface; `torch_device` is the only
implementation. No figure of this room belongs into an end-to-end claim.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

from pytest_meshnet.hardware.inventory.device import uuid_body

BUFFER_BYTES = 512 * 1024**2
"""Bytes of each of the two buffers: far beyond any L2 cache, so that memory is what is measured."""

WARM_UPS, REPETITIONS = 5, 30

PUBLISHED_RTX3060_GB_S = 331.3
"""Read+write median published for one RTX 3060: 30 repetitions, variation 0.48 percent."""


class BenchmarkRefusal(Exception):
    """A figure would not mean what its name says, so there is none."""


@dataclass(frozen=True, slots=True)
class ExpertShape:
    """One routed expert: a gated feed-forward block (gate, up, down) applied to one token.

    `hidden` and `intermediate` are its widths, `experts` how many a layer holds.
    """

    hidden: int
    intermediate: int
    experts: int
    dtype: Literal["bfloat16", "float16"] = "bfloat16"


class ComputeDevice(Protocol):
    """What a benchmark asks of a device; every time is of device events, in milliseconds."""

    def bound_uuid(self) -> str | None:
        """Return the UUID of the device that is really bound, None when it cannot be told."""
        ...

    def prepare_copy(self, size: int) -> Callable[[], float]:
        """Allocate two buffers of `size` bytes; each call copies one onto the other, timed."""
        ...

    def prepare_experts(self, shape: ExpertShape, top_k: int) -> Callable[[], float]:
        """Allocate a layer; each call runs one token through the next `top_k` experts, timed.

        Calls go round the layer, so that no expert is in a cache from the call before.
        """
        ...


@dataclass(frozen=True, slots=True)
class Times:
    """Every timed repetition in milliseconds, in order; warm-ups are not among them."""

    each_ms: tuple[float, ...]

    @property
    def median_ms(self) -> float:
        """The median repetition."""
        return statistics.median(self.each_ms)

    @property
    def cv_percent(self) -> float:
        """The coefficient of variation in percent: sample standard deviation over mean."""
        return 100.0 * statistics.stdev(self.each_ms) / statistics.fmean(self.each_ms)


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Device memory bandwidth of a device-to-device copy, stated both ways."""

    uuid: str
    buffer_bytes: int
    times: Times

    def gb_per_s(self, counting: Literal["read+write", "read"]) -> tuple[float, ...]:
        """Return 10^9 bytes per second of each repetition; a copy reads and writes every byte."""
        moved = self.buffer_bytes * (2 if counting == "read+write" else 1)
        return tuple(moved / (ms * 1e6) for ms in self.times.each_ms)

    def document(self) -> dict[str, Any]:
        """Return the figure as plain JSON values."""
        both, read = self.gb_per_s("read+write"), self.gb_per_s("read")
        return {
            "figure": "device_copy_bandwidth",
            "uuid": self.uuid,
            "buffer_bytes": self.buffer_bytes,
            "each_ms": list(self.times.each_ms),
            "read_write_gb_s": {"each": list(both), "median": statistics.median(both)},
            "read_only_gb_s": {"each": list(read), "median": statistics.median(read)},
            "cv_percent": 100.0 * statistics.stdev(both) / statistics.fmean(both),
        }


@dataclass(frozen=True, slots=True)
class SingleExpert:
    """The latency of one routed expert in a call of its own (top_k = 1), timed directly."""

    uuid: str
    shape: ExpertShape
    times: Times

    def document(self) -> dict[str, Any]:
        """Return the figure as plain JSON values."""
        return _expert_document("single_expert_latency", self.uuid, self.shape, 1, self.times)


@dataclass(frozen=True, slots=True)
class GroupedStep:
    """The time of one call that runs `top_k` experts.

    They run at once, so the time is not `top_k` times anything: it is never divided.
    """

    uuid: str
    shape: ExpertShape
    top_k: int
    times: Times

    def document(self) -> dict[str, Any]:
        """Return the figure as plain JSON values."""
        return _expert_document("grouped_step", self.uuid, self.shape, self.top_k, self.times)


def _expert_document(
    figure: str, uuid: str, shape: ExpertShape, top_k: int, times: Times
) -> dict[str, Any]:
    return {
        "figure": figure,
        "uuid": uuid,
        "shape": asdict(shape),
        "top_k": top_k,
        "each_ms": list(times.each_ms),
        "median_ms": times.median_ms,
        "cv_percent": times.cv_percent,
    }


def bandwidth(device: ComputeDevice, uuid: str, size: int = BUFFER_BYTES) -> Bandwidth:
    """Measure the copy bandwidth of the device with this UUID. Raises BenchmarkRefusal."""
    if size < BUFFER_BYTES:
        raise BenchmarkRefusal(
            f"buffers of {size} bytes may stay in a cache: {BUFFER_BYTES} needed"
        )
    bound = _bound(device, uuid)
    times = _timed(device.prepare_copy(size))
    return Bandwidth(_still(device, bound), size, times)


def single_expert(device: ComputeDevice, uuid: str, shape: ExpertShape) -> SingleExpert:
    """Time one expert alone on the device with this UUID. Raises BenchmarkRefusal."""
    bound = _bound(device, uuid)
    times = _timed(device.prepare_experts(shape, 1))
    return SingleExpert(_still(device, bound), shape, times)


def grouped_step(device: ComputeDevice, uuid: str, shape: ExpertShape, top_k: int) -> GroupedStep:
    """Time one grouped call of `top_k` experts. Raises BenchmarkRefusal."""
    if not 2 <= top_k <= shape.experts:
        raise BenchmarkRefusal(f"a grouped step takes 2 to {shape.experts} experts, not {top_k}")
    bound = _bound(device, uuid)
    times = _timed(device.prepare_experts(shape, top_k))
    return GroupedStep(_still(device, bound), shape, top_k, times)


def _bound(device: ComputeDevice, uuid: str) -> str:
    bound = device.bound_uuid()
    if bound is None:
        raise BenchmarkRefusal("the bound device tells no UUID: its figure would be nobody's")
    if uuid_body(bound) != uuid_body(uuid):
        raise BenchmarkRefusal(f"asked for {uuid}, bound is {bound}: nothing is measured")
    return uuid


def _still(device: ComputeDevice, uuid: str) -> str:
    """Return the UUID when the same device is bound at the end as at the start."""
    return _bound(device, uuid)


def _timed(run: Callable[[], float]) -> Times:
    for _ in range(WARM_UPS):
        run()
    return check_times([run() for _ in range(REPETITIONS)])


def check_times(each_ms: Sequence[float]) -> Times:
    """Return the times. Raises BenchmarkRefusal for one that no clock of a device can show."""
    for number, ms in enumerate(each_ms, start=1):
        if not math.isfinite(ms) or ms <= 0:
            raise BenchmarkRefusal(
                f"repetition {number} took {ms} ms: the device's clock is broken"
            )
    return Times(tuple(each_ms))
