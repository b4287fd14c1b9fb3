"""One GGUF file's header, read and bounded: metadata, tensors, and where the tensor data lies.

The tables (value types, tensor types and their block sizes) are the `gguf` library's. The walk is
ours, because `gguf.GGUFReader` trusts every count it reads: it loops over any array length, wraps
the product of dimensions and takes seconds over a vocabulary. Nothing past the header is read and
nothing is opened for writing. Layout: GGUF specification, versions 2 and 3, little-endian.
"""

import importlib
import os
import stat
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from io import BufferedReader
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pytest_meshnet.target.fields import TargetRefused

MAX_DIMS = 4  # GGML_MAX_DIMS
MAX_NAME = 64  # GGML_MAX_NAME
MAX_KEY = 65_535
MAX_TEXT = 16 * 2**20  # a chat template is the longest text a header needs
MAX_ENTRIES = 65_536  # metadata entries or tensors; real models have a few thousand
MAX_ITEMS = 2**24  # of one array; vocabularies have a few hundred thousand
MAX_KEPT_ITEMS = 65_536  # longer arrays are vocabularies; only their length is kept
_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_SCALARS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True, slots=True)
class Skipped:
    """A long or textual array of the metadata, of which only the length is kept."""

    length: int


@dataclass(frozen=True, slots=True)
class TensorHeader:
    """One tensor: GGUF dimension order (fastest first), bytes, and its offset in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int
    offset: int


@dataclass(frozen=True, slots=True)
class Header:
    """The header of one file. `metadata` holds scalars, strings, tuples and `Skipped` arrays."""

    path: Path
    version: int
    metadata: Mapping[str, Any]
    tensors: tuple[TensorHeader, ...]
    file_bytes: int


def read_header(path: Path) -> Header:
    """Read one file's header.

    Raises TargetRefused, always naming the file: unreadable, empty-part, not-gguf, gguf-version,
    big-endian, truncated, header-bounds, header-value, tensor-bounds, tensor-overlap,
    duplicate-tensor, duplicate-metadata, and gguf-missing when the library is not installed.
    """
    tables = _tables()
    try:
        with _open(path) as stream:
            return _Walk(path, stream, tables).header()
    except OSError as error:
        raise TargetRefused(
            "unreadable", f"{path}: {error.strerror}: name a readable GGUF file"
        ) from error


def _tables() -> Any:
    try:
        return importlib.import_module("gguf.constants")
    except ImportError as error:
        raise TargetRefused(
            "gguf-missing",
            f"reading GGUF files needs the gguf library ({error}): "
            "pip install 'pytest-meshnet[torch]'",
        ) from error


def _open(path: Path) -> BufferedReader:
    """Open a regular file for reading only; a pipe or device would block or lie about its size."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise TargetRefused("unreadable", f"{path} is no regular file: name a GGUF file")
    return os.fdopen(descriptor, "rb")


