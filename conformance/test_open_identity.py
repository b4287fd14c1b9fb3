"""Who is who at open: session and epoch, schema version, fingerprint, layer range."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.opening import (
    answers,
    edited_open,
    only_refusal,
    refused_open,
    try_edited,
)
from pytest_meshnet.runtime.results import check_code
from pytest_meshnet.runtime.shard import ShardUnderTest
from pytest_meshnet.runtime.trace import describe

DIGESTS = ("model_artifact_digest", "runtime_recipe_digest")
LABELS = ("recipe_id", "recipe_version", "catalogue_version")
ID_TAILS = {
    "plain": "",
    "spaces": " and spaces ",
    "slashes": "/../x%2Fy",
    "letters-of-the-world": "-Ωмега-漢字",
    "long": "-" + "long" * 50,
}


# What accepted says ----------------------------------------------------------------------------


@pytest.mark.requirement("OPEN-02")
@pytest.mark.parametrize("epoch", [1, 7, 2**40, 2**64 - 1])
def test_accepted_echoes_the_epoch(shard: ShardUnderTest, epoch: int) -> None:
    """Epochs are any 64-bit number, the largest included."""
    with shard.session(shard.seam(epoch=epoch)) as session:
        _check_said("route_epoch", session.client.accepted.route_epoch, epoch)


@pytest.mark.requirement("OPEN-02")
@pytest.mark.parametrize("tail", ID_TAILS.values(), ids=ID_TAILS)
def test_accepted_echoes_the_session_id(shard: ShardUnderTest, tail: str) -> None:
    """Session ids are any text; none is shortened, folded or decoded."""
    seam = shard.seam()
    with shard.session(replace(seam, session_id=seam.session_id + tail)) as session:
        said = session.client.accepted.route_session_id
        _check_said("route_session_id", said, seam.session_id + tail)


@pytest.mark.requirement("OPEN-02")
def test_accepted_carries_the_digests_that_are_served(shard: ShardUnderTest) -> None:
    """The fingerprint of accepted is the one that GetCapability reports."""
    with shard.session() as session:
        for name in (*DIGESTS, *LABELS):
            said = getattr(session.client.accepted.fingerprint, name)
            served = getattr(shard.report.fingerprint, name)
            if name in DIGESTS or said:
                _check_said(f"fingerprint.{name}", said, served)


@pytest.mark.requirement("OPEN-02")
@pytest.mark.parametrize("label", LABELS)
def test_accepted_does_not_repeat_labels_that_are_not_served(
    shard: ShardUnderTest, label: str
) -> None:
    """The client offers a label of its own; accepted tells what is really served, or nothing."""
    answer = try_edited(shard, lambda open: setattr(open.fingerprint, label, "a-client's-own"))
    if isinstance(answer, pb.ShardStatus):
        raise Nonconformance("accepted", describe(pb.SessionResponse(status=answer)))
    said = getattr(answer.fingerprint, label)
    if said:
        _check_said(f"fingerprint.{label}", said, getattr(shard.report.fingerprint, label))


def _check_said(what: str, said: object, expected: object) -> None:
    if said != expected:
        raise Nonconformance(f"accepted with {what} {expected!r}", f"{said!r}")


# Schema version --------------------------------------------------------------------------------


@pytest.mark.requirement("OPEN-03")
def test_an_unspecified_schema_version_is_refused(shard: ShardUnderTest) -> None:
    """A client that forgot its version is not taken for a client of version 1."""
    refused_open(
        shard,
        lambda open: setattr(open, "schema_version", pb.SCHEMA_VERSION_UNSPECIFIED),
        pb.ERROR_CODE_SCHEMA_UNSUPPORTED,
    )


@pytest.mark.requirement("OPEN-03")
@pytest.mark.parametrize("offered", [2, 3, 99, 2**31 - 1])
def test_a_newer_schema_version_is_refused_or_answered_with_a_listed_one(
    shard: ShardUnderTest, offered: int
) -> None:
    """A worker may fall back to a version that both know; it may not claim one that it does not."""
    answer = try_edited(shard, lambda open: setattr(open, "schema_version", offered))
    if isinstance(answer, pb.ShardStatus):
        check_code(answer, pb.ERROR_CODE_SCHEMA_UNSUPPORTED)
        return
    listed = list(shard.report.supported_schema_versions)
    if answer.schema_version not in listed or answer.schema_version > offered:
        raise Nonconformance(
            f"SCHEMA_UNSUPPORTED, or accepted with one of {listed} that is at most {offered}",
            f"accepted with version {answer.schema_version}",
        )


# Fingerprint -----------------------------------------------------------------------------------

OTHERS: dict[str, Callable[[str], str]] = {
    "last-character": lambda digest: digest[:-1] + ("0" if digest[-1] != "0" else "1"),
    "cut-short": lambda digest: digest[:-1],
    "lengthened": lambda digest: digest + "0",
    "another": lambda digest: "sha256:" + "0123456789abcdef" * 4,
}
other_digests = pytest.mark.parametrize("other", OTHERS)
artifact = pytest.mark.requirement("OPEN-04")
recipe = pytest.mark.requirement("OPEN-05")
both_digests = pytest.mark.parametrize(
    "digest",
    [
        pytest.param("model_artifact_digest", marks=artifact, id="artifact"),
        pytest.param("runtime_recipe_digest", marks=recipe, id="recipe"),
    ],
)


@both_digests
@other_digests
def test_another_digest_is_refused_for_good(shard: ShardUnderTest, digest: str, other: str) -> None:
    """One digest of the open differs, by as little as its last character. Trying again is vain."""
    wrong = OTHERS[other](_served(shard, digest))
    status = refused_open(
        shard,
        lambda open: setattr(open.fingerprint, digest, wrong),
        pb.ERROR_CODE_FINGERPRINT_MISMATCH,
    )
    if status.error.retryable:
        raise Nonconformance("not retryable", describe(pb.SessionResponse(status=status)))


@both_digests
def test_another_digest_is_refused_before_any_activation(
    shard: ShardUnderTest, digest: str
) -> None:
    """A prefill is right behind the open with a false digest; only the open is answered."""
    wrong = OTHERS["last-character"](_served(shard, digest))
    with shard.unopened() as session:
        client = session.client
        message = edited_open(client.seam, lambda open: setattr(open.fingerprint, digest, wrong))
        found = answers(shard, message, client.chunk([shard.tokens(1)]))
    only_refusal(found, pb.ERROR_CODE_FINGERPRINT_MISMATCH)


def _served(shard: ShardUnderTest, digest: str) -> str:
    served: str = getattr(shard.report.fingerprint, digest)
    if not served:
        raise Nonconformance(f"GetCapability with a {digest}", "an empty one")
    return served


def _no_labels(open: pb.SessionOpen) -> None:
    for label in LABELS:
        open.fingerprint.ClearField(label)


def _other_labels(open: pb.SessionOpen) -> None:
    for label in LABELS:
        setattr(open.fingerprint, label, f"another {label}")


RELABELLED: dict[str, Callable[[pb.SessionOpen], object]] = {
    "recipe-id": lambda open: setattr(open.fingerprint, "recipe_id", "another"),
    "recipe-version": lambda open: setattr(open.fingerprint, "recipe_version", "9.9"),
    "catalogue-version": lambda open: setattr(open.fingerprint, "catalogue_version", "1999.01"),
    "all": _other_labels,
    "none": _no_labels,
}


@pytest.mark.requirement("OPEN-06")
@pytest.mark.parametrize("change", RELABELLED)
def test_other_labels_are_accepted(shard: ShardUnderTest, change: str) -> None:
    """The digests are those served; the names that people gave them are not, and never matter.

    They come again in every chunk, where they are no reason to refuse either.
    """
    tokens = shard.tokens(1)
    alone = shard.undisturbed(tokens)
    seam = shard.seam()
    message = edited_open(seam, RELABELLED[change])
    with shard.session(replace(seam, fingerprint=message.open.fingerprint)) as session:
        shard.check_equal(session.prefill(tokens), alone, "prefill under other labels")


# Range -----------------------------------------------------------------------------------------


@pytest.mark.requirement("OPEN-07")
def test_a_range_that_is_not_served_is_refused(shard: ShardUnderTest) -> None:
    """One layer more or less at either end, the neighbours, and a range far away."""
    start, end = shard.layers.start, shard.layers.stop
    _check_refused(shard, start, end + 1, start)
    _check_refused(shard, end, 2 * end - start, end)
    _check_refused(shard, start + 10_000, end + 10_000, start + 10_000)
    if start > 0:
        _check_refused(shard, start - 1, end, start)
        _check_refused(shard, 0, start, 0)
    if end - start > 1:
        _check_refused(shard, start, end - 1, start)
        _check_refused(shard, start + 1, end, start + 1)


@pytest.mark.requirement("OPEN-07")
def test_an_effective_start_outside_the_range_is_refused(shard: ShardUnderTest) -> None:
    """Execution may begin at any served layer; the end is not one, nor is what lies before."""
    start, end = shard.layers.start, shard.layers.stop
    _check_refused(shard, start, end, end)
    _check_refused(shard, start, end, 2**32 - 1)
    if start > 0:
        _check_refused(shard, start, end, start - 1)


def _check_refused(shard: ShardUnderTest, start: int, end: int, effective: int) -> None:
    layers = pb.ShardRange(start_layer=start, end_layer=end, effective_start_layer=effective)
    refused_open(
        shard,
        lambda open: open.shard_range.CopyFrom(layers),
        pb.ERROR_CODE_SHARD_RANGE_MISMATCH,
    )


# No identity -----------------------------------------------------------------------------------


def _empty_fingerprint(open: pb.SessionOpen) -> None:
    open.fingerprint.CopyFrom(pb.Fingerprint())


def _only_labels(open: pb.SessionOpen) -> None:
    for digest in DIGESTS:
        open.fingerprint.ClearField(digest)


def _empty_range(open: pb.SessionOpen) -> None:
    open.shard_range.CopyFrom(pb.ShardRange())


NAMELESS: dict[str, Callable[[pb.SessionOpen], object]] = {
    "no-fingerprint": lambda open: open.ClearField("fingerprint"),
    "empty-fingerprint": _empty_fingerprint,
    "only-labels": _only_labels,
    "no-artifact-digest": lambda open: open.fingerprint.ClearField("model_artifact_digest"),
    "no-recipe-digest": lambda open: open.fingerprint.ClearField("runtime_recipe_digest"),
    "no-range": lambda open: open.ClearField("shard_range"),
    "empty-range": _empty_range,
    "no-session-id": lambda open: open.ClearField("route_session_id"),
    "nothing-but-a-schema": lambda open: open.CopyFrom(
        pb.SessionOpen(schema_version=pb.SCHEMA_VERSION_1)
    ),
}


@pytest.mark.requirement("OPEN-12")
@pytest.mark.parametrize("change", NAMELESS)
def test_an_open_that_lacks_its_identity_is_refused(shard: ShardUnderTest, change: str) -> None:
    """What is left out is not filled in by the worker: it could only guess whom it serves."""
    refused_open(shard, NAMELESS[change])
