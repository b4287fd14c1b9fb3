"""What an accepted session may use: settled limits, compression, a place."""

import math
from contextlib import ExitStack

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_meshnet.protocol.codec import encode_bundle, encode_tensor
from pytest_meshnet.protocol.flow import FlowLimits
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.exchange import Exchange
from pytest_meshnet.protocol.tensors import Tensor
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.opening import edited_session
from pytest_meshnet.runtime.results import check_code, rows_of
from pytest_meshnet.runtime.session import Session
from pytest_meshnet.runtime.shard import ShardUnderTest
from pytest_meshnet.runtime.trace import describe

from .side_by_side import declared_places, still_holds

# Flow limits ------------------------------------------------------------------------------------

LIMITS = (
    "credits_granted",
    "max_inflight_chunks",
    "max_chunk_bytes",
    "max_prefill_chunk_tokens",
)


# Shares of what the worker declares: below it, at it, above it; None proposes nothing. A chunk is
# never proposed so small that one token might not fit.
shares = st.one_of(st.none(), st.just(1.0), st.floats(0.0, 0.99), st.floats(1.01, 8.0))
chunk_shares = st.one_of(st.none(), st.just(1.0), st.floats(0.75, 0.99), st.floats(1.01, 8.0))


@pytest.mark.requirement("OPEN-08")
@settings(max_examples=40)
@given(share=st.tuples(shares, shares, chunk_shares, shares))
@example(share=(None, None, None, None))
@example(share=(1.0, 1.0, 1.0, 1.0))
@example(share=(8.0, 8.0, 8.0, 8.0))
@example(share=(0.0, 0.0, 0.9, 0.0))
def test_settled_limits_are_positive_and_the_strictest_of_both_sides(
    shard: ShardUnderTest, share: tuple[float | None, ...]
) -> None:
    """The client proposes less, as much or more of each limit, or nothing, in every combination."""
    declared = shard.report.flow_control
    proposed = pb.FlowControl()
    for name, part in zip(LIMITS, share, strict=True):
        if part is not None:
            setattr(proposed, name, max(1, math.floor(part * getattr(declared, name))))
    with shard.session(proposed=FlowLimits.from_proto(proposed)) as session:
        settled = session.client.accepted.flow_control
        for name in LIMITS:
            _check_settled(name, *(getattr(one, name) for one in (settled, proposed, declared)))


@pytest.mark.requirement("OPEN-08")
@pytest.mark.parametrize("credits", [0, 1, 2])
def test_a_session_is_never_left_without_credit(shard: ShardUnderTest, credits: int) -> None:
    """accepted may grant no credit at first, when a grant follows: one unit must be possible."""
    with shard.session(proposed=FlowLimits(credits=credits)) as session:
        session.prefill(shard.tokens(1))


def _check_settled(name: str, settled: int, proposed: int, declared: int) -> None:
    bounds = [bound for bound in (proposed, declared) if bound > 0]
    lowest = 0 if name == "credits_granted" else 1
    if not lowest <= settled <= min(bounds, default=settled):
        raise Nonconformance(
            f"accepted {name} from {lowest} to {min(bounds, default='any')}: the client proposed "
            f"{proposed}, GetCapability declares {declared}",
            f"{settled}",
        )


# Compression ------------------------------------------------------------------------------------

NONE, ZSTD, UNKNOWN = pb.COMPRESSION_NONE, pb.COMPRESSION_ZSTD, 77
OFFERS = {
    "nothing": [],
    "none": [NONE],
    "zstd": [ZSTD],
    "none-and-zstd": [NONE, ZSTD],
    "unknown": [UNKNOWN],
    "unknown-and-zstd": [UNKNOWN, ZSTD],
}
offers = pytest.mark.parametrize("offer", OFFERS.values(), ids=OFFERS)


@pytest.mark.requirement("OPEN-09")
@offers
def test_accepted_compression_is_known_to_both_sides(
    shard: ShardUnderTest, offer: list[int]
) -> None:
    """The client offers less, as much or more than the worker can. NONE needs no mention."""
    with _offering(shard, offer) as session:
        accepted = set(session.client.accepted.accepted_compression)
    worker = {NONE, *shard.report.accepted_compression}
    both = worker & {NONE, *offer}
    if not accepted <= both:
        raise Nonconformance(
            f"accepted_compression within {sorted(both)}: {offer} were offered, GetCapability "
            f"lists {sorted(worker)}",
            f"{sorted(accepted)}",
        )


@pytest.mark.requirement("OPEN-09")
@offers
def test_an_uncompressed_payload_is_accepted_whatever_was_offered(
    shard: ShardUnderTest, offer: list[int]
) -> None:
    """Chunk and decode step come uncompressed, also where only ZSTD was offered."""
    prompt, step = _two_tokens(shard)
    alone = shard.undisturbed(prompt, step)
    with _offering(shard, offer) as session:
        shard.check_equal(session.prefill(prompt), alone[:1], "prefill after this offer")
        shard.check_equal(session.decode(step), alone[1:], "decode after this offer")


