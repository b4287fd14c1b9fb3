"""The planner's arithmetic: every published figure, and no input that could change unnoticed."""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_meshnet.target.documents import LockedTarget
from pytest_meshnet.target.fields import TargetRefused
from pytest_meshnet.target.plan.kv_cache import IndexerLayout
from pytest_meshnet.target.plan.nodes import Node, Reserve, require_accounted, require_route
from pytest_meshnet.target.plan.planner import Planner
from pytest_meshnet.target.plan.published import machines, resource_plan
from pytest_meshnet.target.plan.seams import plan_seams
from pytest_meshnet.tests.target import samples

TARGET = LockedTarget.load()
PLANNER = Planner.of(TARGET)
PUBLISHED = samples.published_plan()
GIB = 2**30


def test_every_figure_of_the_published_plan_comes_out():
    assert resource_plan(PLANNER) == PUBLISHED


@pytest.mark.parametrize("path", [path for path, _ in samples.leaves(PUBLISHED)])
def test_every_leaf_of_the_published_plan_is_computed(path):
    """A leaf that the whole-document comparison would miss would show here by its path."""
    computed: Any = resource_plan(PLANNER)
    published: Any = PUBLISHED
    for key in path:
        computed, published = computed[key], published[key]
    assert computed == published
    assert type(computed) is type(published)


def with_architecture(**changes: int | str) -> Planner:
    snapshot = replace(
        TARGET.snapshot, architecture=replace(TARGET.snapshot.architecture, **changes)
    )
    return Planner.of(replace(TARGET, snapshot=snapshot))


def one_more(name: str) -> Planner:
    return with_architecture(**{name: getattr(TARGET.snapshot.architecture, name) + 1})


RESERVE, WORK, SEAM = PLANNER.reserve, PLANNER.workload, PLANNER.boundary
UNIT_CHANGES = {
    "weight byte more": replace(PLANNER, weight_bytes=PLANNER.weight_bytes + 1),
    "weight byte less": replace(PLANNER, weight_bytes=PLANNER.weight_bytes - 1),
    "MLA value": one_more("mla_values"),
    "indexer value": one_more("indexer_values"),
    "backbone layer": one_more("backbone_layers"),
    "index offset": one_more("index_offset"),
    "index frequency": one_more("index_frequency"),
    "index top-k": one_more("index_topk"),
    "hidden value": one_more("hidden_size"),
    "boundary byte": with_architecture(boundary_dtype="float32"),
    "context token": Planner.of(TARGET, context_tokens=WORK.context_tokens + 1),
    "sequence": replace(PLANNER, workload=replace(WORK, concurrency=2)),
    "KV type": replace(PLANNER, workload=replace(WORK, kv_type="F16")),
    "indexer layout": replace(PLANNER, workload=replace(WORK, layout=IndexerLayout.OPTIMIZED)),
    "reserve percent": replace(PLANNER, reserve=replace(RESERVE, fraction=Fraction("0.21"))),
    "reserve floor": replace(PLANNER, reserve=replace(RESERVE, floor_bytes=9 * GIB)),
    "aggregate floor": replace(PLANNER, floor_bytes=225 * GIB),
    "imbalance": replace(PLANNER, imbalance=Fraction("1.11")),
    "hop latency": replace(PLANNER, hop_latency_ms=0.6),
    "minimum link": replace(PLANNER, minimum_gbps=3.5),
    "recommended link": replace(PLANNER, recommended_gbps=11.0),
}


@pytest.mark.parametrize("name", list(UNIT_CHANGES))
def test_one_unit_in_any_input_changes_a_published_figure(name):
    assert resource_plan(UNIT_CHANGES[name]) != PUBLISHED


def test_the_planner_takes_its_thresholds_from_the_contract():
    contract = TARGET.contract
    assert Planner.of(TARGET).floor_bytes == GIB * contract.number(
        "identity_and_fit", "aggregate_hard_fit_floor_gib"
    )
    assert Reserve.of(contract) == RESERVE == Reserve(Fraction(1, 5), 8 * GIB)


# faults.md 12: what fits loads under the same budget, to the byte.
def test_a_route_fits_to_the_byte_and_not_a_byte_more():
    nodes = machines(5, 64)
    plan = PLANNER.route(nodes)
    room = sum(plan.budgets) - PLANNER.kv_bytes()
    assert replace(PLANNER, weight_bytes=room).route(nodes).fits
    over = replace(PLANNER, weight_bytes=room + 1).route(nodes)
    assert not over.fits
    assert over.headroom_bytes == -1


