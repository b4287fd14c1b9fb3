"""Statuses: coded, named, truthful about a retry, and silent about what is nobody's business."""

from __future__ import annotations

import base64
import contextlib
import os
import re
from collections.abc import Callable

import pytest

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.tensors import Tensor
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.shard import ShardUnderTest
from pytest_meshnet.runtime.trace import code_name

from .refusals import EVERY, OPENS, PLANTED, UNITS, Provoke
from .side_by_side import declared_places

MAX_DETAIL = 512

FORBIDDEN = {
    "a file path": re.compile(r"(?<![\w.])(?:/[\w.+-]+){2,}|[A-Za-z]:\\[\w.\\-]+"),
    "a traceback": re.compile(
        r"Traceback|File \"|line \d+, in |\bat \w+\(.*:\d+\)|\.(?:py|rs|cc|cpp|go|js):\d+"
    ),
    "a memory address": re.compile(r"\b0x[0-9a-fA-F]{6,16}\b"),
    "a planted credential": re.compile(re.escape(PLANTED)),
}

# Short values are words that any text may hold.
MIN_ENVIRONMENT_VALUE = 8


def every(cases: dict[str, Provoke]) -> pytest.MarkDecorator:
    """Parametrize over ways to be refused."""
    return pytest.mark.parametrize("provoke", cases.values(), ids=cases)


@pytest.mark.requirement("ERR-01")
@every(EVERY)
def test_no_detail_shows_what_operators_alone_may_see(
    shard: ShardUnderTest, provoke: Provoke
) -> None:
    """Many refusals, with a credential planted in what the client sends."""
    detail = provoke(shard).status.error.detail
    if len(detail) > MAX_DETAIL:
        raise Nonconformance(f"a detail of at most {MAX_DETAIL} characters", f"{len(detail)}")
    for what, pattern in FORBIDDEN.items():
        if pattern.search(detail):
            raise Nonconformance(f"no {what} in a detail", repr(detail))
    for name, value in os.environ.items():
        if len(value) >= MIN_ENVIRONMENT_VALUE and value in detail:
            raise Nonconformance(f"no value of the environment variable {name}", repr(detail))


@pytest.mark.requirement("ERR-02")
@every(EVERY)
def test_every_status_has_a_code(shard: ShardUnderTest, provoke: Provoke) -> None:
    """Each way to be refused must come with a code that is known and not UNSPECIFIED."""
    code = provoke(shard).status.error.code
    if code == pb.ERROR_CODE_UNSPECIFIED or code not in pb.ErrorCode.values():
        raise Nonconformance("a known error code", code_name(code))


NOT_RETRYABLE = (
    pb.ERROR_CODE_CACHE_MISS,
    pb.ERROR_CODE_FINGERPRINT_MISMATCH,
    pb.ERROR_CODE_SCHEMA_UNSUPPORTED,
    pb.ERROR_CODE_SHARD_RANGE_MISMATCH,
    pb.ERROR_CODE_EPOCH_STALE,
)


@pytest.mark.requirement("ERR-03")
@every(EVERY)
def test_what_cannot_succeed_again_is_not_retryable(
    shard: ShardUnderTest, provoke: Provoke
) -> None:
    """Whichever code a refusal gets: the five that a retry cannot mend must say so."""
    error = provoke(shard).status.error
    if error.code in NOT_RETRYABLE and error.retryable:
        raise Nonconformance(f"{code_name(error.code)} not retryable", "retryable true")


@pytest.mark.requirement("ERR-03", "OPEN-10")
def test_a_refusal_for_lack_of_a_place_is_retryable(small_shard: ShardUnderTest) -> None:
    """Every place is held by a live stream; one more client knocks. OPEN-10 says who is small."""
    with contextlib.ExitStack() as stack:
        for _ in range(declared_places(small_shard)):
            stack.enter_context(small_shard.session())
        late = stack.enter_context(small_shard.unopened())
        answer = late.try_open(late.client.open())
    if isinstance(answer, pb.SessionAccepted) or not answer.error.retryable:
        found = "accepted" if isinstance(answer, pb.SessionAccepted) else "retryable false"
        raise Nonconformance("a retryable refusal for lack of a place", found)


@pytest.mark.requirement("ERR-04")
@every(UNITS)
def test_a_status_about_a_unit_names_its_work_and_step(
    shard: ShardUnderTest, provoke: Provoke
) -> None:
    """A refused unit is looked for under its own work id and step; the session must live on."""
    refusal = provoke(shard)
    assert refusal.exchange is not None, "a unit was refused"
    wanted = (refusal.exchange.work_id, refusal.exchange.step)
    found = (refusal.status.work_id, refusal.status.idempotency_step)
    if found != wanted:
        raise Nonconformance(
            f"work {wanted[0]!r} step {wanted[1]} in the status", f"work {found[0]!r} {found[1]}"
        )


@pytest.mark.requirement("ERR-05")
def test_the_log_holds_no_payload_and_no_credential(
    another_shard: Callable[..., ShardUnderTest],
) -> None:
    """A runtime of its own works, refuses and is cancelled; then its log is searched."""
    shard = another_shard(MESHNET_PLANTED=PLANTED)
    tokens = shard.tokens(4)
    seam = shard.seam()
    with shard.session(seam) as session:
        session.prefill(tokens.rows(0, 3))
        session.decode(tokens.rows(3, 4))
        session.send(session.client.cancel(reason=f"Bearer {PLANTED}"))
    for provoke in (*UNITS.values(), *OPENS.values()):
        provoke(shard)
    shard.target.stop()
    log = shard.target.log()
    found = [what for what, text in _traces(tokens).items() if text in log]
    if found:
        raise Nonconformance("a log without payloads and credentials", ", ".join(found))


def _traces(tokens: Tensor) -> dict[str, str]:
    """What a payload looks like in a log: hex, base64, escaped, or its first numbers."""
    payload = bytes(tokens.data)[:24]
    numbers = [repr(float(one)) for one in tokens.to_float32().reshape(-1)[:3]]
    return {
        "the planted credential": PLANTED,
        "the payload in hex": payload.hex(),
        "the payload in base64": base64.b64encode(payload).decode(),
        "the payload as Python bytes": repr(payload)[2:-1],
        "the payload as numbers": ", ".join(numbers),
    }
