"""BUNDLE: decode steps that carry a bundle, negotiated and in exactly one form."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection

import pytest
from google.protobuf.message import Message
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_meshnet.protocol import goldens
from pytest_meshnet.protocol.additions.features import Feature
from pytest_meshnet.protocol.codec import encode_bundle
from pytest_meshnet.protocol.flow import FlowLimits
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.client import SeamClient
from pytest_meshnet.protocol.machines.exchange import Seam
from pytest_meshnet.protocol.tensors import Tensor
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.results import joined
from pytest_meshnet.runtime.session import Session
from pytest_meshnet.runtime.shard import ShardUnderTest

from .wire_inputs import CANONICAL, DIGESTS, KINDS, REPORT, REQUEST, SIZES, legal, published

PROMPT = 3


def agreed(shard: ShardUnderTest) -> Session:
    """A session in which bundles in decode steps are agreed on. Use as a context manager."""
    session = shard.session(features=[Feature.DECODE_BUNDLE])
    if Feature.DECODE_BUNDLE not in session.client.features:
        session.drop()
        raise Nonconformance(
            "accepted with FEATURE_DECODE_BUNDLE, which the profile bundle claims",
            f"accepted with features {list(session.client.accepted.features)}",
        )
    return session


# Negotiated --------------------------------------------------------------------------------------

OTHERS = {
    "no-feature": (),
    "every-other-feature": tuple(set(Feature) - {Feature.DECODE_BUNDLE, Feature.TAIL_RESULT}),
}


@pytest.mark.requirement("BUNDLE-01")
@pytest.mark.parametrize("features", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("count", [1, 2], ids=["one-bundle", "again"])
def test_a_bundle_that_was_not_negotiated_is_refused_and_moves_nothing(
    shard: ShardUnderTest, features: Collection[Feature], count: int
) -> None:
    """A client of 1.1 meets a session of 1.0: the step is refused, the compact form works."""
    tokens = shard.tokens(PROMPT + 1)
    prompt, step = tokens.rows(0, PROMPT), tokens.rows(PROMPT, PROMPT + 1)
    expected = shard.undisturbed(prompt, step)
    with shard.session(features=features) as session:
        before = session.prefill(prompt)
        for _ in range(count):
            session.refused(session.exchange(session.client.decode([step])))
        after = session.decode(step)
    shard.check_equal(joined(before, after), expected, "after a refused bundle")


# Exactly one form --------------------------------------------------------------------------------


def _both(session: Session, step: Tensor) -> pb.SessionRequest:
    message = session.client.decode(step)
    message.decode.bundle.CopyFrom(encode_bundle([step]))
    return message


def _both_unlike(session: Session, step: Tensor) -> pb.SessionRequest:
    message = session.client.decode(step)
    other = Tensor(step.name, step.dtype, step.shape, bytes(step.size))
    message.decode.bundle.CopyFrom(encode_bundle([other]))
    return message


def _both_and_one_empty(session: Session, step: Tensor) -> pb.SessionRequest:
    message = session.client.decode([step])
    message.decode.tensor.SetInParent()
    return message


def _neither(session: Session, step: Tensor) -> pb.SessionRequest:
    message = session.client.decode(step)
    message.decode.ClearField("tensor")
    return message


FORMS: dict[str, Callable[[Session, Tensor], pb.SessionRequest]] = {
    "both-alike": _both,
    "both-unlike": _both_unlike,
    "both-one-empty": _both_and_one_empty,
    "neither": _neither,
}


@pytest.mark.requirement("BUNDLE-02")
@pytest.mark.parametrize("form", FORMS)
def test_a_step_with_both_or_neither_is_corrupt_and_moves_nothing(
    shard: ShardUnderTest, form: str
) -> None:
    """Whoever reads one and forgets the other would compute something; then the right step."""
    tokens = shard.tokens(PROMPT + 2)
    prompt, steps = (
        tokens.rows(0, PROMPT),
        [tokens.rows(PROMPT + i, PROMPT + i + 1) for i in (0, 1)],
    )
    expected = shard.undisturbed(prompt, *steps)
    with agreed(shard) as session:
        rows = [session.prefill(prompt)]
        for step in steps:
            exchange = session.exchange(FORMS[form](session, step))
            session.refused(exchange, pb.ERROR_CODE_PAYLOAD_CORRUPT)
            rows.append(session.decode([step]))
    shard.check_equal(joined(*rows), expected, f"after a step with {form}")


@pytest.mark.requirement("BUNDLE-02")
def test_a_step_with_neither_is_corrupt_where_nothing_was_negotiated_too(
    shard: ShardUnderTest,
) -> None:
    """The same rule holds for a session of 1.0, which knows one form only."""
    tokens = shard.tokens(PROMPT + 1)
    with shard.session() as session:
        session.prefill(tokens.rows(0, PROMPT))
        step = tokens.rows(PROMPT, PROMPT + 1)
        session.refused(session.exchange(_neither(session, step)), pb.ERROR_CODE_PAYLOAD_CORRUPT)
        session.decode(step)


# Bundle equals tensor ----------------------------------------------------------------------------


@pytest.mark.requirement("BUNDLE-03")
@given(prompt=st.integers(1, 4), forms=st.lists(st.booleans(), min_size=1, max_size=5))
@example(prompt=1, forms=[True, True, True])
@example(prompt=4, forms=[True, False, True, False, True])
@settings(max_examples=10)
def test_a_bundle_of_one_gives_the_result_of_the_compact_form(
    shard: ShardUnderTest, prompt: int, forms: list[bool]
) -> None:
    """Steps in both forms, mixed: each continues what the others left, as in one session."""
    tokens = shard.tokens(shard.length(prompt + len(forms)), key=prompt)
    count = min(prompt, tokens.shape[1] - 1)
    steps = [tokens.rows(i, i + 1) for i in range(count, tokens.shape[1])]
    expected = shard.undisturbed(tokens.rows(0, count), *steps)
    with agreed(shard) as session:
        rows = [session.prefill(tokens.rows(0, count))]
        for step, bundled in zip(steps, forms, strict=False):
            rows.append(session.decode([step] if bundled else step))
        _check_length(session, count + len(steps))
    shard.check_equal(joined(*rows), expected, "steps in bundles against compact steps")


def _check_length(session: Session, length: int) -> None:
    if session.client.past_len != length:
        raise Nonconformance(f"past_len {length}", f"past_len {session.client.past_len}")


@pytest.mark.requirement("BUNDLE-03")
@pytest.mark.parametrize("pieces", [2, 5])
def test_a_bundle_in_fragments_gives_the_result_of_the_compact_form(
    shard: ShardUnderTest, pieces: int
) -> None:
    """The bundle is a codec bundle like any other: its tensor may come in fragments."""
    tokens = shard.tokens(PROMPT + 1)
    prompt, step = tokens.rows(0, PROMPT), tokens.rows(PROMPT, PROMPT + 1)
    expected = shard.undisturbed(prompt, step)
    with agreed(shard) as session:
        before = session.prefill(prompt)
        bundle = encode_bundle([step], fragment_bytes=max(1, step.size // pieces))
        after = session.result(session.send_unit(session.client.decode(bundle)))
    shard.check_equal(joined(before, after), expected, f"a bundle in {pieces} fragments")


@pytest.mark.requirement("BUNDLE-03")
def test_a_bundle_is_refused_and_deduplicated_as_the_compact_form_is(
    shard: ShardUnderTest,
) -> None:
    """A wrong length is a miss, a repeated step a duplicate: what holds of steps holds here."""
    tokens = shard.tokens(PROMPT + 1)
    step = tokens.rows(PROMPT, PROMPT + 1)
    with agreed(shard) as session:
        session.prefill(tokens.rows(0, PROMPT))
        missed = session.exchange(session.client.decode([step], expected=PROMPT + 1))
        session.refused(missed, pb.ERROR_CODE_CACHE_MISS)
        message = session.client.decode([step])
        session.result(session.send_unit(message))
        repeated = session.exchange(message)
        if repeated.ack is None or not repeated.ack.duplicate:
            raise Nonconformance("the repeated step acked as a duplicate", "it was not")
        _check_length(session, PROMPT + 1)


# 1.0 bytes unchanged -----------------------------------------------------------------------------


def _digest(data: bytes) -> tuple[int, str]:
    return len(data), hashlib.sha256(data).hexdigest()


def _check_golden(name: str, data: bytes) -> None:
    if _digest(data) != (SIZES[name], DIGESTS[name]):
        size, found = _digest(data)
        raise Nonconformance(
            f"{SIZES[name]} bytes, sha256 {DIGESTS[name]}", f"{size} bytes, sha256 {found}"
        )


@pytest.mark.requirement("BUNDLE-04")
@pytest.mark.parametrize("name", [REQUEST, REPORT])
def test_the_published_messages_have_their_bytes_under_the_schema_of_1_1(name: str) -> None:
    """Built by the codec, set field by field, and parsed and written again."""
    _check_golden(name, goldens.built()[name])
    message = legal("every canonical field exists", lambda: KINDS[name](**CANONICAL[name]))
    _check_golden(name, message.SerializeToString(deterministic=True))
    parsed = legal("the published bytes parse", lambda: KINDS[name].FromString(published(name)))
    _check_golden(name, parsed.SerializeToString(deterministic=True))


# The fields that 1.0 gave each message that 1.1 extends, numbered from 1.
OF_1_0 = {
    "SessionOpen": "schema_version route_session_id route_epoch fingerprint shard_range "
    "proposed_flow_control accepted_compression",
    "SessionAccepted": "schema_version route_session_id route_epoch flow_control "
    "accepted_compression fingerprint",
    "DecodeStep": "idempotency_step position expected_past_len tensor work_id deadline_unix_nanos",
    "SessionResponse": "accepted chunk ack flow_control status",
    "CapabilityReport": "schema_version fingerprint shard_range backend device validated detail "
    "max_concurrent_sessions max_context_tokens flow_control accepted_compression "
    "supported_schema_versions validated_at_unix_nanos",
}


def _client() -> SeamClient:
    golden = pb.SessionRequest.FromString(published(REQUEST)).chunk.envelope
    return SeamClient(
        Seam(golden.route_session_id, golden.route_epoch, golden.fingerprint, golden.shard_range)
    )


def _sent() -> dict[str, Message]:
    """What the suite's own client sends where no feature is asked for."""
    client = _client()
    payload = pb.SessionRequest.FromString(published(REQUEST)).chunk.bundle.tensors[0]
    return {
        "SessionOpen": client.open(FlowLimits(8, 8, 4096, 128)).open,
        "DecodeStep": client.decode(payload).decode,
        "CapabilityReport": goldens.capability_report(),
    }


