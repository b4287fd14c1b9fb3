"""Exact placement: equal to brute force, stable, inside every budget, groups whole where it can."""

import itertools
import random
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_meshnet.target.documents import LockedTarget
from pytest_meshnet.target.fields import TargetRefused
from pytest_meshnet.target.plan.division import Loads
from pytest_meshnet.target.plan.placement import DoesNotFit, Placement, PlacementNode, place

Objective = tuple[int, Fraction, Fraction]


def objective(loads: Loads, pieces: list[tuple[PlacementNode, int, int]]) -> Objective | None:
    """Weigh one division by adding up tensors, independently of the search; None out of budget."""
    cuts, shares, squares = 0, [], Fraction(0)
    last = len(loads.layers)
    for node, start, end in pieces:
        load = loads.every
        for layer in range(start, end):
            load += loads.layers[layer]
        if start == 0:
            load += loads.head
        if end == last:
            load += loads.tail
        if load > node.budget_bytes:
            return None
        cuts += start > 0 and start not in loads.group_starts
        shares.append(load / node.weight)
        squares += load * load / node.weight
    return cuts, max(shares), squares


def brute_force(
    loads: Loads, nodes: list[PlacementNode], order: list[str] | None
) -> Objective | None:
    """Try every order of machines and every way to cut."""
    best = None
    orders = (
        itertools.permutations(nodes)
        if order is None
        else [[next(n for n in nodes if n.name == name) for name in order]]
    )
    count = len(loads.layers)
    for route in orders:
        for cuts in itertools.combinations(range(1, count), len(nodes) - 1):
            bounds = (0, *cuts, count)
            pieces = [(n, *pair) for n, pair in zip(route, itertools.pairwise(bounds), strict=True)]
            found = objective(loads, pieces)
            if found is not None and (best is None or found < best):
                best = found
    return best


def found_objective(loads: Loads, nodes: list[PlacementNode], plan: Placement) -> Objective | None:
    by_name = {node.name: node for node in nodes}
    return objective(loads, [(by_name[s.node], s.start_layer, s.end_layer) for s in plan.shares])


@st.composite
def cases(draw: st.DrawFn) -> tuple[Loads, list[PlacementNode], list[str] | None]:
    count = draw(st.integers(2, 8))
    layers = tuple(draw(st.lists(st.integers(0, 12), min_size=count, max_size=count)))
    groups = draw(st.sets(st.integers(1, count - 1)) | st.just(set(range(1, count))))
    loads = Loads(
        layers,
        head=draw(st.integers(0, 8)),
        tail=draw(st.integers(0, 8)),
        every=draw(st.integers(0, 2)),
        group_starts=frozenset({0, *groups}),
    )
    machines = draw(st.integers(2, min(4, count)))
    sizes = draw(st.lists(st.integers(1, 60), min_size=machines, max_size=machines))
    if draw(st.booleans()):
        sizes = [sizes[0]] * machines
    speeds = draw(st.none() | st.lists(st.integers(1, 9), min_size=machines, max_size=machines))
    nodes = [
        PlacementNode(f"n{i}", size, Fraction(size if speeds is None else speeds[i]))
        for i, size in enumerate(sizes)
    ]
    order = draw(st.none() | st.permutations([node.name for node in nodes]))
    return loads, nodes, order


@given(cases())
@settings(deadline=None, max_examples=250)
def test_placement_equals_brute_force(case):
    """Orders, unequal machines, speeds, groups, head, tail and replicated loads, all at once."""
    loads, nodes, order = case
    expected = brute_force(loads, nodes, order)
    if expected is None:
        with pytest.raises(DoesNotFit):
            place(loads, nodes, order)
        return
    plan = place(loads, nodes, order)
    assert found_objective(loads, nodes, plan) == expected
    assert plan.peak == expected[1]
    assert len(plan.broken_cuts) == expected[0]
    free = brute_force(
        Loads(loads.layers, loads.head, loads.tail, loads.every, frozenset(range(99))), nodes, order
    )
    assert free is not None
    assert plan.unrestricted_peak == free[1] <= plan.peak


