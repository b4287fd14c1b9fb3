"""A real inventory on real machines: loads, caches, brute force over tensors, largest context."""

import itertools
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pytest_meshnet.target.artifact.inventory import Inventory
from pytest_meshnet.target.artifact.ownership import Nextn
from pytest_meshnet.target.documents import LockedTarget
from pytest_meshnet.target.fields import TargetRefused
from pytest_meshnet.target.plan.fit import ArtifactPlan, loads_of, plan_artifact
from pytest_meshnet.target.plan.nodes import Node, Reserve
from pytest_meshnet.target.plan.placement import DoesNotFit, PlacementNode, place
from pytest_meshnet.tests.target.inventories import inventories, inventory

TARGET = LockedTarget.load()
ARCHITECTURE = TARGET.snapshot.architecture
RESERVE = Reserve.of(TARGET.contract)
GIB = 2**30


def bytes_on(
    model: Inventory, cache: list[int], start: int, end: int, *, nextn: Nextn, scratch: int
) -> int:
    """Add up what a Shard holds, tensor by tensor, from names alone."""
    layers = model.backbone_layers
    tied = all(tensor.name != "output.weight" for tensor in model.tensors)
    total = sum(cache[start:end]) + scratch
    for tensor in model.tensors:
        if tensor.name.startswith("blk."):
            layer = int(tensor.name.split(".")[1])
            mine = start <= layer < end
            mine |= layer >= layers and nextn is Nextn.TAIL and end == layers
        elif tensor.name == "token_embd.weight":
            total += tensor.size_bytes if start == 0 else 0
            mine = tied and end == layers
        elif tensor.name == "rope_freqs.weight":
            mine = True
        else:
            mine = end == layers
        total += tensor.size_bytes if mine else 0
    return total


@given(
    inventories(),
    st.lists(st.integers(20, 300), min_size=2, max_size=3),
    st.sampled_from(list(Nextn)),
    st.integers(0, 9),
    st.data(),
)
@settings(deadline=None, max_examples=150)
def test_placement_of_an_inventory_equals_brute_force_over_its_tensors(
    model, budgets, nextn, scratch, data
):
    layers = model.backbone_layers
    assume(len(budgets) <= layers)
    cache = data.draw(st.lists(st.integers(0, 9), min_size=layers, max_size=layers))
    loads = loads_of(model, cache, nextn=nextn, scratch_bytes=scratch)
    nodes = [PlacementNode.by_memory(f"n{i}", budget) for i, budget in enumerate(budgets)]
    best = None
    for route in itertools.permutations(nodes):
        for cuts in itertools.combinations(range(1, layers), len(nodes) - 1):
            pairs = list(itertools.pairwise((0, *cuts, layers)))
            held = [bytes_on(model, cache, *pair, nextn=nextn, scratch=scratch) for pair in pairs]
            if all(load <= node.budget_bytes for load, node in zip(held, route, strict=True)):
                peak = max(
                    Fraction(load, node.budget_bytes)
                    for load, node in zip(held, route, strict=True)
                )
                best = peak if best is None else min(best, peak)
    if best is None:
        with pytest.raises(DoesNotFit):
            place(loads, nodes)
        return
    plan = place(loads, nodes)
    assert plan.peak == plan.unrestricted_peak == best
    for share in plan.shares:
        expected = bytes_on(
            model, cache, share.start_layer, share.end_layer, nextn=nextn, scratch=scratch
        )
        assert share.load_bytes == expected


def big_model(layers: int = 8, **options: int) -> Inventory:
    sizes = {"token_embd.weight": GIB, "output_norm.weight": 4096, "output.weight": GIB}
    sizes |= {f"blk.{layer}.ffn_up_exps.weight": 2 * GIB for layer in range(layers)}
    return inventory(sizes, layers, **options)


def plan(model: Inventory, *gib: float, context: int = 1024, **options: object) -> ArtifactPlan:
    nodes = [Node(f"n{index}", size) for index, size in enumerate(gib)]
    return plan_artifact(
        model,
        nodes,
        RESERVE,
        ARCHITECTURE,
        context_tokens=context,
        kv_type="F16",
        **options,
    )


def test_shares_carry_their_tensors_and_the_cache_of_their_own_layers():
    found = plan(big_model(), 20, 20)
    owned = {shard.node: shard.owned_bytes for shard in found.ownership.shards}
    cache = 1024 * 2 * (2 * 16 + 2 * 16)
    for share in found.placement.shares:
        layers = share.end_layer - share.start_layer
        assert share.load_bytes == owned[share.node] + layers * cache
    assert found.reasons == ()
    assert found.to_dict()["fits"] is True