def test_a_node_that_could_hold_everything_makes_the_route_not_distributed():
    """254 GiB leave a budget of 203.2 GiB, which holds the target; 253 GiB do not."""
    big = PLANNER.route([Node("big", 254, unified=True), Node("small", 64)])
    assert big.complete_nodes == ("big",)
    assert not big.fits
    assert "big could hold the complete target alone" in big.reasons[0]
    assert PLANNER.route([Node("big", 253, unified=True), Node("small", 64)]).fits


def test_a_budget_of_exactly_the_target_holds_all_of_it():
    nodes = machines(2, 128)
    budget = PLANNER.route(nodes).budgets[0]
    weights = budget - PLANNER.kv_bytes()
    assert replace(PLANNER, weight_bytes=weights).route(nodes).complete_nodes
    assert not replace(PLANNER, weight_bytes=weights + 1).route(nodes).complete_nodes


def test_discrete_memory_adds_and_unified_memory_is_one_pool():
    discrete = Node("rig", 64, 24)
    assert discrete.usable_bytes == 88 * GIB
    assert Node("mac", 64, unified=True).usable_bytes == 64 * GIB
    with pytest.raises(TargetRefused, match="the same memory twice") as refused:
        Node("mac", 64, 24, unified=True)
    assert refused.value.code == "unified-counted-twice"


@pytest.mark.parametrize("capacity", [0, -1, math.nan, math.inf, -math.inf, True, None, "64"])
@pytest.mark.parametrize("field", ["ram_gib", "gpu_gib"])
def test_a_capacity_that_is_no_finite_positive_number_is_refused(field, capacity):
    if field == "gpu_gib" and capacity is None:
        assert Node("rig", 64, None).usable_bytes == 64 * GIB
        return
    with pytest.raises(TargetRefused) as refused:
        Node(**{"name": "rig", "ram_gib": 64, field: capacity})
    assert refused.value.code == "capacity"


@pytest.mark.parametrize("unified", [None, 1, "unified"])
def test_whether_memory_is_unified_is_never_guessed(unified):
    with pytest.raises(TargetRefused):
        Node("rig", 64, unified=unified)


# faults.md 8: a placeholder figure is refused and not planned around.
@pytest.mark.parametrize("gib", [Fraction(1, GIB), 1, 8])
def test_a_machine_whose_reserve_takes_everything_is_refused(gib):
    with pytest.raises(TargetRefused, match="real memory") as refused:
        PLANNER.route([Node("tiny", gib), Node("big", 128)])
    assert refused.value.code == "no-budget"


@given(st.integers(1, 2**50))
@settings(deadline=None)
def test_the_reserve_is_the_greater_of_both_rules_and_never_rounded_down(usable):
    reserve = RESERVE.bytes_of(usable)
    assert reserve >= Fraction(usable, 5)
    assert reserve >= 8 * GIB
    assert reserve == 8 * GIB or reserve - 1 < Fraction(usable, 5)


@pytest.mark.parametrize(
    ("names", "code"),
    [
        (["a"], "too-few-nodes"),
        ([], "too-few-nodes"),
        (["a", "b", "a"], "node-twice"),
        (["Rig", "rig"], "node-twice"),
    ],
)
def test_a_route_of_too_few_machines_or_of_one_twice_is_refused(names, code):
    for judge in (require_route, PLANNER.route):
        with pytest.raises(TargetRefused) as refused:
            judge([Node(name, 64) for name in names])
        assert refused.value.code == code


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("64", Node("node-3", 64)),
        ("64:unified", Node("node-3", 64, unified=True)),
        ("rig=64+24", Node("rig", 64, 24)),
        ("mac=128:unified", Node("mac", 128, unified=True)),
        ("rig=15.6+11.75", Node("rig", Fraction("15.6"), Fraction("11.75"))),
    ],
)
def test_a_node_is_read_as_it_is_written(text, expected):
    assert Node.parse(text, 3) == expected


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "capacity"),
        ("rig=", "capacity"),
        ("=64", "node-name"),
        (" =64", "node-name"),
        ("64+", "capacity"),
        ("64+x", "capacity"),
        ("-64", "capacity"),
        ("+64", "capacity"),
        ("0", "capacity"),
        ("nan", "capacity"),
        ("inf", "capacity"),
        ("1e3", "capacity"),
        ("6_4", "capacity"),
        ("٦٤", "capacity"),
        ("64GB", "capacity"),
        ("a=b=64", "capacity"),
        ("9" * 400, "capacity"),
        ("64:Unified", "node-grammar"),
        ("64:shared", "node-grammar"),
        ("64:", "node-grammar"),
        ("64\n", "capacity"),
        ("64+24:unified", "unified-counted-twice"),
    ],
)
def test_a_node_that_could_be_read_in_two_ways_is_refused(text, code):
    with pytest.raises(TargetRefused) as refused:
        Node.parse(text, 1)
    assert refused.value.code == code


