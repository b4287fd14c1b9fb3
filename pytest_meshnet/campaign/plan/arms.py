"""The five arms and the exact command of each server: every value is said, none is relied on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_meshnet.campaign.errors import CampaignRefused
from pytest_meshnet.runtime.ports import HOST

MARLIN = "marlin"
MARLIN_CAP = 992
"""Most expert slots that Marlin kernels can address."""

SERVER_ENVIRONMENT: Mapping[str, str] = {"FREETOKEN_INSTRUMENT_PREFILL": "1"}
"""Set alike for every arm, so that measuring favours none."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to serve the experts: the backend of the experts and of the NVFP4 weights."""

    arm_id: str
    backend: str
    nvfp4: str

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags in which the arms differ."""
        return ("--moe-backend", self.backend, "--moe-cache-auto", "--nvfp4-backend", self.nvfp4)


ARMS: Mapping[str, Arm] = {
    one.arm_id: one
    for one in (
        Arm("B1", "offload", "auto"),
        Arm("B2", "hybrid", "triton"),
        Arm("B3", "auto", "auto"),
        Arm("B4", "offload", "triton"),
        Arm("B5", "cpu", "triton"),
    )
}
"""The arms in the order in which they are run."""


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """What every server is told alike; None leaves an optional flag out."""

    memory_ratio: float = 0.9
    kv_reserve_tokens: int | None = None
    max_seq_len_override: int | None = None

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags that all arms share."""
        optional = {
            "--kv-reserve-tokens": self.kv_reserve_tokens,
            "--max-seq-len-override": self.max_seq_len_override,
        }
        given = [(name, str(value)) for name, value in optional.items() if value is not None]
        return (
            *("--max-running-requests", "1", "--cuda-graph-max-bs", "1"),
            *("--memory-ratio", f"{self.memory_ratio:g}", "--sampling-defaults", "none"),
            *(word for pair in given for word in pair),
        )


@dataclass(frozen=True, slots=True)
class Runtime:
    """The runtime as a command (`ft`, or a path with words before it), and what it is to serve."""

    command: tuple[str, ...]
    model: str
    settings: ServeSettings

    def version(self) -> list[str]:
        """Return the command that prints the runtime's version."""
        return [*self.command, "--version"]

    def bandwidth(self, gpu_uuid: str) -> list[str]:
        """Return the command that measures the bandwidth prerequisite."""
        return [*self.command, "bench", "bw", "--dtype", "nvfp4", "--gpu", gpu_uuid]

    def serve(self, arm: Arm, gpu_uuid: str, port: int) -> list[str]:
        """Return the command that serves an arm on a port of the loopback."""
        return [*self._place(port), *arm.flags, *self.settings.flags, "--gpu", gpu_uuid]

    def reference(self, gpu_uuid: str, port: int, slots: int | str, nvfp4: str) -> list[str]:
        """Return the command of CORRECTNESS_REFERENCE. Raises CampaignRefused.

        Everything that a runtime could decide by itself is decided here: the number of expert
        slots, the NVFP4 backend, and that no layer decodes on the CPU.
        """
        if nvfp4 == "auto":
            raise CampaignRefused("the NVFP4 backend of the reference is `auto`: name one")
        if type(slots) is not int or slots < 1:
            raise CampaignRefused(f"the cache size of the reference is {slots!r}: give a number")
        if nvfp4 == MARLIN and slots > MARLIN_CAP:
            raise CampaignRefused(f"{slots} slots with marlin: expected at most {MARLIN_CAP}")
        return [
            *self._place(port),
            *("--moe-backend", "offload", "--moe-cpu-layers", "0"),
            *("--moe-cache-size", str(slots), "--nvfp4-backend", nvfp4),
            *self.settings.flags,
            *("--gpu", gpu_uuid),
        ]

    def _place(self, port: int) -> list[str]:
        return [*self.command, "serve", "--model", self.model, "--host", HOST, "--port", str(port)]
