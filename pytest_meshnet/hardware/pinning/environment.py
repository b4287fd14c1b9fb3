"""What a child process is told about its devices: full UUIDs, in one order for everything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from pytest_meshnet.hardware.inventory.device import Device
from pytest_meshnet.hardware.pinning.visibility import (
    CONTAINER_MASK,
    CUDA_MASK,
    CUDA_ORDER,
    HIP_MASK,
    ROCR_MASK,
)

T = TypeVar("T")


class SplitError(ValueError):
    """A quantity cannot be divided over the devices."""


def pinned(devices: Sequence[Device], base: Mapping[str, str]) -> dict[str, str]:
    """Return `base` with the variables that leave exactly these devices, in this order.

    All devices are of one vendor. Raises ValueError for none, for a mixture, or without a UUID.
    """
    vendors = {one.vendor for one in devices}
    uuids = [one.uuid for one in devices if one.uuid]
    if len(vendors) != 1 or len(uuids) != len(devices):
        raise ValueError(
            f"cannot pin {[one.label for one in devices]}: one vendor and UUIDs needed"
        )
    environment = dict(base)
    if vendors == {"nvidia"}:
        environment[CUDA_MASK] = environment[CONTAINER_MASK] = ",".join(uuids)
        environment[CUDA_ORDER] = "PCI_BUS_ID"
        return environment
    environment[ROCR_MASK] = ",".join(uuids)
    # HIP counts inside ROCr's list, and would read CUDA's variable, or OpenCL's, beside its own.
    environment[HIP_MASK] = ",".join(str(place) for place in range(len(uuids)))
    for name in (CUDA_MASK, CUDA_ORDER, CONTAINER_MASK, "GPU_DEVICE_ORDINAL"):
        environment.pop(name, None)
    return environment


def in_order(values: Mapping[str, T], devices: Sequence[Device]) -> tuple[T, ...]:
    """Return values that are keyed by UUID as the list that a runtime's positional option takes.

    The n-th value goes with the n-th device that the environment shows. Raises SplitError unless
    the keys are exactly the devices.
    """
    uuids = [one.uuid for one in devices]
    if set(values) != set(uuids) or len(uuids) != len(values):
        raise SplitError(f"values are for {sorted(values)}, the devices are {uuids}")
    return tuple(values[str(uuid)] for uuid in uuids)


def shares(
    need: int, devices: Sequence[Device], caps: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Divide `need` bytes over devices by their memory; keyed by UUID, never by position.

    A device takes at most its memory and at most its cap, both in bytes. Raises SplitError when a
    memory is unknown, when nothing is needed, or when the devices cannot hold the need.
    """
    limits = {one.label: _limit(one, caps or {}) for one in devices}
    weights = {label: min(limit, need) for label, limit in limits.items()}
    total = sum(weights.values())
    if need <= 0 or total < need:
        raise SplitError(
            f"{need} bytes do not go onto devices that can take {sum(limits.values())}"
        )
    parts = {label: need * weight // total for label, weight in weights.items()}
    rest = need - sum(parts.values())
    for label in sorted(parts):
        # A remainder of a division by `total` fits wherever the floor left a byte free.
        extra = min(rest, weights[label] - parts[label])
        parts[label] += extra
        rest -= extra
    return parts


def _limit(device: Device, caps: Mapping[str, int]) -> int:
    if device.memory_bytes is None:
        why = device.unknown.get("memory_bytes", "no driver tells it")
        raise SplitError(f"the memory of {device.label} is unknown ({why}): no share can be given")
    return min(device.memory_bytes, caps.get(device.label, device.memory_bytes))
