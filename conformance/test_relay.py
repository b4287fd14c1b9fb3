"""The relay: its hop changes no byte, and a session behind it is like any other."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.relay import PERFECT, RelayStream
from pytest_meshnet.runtime.results import joined
from pytest_meshnet.runtime.shard import ShardUnderTest
from pytest_meshnet.runtime.transport import StreamEnd

from . import (
    test_cancel,
    test_cancel_ends,
    test_deadline,
    test_decode,
    test_epoch,
    test_idem,
    test_prefill_chunks,
    test_prefill_state,
    test_release,
)

# Field 9999 as a varint, the unknown field of the golden vectors.
UNKNOWN = bytes.fromhex("b8e004b960")


class Recorder:
    """The far side of a hop: keeps the frames that arrive and answers with prepared messages."""

    def __init__(self, answers: list[pb.SessionResponse] | None = None) -> None:
        self.arrived: list[pb.SessionRequest | bytes] = []
        self.half_closed = self.dropped = False
        self._answers = deque(answers or ())

    def send(self, message: pb.SessionRequest | bytes) -> None:
        self.arrived.append(message)

    def receive(self, timeout: float) -> pb.SessionResponse | StreamEnd:
        return self._answers.popleft() if self._answers else StreamEnd("OK")

    def stop_reading(self) -> None:
        """Nothing is read ahead here."""

    def half_close(self) -> None:
        self.half_closed = True

    def drop(self) -> None:
        self.dropped = True


def check_frames(frames: list[bytes]) -> None:
    """Send frames through a hop and require the same bytes, in order, on its far side."""
    far = Recorder()
    near = RelayStream(far, PERFECT)
    for frame in frames:
        near.send(frame)
    near.half_close()
    if far.arrived != frames:
        found = [len(bytes(one)) if isinstance(one, bytes) else "a message" for one in far.arrived]
        raise Nonconformance(f"{len(frames)} frames as they were sent", f"frames of {found} bytes")
    if not far.half_closed or far.dropped:
        raise Nonconformance("a half-close on the far side", "none, or a lost stream")


def request(payload: bytes = b"\1\2\3\4") -> pb.SessionRequest:
    """A decode step with that payload."""
    message = pb.SessionRequest()
    message.decode.idempotency_step = 3
    message.decode.tensor.fragments.add(payload=payload)
    return message


def nested_unknown() -> bytes:
    """A step with an unknown field in the message, in the step and in its tensor."""
    message = request()
    message.decode.MergeFromString(UNKNOWN)
    message.decode.tensor.MergeFromString(UNKNOWN)
    return message.SerializeToString() + UNKNOWN


# An unknown field before the known one, a field given twice, and one with its default spelled out:
# legal protobuf that nobody writes like that a second time.
STRANGE = {
    "unknown-first": UNKNOWN + request().SerializeToString(),
    "given-twice": bytes.fromhex("1a021801") + bytes.fromhex("1a021802"),
    "default-spelled-out": bytes.fromhex("1a020800"),
    "long-varint": bytes.fromhex("1a03088100"),
    "unknown-nested": nested_unknown(),
    "empty": b"",
    "not-protobuf": b"\xff\xff\xff",
    "large": request(bytes(range(256)) * 15_000).SerializeToString(),
    "too-large": request(bytes(5 * 2**20)).SerializeToString(),
}


@pytest.mark.requirement("RELAY-01")
@pytest.mark.parametrize("frame", STRANGE.values(), ids=STRANGE)
def test_a_hop_hands_on_a_strange_frame_as_it_is(frame: bytes) -> None:
    """Faults row 108. An empty frame is a frame, and what is no protobuf is for others to judge."""
    check_frames([frame])
    check_frames([UNKNOWN, frame, b"", frame])


@pytest.mark.requirement("RELAY-01")
@given(frames=st.lists(st.binary(max_size=300), max_size=20))
@example(frames=[b"x"] * 300)
@settings(max_examples=60)
def test_a_hop_hands_on_any_binary_frames_in_order(frames: list[bytes]) -> None:
    """Faults rows 116, 142, 146: nothing is dropped, cut, joined or reordered, however many."""
    check_frames(frames)


@pytest.mark.requirement("RELAY-01")
@pytest.mark.parametrize("step", [0, 1, 2**64 - 1])
def test_a_hop_turns_a_message_into_its_bytes_with_its_unknown_fields(step: int) -> None:
    """Messages of the driver, among them one that a newer peer extended."""
    message = request()
    message.decode.idempotency_step = step
    message.decode.MergeFromString(UNKNOWN)
    far = Recorder()
    RelayStream(far, PERFECT).send(message)
    if far.arrived != [message.SerializeToString()]:
        raise Nonconformance("the bytes of the message", f"{far.arrived!r}")


@pytest.mark.requirement("RELAY-01")
@given(details=st.lists(st.text(max_size=20), min_size=1, max_size=8), unknown=st.booleans())
@example(details=["x" * 2**20, ""], unknown=True)
@settings(max_examples=40)
def test_a_hop_brings_every_answer_back_with_its_unknown_fields(
    details: list[str], unknown: bool
) -> None:
    """The way back, then the end of the stream, which every later receive repeats."""
    answers = []
    for detail in details:
        answer = pb.SessionResponse()
        answer.status.error.detail = detail
        answer.status.MergeFromString(UNKNOWN if unknown else b"")
        answers.append(answer)
    answers.append(pb.SessionResponse())
    sent = [answer.SerializeToString() for answer in answers]
    near = RelayStream(Recorder(answers), PERFECT)
    for number, frame in enumerate(sent):
        came = near.receive(1.0)
        found = came.code if isinstance(came, StreamEnd) else came.SerializeToString()
        if found != frame:
            raise Nonconformance(f"answer {number}: {frame!r}", f"{found!r}")
    for _ in range(2):
        if near.receive(1.0) != StreamEnd("OK"):
            raise Nonconformance("the end of the stream behind its answers", "something else")


# The same semantics -------------------------------------------------------------------------------

Scenario = Callable[[ShardUnderTest], None]

# The tests of the core and lifecycle requirements themselves, each on a session behind the relay.
SCENARIOS: dict[str, Scenario] = {
    "chunked-prefill": lambda shard: test_prefill_chunks.test_chunking_is_invisible(shard=shard),
    "fresh-prefill": partial(
        test_prefill_state.test_a_prefill_expecting_zero_starts_afresh, left="decoded", earlier=3
    ),
    "decode-forms": lambda shard: (
        test_decode.test_after_a_miss_the_right_step_gives_the_result_it_would_have_had(
            shard, [1, -1, 1], full=True
        )
    ),
    "miss-and-recovery": lambda shard: (
        test_decode.test_after_a_miss_the_right_step_gives_the_result_it_would_have_had(
            shard, [-1], full=False
        )
    ),
    "duplicates": partial(
        test_idem.test_copies_sent_back_to_back_are_applied_once, copies=3, full=False
    ),
    "old-steps": lambda shard: (
        test_idem.test_a_step_number_below_the_last_applied_is_a_duplicate_even_if_never_used(
            shard=shard
        )
    ),
    "stale-epoch": partial(
        test_epoch.test_an_open_below_the_highest_epoch_is_stale, lower=6, live=True
    ),
    "new-epoch-beside-the-old": partial(
        test_epoch.test_a_new_epoch_holds_nothing_of_the_old_one, live=True
    ),
    "new-epoch-after-the-old": partial(
        test_epoch.test_a_new_epoch_holds_nothing_of_the_old_one, live=False
    ),
    "release-in-band": partial(
        test_release.test_an_in_band_release_is_silent_and_leaves_a_usable_empty_stream,
        before="decode",
    ),
    "unary-release": partial(
        test_release.test_a_unary_release_is_true_once_and_false_without_an_error_thereafter,
        used=True,
    ),
    "cancel-in-band": partial(
        test_cancel.test_a_cancel_that_races_the_answer_leaves_one_outcome, how="in-band"
    ),
    "expired-step": partial(
        test_deadline.test_the_deadline_in_the_frame_holds_on_a_stream_without_one,
        unit=test_deadline.UNITS["decode-step"],
    ),
    "expired-chunk": partial(
        test_deadline.test_the_deadline_in_the_frame_holds_on_a_stream_without_one,
        unit=test_deadline.UNITS["append"],
    ),
    "lost-stream": partial(
        test_cancel_ends.test_a_prefill_cut_off_by_the_end_of_its_stream_is_never_used,
        chunks=[1, 2],
        ending="drop",
    ),
    "half-closed-prefill": partial(
        test_cancel_ends.test_a_prefill_cut_off_by_the_end_of_its_stream_is_never_used,
        chunks=[2],
        ending="half-close-in-flight",
    ),
}


@pytest.mark.requirement("RELAY-02")
@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_a_session_behind_a_relay_is_like_any_other(
    relayed_shard: ShardUnderTest, scenario: Scenario
) -> None:
    """The test of the direct session, from the same code, on one that has frames only."""
    scenario(relayed_shard)


@pytest.mark.requirement("RELAY-02")
def test_a_session_behind_a_relay_gives_what_a_direct_one_gives(
    shard: ShardUnderTest, relayed_shard: ShardUnderTest
) -> None:
    """Prefill and decode steps both ways, with a deadline in the frames that is far away."""
    tokens = shard.tokens(5)
    prompt, steps = tokens.rows(0, 3), [tokens.rows(3, 4), tokens.rows(4, 5)]
    expected = shard.undisturbed(prompt, *steps)
    deadline = time.time_ns() + 10 * test_deadline.MINUTE
    with relayed_shard.session() as session:
        rows = session.prefill(prompt, chunk_tokens=2)
        for step in steps:
            message = session.client.decode(step, deadline=deadline)
            rows = joined(rows, session.result(session.send_unit(message)))
    shard.check_equal(rows[-3:], expected[-3:], "a relayed session against a direct one")


@pytest.mark.requirement("RELAY-02")
def test_a_half_close_behind_a_relay_delivers_everything_and_then_ends(
    relayed_shard: ShardUnderTest,
) -> None:
    """The units are still on their way when the near end says that it sends no more."""
    tokens = relayed_shard.tokens(1)
    expected = relayed_shard.undisturbed(tokens)
    with relayed_shard.session() as session:
        exchange = session.send_unit(session.client.chunk([tokens]))
        session.half_close()
        session.wait_or_end(exchange)
        session.applied(exchange)
        session.wait_for_end()
        rows = exchange.tensors[0].to_float32()[0]
    relayed_shard.check_equal(rows, expected, "the result behind a half-close")


@pytest.mark.requirement("RELAY-02")
def test_a_unary_cancel_ends_the_units_of_a_session_behind_a_relay(
    relayed_slow_shard: ShardUnderTest,
) -> None:
    """The test of the direct session again, on units that stay in flight."""
    test_cancel.test_a_unary_cancel_of_all_ends_every_unit_and_tells_how_many(relayed_slow_shard, 2)


@pytest.mark.requirement("RELAY-02")
def test_the_unary_cancel_and_release_find_a_session_behind_a_relay(
    relayed_shard: ShardUnderTest,
) -> None:
    """A session is its id and epoch: the calls come from no connection that it knows."""
    tokens = relayed_shard.tokens(3)
    seam = relayed_shard.seam()
    with relayed_shard.session(seam) as session:
        session.prefill(tokens.rows(0, 2))
        exchange = session.send_unit(session.client.decode(tokens.rows(2, 3)))
        error, count = relayed_shard.cancel(seam)
        session.wait(exchange)
        if exchange.ack is None:
            session.refused(exchange, pb.ERROR_CODE_CANCELLED)
        if error.code or count != int(exchange.ack is None):
            raise Nonconformance(
                f"{int(exchange.ack is None)} unit cancelled, as its answer says",
                f"{count}, error code {error.code}",
            )
        error, released = relayed_shard.release(seam)
    if error.code or not released:
        raise Nonconformance("released", f"released {released}, error code {error.code}")
