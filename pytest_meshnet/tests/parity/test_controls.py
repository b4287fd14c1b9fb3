"""Every negative control that a model admits is found, on routes in this process.

`one-expert-dropped` needs a model with experts, so torch: without it that one does not run.
"""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from pytest_meshnet.layout import folder
from pytest_meshnet.parity.controls import CONTROLS, applicable
from pytest_meshnet.parity.lanes import exact
from pytest_meshnet.parity.metrics import compare
from pytest_meshnet.protocol.additions.sideband import IndexShare
from pytest_meshnet.protocol.tensors import DType
from pytest_meshnet.runtime.descriptor import load
from pytest_meshnet.runtime.errors import Refusal
from pytest_meshnet.runtime.model_facts import ModelFacts
from pytest_meshnet.suite.parity import in_process_shards, open_bench

TARGETS = folder("fixtures") / "targets"
INDEX_SHARE, GLM = "parity-index-share.toml", "parity-glm-dsa.toml"


def bench_of(file):
    descriptor = load(str(TARGETS / file))
    bench = open_bench(descriptor, 1, in_process=in_process_shards(descriptor, ""))
    prompts = list(bench.corpus.items())[:3]
    return replace(bench, corpus=dict(prompts))


def is_found(bench, control):
    comparisons = bench.controlled(control, DType.FLOAT32)
    return comparisons is None or bool(exact(comparisons))


@pytest.fixture(scope="module")
def index_share():
    return bench_of(INDEX_SHARE)


@pytest.mark.parametrize("control", CONTROLS, ids=[one.name for one in CONTROLS])
def test_a_control_is_found_on_the_model_with_shared_indices(index_share, control):
    if control.name == "one-expert-dropped":
        assert control not in applicable(index_share.seam), "this model has no experts"
        return
    assert control in applicable(index_share.seam)
    assert is_found(index_share, control)


def test_the_indices_of_another_step_are_found_by_numbers_and_not_refused(index_share):
    control = next(one for one in CONTROLS if one.needs_sideband)
    comparisons = index_share.controlled(control, DType.FLOAT32)
    assert comparisons is not None
    assert max(one.max_error for one in comparisons.values()) > 1e-3


def test_honest_routes_have_no_finding(index_share):
    for plan in index_share.plans(DType.FLOAT32)[2:5]:
        assert exact(index_share.compared(index_share.route(plan)), bits=True) == []


@pytest.fixture(scope="module")
def glm():
    pytest.importorskip("torch", reason="not run: pip install 'pytest-meshnet[torch]'")
    pytest.importorskip("transformers", reason="not run: pip install 'pytest-meshnet[torch]'")
    return bench_of(GLM)


@pytest.mark.parametrize("control", CONTROLS, ids=[one.name for one in CONTROLS])
def test_a_control_is_found_on_the_glm_graph(glm, control):
    assert control in applicable(glm.seam)
    assert is_found(glm, control)


def test_there_are_nine_controls_of_nine_names():
    assert len({one.name for one in CONTROLS}) == 9


def test_a_control_from_inside_is_made_only_where_it_is_offered(index_share):
    maker = index_share.seam
    offered, maker.spec = maker.spec, replace(maker.spec, controls=())
    try:
        assert {one.name for one in applicable(maker)} == {
            "one-layer-skipped", "one-layer-twice", "shards-swapped", "boundary-rounded",
        }  # fmt: skip
    finally:
        maker.spec = offered


@pytest.mark.parametrize(
    ("roles", "cut"), [("ffsffffs", 2), ("fffffffs", 7), ("fsssssss", 4), ("ffffffff", None)]
)
def test_indices_cross_the_seam_where_the_models_roles_let_them(roles, cut):
    (control,) = (one for one in CONTROLS if one.needs_sideband)
    share = IndexShare(4, tuple({"f": "full", "s": "shared"}[one] for one in roles))
    facts = ModelFacts(8, 64, 256, index_share=share)
    assert control.ranges(facts) == (cut and ((0, cut), (cut, 8)))


def test_a_control_of_the_sideband_without_roles_is_refused(index_share):
    maker = index_share.seam
    told, maker.model = maker.model, replace(maker.model, index_share=None)
    try:
        with pytest.raises(Refusal, match=r"give model\.index_share"):
            list(applicable(maker))
    finally:
        maker.model = told


def test_the_oracle_is_asked_once_and_a_shorter_generation_is_the_same(index_share):
    oracle, asked = index_share.oracle, []

    def generate(prompt, count, *, chunk_tokens=None):
        asked.append(count)
        return oracle.generate(prompt, count, chunk_tokens=chunk_tokens)

    prompt = tuple(range(9))
    bench = replace(index_share, oracle=SimpleNamespace(generate=generate))
    bench.expected(prompt, 8)
    short = bench.expected(prompt, 3)
    assert asked == [8]
    found = compare(short, oracle.generate(prompt, 3))
    assert found.identical
    assert set(found.state_cosines) == set(oracle.generate(prompt, 3).states)
