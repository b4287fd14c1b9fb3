"""Inventories made up for the tests, without files: random ones and a small model's."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from pytest_meshnet.target.artifact.inventory import Inventory, Tensor


def tensor(name: str, size: int) -> Tensor:
    layer = int(name.split(".")[1]) if name.startswith("blk.") else None
    return Tensor(name, "F32", (max(1, size // 4),), size, 1, layer)


def inventory(
    sizes: Mapping[str, int], layers: int, *, nextn: int = 0, **metadata: Any
) -> Inventory:
    """Return an inventory of the named tensors, sizes in bytes."""
    found = {
        "general.architecture": "toy",
        "toy.block_count": layers + nextn,
        "toy.embedding_length": 64,
        "toy.attention.head_count": 4,
        "toy.attention.head_count_kv": (2,) * (layers + nextn),
        **metadata,
    }
    return Inventory(
        stem="toy",
        parts=(Path("toy.gguf"),),
        total_bytes=sum(sizes.values()) + 64,
        architecture=found["general.architecture"],
        block_count=layers + nextn,
        nextn_layers=nextn,
        metadata=found,
        tensors=tuple(tensor(name, size) for name, size in sizes.items()),
    )


@st.composite
def inventories(draw: st.DrawFn) -> Inventory:
    """Draw a small model: any sizes, tied or not, with or without NextN and replicated tensors."""
    layers, nextn = draw(st.integers(2, 6)), draw(st.integers(0, 1))
    bytes_ = st.integers(1, 40)
    sizes = {"token_embd.weight": draw(bytes_), "output_norm.weight": draw(bytes_)}
    if draw(st.booleans()):
        sizes["output.weight"] = draw(bytes_)
    if draw(st.booleans()):
        sizes["rope_freqs.weight"] = draw(bytes_)
    for layer in range(layers + nextn):
        for part in draw(
            st.lists(
                st.sampled_from(["attn_q", "ffn_up_exps", "attn_norm"]), min_size=1, unique=True
            )
        ):
            sizes[f"blk.{layer}.{part}.weight"] = draw(bytes_)
    return inventory(dict(draw(st.permutations(list(sizes.items())))), layers, nextn=nextn)
