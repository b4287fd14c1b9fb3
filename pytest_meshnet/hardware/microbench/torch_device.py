"""The device interface on torch and CUDA events, in a process whose environment pins one GPU."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from itertools import cycle
from typing import Any

from pytest_meshnet.hardware.microbench import BenchmarkRefusal, ExpertShape


class TorchDevice:
    """Device 0 of torch: with CUDA_VISIBLE_DEVICES set to one UUID there is no other."""

    def __init__(self, torch: Any = None) -> None:
        """Bind the device. Raises BenchmarkRefusal without torch, CUDA, or exactly one device."""
        if torch is None:
            try:
                torch = import_module("torch")
            except ImportError:
                raise BenchmarkRefusal(
                    "torch is not installed: pip install 'pytest-meshnet[torch]'"
                ) from None
        self._torch = torch
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if count != 1:
            raise BenchmarkRefusal(f"torch sees {count} devices: pin exactly one by its UUID")
        torch.cuda.set_device(0)

    def bound_uuid(self) -> str | None:
        """Return the UUID that torch reads from the driver, None with a torch that cannot."""
        uuid = getattr(self._torch.cuda.get_device_properties(0), "uuid", None)
        return None if uuid is None else str(uuid)

    def prepare_copy(self, size: int) -> Callable[[], float]:
        """Return a timed device-to-device copy between two buffers of `size` bytes."""
        torch = self._torch
        self._require_memory(2 * size)
        source = torch.zeros(size, dtype=torch.uint8, device="cuda")
        target = torch.empty_like(source)
        return self._timer(lambda: target.copy_(source))

    def prepare_experts(self, shape: ExpertShape, top_k: int) -> Callable[[], float]:
        """Return a timed gated feed-forward step of one token through the next `top_k` experts.

        Weights are (experts, out, in); a step takes a slice of them where it lies, since copying
        it together would be timed too. The time includes the launches of the step's kernels.
        """
        torch = self._torch
        dtype = getattr(torch, shape.dtype)
        self._require_memory(3 * shape.experts * shape.hidden * shape.intermediate * 2)
        wide = (shape.experts, shape.intermediate, shape.hidden)
        gate, up = (torch.randn(wide, dtype=dtype, device="cuda") for _ in range(2))
        down = torch.randn(
            (shape.experts, shape.hidden, shape.intermediate), dtype=dtype, device="cuda"
        )
        token = torch.randn((top_k, shape.hidden, 1), dtype=dtype, device="cuda")

        places = cycle(range(0, shape.experts - top_k + 1, top_k))

        def step() -> Any:
            first = next(places)
            chosen = slice(first, first + top_k)
            opened = torch.nn.functional.silu(torch.bmm(gate[chosen], token))
            return torch.bmm(down[chosen], opened * torch.bmm(up[chosen], token))

        return self._timer(step)

    def _require_memory(self, size: int) -> None:
        free, _ = self._torch.cuda.mem_get_info(0)
        if free < size:
            raise BenchmarkRefusal(f"{size} bytes are needed on the device, {free} are free")

    def _timer(self, work: Callable[[], Any]) -> Callable[[], float]:
        torch = self._torch

        def timed() -> float:
            start = torch.cuda.Event(enable_timing=True)
            end = torch.cuda.Event(enable_timing=True)
            start.record()
            work()
            end.record()
            end.synchronize()
            return float(start.elapsed_time(end))

        return timed
