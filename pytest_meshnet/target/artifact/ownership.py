"""Which Shard owns which tensor, and whether the owners together are exactly the artifact.

Head owns the embedding, tail the final norm and the output head, every Shard its layers with their
experts. A model without an output head ties it to the embedding: head and tail both own that
tensor, which is intended overlap, counted on both and listed. NextN tensors are nobody's unless the
caller says otherwise, and never a backbone layer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pytest_meshnet.identity.coverage import coverage_gap, execution_gap
from pytest_meshnet.target.artifact.inventory import Inventory, Tensor
from pytest_meshnet.target.fields import TargetRefused


class TensorRole(StrEnum):
    """What a tensor is for, which decides who owns it."""

    EMBEDDING = "embedding"
    LAYER = "layer"
    NEXTN = "nextn"
    FINAL_NORM = "final-norm"
    OUTPUT_HEAD = "output-head"
    REPLICATED = "replicated"


class Nextn(StrEnum):
    """Where NextN tensors go: loaded by the tail, or excluded by the recipe."""

    EXCLUDED = "excluded"
    TAIL = "tail"


class ShardRole(StrEnum):
    """A Shard's place in its route."""

    HEAD = "head"
    MIDDLE = "middle"
    TAIL = "tail"
    WHOLE = "whole"


TIED_STEM = "token_embd"
_ROLE_OF_STEM = {
    TIED_STEM: TensorRole.EMBEDDING,
    "token_embd_norm": TensorRole.EMBEDDING,
    "token_types": TensorRole.EMBEDDING,
    "position_embd": TensorRole.EMBEDDING,
    "output_norm": TensorRole.FINAL_NORM,
    "output": TensorRole.OUTPUT_HEAD,
    "rope_freqs": TensorRole.REPLICATED,
    "rope_factors_long": TensorRole.REPLICATED,
    "rope_factors_short": TensorRole.REPLICATED,
}


@dataclass(frozen=True, slots=True)
class ShardRange:
    """One Shard of a route: the node that holds it and its layers `[start_layer, end_layer)`."""

    node: str
    start_layer: int
    end_layer: int


@dataclass(frozen=True, slots=True)
class ShardOwnership:
    """What one Shard owns. `tensors` are (name, bytes) in file order."""

    node: str
    start_layer: int
    end_layer: int
    role: ShardRole
    tensors: tuple[tuple[str, int], ...]

    @property
    def owned_bytes(self) -> int:
        """Bytes of everything it owns, tied and replicated tensors included."""
        return sum(size for _, size in self.tensors)

    def to_dict(self) -> dict[str, Any]:
        """Return the report of this Shard."""
        return {
            "node": self.node,
            "layers": [self.start_layer, self.end_layer],
            "role": str(self.role),
            "owned_bytes": self.owned_bytes,
            "tensors": [{"name": name, "bytes": size} for name, size in self.tensors],
        }


@dataclass(frozen=True, slots=True)
class Ownership:
    """Every Shard's report, the overlap that is meant (tensor to nodes), and what nobody loads."""

    shards: tuple[ShardOwnership, ...]
    intended_overlap: Mapping[str, tuple[str, ...]]
    excluded: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OwnershipFindings:
    """How reported owners differ from the certified inventory; all empty and zero when they agree.

    `unintended_overlap_bytes` counts each extra copy once.
    """

    missing: tuple[str, ...]
    foreign: tuple[str, ...]
    wrong_size: tuple[str, ...]
    unintended_overlap: tuple[str, ...]
    unintended_overlap_bytes: int

    @property
    def agrees(self) -> bool:
        """Whether the union equals the inventory and no copy is unintended."""
        return not (self.missing or self.foreign or self.wrong_size or self.unintended_overlap)


def role_of(inventory: Inventory, tensor: Tensor) -> TensorRole:
    """Return what a tensor is for; raises TargetRefused("tensor-role") when no Shard owns it."""
    if tensor.layer is not None:
        nextn = tensor.layer >= inventory.backbone_layers or ".nextn." in tensor.name
        return TensorRole.NEXTN if nextn else TensorRole.LAYER
    try:
        return _ROLE_OF_STEM[_stem(tensor)]
    except KeyError:
        raise TargetRefused(
            "tensor-role",
            f"{inventory.stem} has {tensor.name!r}, which no Shard is known to own: "
            "dividing this architecture is not defined",
        ) from None


def is_tied(inventory: Inventory) -> bool:
    """Return whether the output head is the embedding, so that head and tail both need it."""
    roles = {role_of(inventory, tensor) for tensor in inventory.tensors}
    return TensorRole.OUTPUT_HEAD not in roles


def tied_bytes(inventory: Inventory) -> int:
    """Return the bytes of the embedding table alone, which is what a tied output head reads."""
    return sum(t.size_bytes for t in inventory.tensors if _stem(t) == TIED_STEM)


