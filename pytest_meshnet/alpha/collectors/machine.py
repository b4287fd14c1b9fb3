"""What the operating system says of this machine and of a worker's process, on Linux."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_meshnet.alpha.collectors.claims import Claims, claims

if TYPE_CHECKING:
    from pytest_meshnet.hardware.inventory import Inventory

BY = "/proc"
_KIB = 1024
_NEVER_OVERCOMMIT = 2


def _fields(path: Path) -> dict[str, int]:
    """Sizes in bytes by name, of a file in the form of /proc/meminfo.

    Raises FileNotFoundError when the process is gone, or there is no /proc.
    """
    found = {}
    for line in path.read_text().splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if len(words) == 2 and words[1] == "kB":
            found[name] = int(words[0]) * _KIB
    return found


def hardware() -> str:
    """What this machine is, for a label: processor and memory."""
    total = _fields(Path("/proc/meminfo"))["MemTotal"]
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return f"{names[0] if names else platform.machine()}, {round(total / 2**30)} GiB"


def memory(pid: int) -> Claims:
    """Memory of the machine and of one worker, in bytes, when the worker's load is over.

    `reserve_bytes` is what the machine has available now, with the worker's own memory in use.
    `mmap_only` is true when the worker holds more in mapped files than in memory of its own.
    """
    machine = _fields(Path("/proc/meminfo"))
    worker = _fields(Path(f"/proc/{pid}/status"))
    policy = int(Path("/proc/sys/vm/overcommit_memory").read_text())
    promised = machine["Committed_AS"] > machine["MemTotal"] + machine["SwapTotal"]
    return claims(
        BY,
        {
            "usable_bytes": machine["MemTotal"],
            "reserve_bytes": machine["MemAvailable"],
            "peak_rss_bytes": worker["VmHWM"],
            "swap_bytes": worker["VmSwap"],
            "overcommitted": promised and policy != _NEVER_OVERCOMMIT,
            "mmap_only": worker["RssFile"] > worker["RssAnon"],
        },
    )


def gpus(found: Inventory) -> Claims:
    """GPU memory beside main memory, in bytes; what the drivers could not tell stays open.

    That no driver lists a GPU does not say that there is none: the driver itself may be missing.
    Whether a GPU shares the machine's memory no driver tells.
    """
    sizes = [one.memory_bytes for one in found.devices if one.mig is None]
    known = [size for size in sizes if size is not None]
    if not known or found.problems or found.simulated or len(known) < len(sizes):
        return {}
    return claims("the GPU drivers", {"gpu_bytes": sum(known)})


def with_gpus(memory: Claims, gpu: Claims) -> Claims:
    """Both together: usable memory counts both pools, and is open where one is unknown."""
    whole = memory | gpu
    main = whole.pop("usable_bytes")["value"]
    if "gpu_bytes" in gpu:
        whole |= claims(BY, {"usable_bytes": main + gpu["gpu_bytes"]["value"]})
    return whole
