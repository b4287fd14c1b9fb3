"""What the codec tests share: tensors written without the codec, and what a refusal is."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import prod
from pathlib import Path
from typing import TypeVar

import zstandard
from hypothesis import strategies as st

from pytest_meshnet.protocol.errors import PayloadCorrupt, ProtocolError
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.runtime.errors import Nonconformance

T = TypeVar("T")

MIB = 1024 * 1024
MAX_CHUNK = 4 * MIB

# The wire's numbers and sizes, as the protocol lists them.
ITEM_SIZES = {
    "BFLOAT16": 2,
    "FLOAT16": 2,
    "FLOAT32": 4,
    "INT32": 4,
    "INT64": 8,
    "UINT8": 1,
    "INT8": 1,
    "BOOL": 1,
}
NUMBERS = {name: number for number, name in enumerate(ITEM_SIZES, start=1)}


def crc32c(data: bytes) -> bytes:
    """CRC32C bit by bit, big-endian: the reflected Castagnoli polynomial, all ones in and out."""
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
    return (register ^ 0xFFFFFFFF).to_bytes(4, "big")


def patterned(size: int, seed: int = 0) -> bytes:
    """Bytes without a period that a fragment could be shifted by unnoticed."""
    return bytes((i * i + 7 * i + (i >> 8) * 31 + seed) & 0xFF for i in range(size))


def fragments(body: bytes, sizes: Sequence[int]) -> list[pb.TensorFragment]:
    """A wire body cut into pieces of these sizes, the last taking what is left."""
    pieces, start = [], 0
    for size in sizes:
        pieces.append((start, body[start : start + size]))
        start += size
    pieces.append((start, body[start:]))
    return [
        pb.TensorFragment(
            fragment_index=index,
            fragment_count=len(pieces),
            byte_offset=offset,
            payload=piece,
        )
        for index, (offset, piece) in enumerate(pieces)
    ]


def written(
    data: bytes,
    *,
    shape: Sequence[int] | None = None,
    dtype: str = "UINT8",
    cuts: Sequence[int] = (),
    body: bytes | None = None,
    checksum: bool = True,
    name: str = "hidden_states",
) -> pb.NamedTensor:
    """A correct tensor as another implementation writes it; `body` is its zstd form."""
    covered = pb.Checksum(algorithm=pb.CHECKSUM_ALGORITHM_NONE)
    if checksum:
        covered = pb.Checksum(algorithm=pb.CHECKSUM_ALGORITHM_CRC32C, value=crc32c(data))
    return pb.NamedTensor(
        name=name,
        shape=[len(data) // ITEM_SIZES[dtype]] if shape is None else shape,
        dtype=NUMBERS[dtype],
        byte_order=pb.BYTE_ORDER_LITTLE_ENDIAN,
        total_bytes=len(data),
        compression=pb.COMPRESSION_NONE if body is None else pb.COMPRESSION_ZSTD,
        checksum=covered,
        fragments=fragments(data if body is None else body, cuts),
    )


def edited(message: pb.NamedTensor, edit: Callable[[pb.NamedTensor], None]) -> pb.NamedTensor:
    """A copy of a message with one thing changed."""
    copy = pb.NamedTensor()
    copy.CopyFrom(message)
    edit(copy)
    return copy


# Verdicts ---------------------------------------------------------------------------------------


def accepted(what: str, call: Callable[[], T]) -> T:
    """Do what must not be refused."""
    try:
        return call()
    except ProtocolError as error:
        raise Nonconformance(
            f"{what} is accepted", f"{type(error).__name__} {error.rule}: {error}"
        ) from error


# What libraries under the codec raise for values that they cannot take.
FOREIGN_ERRORS = (zstandard.ZstdError, ArithmeticError, LookupError, MemoryError, ValueError)


def refused(what: str, call: Callable[[], object]) -> ProtocolError:
    """Do what must be refused, as uninterpretable or as corrupt."""
    try:
        result = call()
    except ProtocolError as error:
        return error
    except FOREIGN_ERRORS as error:
        raise Nonconformance(
            f"{what} is refused with a ProtocolError", f"{type(error).__name__}: {error}"
        ) from error
    raise Nonconformance(f"{what} is refused", f"it gave {_brief(result)}")


def corrupt(what: str, call: Callable[[], object]) -> ProtocolError:
    """Do what must be refused because it does not add up."""
    error = refused(what, call)
    if not isinstance(error, PayloadCorrupt):
        raise Nonconformance(f"{what} is PayloadCorrupt", f"ProtocolError {error.rule}: {error}")
    return error


def _brief(result: object) -> str:
    text = repr(result)
    return text if len(text) <= 200 else f"{text[:200]}..."


def same_tensor(expected: Tensor, actual: Tensor) -> None:
    """Require equal names, dtypes, shapes and bytes."""
    for part in ("name", "dtype", "shape"):
        wanted, found = getattr(expected, part), getattr(actual, part)
        if wanted != found or type(wanted) is not type(found):
            raise Nonconformance(f"{part} {wanted!r}", f"{found!r}")
    if bytes(expected.data) != bytes(actual.data):
        raise Nonconformance(_brief(bytes(expected.data)), _brief(bytes(actual.data)))


# Inputs -----------------------------------------------------------------------------------------


@st.composite
def shapes(draw: st.DrawFn, max_elements: int = 512) -> tuple[int, ...]:
    """A shape of any legal rank; zeros come up, large products do not."""
    shape: list[int] = []
    for _ in range(draw(st.integers(0, 8))):
        room = max_elements // max(1, prod(shape))
        shape.append(draw(st.integers(0, max(1, min(room, 9)))))
    return tuple(shape)


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    """A tensor of any dtype, rank 0 to 8, empty ones too, and any bytes."""
    dtype = DType[draw(st.sampled_from(sorted(ITEM_SIZES)))]
    shape = draw(shapes())
    size = prod(shape) * ITEM_SIZES[dtype.name]
    name = draw(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12))
    return Tensor(name, dtype, shape, draw(st.binary(min_size=size, max_size=size)))


# Memory -----------------------------------------------------------------------------------------


@contextmanager
def peak_within(bound: int) -> Iterator[None]:
    """Require that the process grows by at most `bound` bytes at its peak meanwhile.

    zstd allocates in C, where tracemalloc sees nothing, so the kernel's own high-water mark is
    read. On Linux it is reset first. Elsewhere, or where that is forbidden, it only ever rises,
    and a growth below an earlier peak passes unseen.
    """
    before = _reset_peak()
    yield
    grown = _peak() - before
    if grown > bound:
        raise Nonconformance(
            f"a peak of at most {bound / MIB:.0f} MiB above what was in use",
            f"{grown / MIB:.0f} MiB",
        )


def _reset_peak() -> int:
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> int:
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    unit = 1 if os.uname().sysname == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def zeros_in(sizes: list[int]) -> pb.NamedTensor:
    """A tensor of zeros in fragments of these sizes."""
    data = bytes(sum(sizes))
    message = written(b"", shape=[len(data)], checksum=False)
    message.total_bytes = len(data)
    message.fragments.clear()
    message.fragments.extend(fragments(data, sizes[:-1]))
    return message