def require_nextn_choice(inventory: Inventory, nextn: Nextn | None) -> None:
    """Refuse ("nextn-undecided") a model with NextN tensors for which nobody decided."""
    if inventory.nextn_layers and nextn is None:
        raise TargetRefused(
            "nextn-undecided",
            f"{inventory.stem} has {inventory.nextn_layers} NextN layer: say whether it is "
            "excluded or loaded by the tail; it is no backbone layer",
        )


def own(
    inventory: Inventory, ranges: Sequence[ShardRange], nextn: Nextn | None = None
) -> Ownership:
    """Return what each Shard of a route, in order, owns of the artifact.

    Raises TargetRefused: coverage (a hole, an excess, the wrong order), node-twice,
    nextn-undecided, tensor-role.
    """
    require_nextn_choice(inventory, nextn)
    layers = inventory.backbone_layers
    pairs = [(item.start_layer, item.end_layer) for item in ranges]
    gap = coverage_gap(pairs, layers) or execution_gap(pairs, layers)
    if gap is not None:
        raise TargetRefused("coverage", f"{gap}: complete or reorder the route")
    if len({item.node for item in ranges}) < len(ranges):
        raise TargetRefused("node-twice", "a node holds two Shards of one route: merge them")
    shards = tuple(_owned(inventory, item, nextn, layers) for item in ranges)
    loaded = {name for shard in shards for name, _ in shard.tensors}
    return Ownership(
        shards=shards,
        intended_overlap=_intended(inventory, shards),
        excluded=tuple(t.name for t in inventory.tensors if t.name not in loaded),
    )


def judge_ownership(
    inventory: Inventory, reported: Mapping[str, Mapping[str, int]], expected: Ownership
) -> OwnershipFindings:
    """Compare what nodes report (node to tensor to bytes) with the certified inventory.

    The union has to equal the inventory without the tensors `expected` excludes, and every tensor
    has one owner but for the overlap that `expected` intends, by tensor and by node.
    """
    sizes = {tensor.name: tensor.size_bytes for tensor in inventory.tensors}
    wanted = sizes.keys() - set(expected.excluded)
    owners: dict[str, list[str]] = {}
    wrong = []
    for node, tensors in reported.items():
        for name, size in tensors.items():
            owners.setdefault(name, []).append(node)
            if name in sizes and (isinstance(size, bool) or size != sizes[name]):
                wrong.append(f"{name} on {node}: {size} bytes, the inventory has {sizes[name]}")
    overlap, overlap_bytes = [], 0
    for name, nodes in owners.items():
        meant = set(expected.intended_overlap.get(name, ()))
        if len(nodes) > 1 and not set(nodes) <= meant:
            overlap.append(f"{name} on {', '.join(sorted(nodes))}")
            extra = len(nodes) - max(1, len(meant & set(nodes)))
            overlap_bytes += extra * sizes.get(name, 0)
    short = [
        f"{name} on {node}"
        for name, nodes in expected.intended_overlap.items()
        for node in nodes
        if name in owners and node not in owners[name]
    ]
    return OwnershipFindings(
        missing=tuple(sorted([*(wanted - owners.keys()), *short])),
        foreign=tuple(sorted(owners.keys() - wanted)),
        wrong_size=tuple(sorted(wrong)),
        unintended_overlap=tuple(sorted(overlap)),
        unintended_overlap_bytes=overlap_bytes,
    )


def _owned(
    inventory: Inventory, item: ShardRange, nextn: Nextn | None, layers: int
) -> ShardOwnership:
    head, tail = item.start_layer == 0, item.end_layer == layers
    tied = is_tied(inventory)
    mine = {
        TensorRole.EMBEDDING: head,
        TensorRole.FINAL_NORM: tail,
        TensorRole.OUTPUT_HEAD: tail,
        TensorRole.REPLICATED: True,
        TensorRole.NEXTN: tail and nextn is Nextn.TAIL,
    }
    tensors = []
    for tensor in inventory.tensors:
        role = role_of(inventory, tensor)
        if role is TensorRole.LAYER:
            owns = item.start_layer <= (tensor.layer or 0) < item.end_layer
        else:
            owns = mine[role] or (tail and tied and _stem(tensor) == TIED_STEM)
        if owns:
            tensors.append((tensor.name, tensor.size_bytes))
    role_here = {
        (True, True): ShardRole.WHOLE,
        (True, False): ShardRole.HEAD,
        (False, True): ShardRole.TAIL,
        (False, False): ShardRole.MIDDLE,
    }[head, tail]
    return ShardOwnership(item.node, item.start_layer, item.end_layer, role_here, tuple(tensors))


def _stem(tensor: Tensor) -> str:
    return tensor.name.rsplit(".", 1)[0]


def _intended(inventory: Inventory, shards: Sequence[ShardOwnership]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for tensor in inventory.tensors:
        nodes = tuple(
            shard.node for shard in shards if any(name == tensor.name for name, _ in shard.tensors)
        )
        replicated = role_of(inventory, tensor) in (TensorRole.REPLICATED, TensorRole.EMBEDDING)
        if len(nodes) > 1 and replicated:
            found[tensor.name] = nodes
    return found
