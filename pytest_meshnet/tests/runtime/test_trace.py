"""The trace of a test: frames in a line each, and the one at which an expectation broke, marked."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.results import check_code
from pytest_meshnet.runtime.session import Session
from pytest_meshnet.runtime.trace import HERE, Trace, describe
from pytest_meshnet.runtime.transport import StreamEnd
from pytest_meshnet.tests.runtime.scripted import (
    Answer,
    ack,
    opening,
    refusal,
    result,
    scripted,
    states,
    unopened,
)


def unit(session: Session) -> None:
    session.applied(session.exchange(session.client.chunk([states(1)])))


def refused(session: Session) -> None:
    session.refused(session.exchange(session.client.chunk([states(1)])))


def coded(session: Session) -> None:
    exchange = session.exchange(session.client.chunk([states(1)]))
    assert exchange.status is not None
    check_code(exchange.status, pb.ERROR_CODE_CANCELLED)


def late(message: pb.SessionRequest) -> list[pb.SessionResponse | StreamEnd]:
    """A full answer, and an ack of nobody's with the next frame."""
    stray = pb.SessionResponse(ack=pb.Ack(work_id="nobody"))
    return [ack(message), stray, result(message)]


KINDS: dict[str, tuple[Callable[[Session], None], Answer, str]] = {
    "a refusal of what should be applied": (
        unit,
        lambda message: [refusal(message)],
        "<- status CACHE_MISS work='w1'",
    ),
    "a duplicate of nothing": (
        unit,
        lambda message: [ack(message, duplicate=True)],
        "<- ack work='w1'",
    ),
    "an ack of what should be refused": (
        refused,
        lambda message: [ack(message), result(message)],
        "<- ack work='w1'",
    ),
    "another code": (coded, lambda message: [refusal(message)], "<- status CACHE_MISS work='w1'"),
    "an answer that is not due": (unit, late, "<- ack work='nobody'"),
    "silence": (
        unit,
        lambda message: [ack(message)],
        "<- nothing, where the answer to work 'w1' step 1 was due",
    ),
    "an end too early": (
        unit,
        lambda message: [StreamEnd("INTERNAL", "oops")],
        "<- end INTERNAL oops",
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_frame_at_which_the_expectation_broke_is_marked(kind: str) -> None:
    act, answer, marked = KINDS[kind]
    session = scripted(answer)
    with pytest.raises(Nonconformance) as caught:
        act(session)
    lines = session._trace.text(broken=caught.value.broken).splitlines()
    assert len(lines) >= 3
    assert [marked in line for line in lines if line.endswith(HERE)] == [True]


def test_a_refused_open_is_marked() -> None:
    status = pb.ShardStatus(terminal=True)
    status.error.code = pb.ERROR_CODE_EPOCH_STALE
    session = unopened(lambda message: [pb.SessionResponse(status=status)])
    with pytest.raises(Nonconformance) as caught:
        session.open()
    last = session._trace.text(broken=caught.value.broken).splitlines()[-1]
    assert "<- status EPOCH_STALE" in last
    assert last.endswith(HERE)


def test_a_stream_that_does_not_end_is_marked_at_its_silence() -> None:
    session = scripted(lambda message: [])
    with pytest.raises(Nonconformance) as caught:
        session.drain()
    last = session._trace.text(broken=caught.value.broken).splitlines()[-1]
    assert last.endswith(f"<- nothing, where the end of the stream was due{HERE}")


def test_nothing_is_marked_where_nobody_knows_the_frame() -> None:
    session = scripted(lambda message: [ack(message), result(message)])
    unit(session)
    finding = Nonconformance("equal rows", "other rows")
    assert HERE not in session._trace.text(broken=finding.broken)
    assert HERE not in session._trace.text()


def filled(count: int) -> Trace:
    trace = Trace()
    for step in range(count):
        trace.received("1", pb.SessionResponse(ack=pb.Ack(work_id=f"w{step}")))
    return trace


def line_of(step: int) -> str:
    return describe(pb.SessionResponse(ack=pb.Ack(work_id=f"w{step}")))


def test_a_long_trace_shows_its_end_and_says_what_came_before() -> None:
    lines = filled(50).text(last=40).splitlines()
    assert lines[0] == "... 10 earlier frames"
    assert "w10'" in lines[1]
    assert "w49'" in lines[-1]
    assert len(lines) == 41


def test_a_marked_frame_far_back_is_among_those_that_are_shown() -> None:
    lines = filled(100).text(last=40, broken=line_of(30)).splitlines()
    assert [line for line in lines if line.endswith(HERE)] == [
        line for line in lines if "'w30'" in line
    ]
    assert "'w0'" in lines[0]
    assert lines[-1] == "... 60 later frames"
    assert len(lines) == 41


def test_of_equal_frames_the_newest_is_marked() -> None:
    trace = Trace()
    for _ in range(3):
        trace.received("1", pb.SessionResponse(ack=pb.Ack(work_id="w")))
    lines = trace.text(broken=describe(pb.SessionResponse(ack=pb.Ack(work_id="w")))).splitlines()
    assert [line.endswith(HERE) for line in lines] == [False, False, True]


def test_what_we_sent_is_never_marked() -> None:
    trace = Trace()
    message = opening(pb.SessionRequest(open=pb.SessionOpen()))[0]
    assert isinstance(message, pb.SessionResponse)
    trace.sent("1", message)
    assert HERE not in trace.text(broken=describe(message))


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (
            pb.ReleaseRequest(route_session_id="s", route_epoch=2),
            "Release session='s' epoch=2",
        ),
        (pb.ReleaseResponse(released=True), "Release released=True"),
        (
            pb.ReleaseResponse(error=pb.ShardError(code=pb.ERROR_CODE_EPOCH_STALE, detail="old")),
            "Release released=False EPOCH_STALE 'old'",
        ),
        (
            pb.CancelRequest(route_session_id="s", route_epoch=2, work_id="w1"),
            "Cancel session='s' epoch=2 work='w1'",
        ),
        (pb.CancelResponse(cancelled_work_items=3), "Cancel cancelled_work_items=3"),
    ],
)
def test_unary_calls_are_described_too(message: object, text: str) -> None:
    assert describe(message) == text  # type: ignore[arg-type]


def test_a_unit_shows_in_what_its_identity_is_not_that_of_its_open() -> None:
    session = scripted(lambda message: [ack(message), result(message)])
    honest = session.client.chunk([states(1)])
    session.send(honest)
    other = session.client.chunk([states(1)])
    other.chunk.envelope.route_epoch += 1
    other.chunk.envelope.fingerprint.model_artifact_digest = "cc"
    session.send(other)
    first, second = session._trace.text().splitlines()[-2:]
    assert "unlike" not in first
    assert second.endswith("(unlike its open: epoch=2, fingerprint=artifact='cc' recipe='bb')")


def test_an_open_shows_its_digests() -> None:
    session = scripted(lambda message: [])
    assert "artifact='aa' recipe='bb'" in session._trace.text()
