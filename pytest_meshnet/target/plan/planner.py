"""Whether machines can hold the locked target: arithmetic only, exact bytes, published figures.

Everything that decides is an integer number of bytes; GiB appear only where a figure is shown.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

from pytest_meshnet.target.documents import LockedTarget
from pytest_meshnet.target.fields import TargetRefused
from pytest_meshnet.target.manifest import GIB
from pytest_meshnet.target.plan.kv_cache import IndexerLayout, kv_block, kv_bytes, target_layers
from pytest_meshnet.target.plan.nodes import Node, Reserve, require_route
from pytest_meshnet.target.plan.seams import HOP_LATENCY_MS, Boundary, SeamPlan, plan_seams

# Published: how far above an even share the fullest node of a contiguous placement may lie.
IMBALANCE = Fraction("1.10")
TIERS_GIB = (32, 48, 64, 96, 128)
KV_TABLE_TOKENS = (16_384, 131_072, 1_048_576)
_BOUNDARY_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}


@dataclass(frozen=True, slots=True)
class Workload:
    """What the target has to serve: context in tokens, sequences at once, KV type and layout."""

    context_tokens: int
    concurrency: int
    kv_type: str
    layout: IndexerLayout = IndexerLayout.CONSERVATIVE


@dataclass(frozen=True, slots=True)
class Planner:
    """Every input of the arithmetic, in bytes, tokens, fractions and Gbit/s.

    `Planner.of` takes them from the locked documents; nothing else supplies a threshold.
    """

    target: LockedTarget
    weight_bytes: int
    workload: Workload
    reserve: Reserve
    floor_bytes: int
    imbalance: Fraction
    boundary: Boundary
    hop_latency_ms: float
    minimum_gbps: float
    recommended_gbps: float

    @classmethod
    def of(cls, target: LockedTarget, *, context_tokens: int | None = None) -> Self:
        """Return the planner of the locked target; `context_tokens` replaces the contract's.

        Raises TargetRefused("context") outside 1 .. the model's positions.
        """
        contract, architecture = target.contract, target.snapshot.architecture
        context = contract.number("target_run", "context_tokens")
        context = context if context_tokens is None else context_tokens
        if isinstance(context, bool) or not isinstance(context, int) or context < 1:
            raise TargetRefused(
                "context", f"the context is {context!r}, expected tokens, 1 or more"
            )
        if context > architecture.max_positions:
            raise TargetRefused(
                "context",
                f"a context of {context} tokens exceeds the model's {architecture.max_positions}",
            )
        return cls(
            target=target,
            weight_bytes=target.manifest.total_bytes,
            workload=Workload(
                context,
                int(contract.number("target_run", "concurrency")),
                str(contract.threshold("target_run", "kv_dtype")),
            ),
            reserve=Reserve.of(contract),
            floor_bytes=math.ceil(
                Fraction(contract.number("identity_and_fit", "aggregate_hard_fit_floor_gib")) * GIB
            ),
            imbalance=IMBALANCE,
            boundary=Boundary(
                architecture.hidden_size,
                _BOUNDARY_BYTES[architecture.boundary_dtype],
                architecture.index_topk,
            ),
            hop_latency_ms=HOP_LATENCY_MS,
            minimum_gbps=contract.number("target_run", "min_link_rate_gbps"),
            recommended_gbps=contract.number("target_run", "recommended_link_rate_gbps"),
        )

    def kv_bytes(
        self,
        context_tokens: int | None = None,
        layout: IndexerLayout | None = None,
        kv_type: str | None = None,
    ) -> int:
        """Return the cache of the whole backbone in bytes; arguments replace the workload's."""
        work = self.workload
        layers = target_layers(self.target.snapshot.architecture, layout or work.layout)
        tokens = work.context_tokens if context_tokens is None else context_tokens
        return kv_bytes(layers, tokens, kv_type or work.kv_type, work.concurrency)

    @property
    def required_bytes(self) -> int:
        """Weights and cache together: what the budgets of a route must hold."""
        return self.weight_bytes + self.kv_bytes()

    def tier(self, usable_gib: int | float) -> "Tier":
        """Return how many machines of `usable_gib` each the target needs."""
        node = Node("tier", usable_gib, unified=True)
        budget = self.reserve.budget_of(node)
        return Tier(
            usable_bytes=node.usable_bytes,
            reserve_bytes=node.usable_bytes - budget,
            weight_bytes=self.weight_bytes,
            kv_bytes=self.kv_bytes(),
            minimum_nodes=math.ceil(Fraction(self.required_bytes, budget)),
            recommended_nodes=math.ceil(self.imbalance * self.required_bytes / budget),
            imbalance=self.imbalance,
        )

    def route(self, nodes: Sequence[Node]) -> "RoutePlan":
        """Return whether these machines together can hold the target, and why not.

        Raises TargetRefused: too-few-nodes, node-twice, no-budget.
        """
        require_route(nodes)
        return RoutePlan(
            nodes=tuple(nodes),
            budgets=tuple(self.reserve.budget_of(node) for node in nodes),
            required_bytes=self.required_bytes,
            floor_bytes=self.floor_bytes,
        )

    def seams(self, node_count: int, link_rate_gbps: float) -> SeamPlan:
        """Return the seams of a route of that many nodes. Raises as `plan_seams` does."""
        return plan_seams(
            node_count,
            self.boundary,
            context_tokens=self.workload.context_tokens,
            link_rate_gbps=link_rate_gbps,
            minimum_gbps=self.minimum_gbps,
            recommended_gbps=self.recommended_gbps,
            hop_latency_ms=self.hop_latency_ms,
        )