@pytest.mark.parametrize("context", [0, -1, 1_048_577, True, 1.5])
def test_a_context_the_model_does_not_have_is_refused(context):
    with pytest.raises(TargetRefused) as refused:
        Planner.of(TARGET, context_tokens=context)
    assert refused.value.code == "context"


def test_a_context_may_be_one_token_or_all_positions_of_the_model():
    for context in (1, TARGET.snapshot.architecture.max_positions):
        assert Planner.of(TARGET, context_tokens=context).workload.context_tokens == context


@given(st.integers(1, 1_048_575), st.sampled_from(list(IndexerLayout)))
@settings(deadline=None, max_examples=100)
def test_the_cache_grows_strictly_with_context_and_with_what_is_charged(tokens, layout):
    assert PLANNER.kv_bytes(tokens + 1, layout) > PLANNER.kv_bytes(tokens, layout)
    mla, optimized, conservative = (PLANNER.kv_bytes(tokens, item) for item in IndexerLayout)
    assert mla < optimized < conservative
    assert PLANNER.kv_bytes(tokens, layout, "F16") > PLANNER.kv_bytes(tokens, layout, "Q8_0")


@given(st.lists(st.integers(9, 400), min_size=2, max_size=8), st.integers(9, 400))
@settings(deadline=None, max_examples=100)
def test_another_machine_never_takes_headroom_away(sizes, more):
    nodes = [Node(f"n{index}", size) for index, size in enumerate(sizes)]
    before, after = PLANNER.route(nodes), PLANNER.route([*nodes, Node("more", more)])
    assert after.headroom_bytes > before.headroom_bytes


# faults.md 11: parts and free memory never exceed the total; an idle device adds nothing.
def test_a_memory_breakdown_that_counts_more_than_there_is_is_refused():
    with pytest.raises(TargetRefused) as refused:
        require_accounted(24_080, [19_875], 23_604)
    assert refused.value.code == "unaccounted"
    assert require_accounted(24_080, [400], 23_604) == 76
    assert require_accounted(24_080, [476], 23_604) == 0
    assert require_accounted(24_080, [400, 0], 23_604) == 76
    with pytest.raises(TargetRefused):
        require_accounted(24_080, [-400], 23_604)


@pytest.mark.parametrize("rate", [0, -2.5, math.nan, math.inf, True])
def test_a_link_without_a_finite_rate_is_refused(rate):
    with pytest.raises(TargetRefused) as refused:
        PLANNER.seams(3, rate)
    assert refused.value.code == "link-rate"


def test_one_node_has_no_seam():
    with pytest.raises(TargetRefused) as refused:
        PLANNER.seams(1, 10.0)
    assert refused.value.code == "too-few-nodes"


def test_latency_and_bandwidth_are_kept_apart():
    """Twice the link halves what is on the wire and leaves the latency as it is."""
    slow, fast = PLANNER.seams(4, 2.5), PLANNER.seams(4, 5.0)
    assert fast.decode_serialization_ms_per_token == slow.decode_serialization_ms_per_token / 2
    assert fast.prefill_serialization_ms == slow.prefill_serialization_ms / 2
    assert fast.decode_latency_ms_per_token == slow.decode_latency_ms_per_token
    longer = plan_seams(
        4,
        PLANNER.boundary,
        context_tokens=1,
        link_rate_gbps=2.5,
        minimum_gbps=2.5,
        recommended_gbps=10.0,
        hop_latency_ms=1.0,
    )
    assert longer.decode_latency_ms_per_token == 2 * slow.decode_latency_ms_per_token
    assert longer.decode_serialization_ms_per_token == slow.decode_serialization_ms_per_token


@pytest.mark.parametrize(
    ("rate", "minimum", "recommended"),
    [(2.4, False, False), (2.5, True, False), (9.9, True, False), (10.0, True, True)],
)
def test_a_link_is_held_to_the_contracts_rates(rate, minimum, recommended):
    seams = PLANNER.seams(3, rate)
    assert (seams.meets_alpha_minimum, seams.is_recommended_link) == (minimum, recommended)