@given(cases(), st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=80)
def test_every_share_is_contiguous_inside_its_budget_and_every_machine_has_one(case, chance):
    loads, nodes, order = case
    try:
        plan = place(loads, nodes, order)
    except DoesNotFit:
        return
    bounds = [share.start_layer for share in plan.shares] + [plan.shares[-1].end_layer]
    assert bounds == sorted(set(bounds))
    assert (bounds[0], bounds[-1]) == (0, len(loads.layers))
    assert [share.end_layer for share in plan.shares] == bounds[1:]
    # faults.md 41: assigned machines are exactly the requested ones.
    assert {share.node for share in plan.shares} == {node.name for node in nodes}
    assert all(share.headroom_bytes >= 0 for share in plan.shares)
    if order is not None:
        assert [share.node for share in plan.shares] == order
    # faults.md 9, 10 and 88: the listing order of machines never moves a layer.
    shuffled = list(nodes)
    chance.shuffle(shuffled)
    assert place(loads, shuffled, order) == plan


def node(name: str, budget: int) -> PlacementNode:
    return PlacementNode.by_memory(name, budget)


EVEN = Loads((10,) * 8, head=0, tail=0, every=0, group_starts=frozenset(range(8)))


# faults.md 10: where the output head lies is said and not left to the order of registration.
def test_the_output_head_lies_on_the_tail_whichever_machine_is_registered_first():
    loads = Loads((1,) * 8, head=0, tail=6, every=0, group_starts=frozenset(range(8)))
    machines = [node("small", 4), node("large", 12)]
    one, other = place(loads, machines), place(loads, machines[::-1])
    assert one == other
    assert one.shares[-1].node == "large"
    assert one.shares[-1].load_bytes >= 6


# faults.md 175: an order that was asked for is the one that comes, and is held against what runs.
def test_a_requested_order_is_kept_and_held_against_what_runs():
    plan = place(EVEN, [node("a", 100), node("b", 100)], ["b", "a"])
    assert [share.node for share in plan.shares] == ["b", "a"]
    assert plan.disagreements({"b": (0, 4), "a": (4, 8)}) == ()
    assert len(plan.disagreements({"a": (0, 4), "b": (4, 8)})) == 2
    assert plan.disagreements({"b": (0, 4)}) == ("a holds None, planned (4, 8)",)
    assert plan.disagreements({"b": (0, 4), "a": (4, 8), "c": (0, 8)}) == (
        "c holds (0, 8), planned None",
    )


# faults.md 26: much memory is no reason for the largest share when the speed is named.
def test_a_slow_machine_with_much_memory_does_not_get_the_largest_share():
    model = Loads((1,) * 30, head=0, tail=0, every=0, group_starts=frozenset(range(30)))
    machines = [
        PlacementNode("slow", 128, Fraction(60)),
        PlacementNode("fast", 24, Fraction(1000)),
    ]
    shares = {share.node: share.load_bytes for share in place(model, machines).shares}
    assert shares == {"fast": 24, "slow": 6}
    by_memory = {
        s.node: s.load_bytes for s in place(model, [node("slow", 128), node("fast", 24)]).shares
    }
    assert by_memory["slow"] > by_memory["fast"]


