"""AMD GPUs through the program amd-smi. Its own index is neither HIP's order nor an identity."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_meshnet.hardware.inventory import DriverError, Reading
from pytest_meshnet.hardware.inventory.device import Device, PciAddress, Provider, known_memory

Run = Callable[[Sequence[str]], str]
"""Runs amd-smi with arguments and returns what it prints. Raises DriverError."""

TIMEOUT_S = 30.0
MIB = 1024**2

_IDLE = "no running processes detected"


def kernel_driver_is_there() -> bool:
    """Say whether the compute part of the amdgpu kernel driver shows itself."""
    return Path("/dev/kfd").exists()


class AmdSmiMissing(DriverError):
    """The program is not on this machine."""


def run_amd_smi(arguments: Sequence[str]) -> str:
    """Run amd-smi. Raises AmdSmiMissing, and DriverError with its own words."""
    command = ["amd-smi", *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except FileNotFoundError:
        raise AmdSmiMissing("amd-smi is not on PATH") from None
    except subprocess.TimeoutExpired:
        raise DriverError(f"{' '.join(command)} took more than {TIMEOUT_S:.0f} s") from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip() or "nothing"
        raise DriverError(f"{' '.join(command)} ended with {done.returncode} and said: {said}")
    return done.stdout


class AmdSmiDriver:
    """Reads devices and compute processes; two answers are joined by PCI bus id."""

    provider: Provider = "amd-smi"
    counts_host_pids = True

    def __init__(
        self, run: Run = run_amd_smi, kernel_driver: Callable[[], bool] = kernel_driver_is_there
    ) -> None:
        self._run = run
        self._kernel_driver = kernel_driver

    def read(self) -> Reading:
        """Return every GPU; a missing program is a note, or a problem where the driver is there."""
        try:
            static = self._rows("static", "--asic", "--bus", "--vram", "--driver", "--json")
            listed = {_bus_of(one): one for one in self._rows("list", "-e", "--json")}
        except AmdSmiMissing as missing:
            if self._kernel_driver():
                return Reading(problems=(f"amd-smi: /dev/kfd is there, but {missing}",))
            return Reading(notes=(f"amd-smi: {missing}",))
        except DriverError as error:
            return Reading(problems=(f"amd-smi: {error}",))
        devices, problems = [], []
        for row in static:
            bus = _bus_of(_part(row, "bus"))
            if bus is None:
                problems.append(f"amd-smi: device {row.get('gpu')} tells no PCI bus id")
                continue
            devices.append(_device(row, listed.get(bus, {}), bus))
        return Reading(tuple(devices), tuple(problems))

    def processes(self, device: Device) -> tuple[int, ...]:
        """Return the ids of processes that hold memory of a device. Raises DriverError.

        Asked for one device at a time: a question about all lists every process under each.
        """
        if device.pci is None:
            raise DriverError(f"amd-smi: {device} has no PCI bus id to ask by")
        rows = self._rows("process", "--gpu", str(device.pci), "--json")
        told = [_part(one, "") for row in rows for one in _list(row.get("process_list"))]
        return tuple(pid for one in told if (pid := _holder(one.get("process_info"))) is not None)

    def _rows(self, *arguments: str) -> list[Mapping[str, Any]]:
        text = self._run(arguments)
        try:
            told = json.loads(text)
        except ValueError:
            raise DriverError(
                f"amd-smi {' '.join(arguments)} printed no JSON: {text[:200]!r}"
            ) from None
        if isinstance(told, dict):
            told = told.get("gpu_data", [told])
        return [one for one in _list(told) if isinstance(one, dict)]


def _device(static: Mapping[str, Any], listed: Mapping[str, Any], bus: PciAddress) -> Device:
    asic, vram = _part(static, "asic"), _part(static, "vram")
    unknown: dict[str, str] = {}
    memory, why = known_memory(_mebibytes(vram.get("size")))
    if memory is None:
        unknown["memory_bytes"] = f"amd-smi: {why}"

    def text(name: str, part: Mapping[str, Any], key: str) -> str | None:
        told = part.get(key)
        if isinstance(told, str) and told.strip() not in ("", "N/A"):
            return told.strip()
        unknown[name] = f"amd-smi: {key} is {told!r}"
        return None

    uuid = text("uuid", listed, "hip_uuid")
    if uuid is not None and not _is_uuid(uuid):
        unknown["uuid"] = f"amd-smi: hip_uuid is {uuid!r}"
        uuid = None
    index, place = static.get("gpu"), listed.get("hip_id")
    return Device(
        provider="amd-smi",
        vendor="amd",
        uuid=uuid,
        pci=bus,
        name=text("name", asic, "market_name"),
        index=index if type(index) is int else None,
        runtime_index=place if type(place) is int else None,
        gfx=text("gfx", asic, "target_graphics_version"),
        memory_bytes=memory,
        driver=text("driver", _part(static, "driver"), "version"),
        mig_mode=False,
        unknown=unknown,
    )


def _is_uuid(text: str) -> bool:
    """HIP names a device that has no id of its own `GPU-XX`, or with zeros."""
    body = text.lower().removeprefix("gpu-")
    return len(body) == 16 and all(c in "0123456789abcdef" for c in body) and int(body, 16) != 0


def _mebibytes(told: Any) -> int | None:
    """Read `{"value": 192, "unit": "MB"}`, where amd-smi means MiB, as bytes."""
    value = told.get("value") if isinstance(told, dict) else told
    return value * MIB if type(value) is int else None


def _holder(told: Any) -> int | None:
    if isinstance(told, str) and told.strip().lower() == _IDLE:
        return None
    pid = told.get("pid") if isinstance(told, dict) else None
    if type(pid) is not int:
        raise DriverError(f"amd-smi told of a process in unknown words: {told!r}")
    memory = told.get("mem_usage", told.get("mem"))
    value = memory.get("value") if isinstance(memory, dict) else memory
    # A process that opened the driver is listed under every device; only memory places it.
    return None if value == 0 else pid


def _bus_of(row: Mapping[str, Any]) -> PciAddress | None:
    try:
        return PciAddress.parse(str(row.get("bdf")))
    except ValueError:
        return None


def _part(row: Any, key: str) -> Mapping[str, Any]:
    told = row.get(key) if key and isinstance(row, dict) else row
    return told if isinstance(told, dict) else {}


def _list(told: Any) -> list[Any]:
    return told if isinstance(told, list) else []
