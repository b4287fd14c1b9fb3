"""A real artifact on real machines: loads from tensors and caches, placement, owners."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pytest_meshnet.target.architecture import Architecture
from pytest_meshnet.target.artifact.inventory import Inventory
from pytest_meshnet.target.artifact.ownership import (
    Nextn,
    Ownership,
    ShardRange,
    TensorRole,
    is_tied,
    own,
    require_nextn_choice,
    role_of,
    tied_bytes,
)
from pytest_meshnet.target.fields import TargetRefused
from pytest_meshnet.target.plan.division import Loads
from pytest_meshnet.target.plan.kv_cache import LayerCache, gguf_layers
from pytest_meshnet.target.plan.nodes import Node, Reserve, require_route
from pytest_meshnet.target.plan.placement import Placement, PlacementNode, place
from pytest_meshnet.target.plan.seams import BFLOAT16_BYTES, Boundary

CONTEXT_LIMIT = 2**40  # tokens; a cache that still fits here does not grow with the context
# Names under which a GGUF file may carry the locked target's architecture.
_TARGET_ARCHITECTURES = frozenset({"glm-dsa", "glm_moe_dsa"})


@dataclass(frozen=True, slots=True)
class ArtifactPlan:
    """One artifact placed on one set of machines.

    `complete_nodes` could hold all of it alone, which makes the route not distributed.
    `boundary` is what a token carries over a seam, hidden states as bfloat16.
    `largest_context` is the most tokens of context this placement holds inside every budget, with
    the same concurrency and KV type.
    """

    placement: Placement
    ownership: Ownership
    complete_nodes: tuple[str, ...]
    largest_context: int
    boundary: Boundary
    is_target: bool

    @property
    def reasons(self) -> tuple[str, ...]:
        """What speaks against the route although every node has room; empty when nothing does."""
        return tuple(
            f"node {name} could hold the complete artifact alone: the route is not distributed"
            for name in self.complete_nodes
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, ownership by Shard included."""
        return {
            "fits": not self.reasons,
            "reasons": list(self.reasons),
            "largest_context_tokens": self.largest_context,
            **self.placement.to_dict(self.boundary.sideband_bytes),
            "intended_overlap": {k: list(v) for k, v in self.ownership.intended_overlap.items()},
            "excluded_tensors": list(self.ownership.excluded),
            "shards": [shard.to_dict() for shard in self.ownership.shards],
        }


def loads_of(
    inventory: Inventory,
    cache_bytes: Sequence[int],
    *,
    nextn: Nextn | None,
    scratch_bytes: int = 0,
    group_starts: frozenset[int] | None = None,
) -> Loads:
    """Return what the placement divides: exact tensor bytes and `cache_bytes[i]` for layer i.

    `scratch_bytes` is what each node needs beside the reserve, once per node however few its
    layers. `group_starts` None means that every cut keeps its groups whole. Raises TargetRefused:
    nextn-undecided, tensor-role, layers-unknown.
    """
    require_nextn_choice(inventory, nextn)
    layers = list(cache_bytes)
    by_role = dict.fromkeys(TensorRole, 0)
    for tensor in inventory.tensors:
        role = role_of(inventory, tensor)
        by_role[role] += tensor.size_bytes
        if role is TensorRole.LAYER and tensor.layer is not None:
            layers[tensor.layer] += tensor.size_bytes
    tail = by_role[TensorRole.FINAL_NORM] + by_role[TensorRole.OUTPUT_HEAD]
    tail += tied_bytes(inventory) if is_tied(inventory) else 0
    tail += by_role[TensorRole.NEXTN] if nextn is Nextn.TAIL else 0
    return Loads(
        layers=tuple(layers),
        head=by_role[TensorRole.EMBEDDING],
        tail=tail,
        every=by_role[TensorRole.REPLICATED] + scratch_bytes,
        group_starts=frozenset(range(len(layers))) if group_starts is None else group_starts,
    )


def plan_artifact(
    inventory: Inventory,
    nodes: Sequence[Node],
    reserve: Reserve,
    target: Architecture,
    *,
    context_tokens: int,
    kv_type: str,
    concurrency: int = 1,
    nextn: Nextn | None = None,
    order: Sequence[str] | None = None,
) -> ArtifactPlan:
    """Place an artifact on machines by exact tensor bytes, each with the cache of its own layers.

    `target` supplies IndexShare groups and sideband when the artifact is the target's architecture.
    Raises DoesNotFit, TargetRefused("width-unknown"), and as `place`, `loads_of`, `gguf_layers` and
    `Reserve` do.
    """
    require_route(nodes)
    layers = inventory.backbone_layers
    caches = gguf_layers(inventory.metadata, inventory.block_count or layers, layers)
    is_target = inventory.architecture in _TARGET_ARCHITECTURES and layers == target.backbone_layers
    budgets = {node.name: reserve.budget_of(node) for node in nodes}

    def loads(tokens: int) -> Loads:
        return loads_of(
            inventory,
            [cache.bytes(tokens, kv_type, concurrency) for cache in caches],
            nextn=nextn,
            group_starts=target.group_starts() if is_target else None,
        )

    wanted = loads(context_tokens)
    # Alone, a node would hold a tied embedding once and not as head and tail.
    alone = wanted.of(0, layers) - (tied_bytes(inventory) if is_tied(inventory) else 0)
    machines = [PlacementNode.by_memory(name, budget) for name, budget in budgets.items()]
    placement = place(wanted, machines, order)
    ranges = [ShardRange(s.node, s.start_layer, s.end_layer) for s in placement.shares]
    return ArtifactPlan(
        placement=placement,
        ownership=own(inventory, ranges, nextn),
        complete_nodes=tuple(name for name, budget in budgets.items() if budget >= alone),
        largest_context=_largest_context(placement, caches, kv_type, concurrency, context_tokens),
        boundary=_boundary(inventory, target if is_target else None),
        is_target=is_target,
    )


def _boundary(inventory: Inventory, target: Architecture | None) -> Boundary:
    hidden = inventory.metadata.get(f"{inventory.architecture}.embedding_length")
    if type(hidden) is not int or hidden < 1:
        raise TargetRefused(
            "width-unknown",
            f"{inventory.stem} does not say its embedding_length, so its seams have no known size: "
            "use a file that says it",
        )
    return Boundary(hidden, BFLOAT16_BYTES, 0 if target is None else target.index_topk)


def _largest_context(
    placement: Placement,
    caches: Sequence[LayerCache],
    kv_type: str,
    concurrency: int,
    context_tokens: int,
) -> int:
    """Search the most tokens that every share holds; caches only grow with tokens."""

    def holds(tokens: int) -> bool:
        for share in placement.shares:
            mine = caches[share.start_layer : share.end_layer]
            now = sum(cache.bytes(context_tokens, kv_type, concurrency) for cache in mine)
            then = sum(cache.bytes(tokens, kv_type, concurrency) for cache in mine)
            if share.load_bytes - now + then > share.budget_bytes:
                return False
        return True

    return bisect_left(range(context_tokens, CONTEXT_LIMIT), True, key=lambda n: not holds(n)) + (
        context_tokens - 1
    )