# faults.md 27: what every machine carries whatever its layers counts before launch.
def test_a_replicated_trunk_counts_on_every_machine():
    trunk, experts = 40, 259
    layers = (experts // 7,) * 7
    whole = Loads(layers, head=0, tail=0, every=trunk, group_starts=frozenset(range(7)))
    with pytest.raises(DoesNotFit):
        place(whole, [node(f"n{i}", 76) for i in range(7)])
    assert place(whole, [node(f"n{i}", 77) for i in range(7)]).peak == 1


def test_groups_stay_whole_where_they_can_and_are_cut_where_they_cannot():
    """Groups of 3 and 5 equal layers: two machines of 50 keep them whole, two of 40 cannot."""
    loads = Loads((10,) * 8, head=0, tail=0, every=0, group_starts=frozenset({0, 3}))
    whole = place(loads, [node("a", 50), node("b", 50)])
    assert whole.broken_cuts == ()
    assert [share.start_layer for share in whole.shares] == [0, 3]
    assert (whole.peak, whole.unrestricted_peak) == (1, Fraction(40, 50))
    cut = place(loads, [node("a", 40), node("b", 40)])
    assert cut.broken_cuts == (4,)
    seams = cut.to_dict(sideband_bytes_per_query=8192)["seams"]
    assert seams == [{"cut": 4, "whole_group": False, "sideband_bytes_per_query": 8192}]
    assert whole.to_dict(8192)["seams"][0]["sideband_bytes_per_query"] == 0


def test_the_targets_own_groups_are_kept_whole_over_the_recommended_machines():
    groups = LockedTarget.load().snapshot.architecture.group_starts()
    chance = random.Random(3)
    layers = tuple(chance.randint(2_500_000_000, 2_900_000_000) for _ in range(78))
    loads = Loads(layers, head=10**9, tail=10**9, every=0, group_starts=groups)
    plan = place(loads, [node(f"n{i}", 51 * 2**30) for i in range(5)])
    assert plan.broken_cuts == ()
    assert {share.start_layer for share in plan.shares} <= groups


@pytest.mark.parametrize(
    ("nodes", "order", "code"),
    [
        ([node("a", 100)], None, "too-few-nodes"),
        ([node("a", 100), node("A", 100)], None, "node-twice"),
        ([node("a", 100), PlacementNode("b", 0, Fraction(1))], None, "no-budget"),
        ([node("a", 100), PlacementNode("b", 1, Fraction(0))], None, "no-budget"),
        ([node(f"n{i}", 100) for i in range(9)], None, "too-many-nodes"),
        ([node("a", 100), node("b", 100)], ["a"], "node-order"),
        ([node("a", 100), node("b", 100)], ["a", "c"], "node-order"),
        ([node("a", 100), node("b", 100)], ["a", "a"], "node-order"),
        ([node("a", 50), node("b", 29)], None, "does-not-fit"),
        ([node("a", 75), node("b", 9)], None, "does-not-fit"),
    ],
)
def test_what_cannot_be_placed_is_refused_with_its_reason(nodes, order, code):
    with pytest.raises(TargetRefused) as refused:
        place(EVEN, nodes, order)
    assert refused.value.code == code


# faults.md 117: a plan that cannot divide says so at plan time, with what would work.
def test_more_machines_than_layers_are_refused_with_a_counter_proposal():
    with pytest.raises(TargetRefused, match="use at most 8"):
        place(EVEN, [node(f"n{i}", 100) for i in range(9)])


def test_a_search_that_would_not_end_is_refused_and_an_order_makes_it_easy():
    loads = Loads((10,) * 40, head=0, tail=0, every=0, group_starts=frozenset(range(40)))
    machines = [node(f"n{i:02}", 100 + i) for i in range(14)]
    with pytest.raises(TargetRefused) as refused:
        place(loads, machines)
    assert refused.value.code == "search-too-large"
    assert len(place(loads, machines, [item.name for item in machines]).shares) == 14


def test_the_reason_of_a_misfit_tells_a_lack_of_memory_from_a_lack_of_division():
    with pytest.raises(DoesNotFit, match=r"^80 bytes exceed the budgets' 79: add a machine"):
        place(EVEN, [node("a", 40), node("b", 39)])
    every = Loads((10,) * 4, head=3, tail=5, every=2, group_starts=frozenset(range(4)))
    with pytest.raises(DoesNotFit, match=r"^52 bytes exceed"):
        place(every, [node("a", 25), node("b", 26)])
    with pytest.raises(DoesNotFit, match=r"^52 bytes are within the budgets' 52"):
        place(every, [node("a", 26), node("b", 26)])
    with pytest.raises(DoesNotFit, match="no contiguous division"):
        place(EVEN, [node("a", 75), node("b", 9)])
