"""The place of open: it comes first, and once."""

from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.client import SeamClient
from pytest_meshnet.protocol.machines.exchange import Seam
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.opening import answers, edited_open, only_refusal
from pytest_meshnet.runtime.results import check_code
from pytest_meshnet.runtime.session import Session
from pytest_meshnet.runtime.shard import ShardUnderTest
from pytest_meshnet.runtime.trace import describe

Build = Callable[[ShardUnderTest, SeamClient], pb.SessionRequest]


def _grant(shard: ShardUnderTest, client: SeamClient) -> pb.SessionRequest:
    return pb.SessionRequest(flow_control=pb.FlowControl(credits_granted=8))


FIRST: dict[str, Build] = {
    "prefill": lambda shard, client: client.chunk([shard.tokens(1)]),
    "unfinished-prefill": lambda shard, client: client.chunk([shard.tokens(1)], final=False),
    "stateless": lambda shard, client: client.chunk(
        [shard.tokens(1)], mode=pb.CACHE_MODE_STATELESS
    ),
    "decode": lambda shard, client: client.decode(shard.tokens(1)),
    "decode-in-full-form": lambda shard, client: client.chunk(
        [shard.tokens(1)], mode=pb.CACHE_MODE_DECODE
    ),
    "grant": _grant,
    "release": lambda shard, client: client.release(),
    "cancel": lambda shard, client: client.cancel(),
    "no-kind": lambda shard, client: pb.SessionRequest(),
}


@pytest.mark.requirement("OPEN-01")
@pytest.mark.parametrize("kind", FIRST)
def test_a_message_before_open_ends_the_stream_with_one_terminal_status(
    shard: ShardUnderTest, kind: str
) -> None:
    """A legal message of every other kind comes first on a new stream, and nothing follows it."""
    # faults.md 7
    only_refusal(answers(shard, FIRST[kind](shard, SeamClient(shard.seam()))))


@pytest.mark.requirement("OPEN-01")
@pytest.mark.parametrize("kind", FIRST)
def test_an_open_behind_another_message_is_void(shard: ShardUnderTest, kind: str) -> None:
    """The open comes second: it must not be accepted, and its epoch must not count as used."""
    seam = shard.seam()
    only_refusal(answers(shard, FIRST[kind](shard, SeamClient(seam)), SeamClient(seam).open()))
    with shard.session(seam):
        pass  # Epochs are single-use: an accepted open before would have spent this one.


@pytest.mark.requirement("OPEN-01")
def test_a_chunk_before_open_is_not_computed(shard: ShardUnderTest) -> None:
    """A prefill comes before the open of its session, which must hold nothing when it is opened."""
    seam = shard.seam()
    only_refusal(answers(shard, SeamClient(seam).chunk([shard.tokens(1)])))
    with shard.session(seam) as session:
        late = session.exchange(session.client.decode(shard.tokens(1), expected=1))
        held = session.refused(late, pb.ERROR_CODE_CACHE_MISS).error.actual_past_len
        if held != 0:
            raise Nonconformance("actual_past_len 0 in a new session", f"{held}")


numbers = st.integers(0, 2**32 - 1)
words = st.text(max_size=20)
tensors = st.builds(
    pb.NamedTensor, name=words, shape=st.lists(numbers, max_size=3), dtype=st.integers(0, 9)
)
envelopes = st.builds(
    pb.Envelope,
    schema_version=st.integers(0, 3),
    work_id=words,
    route_session_id=words,
    route_epoch=numbers,
    phase=st.integers(0, 5),
    position=st.builds(pb.PositionSpan, first_position=numbers, token_count=numbers),
    idempotency_step=numbers,
    deadline_unix_nanos=st.integers(-(2**62), 2**62),
)
bundles = st.builds(
    pb.TensorBundle, bundle_version=st.integers(0, 2), tensors=st.lists(tensors, max_size=2)
)
names = {"route_session_id": words, "route_epoch": numbers, "work_id": words}
not_opens = st.one_of(
    st.builds(
        pb.SessionRequest, chunk=st.builds(pb.ActivationChunk, envelope=envelopes, bundle=bundles)
    ),
    st.builds(
        pb.SessionRequest,
        decode=st.builds(
            pb.DecodeStep,
            idempotency_step=numbers,
            position=numbers,
            expected_past_len=numbers,
            tensor=tensors,
            work_id=words,
        ),
    ),
    st.builds(
        pb.SessionRequest,
        flow_control=st.builds(
            pb.FlowControl, credits_granted=numbers, max_inflight_chunks=numbers
        ),
    ),
    st.builds(pb.SessionRequest, release=st.builds(pb.ReleaseSignal, **names)),
    st.builds(pb.SessionRequest, cancel=st.builds(pb.CancelSignal, **names, reason=words)),
)