@pytest.mark.requirement("BUNDLE-04")
@pytest.mark.parametrize("name", ["SessionOpen", "DecodeStep", "CapabilityReport"])
def test_a_message_without_the_new_fields_has_none_of_their_numbers(name: str) -> None:
    """A peer of 1.0 would keep such a field as unknown and pass it on."""
    found = [field.name for field, _ in _sent()[name].ListFields()]
    beyond = set(found) - set(OF_1_0[name].split())
    if beyond:
        raise Nonconformance(f"only fields of 1.0 in {name}", f"also {sorted(beyond)}")


@pytest.mark.requirement("BUNDLE-04")
@pytest.mark.parametrize("name", OF_1_0)
def test_the_new_fields_have_numbers_of_their_own(name: str) -> None:
    """Additive: no number of 1.0 was given another meaning."""
    by_number = getattr(pb, name).DESCRIPTOR.fields_by_number
    for number, field in enumerate(OF_1_0[name].split(), start=1):
        found = by_number[number].name if number in by_number else "no field"
        if found != field:
            raise Nonconformance(f"{name} {number}: {field}", found)


@pytest.mark.requirement("BUNDLE-04")
def test_a_compact_step_costs_no_byte_more() -> None:
    """The message that every token pays for is as long as its six fields of 1.0."""
    golden = pb.SessionRequest.FromString(published(REQUEST)).chunk.bundle.tensors[0]
    message = _client().decode(golden, expected=256, step=42, work_id="work-7f3a").decode
    by_hand = pb.DecodeStep(
        idempotency_step=42, position=256, expected_past_len=256, work_id="work-7f3a"
    )
    by_hand.tensor.CopyFrom(golden)
    expected, found = by_hand.SerializeToString(), message.SerializeToString()
    if expected != found:
        raise Nonconformance(f"{len(expected)} bytes", f"{len(found)} bytes")
