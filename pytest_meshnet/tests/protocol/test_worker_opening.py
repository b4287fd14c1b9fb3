"""A Worker opens sessions: the first message, its checks, what accepted says, places."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.tests.protocol.linked import HEAD, SERVED, Bench, Link, ids, rows

Change = Callable[[pb.SessionOpen], object]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_accepted_echoes_the_session_and_carries_what_is_served(bench: Bench) -> None:
    link = bench.stream("name", 7)
    message = link.client.open()
    message.open.fingerprint.recipe_id = "the client's own label"
    link.send(message)
    accepted = link.messages[0].accepted
    assert (accepted.route_session_id, accepted.route_epoch) == ("name", 7)
    assert accepted.fingerprint == SERVED.fingerprint
    assert accepted.schema_version == pb.SCHEMA_VERSION_1


@pytest.mark.parametrize(
    "build",
    [
        lambda link: link.client.chunk([rows(1)]),
        lambda link: link.client.decode(rows(1)),
        lambda link: link.client.release(),
        lambda link: link.client.cancel(),
        lambda link: pb.SessionRequest(flow_control=pb.FlowControl(credits_granted=1)),
        lambda link: pb.SessionRequest(),
    ],
    ids=["chunk", "decode", "release", "cancel", "grant", "no-kind"],
)
def test_a_message_before_open_ends_the_stream_and_voids_what_follows(
    bench: Bench, build: Callable[[Link], pb.SessionRequest]
) -> None:
    link = bench.stream()
    link.send(build(link), link.client.open())
    assert link.answers() == ["PAYLOAD_CORRUPT - terminal", "closed"]
    assert bench.health().active_sessions == 0


WRONG: dict[str, tuple[Change, str]] = {
    "no-schema": (lambda open: setattr(open, "schema_version", 0), "SCHEMA_UNSUPPORTED"),
    "newer-schema": (lambda open: setattr(open, "schema_version", 99), "SCHEMA_UNSUPPORTED"),
    "no-session": (lambda open: setattr(open, "route_session_id", ""), "PAYLOAD_CORRUPT"),
    "artifact": (
        lambda open: setattr(open.fingerprint, "model_artifact_digest", "sha256:a"),
        "FINGERPRINT_MISMATCH",
    ),
    "recipe": (
        lambda open: setattr(open.fingerprint, "runtime_recipe_digest", "sha256:b"),
        "FINGERPRINT_MISMATCH",
    ),
    "no-fingerprint": (lambda open: open.ClearField("fingerprint"), "FINGERPRINT_MISMATCH"),
    "start": (lambda open: setattr(open.shard_range, "start_layer", 1), "SHARD_RANGE_MISMATCH"),
    "end": (lambda open: setattr(open.shard_range, "end_layer", 5), "SHARD_RANGE_MISMATCH"),
    "no-range": (lambda open: open.ClearField("shard_range"), "SHARD_RANGE_MISMATCH"),
    "effective-start-before": (
        lambda open: setattr(open.shard_range, "effective_start_layer", 1),
        "SHARD_RANGE_MISMATCH",
    ),
    "effective-start-at-end": (
        lambda open: setattr(open.shard_range, "effective_start_layer", 4),
        "SHARD_RANGE_MISMATCH",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_open_that_does_not_match_is_refused_for_good_and_takes_nothing(
    bench: Bench, name: str
) -> None:
    change, code = WRONG[name]
    link = bench.stream()
    message = link.client.open()
    change(message.open)
    link.send(message)
    assert link.heard() == [f"{code} - terminal", "closed"]
    assert not link.messages[0].status.error.retryable
    assert bench.health().active_sessions == 0
    bench.session()  # The epoch is not spent.


@pytest.mark.parametrize("label", ["recipe_id", "recipe_version", "catalogue_version"])
def test_labels_are_not_identity_at_open_or_in_a_chunk(bench: Bench, label: str) -> None:
    link = bench.stream()
    message = link.client.open()
    setattr(message.open.fingerprint, label, "another")
    chunk = link.client.chunk([rows(1)])
    setattr(chunk.chunk.envelope.fingerprint, label, "a third")
    link.send(message, chunk)
    assert link.answers() == ["accepted", "ack w1 past 1", "result w1 [1]"]


def test_limits_settle_to_the_strictest_and_bind_the_session(bench: Bench) -> None:
    link = bench.session(max_prefill_chunk_tokens=2, max_inflight_chunks=3, credits_granted=99)
    limits = link.client.limits
    assert (limits.prefill_tokens, limits.inflight, limits.credits) == (2, 3, 3)
    assert limits.chunk_bytes == SERVED.limits.chunk_bytes
    link.prefill(1, 2, 3)
    assert link.answers() == ["FLOW_CONTROL_VIOLATION w1 held 0"]


@pytest.mark.parametrize(
    ("offered", "accepted"),
    [([], [1]), ([1], [1]), ([2], [1, 2]), ([77], [1]), ([2, 77, 1], [1, 2])],
    ids=str,
)
def test_compression_settles_to_what_both_know_with_none_implied(
    bench: Bench, offered: list[int], accepted: list[int]
) -> None:
    link = bench.stream()
    link.client.seam = replace(link.client.seam, reads=tuple(offered))
    link.send(link.client.open())
    assert list(link.messages[0].accepted.accepted_compression) == accepted


def test_a_second_open_is_refused_and_the_session_goes_on(bench: Bench) -> None:
    link = bench.session()
    link.prefill(1, 2)
    link.answers()
    again = link.client.open()
    again.open.route_epoch = 9
    link.send(again)
    link.decode(3)
    assert link.answers() == ["PAYLOAD_CORRUPT - held 2", "ack w2 past 3 hit", "result w2 [6]"]


def test_a_message_of_no_kind_is_refused_and_a_grant_ignored(bench: Bench) -> None:
    link = bench.session()
    grant = pb.SessionRequest(flow_control=pb.FlowControl(credits_granted=8))
    link.send(pb.SessionRequest(), grant)
    link.prefill(1)
    assert link.answers() == ["PAYLOAD_CORRUPT - held 0", "ack w1 past 1", "result w1 [1]"]


def test_a_full_worker_refuses_one_more_and_a_freed_place_is_usable(bench: Bench) -> None:
    links = [bench.session(f"s{number}") for number in range(SERVED.max_sessions)]
    late = bench.stream("late")
    late.send(late.client.open())
    assert late.heard() == ["RESOURCE_EXHAUSTED - terminal", "closed"]
    assert late.messages[0].status.error.retryable
    for link in links:
        link.prefill(1)
        assert link.answers() == ["ack w1 past 1", "result w1 [1]"]
    links[0].lose()
    bench.session("late")  # Neither the refusal spent its epoch nor the lost stream its place.


def test_a_newer_epoch_takes_the_place_of_the_older(bench: Bench) -> None:
    for number in range(SERVED.max_sessions):
        bench.session(f"s{number}")
    bench.session("s0", 2)
    assert bench.health().active_sessions == SERVED.max_sessions


def test_a_head_starts_from_token_ids_and_a_later_start_from_states() -> None:
    bench = Bench(HEAD)
    link = bench.session("head")
    link.send(link.client.chunk([ids(4, 5)]))
    assert link.answers() == ["ack w1 past 2", "result w1 [4, 9]"]
    later = bench.stream("later", effective=2)
    later.send(later.client.open(), later.client.chunk([rows(4)]))
    assert (bench.waiting[0].start_layer, bench.waiting[0].end_layer) == (2, 4)
    assert later.answers() == ["accepted", "ack w1 past 1", "result w1 [4]"]
