"""NVIDIA GPUs through nvidia-ml-py. NVML counts in PCI order and ignores CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from pytest_meshnet.hardware.inventory import DriverError, Reading
from pytest_meshnet.hardware.inventory.device import (
    Device,
    MigInstance,
    PciAddress,
    Provider,
    known_memory,
)

T = TypeVar("T")

NOT_SUPPORTED, NOT_FOUND, DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND = 3, 6, 9, 12
"""Error codes of nvml.h."""


class Nvml(Protocol):
    """The functions of the module `pynvml` that are used here; a test puts its own in place."""

    @property
    def NVMLError(self) -> type[Exception]: ...
    def nvmlInit(self) -> None: ...
    def nvmlShutdown(self) -> None: ...
    def nvmlSystemGetDriverVersion(self) -> str: ...
    def nvmlDeviceGetCount(self) -> int: ...
    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any: ...
    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Any: ...
    def nvmlDeviceGetUUID(self, handle: Any) -> str: ...
    def nvmlDeviceGetName(self, handle: Any) -> str: ...
    def nvmlDeviceGetPciInfo(self, handle: Any) -> Any: ...
    def nvmlDeviceGetCudaComputeCapability(self, handle: Any) -> tuple[int, int]: ...
    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> Any: ...
    def nvmlDeviceGetMigMode(self, handle: Any) -> list[int]: ...
    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Any) -> int: ...
    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, index: int) -> Any: ...
    def nvmlDeviceGetGpuInstanceId(self, handle: Any) -> int: ...
    def nvmlDeviceGetComputeInstanceId(self, handle: Any) -> int: ...
    def nvmlDeviceGetComputeRunningProcesses(self, handle: Any) -> list[Any]: ...
    def nvmlDeviceGetCurrPcieLinkGeneration(self, handle: Any) -> int: ...
    def nvmlDeviceGetMaxPcieLinkGeneration(self, handle: Any) -> int: ...
    def nvmlDeviceGetCurrPcieLinkWidth(self, handle: Any) -> int: ...
    def nvmlDeviceGetMaxPcieLinkWidth(self, handle: Any) -> int: ...
    def nvmlDeviceGetTopologyCommonAncestor(self, one: Any, other: Any) -> int: ...


def kernel_driver_is_there() -> bool:
    """Say whether the NVIDIA kernel driver shows itself, whatever libraries are missing."""
    return Path("/proc/driver/nvidia/version").exists() or Path("/dev/nvidiactl").exists()


class Asking:
    """Asks for one value after another; what is refused stays None and keeps the raw error."""

    def __init__(self, nvml: Nvml) -> None:
        self._error = nvml.NVMLError
        self.unknown: dict[str, str] = {}

    def __call__(self, name: str, ask: Callable[..., T], *arguments: Any) -> T | None:
        """Return the value, or None and a reason in `unknown`."""
        try:
            return ask(*arguments)
        except self._error as error:
            self.unknown[name] = raw(error)
            return None


class NvmlDriver:
    """Reads devices and compute processes. The library is loaded on the first question."""

    provider: Provider = "nvml"
    counts_host_pids = True

    def __init__(
        self,
        library: Nvml | None = None,
        kernel_driver: Callable[[], bool] = kernel_driver_is_there,
    ) -> None:
        self._library = library
        self._kernel_driver = kernel_driver

    def read(self) -> Reading:
        """Return every GPU and MIG instance; a missing driver is a note, a broken one a problem."""
        try:
            with self.session() as nvml:
                return self._read(nvml)
        except _Absent as absent:
            if self._kernel_driver():
                return Reading(problems=(f"nvml: the NVIDIA driver is there, but {absent}",))
            return Reading(notes=(f"nvml: {absent}",))
        except DriverError as error:
            return Reading(problems=(str(error),))

    def processes(self, device: Device) -> tuple[int, ...]:
        """Return the ids of compute processes on a device. Raises DriverError."""
        if device.uuid is None:
            raise DriverError(f"nvml: {device} has no UUID to ask by")
        try:
            with self.session() as nvml:
                # NVML takes no prefix of a UUID, unlike CUDA; ours are always whole.
                handle = nvml.nvmlDeviceGetHandleByUUID(device.uuid)
                found = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
                return tuple(int(one.pid) for one in found)
        except _Absent as absent:
            raise DriverError(f"nvml: {absent}") from None

    @contextmanager
    def session(self) -> Iterator[Nvml]:
        """Open NVML for a few questions; its own errors leave as DriverError."""
        nvml = self._load()
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            if _code(error) in (LIBRARY_NOT_FOUND, DRIVER_NOT_LOADED):
                raise _Absent(raw(error)) from error
            raise DriverError(f"nvml: {raw(error)}") from error
        try:
            yield nvml
        except nvml.NVMLError as error:
            raise DriverError(f"nvml: {raw(error)}") from error
        finally:
            nvml.nvmlShutdown()

    def _load(self) -> Nvml:
        if self._library is None:
            try:
                self._library = cast(Nvml, import_module("pynvml"))
            except ImportError:
                raise _Absent(
                    "nvidia-ml-py is not installed: pip install 'pytest-meshnet[gpu]'"
                ) from None
        return self._library

    def _read(self, nvml: Nvml) -> Reading:
        devices: list[Device] = []
        problems: list[str] = []
        driver = nvml.nvmlSystemGetDriverVersion()
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                gpu = _gpu(nvml, handle, index, driver)
                devices += [gpu, *_instances(nvml, handle, gpu)]
            except nvml.NVMLError as error:
                problems.append(f"nvml: device {index}: {raw(error)}")
        return Reading(tuple(devices), tuple(problems))


class _Absent(DriverError):
    """There is no driver to ask, which is no fault of a machine without a GPU."""


def _gpu(nvml: Nvml, handle: Any, index: int, driver: str) -> Device:
    ask = Asking(nvml)
    bus = ask("pci_bus_id", nvml.nvmlDeviceGetPciInfo, handle)
    return Device(
        provider="nvml",
        vendor="nvidia",
        # Without a UUID nothing can be pinned or proven, so its error is not swallowed.
        uuid=nvml.nvmlDeviceGetUUID(handle),
        pci=None if bus is None else PciAddress.parse(_text(bus.busId)),
        name=ask("name", nvml.nvmlDeviceGetName, handle),
        index=index,
        capability=_capability(ask, nvml, handle),
        memory_bytes=_memory(ask, nvml, handle),
        driver=driver,
        mig_mode=_mig_mode(ask, nvml, handle),
        unknown=ask.unknown,
    )


def _instances(nvml: Nvml, handle: Any, gpu: Device) -> Iterator[Device]:
    if not gpu.mig_mode:
        return
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            instance = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except nvml.NVMLError as error:
            if _code(error) == NOT_FOUND:
                continue
            raise
        ask = Asking(nvml)
        yield Device(
            provider="nvml",
            vendor="nvidia",
            uuid=nvml.nvmlDeviceGetUUID(instance),
            # An instance is silicon of its GPU: address, architecture and driver are shared.
            pci=gpu.pci,
            capability=gpu.capability,
            driver=gpu.driver,
            name=ask("name", nvml.nvmlDeviceGetName, instance),
            memory_bytes=_memory(ask, nvml, instance),
            mig=MigInstance(
                parent=str(gpu.uuid),
                gpu_instance=ask("gpu_instance", nvml.nvmlDeviceGetGpuInstanceId, instance),
                compute_instance=ask(
                    "compute_instance", nvml.nvmlDeviceGetComputeInstanceId, instance
                ),
            ),
            unknown=ask.unknown,
        )


def _capability(ask: Asking, nvml: Nvml, handle: Any) -> tuple[int, int] | None:
    told = ask("capability", nvml.nvmlDeviceGetCudaComputeCapability, handle)
    return None if told is None else (int(told[0]), int(told[1]))


def _memory(ask: Asking, nvml: Nvml, handle: Any) -> int | None:
    told = ask("memory_bytes", nvml.nvmlDeviceGetMemoryInfo, handle)
    if told is None:
        return None
    memory, why = known_memory(int(told.total))
    if memory is None:
        ask.unknown["memory_bytes"] = why
    return memory


def _mig_mode(ask: Asking, nvml: Nvml, handle: Any) -> bool | None:
    try:
        told = nvml.nvmlDeviceGetMigMode(handle)
    except nvml.NVMLError as error:
        if _code(error) == NOT_SUPPORTED:
            return False
        ask.unknown["mig_mode"] = raw(error)
        return None
    return bool(told[0])


def _code(error: Exception) -> int | None:
    code = getattr(error, "value", None)
    return code if isinstance(code, int) else None


def raw(error: Exception) -> str:
    """Return what NVML said, unchanged, with the name of the error."""
    return f"{type(error).__name__}: {error}"


def _text(value: str | bytes) -> str:
    return value.decode("ascii") if isinstance(value, bytes) else value
