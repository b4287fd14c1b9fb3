"""What CUDA or HIP show to the process that runs this: run as a script, with a pinned environment.

It imports nothing beyond the standard library, so that any Python can run it by its path.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from itertools import pairwise
from typing import Any, NamedTuple


class Runtime(NamedTuple):
    """The calls of one vendor's library; `v2` names a MIG instance where the older one does not."""

    library: str
    init: str | None
    device_count: str
    device: str | None
    uuid: tuple[str, ...]
    bus: str
    no_device: int


RUNTIMES = {
    "nvidia": Runtime(
        "libcuda.so.1",
        "cuInit",
        "cuDeviceGetCount",
        "cuDeviceGet",
        ("cuDeviceGetUuid_v2", "cuDeviceGetUuid"),
        "cuDeviceGetPCIBusId",
        100,
    ),
    # HIP's UUID is text in 16 bytes and differs between releases, so the bus id identifies.
    "amd": Runtime(
        "libamdhip64.so", None, "hipGetDeviceCount", None, (), "hipDeviceGetPCIBusId", 100
    ),
}


class LibraryError(Exception):
    """The library cannot be loaded or refuses a call."""


def devices(vendor: str, library: Any = None) -> list[dict[str, str | None]]:
    """Return uuid (bare hex, or None) and PCI bus id of every visible device, in order.

    Raises LibraryError.
    """
    calls = RUNTIMES[vendor]
    if library is None:
        try:
            library = ctypes.CDLL(calls.library)
        except OSError as error:
            raise LibraryError(str(error)) from error
    count = ctypes.c_int(0)
    first = [(calls.init, (0,))] if calls.init else []
    for name, arguments in (*first, (calls.device_count, (ctypes.byref(count),))):
        code = getattr(library, name)(*arguments)
        if code == calls.no_device:
            return []
        _check(name, code)
    return [_device(library, calls, ordinal) for ordinal in range(count.value)]


def _device(library: Any, calls: Runtime, ordinal: int) -> dict[str, str | None]:
    handle: Any = ctypes.c_int(ordinal)
    if calls.device:
        _check(calls.device, getattr(library, calls.device)(ctypes.byref(handle), ordinal))
    text = ctypes.create_string_buffer(32)
    _check(calls.bus, getattr(library, calls.bus)(text, len(text), handle))
    return {"uuid": _uuid(library, calls, handle), "pci_bus_id": text.value.decode("ascii")}


def _uuid(library: Any, calls: Runtime, handle: Any) -> str | None:
    for name in calls.uuid:
        function = getattr(library, name, None)
        if function is None:
            continue
        raw = (ctypes.c_ubyte * 16)()
        _check(name, function(ctypes.byref(raw), handle))
        digits = bytes(raw).hex()
        cuts = (0, 8, 12, 16, 20, 32)
        return "-".join(digits[a:b] for a, b in pairwise(cuts))
    return None


def _check(name: str, code: int) -> None:
    if code != 0:
        raise LibraryError(f"{name} returned {code}")


def main(vendor: str) -> int:
    """Print one JSON object: pid, and devices or error."""
    told: dict[str, Any] = {"pid": os.getpid()}
    try:
        told["devices"] = devices(vendor)
    except LibraryError as error:
        told["error"] = str(error)
    sys.stdout.write(json.dumps(told) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
