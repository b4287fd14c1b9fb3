"""Fake drivers: an NVML, an amd-smi, a CUDA library, and the simulated inventories."""

from __future__ import annotations

import ctypes
import json
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

from pytest_meshnet import layout
from pytest_meshnet.hardware.inventory import DriverError, read
from pytest_meshnet.hardware.inventory.device import GIB
from pytest_meshnet.hardware.inventory.file import FileDriver

RTX3060 = "GPU-3060a1f0-7c21-4d5e-9b10-0c8f5e2d6a71"


def inventory_file(name):
    return layout.folder("fixtures") / "inventories" / f"{name}.json"


def inventory(name):
    return read([FileDriver(inventory_file(name))])


def uuids(devices):
    return [one.uuid for one in devices]


NAMES = {
    3: "Not Supported",
    4: "Insufficient Permissions",
    6: "Not Found",
    9: "Driver Not Loaded",
    12: "NVML Shared Library Not Found",
    15: "GPU is lost",
    18: "RM has detected an NVML/RM version mismatch.",
}


class NVMLError(Exception):
    def __init__(self, value):
        super().__init__(NAMES[value])
        self.value = value


@dataclass
class FakeGpu:
    """One GPU of the fake NVML; a value that is an NVMLError is raised instead of returned."""

    uuid: str
    bus: str
    name: object = "NVIDIA GeForce RTX 3060"
    capability: object = (8, 6)
    memory: object = 12 * GIB
    mig: object = field(default_factory=lambda: NVMLError(3))
    instances: list = field(default_factory=list)
    pids: object = ()
    handle_error: NVMLError | None = None
    link: tuple = (1, 4, 8, 16)


class FakeNvml:
    """The functions of pynvml over FakeGpus."""

    NVMLError = NVMLError

    def __init__(self, *gpus, init_error=None, topology=10):
        self.gpus = gpus
        self.init_error = init_error
        self.topology = topology
        self.open = 0

    def nvmlInit(self):
        if self.init_error:
            raise self.init_error
        self.open += 1

    def nvmlShutdown(self):
        self.open -= 1

    def nvmlSystemGetDriverVersion(self):
        return "580.159.04"

    def nvmlDeviceGetCount(self):
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index):
        gpu = self.gpus[index]
        if gpu.handle_error:
            raise gpu.handle_error
        return gpu

    def nvmlDeviceGetHandleByUUID(self, uuid):
        for gpu in self.gpus:
            for one in (gpu, *gpu.instances):
                if one.uuid == uuid:
                    return one
        raise NVMLError(6)

    def nvmlDeviceGetUUID(self, gpu):
        return _value(gpu.uuid)

    def nvmlDeviceGetName(self, gpu):
        return _value(gpu.name)

    def nvmlDeviceGetPciInfo(self, gpu):
        return SimpleNamespace(busId=_value(gpu.bus).encode())

    def nvmlDeviceGetCudaComputeCapability(self, gpu):
        return _value(gpu.capability)

    def nvmlDeviceGetMemoryInfo(self, gpu):
        return SimpleNamespace(total=_value(gpu.memory))

    def nvmlDeviceGetMigMode(self, gpu):
        return [_value(gpu.mig), 0]

    def nvmlDeviceGetMaxMigDeviceCount(self, gpu):
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu, index):
        if index >= len(gpu.instances):
            raise NVMLError(6)
        return gpu.instances[index]

    def nvmlDeviceGetGpuInstanceId(self, instance):
        return instance.mig[0]

    def nvmlDeviceGetComputeInstanceId(self, instance):
        return instance.mig[1]

    def nvmlDeviceGetComputeRunningProcesses(self, gpu):
        return [SimpleNamespace(pid=pid) for pid in _value(gpu.pids)]

    def nvmlDeviceGetCurrPcieLinkGeneration(self, gpu):
        return _value(gpu.link[0])

    def nvmlDeviceGetMaxPcieLinkGeneration(self, gpu):
        return gpu.link[1]

    def nvmlDeviceGetCurrPcieLinkWidth(self, gpu):
        return gpu.link[2]

    def nvmlDeviceGetMaxPcieLinkWidth(self, gpu):
        return gpu.link[3]

    def nvmlDeviceGetTopologyCommonAncestor(self, one, other):
        return _value(self.topology)


def _value(value):
    if isinstance(value, Exception):
        raise value
    return value


class FakeAmdSmi:
    """Answers like the program: `list` in another order than `static`, as it may be."""

    def __init__(self, rows, listed, processes=None, wrapped=True):
        self.rows, self.listed, self.processes = rows, listed, processes or {}
        self.wrapped = wrapped
        self.calls = []

    def __call__(self, arguments):
        self.calls.append(tuple(arguments))
        if arguments[0] == "static":
            return json.dumps({"gpu_data": self.rows} if self.wrapped else self.rows)
        if arguments[0] == "list":
            return json.dumps(self.listed)
        told = self.processes[arguments[2]]
        return json.dumps([{"gpu": 0, "process_list": [{"process_info": one} for one in told]}])


def amd_row(gpu, bdf, name="AMD Radeon RX 7900 XTX", gfx="gfx1100", memory=24560):
    return {
        "gpu": gpu,
        "asic": {"market_name": name, "target_graphics_version": gfx, "asic_serial": "N/A"},
        "bus": {"bdf": bdf},
        "vram": {"size": {"value": memory, "unit": "MB"}},
        "driver": {"name": "amdgpu", "version": "6.14.14"},
    }


def amd_listed(gpu, bdf, hip_id, hip_uuid):
    return {"gpu": gpu, "bdf": bdf, "uuid": "deff740f-0000", "hip_id": hip_id, "hip_uuid": hip_uuid}


def failing(message, kind=DriverError):
    def run(arguments):
        raise kind(message)

    return run


class FakeCuda:
    """The calls of libcuda that the probe makes; `devices` are (uuid bytes, bus id)."""

    def __init__(self, devices, init=0, v2=True):
        self.devices, self.init = devices, init
        if not v2:
            self.cuDeviceGetUuid_v2 = None
        self.asked = []

    def cuInit(self, flags):
        return self.init

    def cuDeviceGetCount(self, count):
        count._obj.value = len(self.devices)
        return 0

    def cuDeviceGet(self, handle, ordinal):
        handle._obj.value = ordinal
        return 0

    def cuDeviceGetUuid_v2(self, raw, handle):
        return self._uuid("v2", raw, handle)

    def cuDeviceGetUuid(self, raw, handle):
        return self._uuid("v1", raw, handle)

    def cuDeviceGetPCIBusId(self, text, length, handle):
        ctypes.memmove(text, self.devices[handle.value][1].encode() + b"\0", 13)
        return 0

    def _uuid(self, which, raw, handle):
        self.asked.append(which)
        ctypes.memmove(raw._obj, self.devices[handle.value][0], 16)
        return 0


def proc_tree(root: Path, processes, namespace=0xEFFFFFFC, own=None):
    """Write a proc file system: {pid: (parent, start time, namespace or None)}."""
    for pid, (parent, started, ns) in processes.items():
        folder = root / str(pid)
        (folder / "ns").mkdir(parents=True)
        fields = ["S", str(parent), *["0"] * 17, str(started), *["0"] * 10]
        (folder / "stat").write_text(f"{pid} (a )b( name) {' '.join(fields)}")
        if ns is not None:
            (folder / "ns" / "pid").symlink_to(f"pid:[{ns}]")
    if own != "hidden":
        (root / "self" / "ns").mkdir(parents=True)
        (root / "self" / "ns" / "pid").symlink_to(f"pid:[{namespace}]")
    return root