@pytest.mark.requirement("OPEN-09")
def test_every_compression_that_was_accepted_may_be_used(shard: ShardUnderTest) -> None:
    """A chunk in each of them, NONE among them, gives the result of any other."""
    prompt, step = _two_tokens(shard)
    alone = shard.undisturbed(prompt, step)
    with _offering(shard, [NONE, ZSTD]) as session:
        accepted = session.client.accepted.accepted_compression
        for compression in (NONE, ZSTD) if ZSTD in accepted else (NONE,):
            packed = encode_bundle([prompt], compression=compression)
            message = session.client.chunk([prompt], bundle=packed, fresh=True)
            rows = rows_of([session.applied(session.exchange(message))])
            shard.check_equal(rows, alone[:1], f"prefill in compression {compression}")
            shard.check_equal(session.decode(step), alone[1:], "plain decode behind it")


@pytest.mark.requirement("OPEN-09")
@pytest.mark.parametrize("offer", [[], [NONE]], ids=["nothing", "none"])
def test_a_compression_that_was_not_accepted_is_refused_or_read_and_harms_nothing(
    shard: ShardUnderTest, offer: list[int]
) -> None:
    """Chunk and decode step come compressed all the same; what is refused comes again, plain.

    The agreement binds the client. A worker that can read more may, and must then read it right.
    """
    prompt, step = _two_tokens(shard)
    alone = shard.undisturbed(prompt, step)
    with _offering(shard, offer) as session:
        client = session.client
        packed = client.chunk([prompt], bundle=encode_bundle([prompt], compression=ZSTD))
        first = _read_or_refused(session, packed) or session.exchange(client.chunk([prompt]))
        shard.check_equal(session.result(first), alone[:1], "prefill")
        packed = client.decode(encode_tensor(step, compression=ZSTD))
        second = _read_or_refused(session, packed) or session.exchange(client.decode(step))
        shard.check_equal(session.result(second), alone[1:], "decode")


def _read_or_refused(session: Session, message: pb.SessionRequest) -> Exchange | None:
    """Send a unit and return its exchange when it was applied, None when it was refused."""
    exchange = session.exchange(message)
    if exchange.ack is None:
        session.refused(exchange)
        return None
    return session.applied(exchange)


def _offering(shard: ShardUnderTest, offer: list[int]) -> Session:
    def change(open: pb.SessionOpen) -> None:
        open.accepted_compression[:] = offer

    return edited_session(shard, change)


def _two_tokens(shard: ShardUnderTest, key: int = 0) -> tuple[Tensor, Tensor]:
    tokens = shard.tokens(2, key)
    return tokens.rows(0, 1), tokens.rows(1, 2)


# Places -----------------------------------------------------------------------------------------


def _fill(shard: ShardUnderTest, stack: ExitStack) -> list[Session]:
    """Take every place with a session that holds one token."""
    sessions = []
    for key in range(declared_places(shard)):
        session = stack.enter_context(shard.session())
        session.prefill(_two_tokens(shard, key)[0])
        sessions.append(session)
    return sessions


def _refuse_one_more(shard: ShardUnderTest) -> None:
    with shard.unopened() as session:
        answer = session.try_open(session.client.open())
    if isinstance(answer, pb.SessionAccepted):
        raise Nonconformance(
            f"RESOURCE_EXHAUSTED: all {declared_places(shard)} places are held by live streams",
            "accepted",
        )
    check_code(answer, pb.ERROR_CODE_RESOURCE_EXHAUSTED)
    if not answer.error.retryable:
        raise Nonconformance("retryable", describe(pb.SessionResponse(status=answer)))


@pytest.mark.requirement("OPEN-10")
def test_one_open_too_many_is_refused_and_disturbs_no_running_session(
    small_shard: ShardUnderTest,
) -> None:
    """Every place is taken; three more clients knock, and every session goes on where it was."""
    shard = small_shard
    pairs = [_two_tokens(shard, key) for key in range(declared_places(shard))]
    alone = [shard.undisturbed(*pair)[1:] for pair in pairs]
    with ExitStack() as stack:
        sessions = _fill(shard, stack)
        # A Shard may keep fewer states than sessions: what it evicted before, no open disturbed.
        held = [still_holds(one, pairs[key][1]) for key, one in enumerate(sessions)]
        assert held[-1], "the session used last keeps its state: expected true, actual false"
        for _ in range(3):
            _refuse_one_more(shard)
        for key, session in enumerate(sessions):
            if not held[key]:
                continue
            what = f"decode of session {key + 1} of {len(sessions)} behind refused opens"
            shard.check_equal(session.decode(pairs[key][1]), alone[key], what)


@pytest.mark.requirement("OPEN-10")
@pytest.mark.parametrize("end", ["half-closed", "dropped"])
def test_a_place_is_usable_again_when_its_stream_has_ended(
    small_shard: ShardUnderTest, end: str
) -> None:
    """One of the sessions ends, in good order or not; the next client gets its place, and works."""
    shard = small_shard
    prompt, step = _two_tokens(shard)
    alone = shard.undisturbed(prompt, step)
    with ExitStack() as stack:
        sessions = _fill(shard, stack)
        _refuse_one_more(shard)
        _end(sessions[-1], end)
        # Waits for the place, but not longer than the target may take to clean up.
        successor = stack.enter_context(shard.session())
        shard.check_equal(successor.prefill(prompt), alone[:1], "prefill in the freed place")
        shard.check_equal(successor.decode(step), alone[1:], "decode in the freed place")
        _refuse_one_more(shard)


def _end(session: Session, how: str) -> None:
    if how == "dropped":
        session.drop()
    else:
        session.half_close()
        session.wait_for_end()
