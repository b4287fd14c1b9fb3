"""What 1.1 adds, as data: features, boundary specs, sampling contracts, tail results, sidebands."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_meshnet import layout
from pytest_meshnet.identity.canonical import canonical_bytes
from pytest_meshnet.protocol.additions import vectors
from pytest_meshnet.protocol.additions.boundary import BoundarySpec, BoundaryTensor
from pytest_meshnet.protocol.additions.canonical import canonical_digest
from pytest_meshnet.protocol.additions.features import Feature, known_features, negotiated
from pytest_meshnet.protocol.additions.sampling import SamplingContract, TailResult, TailWant
from pytest_meshnet.protocol.additions.sideband import (
    INDICES,
    ORIGIN,
    IndexShare,
    check_indices,
    check_origin,
    check_width,
    indices_of,
    origin_tensor,
)
from pytest_meshnet.protocol.codec import decode_bundle
from pytest_meshnet.protocol.errors import PayloadCorrupt, ProtocolError
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.tensors import DType, Tensor


def sha256_hex(data):
    return hashlib.sha256(data).hexdigest()


contracts = st.builds(
    SamplingContract,
    temperature=st.floats(0, 1e6),
    top_k=st.integers(0, 2**32 - 1),
    top_p=st.floats(0, 1),
    seed=st.integers(0, 2**64 - 1),
    chat_template_digest=st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    reasoning_effort=st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    want=st.sampled_from([TailWant.TOKEN, TailWant.LOGITS, TailWant.BOTH]),
)


def test_what_holds_is_what_one_offers_and_the_other_supports():
    supported = {Feature.TAIL_RESULT, Feature.DECODE_BUNDLE}
    assert negotiated([4, 2, 99, 1, 1], supported) == (Feature.DECODE_BUNDLE, Feature.TAIL_RESULT)
    assert negotiated([], supported) == ()
    assert known_features([0, 5]) == frozenset()


# Sampling ----------------------------------------------------------------------------------------


def test_the_digest_of_a_contract_is_that_of_the_written_document():
    text = (
        '{"body":{"chat_template_digest":"5b1d6c0e","reasoning_effort":"high",'
        '"seed":9223372036854775819,"temperature":"0.7","top_k":40,"top_p":"0.95",'
        '"want":"TAIL_WANT_BOTH"},"domain":"meshnet.sampling.v1"}'
    )
    assert vectors.CONTRACT.digest() == sha256_hex(text.encode())


@given(contract=contracts)
@settings(max_examples=200)
def test_a_contract_survives_the_wire_and_keeps_its_digest(contract):
    sent = pb.SamplingContract.FromString(contract.to_proto().SerializeToString())
    assert SamplingContract.from_proto(sent) == contract
    assert SamplingContract.from_proto(sent).digest() == contract.digest()


@given(contract=contracts)
@settings(max_examples=100)
def test_both_implementations_of_the_convention_agree(contract):
    document = contract.document()
    assert canonical_digest(document) == sha256_hex(canonical_bytes(document))


@pytest.mark.parametrize(
    "change",
    [
        {"temperature": 0.1},
        {"top_k": 1},
        {"top_p": 0.5},
        {"seed": 1},
        {"chat_template_digest": "a"},
        {"reasoning_effort": "low"},
        {"want": TailWant.BOTH},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_field_of_a_contract_changes_its_digest(change):
    assert replace(SamplingContract(), **change).digest() != SamplingContract().digest()


@pytest.mark.parametrize(
    "change",
    [
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"temperature": float("inf")},
        {"top_p": 1.5},
        {"top_p": -1.0},
        {"top_p": float("nan")},
        {"want": 0},
        {"want": 9},
    ],
    ids=str,
)
def test_a_contract_that_cannot_be_followed_is_refused(change):
    message = SamplingContract().to_proto()
    for name, value in change.items():
        setattr(message, name, value)
    with pytest.raises(ProtocolError) as refused:
        SamplingContract.from_proto(message)
    assert refused.value.rule == "sampling"


def test_the_stored_sampling_vectors_are_those_of_the_contracts():
    stored = json.loads((layout.folder("goldens") / "sampling-vectors.json").read_bytes())
    found = [(one["document"], one["digest"]) for one in stored["vectors"]]
    assert found == [(one.document(), one.digest()) for one in vectors.CONTRACTS]


def _golden(name, kind):
    return kind.FromString((layout.folder("goldens") / name).read_bytes())


def test_the_golden_open_offers_every_feature_under_the_contract():
    opened = _golden("session_open_1_1.binpb", pb.SessionRequest).open
    assert known_features(opened.features) == frozenset(Feature)
    assert SamplingContract.from_proto(opened.sampling) == vectors.CONTRACT


def test_the_golden_tail_result_reads_as_written():
    result = TailResult.from_proto(_golden("tail_result_1_1.binpb", pb.SessionResponse).tail)
    assert (result.work_id, result.step, result.position) == ("work-7f3b", 43, 384)
    assert result.logits.to_float32().tolist() == [[[0.5, -1.25, 3.0, 2.75]]]
    assert (result.token.token_id, result.token.log_prob) == (2, -0.75)
    assert result.sampling_digest == vectors.CONTRACT.digest()


@pytest.mark.parametrize("part", ["logits", "token"])
def test_a_tail_result_may_lack_either_part_and_never_both(part):
    message = _golden("tail_result_1_1.binpb", pb.SessionResponse).tail
    message.ClearField(part)
    read = TailResult.from_proto(message)
    assert getattr(read, part) is None
    assert read.to_proto() == message
    message.ClearField({"logits": "token", "token": "logits"}[part])
    with pytest.raises(ProtocolError, match="neither logits nor token"):
        TailResult.from_proto(message)


@pytest.mark.parametrize("shape", [(4,), (1, 4), (1, 2, 2), (2, 1, 2)], ids=str)
def test_logits_of_another_shape_are_refused(shape):
    message = _golden("tail_result_1_1.binpb", pb.SessionResponse).tail
    message.logits.ClearField("shape")
    message.logits.shape.extend(shape)
    with pytest.raises(PayloadCorrupt, match="expected float32 "):
        TailResult.from_proto(message)


# Boundary ----------------------------------------------------------------------------------------


def test_the_golden_report_describes_its_boundary():
    report = _golden("capability_report_1_1.binpb", pb.CapabilityReport)
    spec = BoundarySpec.from_proto(report.boundary)
    assert [one.name for one in spec.inputs] == ["hidden_states", "topk_indices", "topk_origin"]
    assert spec.tensor("hidden_states").dtypes == (DType.BFLOAT16, DType.FLOAT32)
    assert spec.tensor("topk_indices").trailing == (8,)
    assert spec.tensor("topk_indices").optional
    assert not spec.tensor("hidden_states").optional
    assert (spec.hidden_size, spec.vocab_size, spec.input_scale, spec.is_tail) == (
        8,
        64,
        0.5,
        False,
    )
    assert spec.to_proto() == report.boundary


def test_a_range_that_gives_logits_is_the_tail():
    states = BoundaryTensor("hidden_states", (DType.BFLOAT16,), (8,))
    logits = BoundaryTensor("logits", (DType.FLOAT32,), (64,))
    assert BoundarySpec((states,), (logits,), 8, 64).is_tail


@pytest.mark.parametrize(
    "edit",
    [
        lambda spec: spec.ClearField("inputs"),
        lambda spec: spec.ClearField("outputs"),
        lambda spec: spec.ClearField("hidden_size"),
        lambda spec: spec.ClearField("vocab_size"),
        lambda spec: spec.inputs[0].ClearField("name"),
        lambda spec: spec.inputs[0].ClearField("dtypes"),
        lambda spec: spec.inputs[0].trailing_shape.append(0),
        lambda spec: setattr(spec, "input_scale", -1.0),
        lambda spec: setattr(spec, "input_scale", float("nan")),
    ],
)
def test_a_spec_that_describes_nothing_is_refused(edit):
    spec = _golden("capability_report_1_1.binpb", pb.CapabilityReport).boundary
    edit(spec)
    with pytest.raises(ProtocolError) as refused:
        BoundarySpec.from_proto(spec)
    assert refused.value.rule == "boundary"


# Sideband ----------------------------------------------------------------------------------------

GLM = IndexShare(4, ("full", "full", "full", "shared", "shared", "shared", "full", "shared"))


def test_a_seam_splits_a_group_where_a_shared_layer_follows():
    assert [GLM.across(layer) for layer in range(9)] == [None, None, None, 2, 2, 2, None, 6, None]
    assert [GLM.width(length) for length in (1, 3, 4, 5)] == [1, 3, 4, 4]


@pytest.mark.parametrize("roles", [(), ("shared", "full")])
def test_roles_without_a_first_producer_are_refused(roles):
    with pytest.raises(ValueError, match="a first layer that is full"):
        IndexShare(4, roles)


def _indices(*rows, dtype=DType.INT32):
    width = len(rows[0]) if rows else 0
    data = b"".join(one.to_bytes(dtype.item_size, "little", signed=True) for r in rows for one in r)
    return Tensor("topk_indices", dtype, (1, len(rows), width), data)


GOOD = _indices([0, 1, 5], [-1, 6, 2])


def _check(indices=GOOD, origin=None):
    check_origin(origin or origin_tensor(2, 5), 2, 5)
    check_width(indices, 2, 3)
    check_indices(indices, 7)


def test_a_sideband_of_these_rows_passes_padding_and_masked_positions_included():
    _check()
    assert indices_of(GOOD) == (0, 1, 5, -1, 6, 2)


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        ({"origin": origin_tensor(1, 5)}, "sideband-origin"),
        ({"origin": origin_tensor(2, 4)}, "sideband-origin"),
        ({"origin": Tensor("topk_origin", DType.INT32, (2,), bytes(8))}, "sideband-origin"),
        ({"origin": Tensor("topk_origin", DType.INT64, (1, 2), bytes(16))}, "sideband-origin"),
        ({"indices": _indices([0, 1, 5])}, "sideband-shape"),
        ({"indices": _indices([0, 1], [2, 3])}, "sideband-shape"),
        ({"indices": _indices([0, 1, 2], [0, 1, 2], dtype=DType.INT64)}, "sideband-shape"),
        ({"indices": _indices([0, 1, 7], [0, 1, 2])}, "sideband-range"),
        ({"indices": _indices([0, 1, 2], [0, -2, 2])}, "sideband-range"),
    ],
    ids=["producer", "position", "origin-dtype", "origin-shape", "rows", "width", "dtype", "beyond",
         "below"],
)  # fmt: skip
def test_a_sideband_of_something_else_is_refused_by_its_rule(wrong, rule):
    with pytest.raises(PayloadCorrupt) as refused:
        _check(**wrong)
    assert refused.value.rule == rule


def test_the_golden_decode_bundle_carries_a_sideband():
    step = _golden("decode_bundle_1_1.binpb", pb.SessionRequest).decode
    assert not step.HasField("tensor")
    tensors = {one.name: one for one in decode_bundle(step.bundle)}
    check_origin(tensors[ORIGIN], 6, 384)
    check_width(tensors[INDICES], 1, 8)
    check_indices(tensors[INDICES], 385)
