"""A GGUF artifact as one thing: every tensor of every part listed once, with its layer."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_meshnet.identity.canonical import digest
from pytest_meshnet.target.artifact.header import read_header
from pytest_meshnet.target.artifact.parts import check_split, stem_of
from pytest_meshnet.target.fields import TargetRefused

_LAYER = re.compile(r"blk\.(?P<layer>[0-9]{1,9})\.")


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of an artifact; `layer` is None outside the blocks, `part` counts from 1."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int
    part: int
    layer: int | None


@dataclass(frozen=True, slots=True)
class Inventory:
    """Every tensor of one artifact, in file order, and the metadata of its first part.

    `total_bytes` are the files' bytes, headers included; tensor bytes are in the tensors.
    `block_count` and `nextn_layers` are None and 0 where the metadata names none: an unknown layer
    count stays unknown.
    """

    stem: str
    parts: tuple[Path, ...]
    total_bytes: int
    architecture: str | None
    block_count: int | None
    nextn_layers: int
    metadata: Mapping[str, Any]
    tensors: tuple[Tensor, ...]

    @property
    def backbone_layers(self) -> int:
        """Layers that a forward runs: all blocks but the NextN ones.

        Raises TargetRefused("layers-unknown") when the metadata has no block count.
        """
        if self.block_count is None:
            raise TargetRefused(
                "layers-unknown",
                f"{self.stem} does not say how many layers it has: not a language model",
            )
        return self.block_count - self.nextn_layers

    @property
    def tensor_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.size_bytes for tensor in self.tensors)

    def digest(self) -> str:
        """Return the digest of names, types, shapes and bytes: equal for every split of a model."""
        rows = sorted([t.name, t.dtype, list(t.shape), t.size_bytes] for t in self.tensors)
        return digest({"domain": "meshnet.tensor-inventory.v1", "body": rows})

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form; `layers` sums the bytes of each block."""
        layers: dict[int, int] = defaultdict(int)
        for tensor in self.tensors:
            if tensor.layer is not None:
                layers[tensor.layer] += tensor.size_bytes
        return {
            "stem": self.stem,
            "architecture": self.architecture,
            "parts": [str(part) for part in self.parts],
            "total_bytes": self.total_bytes,
            "tensor_bytes": self.tensor_bytes,
            "tensor_count": len(self.tensors),
            "layer_count": None if self.block_count is None else self.backbone_layers,
            "nextn_layers": self.nextn_layers,
            "inventory_sha256": self.digest(),
            "layers": [{"layer": layer, "bytes": layers[layer]} for layer in sorted(layers)],
            "tensors": [
                {
                    "name": tensor.name,
                    "dtype": tensor.dtype,
                    "shape": list(tensor.shape),
                    "bytes": tensor.size_bytes,
                    "part": tensor.part,
                    "layer": tensor.layer,
                }
                for tensor in self.tensors
            ],
        }


def read_inventory(parts: Sequence[Path]) -> Inventory:
    """Read the headers of one artifact's parts, in order, and prove that they belong together.

    Raises TargetRefused: split-no, split-count, split-tensors, split-metadata, duplicate-tensor,
    layer-range, layer-missing, nextn-count, part-order, and the codes of `read_header`.
    """
    headers = [read_header(path) for path in parts]
    check_split(headers)
    metadata = headers[0].metadata
    architecture = metadata.get("general.architecture")
    if architecture is not None and not isinstance(architecture, str):
        raise TargetRefused("header-value", f"{parts[0]} has an architecture that is no text")
    tensors = tuple(
        Tensor(t.name, t.dtype, t.shape, t.size_bytes, number, _layer_of(t.name))
        for number, header in enumerate(headers, start=1)
        for t in header.tensors
    )
    for name, count in Counter(tensor.name for tensor in tensors).most_common(1):
        if count > 1:
            raise TargetRefused(
                "duplicate-tensor", f"{stem_of(parts[0])} has {name!r} in {count} parts"
            )
    block_count, nextn = _layers(metadata, architecture, parts[0])
    inventory = Inventory(
        stem=stem_of(parts[0]),
        parts=tuple(parts),
        total_bytes=sum(header.file_bytes for header in headers),
        architecture=architecture,
        block_count=block_count,
        nextn_layers=nextn,
        metadata=metadata,
        tensors=tensors,
    )
    if block_count is not None:
        _check_layers(inventory, block_count)
    return inventory


def _layers(
    metadata: Mapping[str, Any], architecture: str | None, path: Path
) -> tuple[int | None, int]:
    if architecture is None:
        return None, 0
    count = metadata.get(f"{architecture}.block_count")
    nextn = metadata.get(f"{architecture}.nextn_predict_layers", 0)
    if count is None:
        return None, 0
    if type(count) is not int or count < 1:
        raise TargetRefused("layer-range", f"{path} says block_count {count!r}: it is damaged")
    if type(nextn) is not int or not 0 <= nextn < count:
        raise TargetRefused(
            "nextn-count", f"{path} says {nextn!r} NextN layers of {count} blocks: it is damaged"
        )
    return count, nextn


def _check_layers(inventory: Inventory, block_count: int) -> None:
    held = {tensor.layer for tensor in inventory.tensors if tensor.layer is not None}
    outside = sorted(layer for layer in held if layer >= block_count)
    if outside:
        raise TargetRefused(
            "layer-range",
            f"{inventory.stem} has tensors of layer {outside[0]}, but block_count {block_count}",
        )
    missing = sorted(set(range(inventory.backbone_layers)) - held)
    if missing:
        raise TargetRefused(
            "layer-missing",
            f"{inventory.stem} has no tensor of layer {missing[0]} of {block_count}: a part is "
            "missing or foreign",
        )


def _layer_of(name: str) -> int | None:
    found = _LAYER.match(name)
    return None if found is None else int(found["layer"])
