"""What each arm resolved to, read back from the runtime, and what must agree between arms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytest_meshnet.campaign.judging.facts import ArmFacts
from pytest_meshnet.campaign.plan.arms import MARLIN, MARLIN_CAP

HYBRID = "hybrid"

FRACTION = "moe.hybrid_fetch_fraction_resolved"
EXPERT_QUANT = "model.expert_quant"
BACKEND = "moe.backend_resolved"
NVFP4 = "nvfp4.resolved"

_RUNTIME = (
    "attention_backend",
    "page_size",
    "memory_ratio",
    "max_running_req",
    "max_seq_len",
    "num_pages",
    "cuda_graph_max_bs",
    "cuda_graph_capture_happened",
    "max_prefill_length_resolved",
    "cache_type_resolved",
)

REQUIRED = (
    EXPERT_QUANT,
    "moe.backend_requested",
    BACKEND,
    "moe.cpu_threads",
    "moe.cpu_layers_resolved",
    "nvfp4.requested",
    NVFP4,
    "cache.policy_requested",
    "cache.resolved_slots",
    "cache.kv_reserve_tokens",
    *(f"runtime.{name}" for name in _RUNTIME),
)
"""Fields that every arm must report; absent or null says nothing and invalidates."""

REQUIRED_OF_HYBRID = ("moe.hybrid_max_fetch_resolved", FRACTION)

_FREE = ("num_pages", "cuda_graph_capture_happened")
HELD_CONSTANT = (
    "moe.cpu_threads",
    "cache.kv_reserve_tokens",
    *(f"runtime.{name}" for name in _RUNTIME if name not in _FREE),
)
"""Fields that may not differ between arms: only what an arm is about may."""

Configuration = Mapping[str, Any]


def look_up(configuration: Configuration, path: str) -> Any:
    """Return the value at a dotted path, None where any part of it is absent."""
    value: Any = configuration
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def problems(configuration: Configuration) -> Iterator[str]:
    """Yield one line for every required field that is absent, null or out of its range."""
    hybrid = look_up(configuration, BACKEND) == HYBRID
    for path in (*REQUIRED, *(REQUIRED_OF_HYBRID if hybrid else ())):
        if look_up(configuration, path) is None:
            yield f"{path} is not reported"
    fraction = look_up(configuration, FRACTION)
    if hybrid and fraction is not None and not _is_fraction(fraction):
        yield f"{FRACTION} is {fraction!r}: expected a number above 0 and up to 1"


def _is_fraction(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value <= 1


def differences(arms: Sequence[ArmFacts], path: str) -> dict[str, Any]:
    """Return the value of each arm that reports one, when they are not all equal; else nothing.

    An arm that does not report the field is judged for that alone.
    """
    told = {one.arm_id: look_up(one.configuration or {}, path) for one in arms}
    known = {arm: value for arm, value in told.items() if value is not None}
    values = list(known.values())
    same = all(value == values[0] and type(value) is type(values[0]) for value in values)
    return {} if same else known


def unexpected_b3(arms: Sequence[ArmFacts]) -> Iterator[str]:
    """Yield how B3 resolved to what neither B1 nor B2 did; nothing while one of them is unknown."""
    known = {one.arm_id: one.configuration for one in arms if one.configuration is not None}
    if not {"B1", "B2", "B3"} <= known.keys():
        return
    for path in (BACKEND, NVFP4):
        found = look_up(known["B3"], path)
        allowed = [look_up(known[name], path) for name in ("B1", "B2")]
        if found is not None and found not in allowed:
            yield f"{path} of B3 is {found!r}: expected B1's {allowed[0]!r} or B2's {allowed[1]!r}"


def cross_arm(arms: Sequence[ArmFacts]) -> dict[str, Any]:
    """Return what the arms say about each other, for the run's document; None is unknown."""
    known = {one.arm_id: one.configuration for one in arms if one.configuration is not None}
    return {
        "b3_resolution": list(unexpected_b3(arms)) if _b3_is_known(known) else None,
        "b1_b4_one_configuration": _collapsed(known),
        "nvfp4_inert": {arm: _inert(one) for arm, one in known.items()},
        "marlin_cap_bound": {arm: _cap_bound(one) for arm, one in known.items()},
        "held_constant": {
            path: {arm: look_up(one, path) for arm, one in known.items()}
            for path in (EXPERT_QUANT, *HELD_CONSTANT)
        },
    }


def _b3_is_known(known: Mapping[str, Configuration]) -> bool:
    return {"B1", "B2", "B3"} <= known.keys()


def _collapsed(known: Mapping[str, Configuration]) -> bool | None:
    """B1 and B4 may resolve to one configuration; that is recorded and no error."""
    pairs = [
        (look_up(known[name], BACKEND), look_up(known[name], NVFP4))
        for name in ("B1", "B4")
        if name in known
    ]
    if len(pairs) < 2 or any(value is None for pair in pairs for value in pair):
        return None
    return pairs[0] == pairs[1]


def _inert(configuration: Configuration) -> bool | None:
    """Whether expert banks decode on the CPU, where the NVFP4 backend does nothing."""
    backend, layers = (
        look_up(configuration, BACKEND),
        look_up(configuration, "moe.cpu_layers_resolved"),
    )
    if backend is None or layers is None:
        return None
    return backend in ("cpu", HYBRID) or bool(layers)


def _cap_bound(configuration: Configuration) -> bool | str:
    """Whether Marlin's cap bound the cache; an explicit size does not tell."""
    slots = look_up(configuration, "cache.resolved_slots")
    policy, path = look_up(configuration, "cache.policy_requested"), look_up(configuration, NVFP4)
    if policy != "auto" or path is None or type(slots) is not int:
        return "unknown"
    return path == MARLIN and slots >= MARLIN_CAP
