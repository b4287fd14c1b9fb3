"""Who owns what: the union is the inventory, and the only overlap is the one that is meant."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_meshnet.target.artifact.inventory import Inventory
from pytest_meshnet.target.artifact.ownership import (
    Nextn,
    Ownership,
    ShardRange,
    ShardRole,
    is_tied,
    judge_ownership,
    own,
    role_of,
)
from pytest_meshnet.target.fields import TargetRefused
from pytest_meshnet.tests.target.inventories import inventories, inventory

SIZES = {
    "token_embd.weight": 100,
    **{f"blk.{i}.attn_q.weight": 10 + i for i in range(4)},
    **{f"blk.{i}.ffn_down_exps.weight": 50 + i for i in range(4)},
    "output_norm.weight": 3,
    "output.weight": 90,
}
MODEL = inventory(SIZES, 4)
ROUTE = [ShardRange("a", 0, 1), ShardRange("b", 1, 3), ShardRange("c", 3, 4)]


def reported(ownership: Ownership) -> dict[str, dict[str, int]]:
    return {shard.node: dict(shard.tensors) for shard in ownership.shards}


def test_head_owns_the_embedding_tail_the_output_and_each_its_layers_with_experts():
    found = own(MODEL, ROUTE)
    assert [shard.role for shard in found.shards] == [
        ShardRole.HEAD,
        ShardRole.MIDDLE,
        ShardRole.TAIL,
    ]
    head, middle, tail = reported(found).values()
    assert head == {
        "token_embd.weight": 100,
        "blk.0.attn_q.weight": 10,
        "blk.0.ffn_down_exps.weight": 50,
    }
    assert middle.keys() == {
        f"blk.{i}.{part}.weight" for i in (1, 2) for part in ("attn_q", "ffn_down_exps")
    }
    assert tail.keys() == {
        "blk.3.attn_q.weight",
        "blk.3.ffn_down_exps.weight",
        "output_norm.weight",
        "output.weight",
    }
    assert found.shards[0].owned_bytes == 160
    assert (found.intended_overlap, found.excluded) == ({}, ())
    assert found.shards[1].to_dict()["layers"] == [1, 3]


def test_a_tied_embedding_is_owned_by_head_and_tail_and_listed_as_intended():
    sizes = {name: size for name, size in SIZES.items() if name != "output.weight"}
    tied = inventory({**sizes, "token_embd_norm.weight": 7}, 4)
    assert is_tied(tied)
    assert not is_tied(MODEL)
    found = own(tied, ROUTE)
    assert found.intended_overlap == {"token_embd.weight": ("a", "c")}
    assert "token_embd.weight" in reported(found)["c"]
    assert "token_embd_norm.weight" not in reported(found)["c"]
    assert judge_ownership(tied, reported(found), found).agrees


def test_nextn_tensors_are_nobodys_until_somebody_decides():
    model = inventory({**SIZES, "blk.4.nextn.eh_proj.weight": 9}, 4, nextn=1)
    with pytest.raises(TargetRefused, match="no backbone layer") as refused:
        own(model, ROUTE)
    assert refused.value.code == "nextn-undecided"
    excluded = own(model, ROUTE, Nextn.EXCLUDED)
    assert excluded.excluded == ("blk.4.nextn.eh_proj.weight",)
    loaded = own(model, ROUTE, Nextn.TAIL)
    assert loaded.excluded == ()
    assert reported(loaded)["c"]["blk.4.nextn.eh_proj.weight"] == 9
    # A node that loads what the recipe excludes is told.
    assert judge_ownership(model, reported(loaded), excluded).foreign == (
        "blk.4.nextn.eh_proj.weight",
    )


def test_replicated_tensors_are_on_every_shard_and_meant_to_be():
    model = inventory({**SIZES, "rope_freqs.weight": 5}, 4)
    found = own(model, ROUTE)
    assert found.intended_overlap == {"rope_freqs.weight": ("a", "b", "c")}
    assert judge_ownership(model, reported(found), found).agrees


@given(inventories(), st.data())
@settings(deadline=None, max_examples=100)
def test_the_union_is_the_inventory_and_unintended_overlap_is_zero_at_every_cut(model, data):
    layers = model.backbone_layers
    cuts = sorted(data.draw(st.sets(st.integers(1, layers - 1))))
    bounds = [0, *cuts, layers]
    route = [ShardRange(f"n{i}", start, end) for i, (start, end) in enumerate(pairwise(bounds))]
    choice = data.draw(st.sampled_from(list(Nextn)))
    found = own(model, route, choice)
    findings = judge_ownership(model, reported(found), found)
    assert findings.agrees
    assert findings.unintended_overlap_bytes == 0
    copies = Counter(name for shard in found.shards for name, _ in shard.tensors)
    assert copies.keys() | set(found.excluded) == {tensor.name for tensor in model.tensors}
    assert {n for n, count in copies.items() if count > 1} == found.intended_overlap.keys()
    assert bool(found.excluded) == (choice is Nextn.EXCLUDED and model.nextn_layers > 0)


def broken(found: Ownership) -> dict[str, tuple[dict[str, dict[str, int]], str]]:
    """Return reports that are wrong in one way each, and the finding each must cause."""
    missing = reported(found)
    del missing["b"]["blk.1.attn_q.weight"]
    overlap = reported(found)
    overlap["a"]["blk.1.attn_q.weight"] = SIZES["blk.1.attn_q.weight"]
    foreign = reported(found)
    foreign["a"]["blk.9.attn_q.weight"] = 1
    smaller = reported(found)
    smaller["b"]["blk.1.attn_q.weight"] -= 1
    silent = reported(found)
    del silent["c"]
    return {
        "missing": (missing, "missing"),
        "overlap": (overlap, "unintended_overlap"),
        "foreign": (foreign, "foreign"),
        "smaller": (smaller, "wrong_size"),
        "silent": (silent, "missing"),
    }


@pytest.mark.parametrize("kind", ["missing", "overlap", "foreign", "smaller", "silent"])
def test_a_report_that_differs_from_the_inventory_is_told(kind):
    found = own(MODEL, ROUTE)
    report, finding = broken(found)[kind]
    findings = judge_ownership(MODEL, report, found)
    assert not findings.agrees
    assert getattr(findings, finding)
    expected = SIZES["blk.1.attn_q.weight"] if kind == "overlap" else 0
    assert findings.unintended_overlap_bytes == expected


def test_a_size_that_is_a_boolean_is_no_size():
    model = inventory({**SIZES, "output_norm.weight": 1}, 4)
    found = own(model, ROUTE)
    report = reported(found)
    report["c"]["output_norm.weight"] = True
    assert judge_ownership(model, report, found).wrong_size


def test_a_tied_embedding_that_one_end_did_not_load_is_missing_there():
    tied = inventory({n: s for n, s in SIZES.items() if n != "output.weight"}, 4)
    found = own(tied, ROUTE)
    report = reported(found)
    del report["c"]["token_embd.weight"]
    assert judge_ownership(tied, report, found).missing == ("token_embd.weight on c",)


def test_a_tied_embedding_on_a_node_that_is_neither_end_is_unintended():
    tied = inventory({n: s for n, s in SIZES.items() if n != "output.weight"}, 4)
    found = own(tied, ROUTE)
    report = reported(found)
    report["b"]["token_embd.weight"] = 100
    findings = judge_ownership(tied, report, found)
    assert findings.unintended_overlap
    assert findings.unintended_overlap_bytes == 100


def test_a_tensor_no_shard_is_known_to_own_is_refused():
    for name in ("altup_proj.weight", "v.blk.0.attn_q.weight", "mm.0.weight"):
        model = inventory({**SIZES, name: 4}, 4)
        with pytest.raises(TargetRefused) as refused:
            own(model, ROUTE)
        assert refused.value.code == "tensor-role"
        assert name in refused.value.message


@pytest.mark.parametrize(
    ("route", "code"),
    [
        ([("a", 0, 2)], "coverage"),
        ([("a", 0, 2), ("b", 3, 4)], "coverage"),
        ([("b", 2, 4), ("a", 0, 2)], "coverage"),
        ([("a", 0, 5)], "coverage"),
        ([("a", 0, 2), ("a", 2, 4)], "node-twice"),
        ([], "coverage"),
    ],
)
def test_ranges_that_are_no_route_are_refused(route, code):
    with pytest.raises(TargetRefused) as refused:
        own(MODEL, [ShardRange(*item) for item in route])
    assert refused.value.code == code


def test_layers_held_twice_are_unintended_overlap():
    overlapping = own(MODEL, [ShardRange("a", 0, 3), ShardRange("b", 2, 4)])
    findings = judge_ownership(MODEL, reported(overlapping), overlapping)
    twice = SIZES["blk.2.attn_q.weight"] + SIZES["blk.2.ffn_down_exps.weight"]
    assert findings.unintended_overlap_bytes == twice


def test_every_role_of_a_small_model_is_known():
    model: Inventory = inventory({**SIZES, "rope_freqs.weight": 5}, 4)
    assert len({role_of(model, tensor) for tensor in model.tensors}) == 5
