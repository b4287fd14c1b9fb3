"""The remedy against page faults, measured in processes of its own."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

_CODE = """
import resource, sys
from pytest_meshnet.protocol.codec import decode_tensor, encode_tensor
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.heap import keep_heap
from pytest_meshnet.protocol.tensors import DType, Tensor
if sys.argv[1] == "keep":
    assert keep_heap()
tensor = Tensor("hidden_states", DType.BFLOAT16, (1, 128, 6144), bytes(128 * 6144 * 2))
def trip():
    decode_tensor(pb.NamedTensor.FromString(encode_tensor(tensor).SerializeToString()))
for _ in range(5):
    trip()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    trip()
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 20)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's heap only")
def test_a_kept_heap_stops_the_page_faults_of_large_messages() -> None:
    assert _faults_a_trip("keep") < 10
    assert _faults_a_trip("plain") > 100


def _faults_a_trip(how: str) -> float:
    run = subprocess.run(
        [sys.executable, "-c", _CODE, how], stdout=subprocess.PIPE, check=True, text=True
    )
    return float(run.stdout)


def test_elsewhere_than_on_glibc_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    from pytest_meshnet.protocol import heap

    class OtherLibrary:
        """Has no glibc version, and no mallopt either."""

    monkeypatch.setattr(heap.ctypes, "CDLL", lambda name: OtherLibrary())
    assert heap.keep_heap() is False
