"""GetCapability: complete, truthful, stable, and robust against a version it does not know."""

from __future__ import annotations

import time

import pytest

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.shard import ShardUnderTest
from pytest_meshnet.runtime.transport import UnaryFailed

# Wall clocks of two machines differ; minutes do not.
CLOCK_MARGIN_NANOS = 5 * 60 * 1_000_000_000

# The longest context that is filled, and how far a longer one is tried, in tokens.
MOST_CONTEXT, FIRST_TOKENS = 1024, 256

LIMITS = (
    "credits_granted",
    "max_inflight_chunks",
    "max_chunk_bytes",
    "max_prefill_chunk_tokens",
)


def capability(shard: ShardUnderTest, version: int = pb.SCHEMA_VERSION_1) -> pb.CapabilityReport:
    """Ask GetCapability under a schema version."""
    request = pb.CapabilityRequest(schema_version=version)  # type: ignore[arg-type]
    return shard.transport.capability(request, shard.answer_time)


@pytest.mark.requirement("CAP-01")
def test_the_report_is_complete(shard: ShardUnderTest) -> None:
    """Every promised field, by name, is looked for; absent and zero are the same on the wire."""
    report = capability(shard)
    values = {
        "fingerprint.model_artifact_digest": report.fingerprint.model_artifact_digest,
        "fingerprint.runtime_recipe_digest": report.fingerprint.runtime_recipe_digest,
        "shard_range.end_layer": report.shard_range.end_layer,
        "backend": report.backend,
        "device": report.device,
        "max_concurrent_sessions": report.max_concurrent_sessions,
        "max_context_tokens": report.max_context_tokens,
        **{f"flow_control.{name}": getattr(report.flow_control, name) for name in LIMITS[1:]},
    }
    missing = [name for name, value in values.items() if not value]
    if missing:
        raise Nonconformance("a complete CapabilityReport", f"nothing in {', '.join(missing)}")
    versions = {report.schema_version, *report.supported_schema_versions}
    if pb.SCHEMA_VERSION_1 not in report.supported_schema_versions or 0 in versions:
        raise Nonconformance(
            "schema_version set and 1 among supported_schema_versions",
            f"{report.schema_version} and {list(report.supported_schema_versions)}",
        )
    served = report.shard_range
    if not served.start_layer <= served.effective_start_layer < served.end_layer:
        raise Nonconformance("an effective start within the range", str(served))


@pytest.mark.requirement("CAP-02")
def test_validated_comes_with_its_time_and_not_validated_with_a_reason(
    shard: ShardUnderTest,
) -> None:
    """Whichever it is, its proof must be there; the future allows for clocks that differ."""
    report = capability(shard)
    when = report.validated_at_unix_nanos
    if report.validated:
        if not 0 < when <= time.time_ns() + CLOCK_MARGIN_NANOS:
            raise Nonconformance(
                "validated with a validation time that is set and not in the future", f"{when}"
            )
    elif not report.detail:
        raise Nonconformance("a detail that says why validated is false", "an empty detail")


@pytest.mark.requirement("CAP-03")
def test_what_accepted_offers_is_what_capability_declares(shard: ShardUnderTest) -> None:
    """A client without wishes opens a session: limits, fingerprint and compression must agree."""
    report = capability(shard)
    with shard.session() as session:
        accepted = session.client.accepted
        assert accepted is not None, "an opened session has been accepted"
    for name in LIMITS[1:]:
        declared, offered = getattr(report.flow_control, name), getattr(accepted.flow_control, name)
        if offered != declared:
            raise Nonconformance(f"accepted {name} {declared} as declared", f"{offered}")
    if accepted.fingerprint != report.fingerprint:
        raise Nonconformance("the declared fingerprint in accepted", "another one")


@pytest.mark.requirement("CAP-03")
def test_the_declared_chunk_bound_is_the_enforced_one(shard: ShardUnderTest) -> None:
    """A chunk of exactly the declared tokens is applied, one with a token more is not."""
    bound = capability(shard).flow_control.max_prefill_chunk_tokens
    tokens = shard.tokens(bound + 1)
    fitting = tokens.rows(0, shard.length(bound))  # The context may end before the chunk bound.
    with shard.session() as session:
        session.refused(session.exchange(session.client.chunk([tokens])))
        session.result(session.send_unit(session.client.chunk([fitting])))


@pytest.mark.requirement("CAP-03")
def test_the_declared_context_is_the_enforced_one(small_shard: ShardUnderTest) -> None:
    """A session is filled to the last of the declared tokens, and one token more is refused.

    A context too long to be filled is tried as far as its first tokens.
    """
    shard = small_shard
    context = capability(shard).max_context_tokens
    if context < 1:
        raise Nonconformance("max_context_tokens above 0", f"{context}")
    whole = context <= MOST_CONTEXT
    tokens = shard.tokens(context if whole else FIRST_TOKENS)
    with shard.session() as session:
        session.prefill(tokens)
        if whole:
            session.refused(session.exchange(session.client.decode(shard.tokens(1))))


@pytest.mark.requirement("CAP-04")
def test_two_reports_are_equal(shard: ShardUnderTest) -> None:
    """One report is taken before and one after a session did some work."""
    first = capability(shard)
    with shard.session() as session:
        session.prefill(shard.tokens(2))
    second = capability(shard)
    for report in (first, second):
        report.ClearField("detail")
        report.ClearField("validated_at_unix_nanos")
    if first != second:
        raise Nonconformance(f"the same report again:\n{first}", f"\n{second}")


@pytest.mark.requirement("CAP-05")
@pytest.mark.parametrize("version", [0, 2, 99, 2**31 - 1])
@pytest.mark.parametrize("call", ["capability", "health", "release", "cancel"])
def test_a_unary_call_of_another_schema_version_is_answered(
    shard: ShardUnderTest, call: str, version: int
) -> None:
    """Any answer, or any coded status but one of a crash; afterwards the runtime still answers."""
    try:
        if call == "capability":
            reply = capability(shard, version)
            if version not in (0, reply.schema_version) or reply.schema_version == 0:
                _check_known(reply.schema_version)
        elif call == "health":
            request = pb.HealthRequest(schema_version=version)  # type: ignore[arg-type]
            _check_known(shard.transport.health(request, shard.answer_time).schema_version)
        elif call == "release":
            release = pb.ReleaseRequest(schema_version=version, route_session_id="nobody")  # type: ignore[arg-type]
            shard.transport.release(release, shard.answer_time)
        else:
            cancel = pb.CancelRequest(schema_version=version, route_session_id="nobody")  # type: ignore[arg-type]
            shard.transport.cancel(cancel, shard.answer_time)
    except UnaryFailed as failed:
        if failed.code in ("UNKNOWN", "INTERNAL", "UNAVAILABLE", "DEADLINE_EXCEEDED"):
            raise shard.target.loss(f"the answer to {call}") or Nonconformance(
                f"an answer to {call} under schema version {version}, or a coded status",
                str(failed),
            ) from None
    capability(shard)


def _check_known(version: int) -> None:
    if version != pb.SCHEMA_VERSION_1:
        raise Nonconformance("a schema version that the runtime lists", f"{version}")
