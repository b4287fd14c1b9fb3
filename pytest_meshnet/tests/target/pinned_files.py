"""Files on disk with the pins they were written for."""

import hashlib
from pathlib import Path

from pytest_meshnet.target.artifact.verification import CHUNK_BYTES, Expected


def written(path: Path, data: bytes) -> Expected:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return Expected(path, len(data), hashlib.sha256(data).hexdigest())


def six(folder: Path) -> list[Expected]:
    return [written(folder / f"{i}.gguf", bytes([i]) * (CHUNK_BYTES + i)) for i in range(6)]


def flipped(expected: Expected) -> Expected:
    data = bytearray(expected.path.read_bytes())
    data[len(data) // 2] ^= 1
    expected.path.write_bytes(data)
    return expected
