"""What is known of a model: from the descriptor, the Shard's boundary spec, or neither."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_meshnet.protocol.additions.boundary import BoundarySpec, BoundaryTensor
from pytest_meshnet.protocol.additions.features import Feature
from pytest_meshnet.protocol.additions.sideband import IndexShare
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.rules import Rules
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.protocol.tensors import DType
from pytest_meshnet.reference.catalogue import build_small
from pytest_meshnet.runtime.descriptor import load
from pytest_meshnet.runtime.errors import Refusal
from pytest_meshnet.runtime.in_process import InProcessTransport
from pytest_meshnet.runtime.model_facts import ModelFacts, boundary_of, model_of
from pytest_meshnet.runtime.shard import ShardUnderTest
from pytest_meshnet.runtime.target import Target, choose_shard
from pytest_meshnet.suite.pages import docs_folder
from pytest_meshnet.tests.runtime.test_descriptor import MINIMAL, read

STATES = BoundaryTensor("hidden_states", (DType.FLOAT16, DType.BFLOAT16), (16,))
LOGITS = BoundaryTensor("logits", (DType.FLOAT32,), (256,))
SPEC = BoundarySpec((STATES,), (STATES,), 16, 256, 0.5)


def test_a_spec_is_enough_where_the_descriptor_has_no_model() -> None:
    found = model_of(None, SPEC)
    assert found == ModelFacts(None, 16, 256, (DType.FLOAT16, DType.BFLOAT16), 0.5)


def test_a_scale_that_was_not_told_is_one() -> None:
    assert model_of(None, replace(SPEC, input_scale=0.0)).input_scale == 1.0


def test_the_descriptor_counts_where_both_tell_the_same_sizes() -> None:
    declared = ModelFacts(8, 16, 256, (DType.BFLOAT16,), 2.0)
    assert model_of(declared, SPEC) is declared
    assert model_of(declared, None) is declared


@pytest.mark.parametrize("change", [{"hidden_size": 17}, {"vocab_size": 300}], ids=str)
def test_sizes_that_disagree_are_refused(change: dict[str, int]) -> None:
    declared = replace(ModelFacts(8, 16, 256), **change)
    with pytest.raises(Refusal, match=f"model.{next(iter(change))} is .* in the descriptor and"):
        model_of(declared, SPEC)


def test_without_either_the_run_is_refused() -> None:
    with pytest.raises(Refusal, match=r"add a \[model\] table to the descriptor, or report"):
        model_of(None, None)


def test_a_malformed_spec_is_refused_and_a_missing_one_is_none() -> None:
    report = pb.CapabilityReport()
    assert boundary_of(report) is None
    report.boundary.hidden_size = 16
    with pytest.raises(Refusal, match=r"cannot be used .*inputs and outputs.*correct field 15"):
        boundary_of(report)


def _without_model(
    start: int, end: int, speaks: tuple[Feature, ...] = tuple(Feature)
) -> ShardUnderTest:
    """A Shard of the small model whose descriptor describes no model."""
    descriptor = load("reference", small=True)
    spec = replace(descriptor.shards[0], start_layer=start, end_layer=end)
    worker, model = build_small("", descriptor, spec)
    served = replace(worker.served, speaks=speaks)
    mute = replace(descriptor, model=None, shards=(spec,))
    transport = InProcessTransport(Worker(served, Rules(served)), model)
    target = Target(mute, spec, in_process=lambda: transport)
    target.connect()
    return ShardUnderTest(target, "t", seed=7)


@pytest.mark.parametrize(
    ("layers", "is_tail"), [((0, 2), False), ((1, 3), False), ((2, 4), True), ((0, 4), True)]
)
def test_a_client_needs_no_outside_description(layers: tuple[int, int], is_tail: bool) -> None:
    shard = _without_model(*layers)
    assert shard.is_tail == is_tail
    with shard.session() as session:
        rows = session.prefill(shard.tokens(3))
    assert rows.shape == ((1, 256) if is_tail else (3, 16))


def test_a_worker_of_1_0_needs_a_described_model() -> None:
    with pytest.raises(Refusal, match="nothing tells hidden size and vocabulary"):
        _without_model(1, 3, speaks=())


# In the descriptor -------------------------------------------------------------------------------

BESIDE = """
[[shards]]
name = "last"
profiles = ["tail"]
range = [8, 12]
endpoint = "127.0.0.1:5002"
"""
SHARING = """
[[shards]]
name = "sharing"
profiles = ["sideband"]
range = [1, 2]
endpoint = "127.0.0.1:5003"

[shards.model]
layers = 2
hidden_size = 8
vocab_size = 9
index_share = { topk = 4, roles = ["full", "shared"] }
"""


def test_a_shard_that_stands_beside_is_not_the_one_to_examine(tmp_path: Path) -> None:
    descriptor = read(tmp_path, MINIMAL.replace("[model]", f"{BESIDE}{SHARING}\n[model]"))
    assert choose_shard(descriptor, None).name == "4-8"
    assert choose_shard(descriptor, "last").profiles == ("tail",)
    own = descriptor.shards[2].model
    assert own == ModelFacts(2, 8, 9, index_share=IndexShare(4, ("full", "shared")))
    assert descriptor.shards[1].model is None


def test_several_shards_to_examine_still_need_a_name(tmp_path: Path) -> None:
    another = BESIDE.replace('profiles = ["tail"]\n', "")
    descriptor = read(tmp_path, MINIMAL.replace("[model]", f"{another}\n[model]"))
    with pytest.raises(Refusal, match="has several Shards"):
        choose_shard(descriptor, None)


def test_a_descriptor_may_leave_the_model_out(tmp_path: Path) -> None:
    assert read(tmp_path, MINIMAL.partition("[model]")[0]).model is None


@pytest.mark.parametrize(
    ("roles", "message"),
    [('["full"]', "has 1 roles for 2 layers"), ('["shared", "full"]', "first layer that is full")],
)
def test_roles_that_make_no_sense_are_refused(tmp_path: Path, roles: str, message: str) -> None:
    text = SHARING.replace('["full", "shared"]', roles)
    with pytest.raises(Refusal, match=message):
        read(tmp_path, MINIMAL.replace("[model]", f"{text}\n[model]"))


def test_the_shards_of_the_written_page_can_be_read(tmp_path: Path) -> None:
    page = (docs_folder() / "additions.md").read_text()
    shards = page.partition("```toml\n")[2].partition("```")[0]
    head = MINIMAL.partition("[[shards]]")[0]
    descriptor = read(tmp_path, head + shards)
    assert choose_shard(descriptor, None).name == "middle"
    sharing = descriptor.shards[2].model
    assert sharing is not None
    assert sharing.index_share is not None
    assert sharing.index_share.across(4) == 2
    assert sharing.index_share.across(6) is None
