"""One measured process: `floor` or `figure` for one [1, 128, 6144] bfloat16 tensor. Prints JSON.

The floor is what any codec must do: one CRC32C pass over the payload each way, and one protobuf
serialize and parse of a message that holds the same bytes. Its process is left as Python starts it.
The figure is the codec with the wire, in a process that keeps its heap as serve and certify do.
"""

from __future__ import annotations

import json
import random
import resource
import sys
import time
from collections.abc import Callable

import google_crc32c

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb

SHAPE = (1, 128, 6144)
BYTES = 128 * 6144 * 2
WARM_UP, TRIPS = 20, 200


def floor() -> Callable[[], None]:
    """Two CRC passes, one serialize, one parse."""
    data = random.Random(1).randbytes(BYTES)
    message = pb.TensorFragment(payload=data)

    def trip() -> None:
        google_crc32c.value(data)
        wire = message.SerializeToString()
        pb.TensorFragment.FromString(wire)
        google_crc32c.value(data)

    return trip


def figure(keep: bool = True) -> Callable[[], None]:
    """Encode, serialize, parse, decode."""
    from pytest_meshnet.protocol.codec import decode_tensor, encode_tensor
    from pytest_meshnet.protocol.heap import keep_heap
    from pytest_meshnet.protocol.tensors import DType, Tensor

    if keep:
        keep_heap()
    data = random.Random(1).randbytes(BYTES)
    tensor = Tensor("hidden_states", DType.BFLOAT16, SHAPE, data)

    def trip() -> None:
        wire = encode_tensor(tensor).SerializeToString()
        decode_tensor(pb.NamedTensor.FromString(wire))

    return trip


def plain() -> Callable[[], None]:
    """The figure without the remedy, to show what it is worth."""
    return figure(keep=False)


def measure(trip: Callable[[], None]) -> dict[str, float]:
    """Best and median time of a trip in microseconds, and page faults a trip."""
    for _ in range(WARM_UP):
        trip()
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    times = []
    for _ in range(TRIPS):
        started = time.perf_counter_ns()
        trip()
        times.append((time.perf_counter_ns() - started) / 1000)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
    times.sort()
    return {"best": times[0], "median": times[TRIPS // 2], "faults": faults / TRIPS}


if __name__ == "__main__":
    role = {"floor": floor, "figure": figure, "plain": plain}[sys.argv[1]]
    print(json.dumps(measure(role())))  # noqa: T201