@dataclass(frozen=True, slots=True)
class Tier:
    """How many equal machines the target needs: by sum, and with the imbalance of placement."""

    usable_bytes: int
    reserve_bytes: int
    weight_bytes: int
    kv_bytes: int
    minimum_nodes: int
    recommended_nodes: int
    imbalance: Fraction

    def to_dict(self) -> dict[str, Any]:
        """Return the published form, in GiB rounded to 1e-3."""
        return {
            "physical_usable_gib": gib(self.usable_bytes),
            "reserve_gib": gib(self.reserve_bytes),
            "placement_budget_gib": gib(self.usable_bytes - self.reserve_bytes),
            "weight_gib": gib(self.weight_bytes),
            "kv_gib": gib(self.kv_bytes),
            "total_placement_gib": gib(self.weight_bytes + self.kv_bytes),
            "arithmetic_minimum_nodes": self.minimum_nodes,
            "recommended_nodes": self.recommended_nodes,
            "imbalance_factor": float(self.imbalance),
        }


@dataclass(frozen=True, slots=True)
class RoutePlan:
    """One route against the target. `budgets` are the bytes each node may hold, in node order.

    A sum that fits is arithmetic: it says that no placement is excluded, not that one was measured.
    """

    nodes: tuple[Node, ...]
    budgets: tuple[int, ...]
    required_bytes: int
    floor_bytes: int

    @property
    def usable_bytes(self) -> int:
        """All physically usable memory of the route."""
        return sum(node.usable_bytes for node in self.nodes)

    @property
    def headroom_bytes(self) -> int:
        """Budget left after the target, negative when it does not fit."""
        return sum(self.budgets) - self.required_bytes

    @property
    def complete_nodes(self) -> tuple[str, ...]:
        """The nodes that could hold the whole target: with one of them nothing is distributed."""
        named = zip(self.nodes, self.budgets, strict=True)
        return tuple(node.name for node, budget in named if budget >= self.required_bytes)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the route does not fit, in the published words; empty when it does."""
        found = []
        if self.headroom_bytes < 0:
            found.append(
                f"aggregate placement budget {sum(self.budgets) / GIB:.1f} GiB is below the "
                f"{self.required_bytes / GIB:.1f} GiB the target needs after each node's reserve"
            )
        if self.usable_bytes < self.floor_bytes:
            found.append(
                f"aggregate usable memory {self.usable_bytes / GIB:.1f} GiB is below the "
                f"{self.floor_bytes / GIB:g} GiB experimental hard-fit floor"
            )
        found += [
            f"node {name} could hold the complete target alone: the route is not distributed"
            for name in self.complete_nodes
        ]
        return tuple(found)

    @property
    def fits(self) -> bool:
        """Whether nothing speaks against the route."""
        return not self.reasons

    def to_dict(self) -> dict[str, Any]:
        """Return the published form, in GiB rounded to 1e-3."""
        return {
            "node_count": len(self.nodes),
            "aggregate_usable_gib": gib(self.usable_bytes),
            "aggregate_placement_budget_gib": gib(sum(self.budgets)),
            "required_placement_gib": gib(self.required_bytes),
            "fits": self.fits,
            "meets_hard_fit_floor": self.usable_bytes >= self.floor_bytes,
            "no_single_node_can_admit_target": not self.complete_nodes,
            "headroom_gib": gib(self.headroom_bytes),
            "reasons": list(self.reasons),
        }


def gib(count: int, digits: int = 3) -> float:
    """Return `count` bytes in GiB, rounded as the published figures are."""
    return round(count / GIB, digits)


def kv_table(planner: Planner) -> dict[str, dict[str, float]]:
    """Return the published cache table: GiB rounded to 1e-2, by context and assumption."""
    columns = {
        "mla_only_q8_gib": (IndexerLayout.MLA_ONLY, "Q8_0"),
        "optimized_dsa_q8_gib": (IndexerLayout.OPTIMIZED, "Q8_0"),
        "conservative_dsa_q8_gib": (IndexerLayout.CONSERVATIVE, "Q8_0"),
        "conservative_dsa_f16_gib": (IndexerLayout.CONSERVATIVE, "F16"),
    }
    return {
        str(tokens): {
            name: gib(planner.kv_bytes(tokens, layout, kv_type), 2)
            for name, (layout, kv_type) in columns.items()
        }
        for tokens in KV_TABLE_TOKENS
    }


def bytes_per_value(kv_type: str) -> float:
    """Return the mean bytes of one cached value of `kv_type`, 34/32 for Q8_0."""
    block, size = kv_block(kv_type)
    return size / block