class _Walk:
    def __init__(self, path: Path, stream: BufferedReader, tables: Any) -> None:
        self._path = path
        self._stream = stream
        self._tables = tables
        self._size = os.fstat(stream.fileno()).st_size
        self._at = 0

    def header(self) -> Header:
        if self._size == 0:
            raise self._refuse("empty-part", "has 0 bytes", "fetch it again")
        version = self._preamble()
        tensor_count, pair_count = self._number("<Q"), self._number("<Q")
        # 13 and 24 bytes are the least that a pair and a tensor entry can take.
        self._require_room(pair_count, 13, MAX_ENTRIES, "metadata entries")
        metadata: dict[str, Any] = {}
        for _ in range(pair_count):
            key = self._text(MAX_KEY, "a metadata key")
            if key in metadata:
                raise self._refuse("duplicate-metadata", f"has {key!r} twice", "write it again")
            metadata[key] = self._value(self._number("<I"), key)
        self._require_room(tensor_count, 24, MAX_ENTRIES, "tensors")
        entries = [self._entry() for _ in range(tensor_count)]
        tensors = self._placed(entries, self._data_start(metadata))
        return Header(self._path, version, MappingProxyType(metadata), tensors, self._size)

    def _preamble(self) -> int:
        if self._bytes(4) != _MAGIC:
            raise self._refuse("not-gguf", "does not begin with 'GGUF'", "name a GGUF file")
        version: int = self._number("<I")
        if version in _VERSIONS:
            return version
        if version & 0xFFFF == 0:
            raise self._refuse("big-endian", "is big-endian", "convert it to little-endian")
        raise self._refuse("gguf-version", f"has version {version}", "convert it to version 3")

    def _data_start(self, metadata: Mapping[str, Any]) -> tuple[int, int]:
        alignment = metadata.get("general.alignment", self._tables.GGUF_DEFAULT_ALIGNMENT)
        if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
            raise self._refuse(
                "header-value", f"has alignment {alignment!r}, no power of two", "write it again"
            )
        return -(-self._at // alignment) * alignment, alignment

    def _entry(self) -> tuple[str, str, tuple[int, ...], int, int]:
        name = self._text(MAX_NAME, "a tensor name")
        count = self._number("<I")
        if count > MAX_DIMS:
            raise self._refuse(
                "tensor-bounds", f"gives {name!r} {count} dimensions of at most {MAX_DIMS}"
            )
        shape = tuple(self._number("<Q") for _ in range(count))
        dtype, size = self._sized(name, self._number("<I"), shape)
        return name, dtype, shape, size, self._number("<Q")

    def _sized(self, name: str, number: int, shape: tuple[int, ...]) -> tuple[str, int]:
        try:
            kind = self._tables.GGMLQuantizationType(number)
            block, block_bytes = self._tables.GGML_QUANT_SIZES[kind]
        except (ValueError, KeyError):
            raise self._refuse(
                "header-value", f"gives {name!r} the unknown type {number}", "update gguf"
            ) from None
        values = 1
        for extent in shape:
            values *= extent
        if not 0 < values < 2**63:
            raise self._refuse("tensor-bounds", f"gives {name!r} the shape {list(shape)}")
        row = shape[0] if shape else 1
        if row % block:
            raise self._refuse(
                "tensor-bounds",
                f"gives {name!r} rows of {row} values, {kind.name} needs multiples of {block}",
            )
        return kind.name, values // block * block_bytes

    def _placed(
        self, entries: list[tuple[str, str, tuple[int, ...], int, int]], start: tuple[int, int]
    ) -> tuple[TensorHeader, ...]:
        data_start, alignment = start
        tensors = []
        for name, dtype, shape, size, relative in entries:
            if relative % alignment:
                raise self._refuse("tensor-bounds", f"puts {name!r} off its alignment {alignment}")
            offset = data_start + relative
            if offset + size > self._size:
                raise self._refuse(
                    "truncated",
                    f"has {self._size} bytes, but {name!r} ends at {offset + size}",
                    "fetch it again",
                )
            tensors.append(TensorHeader(name, dtype, shape, size, offset))
        for name, count in Counter(tensor.name for tensor in tensors).most_common(1):
            if count > 1:
                raise self._refuse("duplicate-tensor", f"has {name!r} {count} times")
        for before, after in pairwise(sorted(tensors, key=lambda tensor: tensor.offset)):
            if before.offset + before.size_bytes > after.offset:
                raise self._refuse(
                    "tensor-overlap", f"lets {before.name!r} run into {after.name!r}"
                )
        return tuple(tensors)

    def _value(self, kind: int, key: str) -> Any:
        if kind in _SCALARS:
            return self._number(_SCALARS[kind])
        if kind == _STRING:
            return self._text(MAX_TEXT, f"the value of {key!r}")
        if kind == _ARRAY:
            return self._array(key)
        raise self._refuse("header-value", f"gives {key!r} the unknown value type {kind}")

    def _array(self, key: str) -> Any:
        kind, length = self._number("<I"), self._number("<Q")
        if kind == _STRING:
            self._require_room(length, 8, MAX_ITEMS, f"strings in {key!r}")
            for _ in range(length):
                self._skip(self._number("<Q"), f"a string in {key!r}")
            return Skipped(length)
        if kind not in _SCALARS:
            raise self._refuse("header-value", f"gives {key!r} items of the unknown type {kind}")
        form = _SCALARS[kind]
        width = struct.calcsize(form)
        self._require_room(length, width, MAX_ITEMS, f"values in {key!r}")
        if length > MAX_KEPT_ITEMS:
            self._skip(length * width, key)
            return Skipped(length)
        return struct.unpack(f"<{length}{form[1]}", self._bytes(length * width))

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._bytes(struct.calcsize(form)))[0]

    def _text(self, limit: int, what: str) -> str:
        length = self._number("<Q")
        if length > limit:
            raise self._refuse("header-bounds", f"gives {what} {length} bytes of at most {limit}")
        data = self._bytes(length)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            raise self._refuse("header-value", f"has {what} that is not UTF-8") from None

    def _require_room(self, count: int, each: int, limit: int, what: str) -> None:
        room = min((self._size - self._at) // each, limit)
        if count > room:
            raise self._refuse("header-bounds", f"counts {count} {what}, there is room for {room}")

    def _skip(self, count: int, what: str) -> None:
        if count > self._size - self._at:
            raise self._refuse("truncated", f"ends inside {what}", "fetch it again")
        self._stream.seek(count, os.SEEK_CUR)
        self._at += count

    def _bytes(self, count: int) -> bytes:
        data = self._stream.read(count) if count <= self._size - self._at else b""
        if len(data) != count:
            raise self._refuse(
                "truncated", f"ends inside its header at {self._at}", "fetch it again"
            )
        self._at += count
        return data

    def _refuse(
        self, code: str, found: str, advice: str = "the header is damaged: fetch it again"
    ) -> TargetRefused:
        return TargetRefused(code, f"{self._path} {found}: {advice}")
