"""GGUF files for the tests, written byte by byte, so that wrong ones can be written as well."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FORMS = {
    "u8": (0, "<B"),
    "u16": (2, "<H"),
    "u32": (4, "<I"),
    "i32": (5, "<i"),
    "f32": (6, "<f"),
    "bool": (7, "<?"),
    "u64": (10, "<Q"),
}
F32, F16, Q8_0 = 0, 1, 8
ITEM = {F32: (1, 4), F16: (1, 2), Q8_0: (32, 34)}
ALIGNMENT = 32


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def pair(key: str, kind: str, value: Any) -> bytes:
    """Return one metadata entry; `kind` is a scalar's, "str", or "[" + a scalar's kind."""
    head = text(key)
    if kind == "str":
        return head + struct.pack("<I", 8) + text(value)
    if kind == "[str":
        items = b"".join(text(item) for item in value)
        return head + struct.pack("<IIQ", 9, 8, len(value)) + items
    if kind.startswith("["):
        number, form = FORMS[kind[1:]]
        items = b"".join(struct.pack(form, item) for item in value)
        return head + struct.pack("<IIQ", 9, number, len(value)) + items
    number, form = FORMS[kind]
    return head + struct.pack("<I", number) + struct.pack(form, value)


@dataclass
class Tensor:
    """One tensor to write; `offset` None puts it after the one before."""

    name: str
    shape: Sequence[int] = (32,)
    dtype: int = F32
    offset: int | None = None
    size: int = field(init=False)

    def __post_init__(self) -> None:
        values = 1
        for extent in self.shape:
            values *= extent
        block, size = ITEM.get(self.dtype, (1, 1))
        self.size = values // block * size


def write(
    path: Path,
    pairs: Sequence[bytes],
    tensors: Sequence[Tensor],
    *,
    alignment: int = ALIGNMENT,
    fill: int | None = 0xAB,
) -> Path:
    """Write a whole file; `fill` None leaves the tensor data a hole of the right length."""
    at, entries = 0, b""
    for tensor in tensors:
        offset = at if tensor.offset is None else tensor.offset
        dims = struct.pack(f"<{len(tensor.shape)}Q", *tensor.shape)
        entries += text(tensor.name) + struct.pack("<I", len(tensor.shape)) + dims
        entries += struct.pack("<IQ", tensor.dtype, offset)
        at = -(-(offset + tensor.size) // alignment) * alignment
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs)) + b"".join(pairs) + entries
    start = -(-len(head) // alignment) * alignment
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as stream:
        stream.write(head.ljust(start, b"\0"))
        if fill is not None:
            stream.write(bytes([fill]) * at)
        stream.truncate(start + at)
    return path


def model_pairs(layers: int, *, nextn: int = 0, arch: str = "toy") -> list[bytes]:
    """Return the metadata of a small grouped-query model."""
    return [
        pair("general.architecture", "str", arch),
        pair(f"{arch}.block_count", "u32", layers + nextn),
        pair(f"{arch}.embedding_length", "u32", 64),
        pair(f"{arch}.attention.head_count", "u32", 4),
        pair(f"{arch}.attention.head_count_kv", "[u32", [2] * (layers + nextn)),
        *([pair(f"{arch}.nextn_predict_layers", "u32", nextn)] if nextn else []),
    ]


def model_tensors(layers: int, *, nextn: int = 0, tied: bool = False) -> list[Tensor]:
    """Return the tensors of a small model, experts and NextN included."""
    tensors = [Tensor("token_embd.weight", (64, 100), F16)]
    for layer in range(layers):
        tensors += [
            Tensor(f"blk.{layer}.attn_q.weight", (64, 64 + layer), Q8_0),
            Tensor(f"blk.{layer}.ffn_gate_exps.weight", (64, 8, 4), Q8_0),
            Tensor(f"blk.{layer}.attn_norm.weight", (64,)),
        ]
    tensors += [
        Tensor(f"blk.{layer}.nextn.eh_proj.weight", (64, 64))
        for layer in range(layers, layers + nextn)
    ]
    tensors += [Tensor("output_norm.weight", (64,)), Tensor("rope_freqs.weight", (16,))]
    return tensors if tied else [*tensors, Tensor("output.weight", (64, 100), F16)]


def split_pairs(number: int, count: int, total: int) -> list[bytes]:
    """Return the three keys of a part; `number` counts from 0."""
    return [
        pair("split.no", "u16", number),
        pair("split.count", "u16", count),
        pair("split.tensors.count", "i32", total),
    ]


def write_parts(
    folder: Path, stem: str, pairs: Sequence[bytes], tensors: Sequence[Tensor], count: int
) -> list[Path]:
    """Write one model as `count` parts, tensors spread in order, metadata in the first."""
    paths = []
    for number in range(count):
        share = tensors[number * len(tensors) // count : (number + 1) * len(tensors) // count]
        keys = [*(pairs if number == 0 else ()), *split_pairs(number, count, len(tensors))]
        path = folder / f"{stem}-{number + 1:05d}-of-{count:05d}.gguf"
        paths.append(write(path, keys, share))
    return paths