# faults.md 89: the capacity is the least over the machines, and it is really there.
def test_the_largest_context_is_the_last_that_every_share_holds():
    found = plan(big_model(), 20, 20)
    largest = found.largest_context
    shares = found.placement.shares
    per_token = [2 * (2 * 16 + 2 * 16) * (s.end_layer - s.start_layer) for s in shares]
    rooms = [s.headroom_bytes // each + 1024 for s, each in zip(shares, per_token, strict=True)]
    assert largest == min(rooms)
    order = [share.node for share in shares]
    assert plan(big_model(), 20, 20, context=largest, order=order).largest_context >= largest


# faults.md 12: the plan loads under the same budget; a byte more does not.
def test_a_context_that_no_longer_fits_is_refused():
    largest = plan(big_model(), 20, 20).largest_context
    with pytest.raises(DoesNotFit):
        plan(big_model(), 20, 20, context=2 * largest)


def test_a_machine_that_could_hold_the_whole_artifact_is_a_reason():
    found = plan(big_model(), 40, 20)
    assert found.complete_nodes == ("n0",)
    assert "not distributed" in found.reasons[0]
    assert found.to_dict()["fits"] is False


def test_a_tied_embedding_counts_once_where_one_machine_would_hold_everything():
    """17 GiB and a little with the embedding once, 18 GiB as head and tail."""
    sizes = {t.name: t.size_bytes for t in big_model().tensors if t.name != "output.weight"}
    tied = inventory(sizes, 8)
    assert plan(tied, 25.5, 20).complete_nodes == ("n0",)
    assert plan(tied, 24.9, 20).complete_nodes == ()


def test_the_targets_architecture_brings_its_groups_and_sideband():
    sizes = {f"blk.{layer}.attn.weight": 2 * GIB for layer in range(79)}
    sizes |= {"token_embd.weight": GIB, "output_norm.weight": 4, "output.weight": GIB}
    metadata = {
        "general.architecture": "glm-dsa",
        "glm-dsa.embedding_length": ARCHITECTURE.hidden_size,
        "glm-dsa.attention.kv_lora_rank": 512,
        "glm-dsa.rope.dimension_count": 64,
        "glm-dsa.attention.indexer.key_length": 128,
    }
    model = inventory(sizes, 78, nextn=1, **metadata)
    found = plan(model, 64, 64, 64, 64, nextn=Nextn.EXCLUDED)
    assert found.is_target
    assert {s.start_layer for s in found.placement.shares} <= ARCHITECTURE.group_starts()
    assert found.boundary.sideband_bytes == ARCHITECTURE.index_topk * 4
    shorter = plan(inventory(sizes, 76, nextn=3, **metadata), *[64] * 4, nextn=Nextn.EXCLUDED)
    assert not shorter.is_target
    stranger = inventory(sizes, 78, nextn=1)
    assert not plan(stranger, *[64] * 4, nextn=Nextn.EXCLUDED).is_target
    other = plan(big_model(), 20, 20)
    assert not other.is_target
    assert other.boundary.sideband_bytes == 0
    assert other.boundary.token_bytes == 64 * 2


HEAD_WIDTHS = {"toy.attention.key_length": 16, "toy.attention.value_length": 16}


@pytest.mark.parametrize(
    ("model", "code"),
    [
        (big_model(nextn=1), "nextn-undecided"),
        (
            inventory({"altup_proj.weight": 1, "blk.0.a.weight": 1, "blk.1.a.weight": 1}, 2),
            "tensor-role",
        ),
        (big_model(**{"toy.embedding_length": "64", **HEAD_WIDTHS}), "width-unknown"),
        (big_model(**{"toy.embedding_length": 0, **HEAD_WIDTHS}), "width-unknown"),
        (big_model(**{"toy.attention.head_count_kv": (1,)}), "kv-unknown"),
    ],
)
def test_an_artifact_that_leaves_something_open_is_refused(model, code):
    with pytest.raises(TargetRefused) as refused:
        plan(model, 20, 20)
    assert refused.value.code == code


def test_a_budget_of_exactly_the_artifact_could_hold_all_of_it():
    loads = loads_of(big_model(), [1024 * 2 * 64] * 8, nextn=None)
    exact = loads.of(0, 8) + RESERVE.floor_bytes
    assert plan(big_model(), Fraction(exact, GIB), 20).complete_nodes == ("n0",)
    assert plan(big_model(), Fraction(exact - 1, GIB), 20).complete_nodes == ()


def test_loads_of_a_model_with_nextn_need_the_decision_too():
    with pytest.raises(TargetRefused) as refused:
        loads_of(big_model(nextn=1), [0] * 8, nextn=None)
    assert refused.value.code == "nextn-undecided"


def test_one_machine_named_twice_is_not_two():
    nodes = [Node("a", 20), Node("a", 20), Node("b", 20)]
    with pytest.raises(TargetRefused) as refused:
        plan_artifact(big_model(), nodes, RESERVE, ARCHITECTURE, context_tokens=1, kv_type="F16")
    assert refused.value.code == "node-twice"


@pytest.mark.parametrize(("sizes", "code"), [((20,), "too-few-nodes"), ((20, 4), "no-budget")])
def test_machines_that_make_no_route_are_refused(sizes, code):
    with pytest.raises(TargetRefused) as refused:
        plan(big_model(), *sizes)
    assert refused.value.code == code
