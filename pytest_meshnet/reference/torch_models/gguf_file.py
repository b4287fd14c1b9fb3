"""Reading tensors of a GGUF file one at a time, past its tokenizer.

The library's reader keeps every string of the vocabulary, which takes longer than a Shard's layers
do. Here strings are stepped over, and a tensor is read when it is asked for.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import BinaryIO

import gguf
import numpy as np
from numpy.typing import NDArray

Number = int | float | bool

_DEFAULT_ALIGNMENT = 32
_STRING, _ARRAY = 8, 9
# Formats of the scalar value types, by their number in the GGUF specification.
_SCALARS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q",
    12: "<d",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a tensor lies: its shape, slowest dimension first, its type and its first byte."""

    shape: tuple[int, ...]
    kind: int
    offset: int


class GgufFile:
    """Numbers of the metadata, and tensors dequantized to float32. Version 3, little-endian."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.numbers: dict[str, Number] = {}
        with path.open("rb") as stream:
            magic, version, tensors, entries = struct.unpack("<4sIQQ", stream.read(24))
            if magic != b"GGUF" or version != 3:
                raise ValueError(f"{path.name} is {magic!r} version {version}: expected GGUF 3")
            for _ in range(entries):
                self._read_entry(stream)
            places = [_read_place(stream) for _ in range(tensors)]
            alignment = int(self.numbers.get("general.alignment", _DEFAULT_ALIGNMENT))
            start = -(-stream.tell() // alignment) * alignment
        self._places = {
            name: _Place(place.shape, place.kind, start + place.offset) for name, place in places
        }

    def float32(self, name: str) -> NDArray[np.float32]:
        """A tensor in float32, in memory of its own. Raises KeyError for one that is not there."""
        place = self._places[name]
        kind = gguf.GGMLQuantizationType(place.kind)
        values, size = gguf.constants.GGML_QUANT_SIZES[kind]
        row = place.shape[-1] // values * size
        rows = prod(place.shape[:-1])
        data = np.fromfile(self._path, np.uint8, rows * row, offset=place.offset)
        if kind in (gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16):
            width = "<f4" if kind is gguf.GGMLQuantizationType.F32 else "<f2"
            return data.view(width).astype(np.float32).reshape(place.shape)
        plain = gguf.quants.dequantize(data.reshape(rows, row), kind)
        return np.array(plain, dtype=np.float32).reshape(place.shape)

    def _read_entry(self, stream: BinaryIO) -> None:
        name, kind = _string(stream), _integer(stream, "<I")
        if kind in _SCALARS:
            (self.numbers[name],) = _unpack(stream, _SCALARS[kind])
        elif kind == _STRING:
            _string(stream)
        else:
            _skip_array(stream)


def _read_place(stream: BinaryIO) -> tuple[str, _Place]:
    name, rank = _string(stream), _integer(stream, "<I")
    dimensions = _unpack(stream, f"<{rank}Q")
    kind, offset = _unpack(stream, "<IQ")
    return name, _Place(tuple(reversed(dimensions)), kind, offset)


def _skip_array(stream: BinaryIO) -> None:
    kind, count = _unpack(stream, "<IQ")
    if kind == _STRING:
        for _ in range(count):
            stream.seek(_integer(stream, "<Q"), 1)
    elif kind == _ARRAY:
        for _ in range(count):
            _skip_array(stream)
    else:
        stream.seek(count * struct.calcsize(_SCALARS[kind]), 1)


def _string(stream: BinaryIO) -> str:
    return stream.read(_integer(stream, "<Q")).decode(errors="replace")


def _integer(stream: BinaryIO, form: str) -> int:
    return int(_unpack(stream, form)[0])


def _unpack(stream: BinaryIO, form: str) -> tuple[int, ...]:
    return struct.unpack(form, stream.read(struct.calcsize(form)))