@pytest.mark.requirement("OPEN-01")
@settings(max_examples=30)
@given(message=not_opens)
@example(message=pb.SessionRequest(decode=pb.DecodeStep()))
@example(message=pb.SessionRequest(chunk=pb.ActivationChunk()))
def test_any_content_before_open_ends_the_stream(
    shard: ShardUnderTest, message: pb.SessionRequest
) -> None:
    """Whatever a first message holds, nonsense included, it is refused for not being an open."""
    only_refusal(answers(shard, message))


def _again(seam: Seam) -> pb.SessionRequest:
    return SeamClient(seam).open()


def _next_epoch(seam: Seam) -> pb.SessionRequest:
    return edited_open(seam, lambda open: setattr(open, "route_epoch", seam.epoch + 1))


def _other_session(seam: Seam) -> pb.SessionRequest:
    other = f"{seam.session_id}-other"
    return edited_open(seam, lambda open: setattr(open, "route_session_id", other))


def _other_artifact(seam: Seam) -> pb.SessionRequest:
    def change(open: pb.SessionOpen) -> None:
        open.fingerprint.model_artifact_digest = "sha256:" + "0" * 64

    return edited_open(seam, change)


SECOND: dict[str, Callable[[Seam], pb.SessionRequest]] = {
    "the-same": _again,
    "next-epoch": _next_epoch,
    "other-session": _other_session,
    "other-artifact": _other_artifact,
}


@pytest.mark.requirement("OPEN-11")
@pytest.mark.parametrize("second", SECOND)
def test_a_second_open_is_refused_and_leaves_the_session_alone(
    shard: ShardUnderTest, second: str
) -> None:
    """An open follows a prefill on the same stream; the decode steps behind it must not notice."""
    tokens = shard.tokens(3)
    prompt, step, last = (tokens.rows(n, n + 1) for n in range(3))
    alone = shard.undisturbed(prompt, step, last)
    with shard.session() as session:
        session.prefill(prompt)
        session.send(SECOND[second](session.client.seam))
        shard.check_equal(session.decode(step), alone[1:2], "decode behind a second open")
        shard.check_equal(session.decode(last), alone[2:], "the decode after that")
    _check_refused_once(session)


@pytest.mark.requirement("OPEN-11")
@pytest.mark.parametrize("second", SECOND)
def test_a_second_open_does_not_disturb_a_prefill_under_way(
    shard: ShardUnderTest, second: str
) -> None:
    """The second open comes between two chunks of a prefill, which goes on where it was."""
    tokens = shard.tokens(2)
    alone = shard.undisturbed(tokens)
    with shard.session() as session:
        session.prefill_chunks(tokens.rows(0, 1), [1], finish=False)
        session.send(SECOND[second](session.client.seam))
        rest = session.prefill_chunks(tokens.rows(1, 2), [1])
    shard.check_equal(rest, alone[-1:], "the chunk behind a second open")
    _check_refused_once(session)


def _check_refused_once(session: Session) -> None:
    """Answers of one stream may come in any order: ask only when it has ended."""
    refusals = session.client.strays
    if len(refusals) != 1:
        came = "; ".join(describe(pb.SessionResponse(status=one)) for one in refusals)
        raise Nonconformance("one status that refuses the second open", came or "none")
    check_code(refusals[0])
