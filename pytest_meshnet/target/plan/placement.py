"""Exact placement: contiguous layer ranges that fit, cut few IndexShare groups, and balance.

Every contiguous division over the machines, in every order, is searched (`division`). Minimised, in
this order: cuts inside an IndexShare group; the greatest load in proportion to a node's weight; the
sum of squared loads in that proportion. The second is the optimality that is claimed, for the first
as it is; what a free choice of cuts would reach is reported beside it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Any

from pytest_meshnet.target.fields import TargetRefused
from pytest_meshnet.target.plan.division import Kind, Loads, Search

MAX_STEPS = 12_000  # ten machines of which no two are alike (10 x 2^10), about five seconds


class DoesNotFit(TargetRefused):
    """No contiguous division of these loads keeps every node inside its budget."""

    def __init__(self, message: str) -> None:
        super().__init__("does-not-fit", message)


@dataclass(frozen=True, slots=True)
class PlacementNode:
    """A machine to place on. `weight` is its due share: its budget unless a speed is given.

    Give memory bandwidth (GB/s) as the weight of every node to keep a slow machine with much memory
    from taking the largest Shard; the budget bounds it all the same.
    """

    name: str
    budget_bytes: int
    weight: Fraction

    @classmethod
    def by_memory(cls, name: str, budget_bytes: int) -> "PlacementNode":
        """Return a node whose due share is proportional to its budget."""
        return cls(name, budget_bytes, Fraction(budget_bytes))


@dataclass(frozen=True, slots=True)
class Share:
    """What one node gets: layers `[start_layer, end_layer)`, bytes placed, and its budget."""

    node: str
    start_layer: int
    end_layer: int
    load_bytes: int
    budget_bytes: int

    @property
    def headroom_bytes(self) -> int:
        """Budget left, never negative."""
        return self.budget_bytes - self.load_bytes


@dataclass(frozen=True, slots=True)
class Placement:
    """An optimal placement, in route order.

    `peak` is the greatest load / weight, minimal among placements with as few `broken_cuts`;
    `unrestricted_peak` is the minimum when groups may be cut freely: the price of whole groups is
    their difference.
    """

    shares: tuple[Share, ...]
    broken_cuts: tuple[int, ...]
    peak: Fraction
    unrestricted_peak: Fraction

    def disagreements(self, effective: Mapping[str, tuple[int, int]]) -> tuple[str, ...]:
        """Compare layers read back from running nodes (`[start, end)` by name); empty agrees."""
        planned = {share.node: (share.start_layer, share.end_layer) for share in self.shares}
        return tuple(
            f"{node} holds {effective.get(node)}, planned {planned.get(node)}"
            for node in sorted(planned.keys() | effective.keys())
            if planned.get(node) != effective.get(node)
        )

    def to_dict(self, sideband_bytes_per_query: int) -> dict[str, Any]:
        """Return the JSON form, each broken seam priced with the sideband it needs."""
        return {
            "shares": [
                {
                    "node": share.node,
                    "layers": [share.start_layer, share.end_layer],
                    "load_bytes": share.load_bytes,
                    "budget_bytes": share.budget_bytes,
                    "headroom_bytes": share.headroom_bytes,
                }
                for share in self.shares
            ],
            "seams": [
                {
                    "cut": share.start_layer,
                    "whole_group": share.start_layer not in self.broken_cuts,
                    "sideband_bytes_per_query": sideband_bytes_per_query
                    if share.start_layer in self.broken_cuts
                    else 0,
                }
                for share in self.shares[1:]
            ],
            "peak_load_over_weight": float(self.peak),
            "unrestricted_peak": float(self.unrestricted_peak),
        }


def place(
    loads: Loads, nodes: Sequence[PlacementNode], order: Sequence[str] | None = None
) -> Placement:
    """Return an optimal contiguous placement in which every node holds at least one layer.

    Without `order` the route order is free and the result does not depend on how `nodes` are
    listed; with it, the route is exactly those names. Raises DoesNotFit, or TargetRefused:
    too-few-nodes, node-twice, no-budget, node-order, too-many-nodes, search-too-large.
    """
    _check_nodes(loads, nodes)
    kinds = _kinds(nodes)
    if order is None:
        _check_size(kinds)
    else:
        _check_order(nodes, order)
    search = Search(loads, kinds, order)
    free = [0] * (len(loads.layers) + 1)
    groups = [int(loads.breaks_group(cut)) for cut in range(len(free))]
    cuts = search.fewest_cuts(search.caps(None), groups)
    if cuts is None:
        raise _does_not_fit(loads, nodes)
    peak = search.least_peak(groups, cuts)
    names: list[Iterator[str]] = [iter(kind.names) for kind in kinds]
    shares = tuple(
        Share(
            node=next(names[kind]) if order is None else order[position],
            start_layer=start,
            end_layer=end,
            load_bytes=loads.of(start, end),
            budget_bytes=kinds[kind].budget,
        )
        for position, (start, end, kind) in enumerate(search.best(peak, groups))
    )
    return Placement(
        shares=shares,
        broken_cuts=tuple(s.start_layer for s in shares if loads.breaks_group(s.start_layer)),
        peak=peak,
        unrestricted_peak=search.least_peak(free, 0),
    )


def _kinds(nodes: Sequence[PlacementNode]) -> tuple[Kind, ...]:
    found: dict[tuple[int, Fraction], list[str]] = {}
    for node in nodes:
        found.setdefault((node.budget_bytes, node.weight), []).append(node.name)
    return tuple(
        Kind(budget, weight, tuple(sorted(found[budget, weight])))
        for budget, weight in sorted(found, reverse=True)
    )


def _check_size(kinds: Sequence[Kind]) -> None:
    states = prod(len(kind.names) + 1 for kind in kinds)
    if states * len(kinds) > MAX_STEPS:
        raise TargetRefused(
            "search-too-large",
            f"{sum(len(kind.names) for kind in kinds)} machines of {len(kinds)} kinds have too "
            "many orders to search exactly: fix the route order",
        )


def _check_order(nodes: Sequence[PlacementNode], order: Sequence[str]) -> None:
    if sorted(order) != sorted(node.name for node in nodes):
        raise TargetRefused(
            "node-order",
            f"the order {list(order)} does not name each of "
            f"{sorted(node.name for node in nodes)} once: name every machine",
        )


def _check_nodes(loads: Loads, nodes: Sequence[PlacementNode]) -> None:
    names = [node.name.casefold() for node in nodes]
    if len(names) < 2:
        raise TargetRefused("too-few-nodes", f"{len(names)} node is no route: name at least two")
    if len(set(names)) < len(names):
        raise TargetRefused("node-twice", "a machine is named twice: it has its memory once")
    for node in nodes:
        if node.budget_bytes <= 0 or node.weight <= 0:
            raise TargetRefused(
                "no-budget", f"node {node.name} may hold nothing: name its real memory"
            )
    if len(nodes) > len(loads.layers):
        raise TargetRefused(
            "too-many-nodes",
            f"{len(nodes)} nodes cannot each hold one of {len(loads.layers)} layers: "
            f"use at most {len(loads.layers)}",
        )


def _does_not_fit(loads: Loads, nodes: Sequence[PlacementNode]) -> DoesNotFit:
    needed = sum(loads.layers) + loads.head + loads.tail + loads.every * len(nodes)
    budget = sum(node.budget_bytes for node in nodes)
    if budget < needed:
        return DoesNotFit(f"{needed} bytes exceed the budgets' {budget}: add a machine")
    return DoesNotFit(
        f"{needed} bytes are within the budgets' {budget}, but no contiguous division keeps every "
        "node within its own: use machines nearer in size, or fewer"
    )
