"""What a Worker does under the features of 1.1, and that without them nothing of it shows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pytest_meshnet.protocol.additions.boundary import BoundarySpec
from pytest_meshnet.protocol.additions.features import Feature, known_features
from pytest_meshnet.protocol.additions.sampling import SamplingContract, TailResult, TailWant
from pytest_meshnet.protocol.additions.sideband import INDICES, IndexShare, origin_tensor
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import Outcome, Work
from pytest_meshnet.protocol.machines.exchange import ProtocolViolation
from pytest_meshnet.protocol.machines.session import ServedShard
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.tests.protocol.linked import SERVED, TAIL, Bench, Link, RunningSums, rows

SHARE = IndexShare(2, ("full", "shared", "shared", "full", "shared", "full"))
# Starts on a Shared layer of producer 0, ends before a Shared layer of producer 3.
SHARING = replace(SERVED, index_share=SHARE)
EVERY = tuple(Feature)


def _opened(
    served: ServedShard, *features: Feature, sampling: SamplingContract | None = None
) -> Link:
    link = Bench(served).stream()
    link.send(link.client.open(features=features, sampling=sampling))
    return link


def _accepted(served: ServedShard, *features: Feature, want: TailWant = TailWant.BOTH) -> Link:
    sampling = SamplingContract(want=want) if Feature.TAIL_RESULT in features else None
    link = _opened(served, *features, sampling=sampling)
    assert link.heard() == ["accepted"]
    return link


# Negotiation -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("served", "offered"),
    [
        (SERVED, {1, 4}),
        (TAIL, {1, 2, 4}),
        (SHARING, {1, 3, 4}),
        (replace(TAIL, index_share=SHARE), {1, 2, 3, 4}),
        (replace(TAIL, speaks=()), set()),
    ],
    ids=["middle", "tail", "sharing", "sharing-tail", "worker-of-1.0"],
)
def test_a_shard_offers_what_its_layers_have_a_use_for(
    served: ServedShard, offered: set[int]
) -> None:
    bench = Bench(served)
    report = bench.call(pb.CapabilityRequest(schema_version=pb.SCHEMA_VERSION_1))
    assert isinstance(report, pb.CapabilityReport)
    assert set(report.features) == offered
    assert report.HasField("boundary") == (4 in offered)


def test_accepted_has_what_both_sides_know() -> None:
    link = _accepted(SERVED, Feature.DECODE_BUNDLE, Feature.TAIL_RESULT)
    assert list(link.messages[0].accepted.features) == [Feature.DECODE_BUNDLE]
    assert link.client.features == {Feature.DECODE_BUNDLE}


def test_a_feature_that_was_never_offered_does_not_hold() -> None:
    client = Bench(SERVED).stream().client
    client.sent(client.open(features=[Feature.DECODE_BUNDLE]))
    client.receive(pb.SessionResponse(accepted=pb.SessionAccepted(features=[1, 2, 99])))
    assert client.features == {Feature.DECODE_BUNDLE}


def test_a_session_that_offers_nothing_sees_nothing_new() -> None:
    bench = Bench(TAIL)
    link = bench.session()
    assert not link.messages[0].accepted.features
    link.prefill(1, 2)
    assert link.answers() == ["ack w1 past 2", "result w1 [3]"]
    assert not known_features(link.messages[0].accepted.features)


def test_the_report_describes_the_boundary_with_both_sidebands() -> None:
    spec = SHARING.boundary()
    assert BoundarySpec.from_proto(spec.to_proto()) == spec
    assert [(one.name, one.optional) for one in spec.inputs] == [
        ("hidden_states", False),
        ("topk_indices", False),
        ("topk_origin", False),
    ]
    assert [(one.name, one.optional) for one in spec.outputs][1:] == [
        ("topk_indices", True),
        ("topk_origin", True),
    ]
    assert [one.name for one in TAIL.boundary().outputs] == ["logits"]


# Bundles in decode steps -------------------------------------------------------------------------


def test_a_bundle_of_one_is_computed_as_the_compact_form() -> None:
    link = _accepted(SERVED, Feature.DECODE_BUNDLE)
    link.prefill(1, 2)
    link.send(link.client.decode([rows(4)]))
    assert link.answers()[2:] == ["ack w2 past 3 hit", "result w2 [7]"]


@pytest.mark.parametrize("features", [(), (Feature.BOUNDARY_SPEC,)], ids=["none", "another"])
def test_a_bundle_that_was_not_agreed_on_is_refused(features: tuple[Feature, ...]) -> None:
    link = _accepted(SERVED, *features)
    link.prefill(1, 2)
    link.send(link.client.decode([rows(4)]))
    assert link.answers()[2:] == ["PAYLOAD_CORRUPT w2 held 2"]


@pytest.mark.parametrize("features", [(), EVERY], ids=["1.0", "1.1"])
@pytest.mark.parametrize("form", ["both", "neither"])
def test_a_decode_step_has_exactly_one_form(form: str, features: tuple[Feature, ...]) -> None:
    link = _accepted(SERVED, *features)
    link.prefill(1, 2)
    message = link.client.decode(rows(4))
    if form == "both":
        message.decode.bundle.CopyFrom(link.client.chunk([rows(4)], step=2).chunk.bundle)
    else:
        message.decode.ClearField("tensor")
    link.send(message)
    assert link.answers()[2:] == ["PAYLOAD_CORRUPT w2 held 2"]


# Tail results ------------------------------------------------------------------------------------


def _tails(link: Link) -> list[TailResult]:
    found = [TailResult.from_proto(one.tail) for one in link.messages if one.HasField("tail")]
    link.messages.clear()
    return found


def test_a_tail_answers_final_chunks_and_decode_steps_with_one_result() -> None:
    link = _accepted(TAIL, *EVERY)
    link.prefill(1, 2, final=False)
    link.prefill(3)
    link.decode(4)
    assert link.answers() == ["ack w1 past 2", "ack w2 past 3 hit", "tail", "ack w3 past 4 hit",
                              "tail"]  # fmt: skip
    first, second = _tails(link)
    assert (first.work_id, first.step, first.position) == ("w2", 2, 2)
    assert (second.work_id, second.step, second.position) == ("w3", 3, 3)
    assert second.logits is not None
    assert second.logits.to_float32().tolist() == [[[10.0] * 10]]
    assert second.sampling_digest == SamplingContract(want=TailWant.BOTH).digest()


@pytest.mark.parametrize("want", [TailWant.TOKEN, TailWant.LOGITS, TailWant.BOTH])
def test_a_result_holds_what_was_wanted(want: TailWant) -> None:
    link = _accepted(TAIL, *EVERY, want=want)
    link.prefill(1)
    link.answers()
    (result,) = _tails(link)
    assert ((result.token is not None), (result.logits is not None)) == (want.token, want.logits)


def test_a_token_that_ends_a_text_is_marked() -> None:
    link = _accepted(replace(TAIL, end_of_sequence=(0,)), *EVERY)
    link.prefill(1)
    link.answers()
    (result,) = _tails(link)
    assert result.token is not None
    assert (result.token.token_id, result.token.end_of_sequence) == (0, True)
    assert result.token.log_prob == pytest.approx(-np.log(10))


@pytest.mark.parametrize("edit", ["missing", "unspecified", "hot"])
def test_a_contract_that_cannot_be_followed_refuses_the_open(edit: str) -> None:
    link = Bench(TAIL).stream()
    message = link.client.open(features=EVERY, sampling=SamplingContract())
    if edit == "missing":
        message.open.ClearField("sampling")
    elif edit == "unspecified":
        message.open.sampling.want = pb.TAIL_WANT_UNSPECIFIED
    else:
        message.open.sampling.temperature = float("nan")
    link.send(message)
    assert link.heard() == ["PAYLOAD_CORRUPT - terminal", "closed"]


def test_a_shard_that_is_no_tail_does_not_mind_a_contract() -> None:
    link = _opened(SERVED, *EVERY, sampling=SamplingContract())
    assert link.heard() == ["accepted"]
    link.prefill(1)
    assert link.answers() == ["ack w1 past 1", "result w1 [1]"]


def test_the_client_refuses_a_result_in_the_form_that_was_not_agreed_on() -> None:
    typed, plain = _accepted(TAIL, *EVERY), Bench(TAIL).session()
    for link in (typed, plain):
        link.prefill(1)
        link.answers()
    tail, chunk = typed.messages[-1], plain.messages[-1]
    with pytest.raises(ProtocolViolation, match="activation tensors"):
        typed.client.receive(chunk)
    with pytest.raises(ProtocolViolation, match="not agreed on"):
        plain.client.receive(tail)
    with pytest.raises(ProtocolViolation, match="one more result"):
        typed.client.receive(tail)


def test_the_client_refuses_a_tail_result_that_is_corrupt() -> None:
    link = _accepted(TAIL, *EVERY)
    link.prefill(1)
    message = pb.SessionResponse(tail=pb.TailResult(work_id="w1", idempotency_step=1))
    with pytest.raises(ProtocolViolation, match="neither logits nor token"):
        link.client.receive(message)


# Sidebands ---------------------------------------------------------------------------------------


class SharingSums(RunningSums):
    """Chooses the newest positions for every row; keeps the works it was given."""

    def __init__(self) -> None:
        self.works: list[Work] = []

    def run(self, work: Work) -> Outcome:
        self.works.append(work)
        outcome = super().run(work)
        width = SHARE.width(work.first_position + work.token_count)
        sideband = _indices(*[[0] * width] * work.token_count)
        return replace(outcome, tensors=(*outcome.tensors, sideband))


def _indices(*found: list[int]) -> Tensor:
    return Tensor.from_array(INDICES, np.array([found]), DType.INT32)


def _sharing(*features: Feature) -> Link:
    link = _accepted(SHARING, *features)
    link.bench.model = SharingSums()
    return link


def _names(message: pb.SessionResponse) -> list[str]:
    return [tensor.name for tensor in message.chunk.bundle.tensors]


def test_a_range_on_a_shared_layer_is_refused_without_the_sideband() -> None:
    link = _opened(SHARING, Feature.DECODE_BUNDLE)
    assert link.heard() == ["SHARD_RANGE_MISMATCH - terminal", "closed"]


def test_an_effective_start_on_a_full_layer_needs_no_sideband() -> None:
    link = Bench(SHARING).stream(effective=3)
    link.send(link.client.open())
    link.bench.model = SharingSums()
    link.prefill(1)
    assert link.answers() == ["accepted", "ack w1 past 1", "result w1 [1]"]
    assert _names(link.messages[-1]) == ["hidden_states"]


def test_a_sideband_is_handed_to_the_model_and_another_comes_out() -> None:
    link = _sharing(*EVERY)
    link.send(link.client.chunk([rows(1, 2, 3), _indices([0, 1]), origin_tensor(0, 0)]))
    assert link.answers() == ["PAYLOAD_CORRUPT w1 held 0"]
    good = _indices([0, -1], [0, 1], [2, 0])
    link.send(link.client.chunk([origin_tensor(0, 0), good, rows(1, 2, 3)], tokens=3))
    link.bench.compute_all()
    assert isinstance(link.bench.model, SharingSums)
    assert [tensor.name for tensor in link.bench.model.works[0].tensors] == [
        "hidden_states",
        INDICES,
    ]
    assert _names(link.messages[-1]) == ["hidden_states", INDICES, "topk_origin"]
    step = [rows(4), _indices([3, 0]), origin_tensor(0, 3)]
    link.send(link.client.decode(step))
    link.bench.compute_all()
    origin = link.messages[-1].chunk.bundle.tensors[2].fragments[0].payload
    assert np.frombuffer(origin, dtype="<i8").tolist() == [3, 3]


@pytest.mark.parametrize("missing", [INDICES, "topk_origin"])
def test_half_a_sideband_is_none(missing: str) -> None:
    link = _sharing(*EVERY)
    tensors = [rows(1), _indices([0]), origin_tensor(0, 0)]
    link.send(link.client.chunk([one for one in tensors if one.name != missing]))
    assert link.answers() == ["PAYLOAD_CORRUPT w1 held 0"]


def test_tensors_beside_the_sideband_are_refused() -> None:
    link = _sharing(*EVERY)
    extra = Tensor("mask", DType.BOOL, (1, 1), b"\1")
    link.send(link.client.chunk([rows(1), _indices([0]), origin_tensor(0, 0), extra]))
    assert link.answers() == ["PAYLOAD_CORRUPT w1 held 0"]


def test_the_sideband_counts_when_the_size_of_a_result_is_foreseen() -> None:
    wide = replace(SHARING, start_layer=3, hidden_size=4, limits=replace(
        SHARING.limits, chunk_bytes=1000))  # fmt: skip
    states = Tensor.from_float32("hidden_states", np.ones((1, 40, 4), np.float32), DType.FLOAT32)
    for features, heard in [((), 1), (EVERY, 0)]:
        link = _accepted(wide, *features)
        link.send(link.client.chunk([states]))
        refused = [line for line in link.heard() if line.startswith("RESOURCE_EXHAUSTED")]
        assert len(link.bench.waiting) == heard, (features, refused)
        assert len(refused) == 1 - heard
