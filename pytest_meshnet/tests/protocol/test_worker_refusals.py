"""A Worker refuses units that break a rule, and says so with the position that holds (8)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_meshnet.protocol.codec import encode_bundle
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.tests.protocol.linked import HEAD, SERVED, Bench, Link, ids, rows

STATELESS = pb.CACHE_MODE_STATELESS
DECODE = pb.CACHE_MODE_DECODE


@pytest.fixture
def link() -> Link:
    return Bench().session()


# Refusals that leave the session where it was --------------------------------------------------

BAD: dict[str, dict[str, Any]] = {
    "position": {"first": 1},
    "phase-decode": {"phase": pb.PHASE_DECODE},
    "phase-unspecified": {"phase": 0},
    "phase-release": {"phase": pb.PHASE_RELEASE},
    "phase-cancel": {"phase": pb.PHASE_CANCEL},
    "mode-unspecified": {"mode": 0},
    "mode-decode-in-prefill": {"mode": DECODE, "phase": pb.PHASE_PREFILL},
    "stateless-not-final": {"mode": STATELESS, "final": False},
    "stateless-expecting": {"mode": STATELESS, "expected": 2},
    "more-tokens-than-rows": {"tokens": 3},
    "fewer-tokens-than-rows": {"tokens": 1},
    "no-tokens": {"tokens": 0},
    "no-tensor": {"bundle": pb.TensorBundle(bundle_version=1)},
    "no-bundle-version": {"bundle": pb.TensorBundle()},
}


@pytest.mark.parametrize("name", BAD)
def test_a_chunk_that_breaks_a_rule_is_corrupt_and_changes_nothing(link: Link, name: str) -> None:
    link.prefill(1, 2)
    link.answers()
    link.prefill(3, 4, **BAD[name])
    assert link.answers() == ["PAYLOAD_CORRUPT w2 held 2"]
    link.prefill(3, 4, step=2)
    assert link.answers() == ["ack w2 past 4 hit", "result w2 [6, 10]"]


def test_a_prefill_in_phase_decode_is_corrupt_even_with_one_token(link: Link) -> None:
    link.prefill(1)
    link.answers()
    link.prefill(2, phase=pb.PHASE_DECODE)
    assert link.answers() == ["PAYLOAD_CORRUPT w2 held 1"]


@pytest.mark.parametrize("count", [0, 2])
def test_a_decode_in_full_form_has_one_token(link: Link, count: int) -> None:
    link.prefill(1)
    link.answers()
    link.send(link.client.chunk([rows(*[1] * count)], mode=DECODE))
    assert link.answers() == ["PAYLOAD_CORRUPT w2 held 1"]


def test_a_chunk_of_no_tokens_is_corrupt_even_when_its_tensor_agrees(link: Link) -> None:
    link.send(link.client.chunk([rows()]))
    assert link.answers() == ["PAYLOAD_CORRUPT w1 held 0"]


TENSORS = {
    "another-name": replace(rows(3), name="other"),
    "another-dtype": Tensor("hidden_states", DType.BFLOAT16, (1, 1, 1), bytes(2)),
    "two-rows": rows(3, 4),
    "too-wide": Tensor("hidden_states", DType.FLOAT32, (1, 1, 2), bytes(8)),
    "flat": Tensor("hidden_states", DType.FLOAT32, (1, 1), bytes(4)),
}


@pytest.mark.parametrize("name", TENSORS)
@pytest.mark.parametrize("full", [False, True], ids=["step", "full-form"])
def test_a_payload_that_is_not_the_boundary_is_corrupt(link: Link, name: str, full: bool) -> None:
    link.prefill(1, 2)
    link.answers()
    if full:
        link.send(link.client.chunk([TENSORS[name]], mode=DECODE, tokens=1))
    else:
        link.send(link.client.decode(TENSORS[name]))
    assert link.answers() == ["PAYLOAD_CORRUPT w2 held 2"]
    link.decode(3)
    assert link.answers() == ["ack w3 past 3 hit", "result w3 [6]"]


def test_a_second_tensor_beside_the_boundary_is_corrupt(link: Link) -> None:
    link.send(link.client.chunk([rows(1), replace(rows(1), name="sideband")]))
    assert link.answers() == ["PAYLOAD_CORRUPT w1 held 0"]


def test_a_payload_that_fails_the_codec_is_corrupt(link: Link) -> None:
    bundle = encode_bundle([rows(1)])
    bundle.tensors[0].checksum.value = b"\0\0\0\0"
    link.prefill(1, bundle=bundle)
    assert link.answers() == ["PAYLOAD_CORRUPT w1 held 0"]


def test_a_decode_step_at_another_position_is_corrupt(link: Link) -> None:
    link.prefill(1)
    link.answers()
    link.decode(2, position=3)
    assert link.answers() == ["PAYLOAD_CORRUPT w2 held 1"]


@pytest.mark.parametrize("token", [-1, 10, 2**31 - 1])
def test_a_token_id_outside_the_vocabulary_is_the_clients_fault(token: int) -> None:
    link = Bench(HEAD).session()
    link.send(link.client.chunk([ids(9, token)]), link.client.chunk([ids(9)], fresh=True))
    assert link.answers() == ["PAYLOAD_CORRUPT w1 held 0", "ack w2 past 1", "result w2 [9]"]


def test_growing_past_the_context_is_refused_and_what_is_held_stays_usable() -> None:
    link = Bench(replace(SERVED, max_context=4)).session()
    link.prefill(1, 2, 3)
    link.answers()
    link.prefill(4, 5)
    link.prefill(1, 1, 1, 1, 1, mode=STATELESS)
    link.decode(4, expected=3)
    link.decode(5, expected=4)
    assert link.answers() == [
        "RESOURCE_EXHAUSTED w2 held 3",
        "RESOURCE_EXHAUSTED w3 held 3",
        "ack w4 past 4 hit",
        "result w4 [10]",
        "RESOURCE_EXHAUSTED w5 held 4",
    ]


# Terminal refusals -----------------------------------------------------------------------------


def _schema(envelope: pb.Envelope) -> None:
    envelope.schema_version = pb.SCHEMA_VERSION_UNSPECIFIED


def _digest(envelope: pb.Envelope) -> None:
    envelope.fingerprint.runtime_recipe_digest = "sha256:cc"


def _epoch(envelope: pb.Envelope) -> None:
    envelope.route_epoch -= 1


def _end_layer(envelope: pb.Envelope) -> None:
    envelope.shard_range.end_layer += 1


def _effective_start(envelope: pb.Envelope) -> None:
    envelope.shard_range.effective_start_layer += 1


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (_schema, "SCHEMA_UNSUPPORTED"),
        (_digest, "FINGERPRINT_MISMATCH"),
        (_epoch, "EPOCH_STALE"),
        (_end_layer, "SHARD_RANGE_MISMATCH"),
        (_effective_start, "SHARD_RANGE_MISMATCH"),
    ],
)
def test_a_chunk_of_another_seam_ends_the_stream(link: Link, change: Any, code: str) -> None:
    link.prefill(1)
    link.answers()
    message = link.client.chunk([rows(2)])
    change(message.chunk.envelope)
    link.send(message)
    link.decode(2)
    assert link.answers() == [f"{code} w2 terminal", "closed"]
    assert link.bench.health().active_sessions == 0


@pytest.mark.parametrize(("field", "value"), [("route_session_id", "t"), ("route_epoch", 2)])
def test_a_chunk_of_a_session_never_opened_here_is_refused_alone(
    link: Link, field: str, value: Any
) -> None:
    message = link.client.chunk([rows(2)])
    setattr(message.chunk.envelope, field, value)
    link.send(message)
    link.prefill(1, step=1)
    assert link.answers() == ["PAYLOAD_CORRUPT w1 held 0", "ack w1 past 1", "result w1 [1]"]


def test_unknown_fields_of_a_newer_peer_do_not_make_another_range(link: Link) -> None:
    message = link.client.chunk([rows(1)])
    newer = pb.ShardRange.FromString(b"\xb8\xe0\x04\xb9\x60")
    message.chunk.envelope.shard_range.MergeFrom(newer)
    link.send(message)
    assert link.answers() == ["ack w1 past 1", "result w1 [1]"]
