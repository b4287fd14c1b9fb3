"""Which GPU architecture runs which number format: kernel families with reasons, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Capability = tuple[int, int]
Word = Literal["native", "fallback", "incompatible"]
Role = Literal["weights", "kv"]


class UnknownArchitecture(ValueError):
    """A format without a gate, or a device whose compute capability nobody could read."""


@dataclass(frozen=True, slots=True)
class Gate:
    """Where one kernel family for a format runs; capabilities as (major, minor).

    `required_sm` is the first architecture with native kernels. `only` lists the architectures
    outside which there are none, however high their number. `fallback_sm` is the first of the band
    below `required_sm` where weights are unpacked and computed in another format. `broken` maps
    architectures inside the range to what goes wrong there.
    """

    format: str
    role: Role
    required_sm: Capability
    why: str
    only: tuple[Capability, ...] = ()
    fallback_sm: Capability | None = None
    broken: Mapping[Capability, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a device does with a format, and why."""

    word: Word
    reason: str


GATES = (
    Gate(
        "nvfp4",
        "weights",
        required_sm=(9, 0),
        fallback_sm=(7, 5),
        why="NVFP4 weights have kernels from sm_90; from sm_75 they are unpacked (weight-only)",
    ),
    Gate(
        "nvfp4",
        "kv",
        required_sm=(10, 0),
        only=((10, 0), (10, 3)),
        why="the NVFP4 KV cache has kernels on sm_100 and sm_103 only; sm_120 is another family",
    ),
    Gate("fp8_e4m3", "kv", required_sm=(8, 9), why="the FP8 e4m3 KV cache has kernels from sm_89"),
    Gate(
        "deepgemm_fp8",
        "weights",
        required_sm=(9, 0),
        broken={(12, 0): "is known to be broken", (12, 1): "is known to be broken"},
        why="DeepGEMM's FP8 kernels exist from sm_90",
    ),
)


def ask(format: str, role: Role, capability: Capability | None) -> Answer:
    """Return what a device of this compute capability does with a format in a role.

    Raises UnknownArchitecture: what is unknown is neither native nor a fallback.
    """
    gate = next((one for one in GATES if (one.format, one.role) == (format, role)), None)
    if gate is None:
        known = ", ".join(f"{one.format} {one.role}" for one in GATES)
        raise UnknownArchitecture(f"there is no gate for {format} {role}: expected one of {known}")
    if capability is None:
        raise UnknownArchitecture(
            f"cannot judge {format} {role}: the compute capability is unknown"
        )
    name = f"sm_{capability[0]}{capability[1]}"
    if capability in gate.broken:
        return Answer("incompatible", f"{format} {role} on {name} {gate.broken[capability]}")
    if capability in gate.only or (not gate.only and capability >= gate.required_sm):
        return Answer("native", f"{name}: {gate.why}")
    if gate.fallback_sm is not None and gate.fallback_sm <= capability < gate.required_sm:
        return Answer("fallback", f"{name}: {gate.why}")
    return Answer("incompatible", f"{name}: {gate.why}")
