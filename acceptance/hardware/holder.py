"""Holds a CUDA context and 64 MiB on device 0 of its environment until its input ends.

Run as a script. Prints one JSON object: pid and the UUID that the driver tells this very process,
or an error. It stands for a runtime: what it does is what any CUDA program does first.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any

MEMORY = 64 * 1024**2


def hold(cuda: Any) -> str:
    """Make a context on device 0, allocate, and return the UUID of the device as bare hex."""
    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
    raw = (ctypes.c_ubyte * 16)()
    steps = (
        ("cuInit", (0,)),
        ("cuDeviceGet", (ctypes.byref(device), 0)),
        ("cuDeviceGetUuid_v2", (ctypes.byref(raw), device)),
        ("cuDevicePrimaryCtxRetain", (ctypes.byref(context), device)),
        ("cuCtxSetCurrent", (context,)),
        ("cuMemAlloc_v2", (ctypes.byref(memory), ctypes.c_size_t(MEMORY))),
    )
    for name, arguments in steps:
        code = getattr(cuda, name)(*arguments)
        if code != 0:
            raise OSError(f"{name} returned {code}")
    digits = bytes(raw).hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def main() -> int:
    told: dict[str, Any] = {"pid": os.getpid()}
    try:
        told["uuid"] = hold(ctypes.CDLL("libcuda.so.1"))
    except OSError as error:
        told["error"] = str(error)
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main())
