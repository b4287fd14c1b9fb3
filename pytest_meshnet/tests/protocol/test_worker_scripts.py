"""A Worker under any script: each unit answered once, credit kept, state what the acks say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_meshnet.protocol.codec import encode_bundle
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import Tick
from pytest_meshnet.tests.protocol.linked import Bench, Link, rows, values_of

NAMES = ("a", "b")


@dataclass(frozen=True)
class Op:
    """One thing that happens to one of the sessions. `number` means what the kind makes of it."""

    kind: str
    session: str
    number: int
    shift: int
    final: bool


def _prefill(link: Link, op: Op) -> None:
    expected = max(0, link.client.sent_len + op.shift)
    link.prefill(*range(1, op.number + 2), expected=expected, final=op.final)


def _fresh(link: Link, op: Op) -> None:
    link.prefill(*range(1, op.number + 2), fresh=True, final=op.final)


def _decode(link: Link, op: Op) -> None:
    link.decode(op.number, expected=max(0, link.client.sent_len + op.shift))


def _stateless(link: Link, op: Op) -> None:
    link.prefill(*range(1, op.number + 2), mode=pb.CACHE_MODE_STATELESS)


def _corrupt(link: Link, op: Op) -> None:
    bundle = encode_bundle([rows(op.number)])
    bundle.tensors[0].checksum.value = b"nope"
    link.prefill(op.number, bundle=bundle)


def _expiring(link: Link, op: Op) -> None:
    link.decode(op.number, deadline=link.bench.now + 1)


def _old_step(link: Link, op: Op) -> None:
    step = max(0, link.client.next_step - 1 - op.number)
    link.decode(9, step=step, work_id=f"old{len(link.sent)}")


def _again(link: Link, op: Op) -> None:
    """Send the newest unit once more, as it was."""
    newest = link.client.next_step - 1
    link.send(next(message for message in link.sent if _step_of(message) == newest))


def _time_passes(link: Link, op: Op) -> None:
    link.bench.now += 2
    link.bench.post(Tick())


def _unary_cancel(link: Link, op: Op) -> None:
    link.bench.call(pb.CancelRequest(route_session_id=op.session, route_epoch=1))


def _compute(link: Link, op: Op) -> None:
    if link.bench.waiting:
        link.bench.compute(fail=op.number == 0 and op.final)


KINDS: dict[str, Callable[[Link, Op], None]] = {
    "prefill": _prefill,
    "fresh": _fresh,
    "decode": _decode,
    "stateless": _stateless,
    "corrupt": _corrupt,
    "expiring": _expiring,
    "old-step": _old_step,
    "again": _again,
    "time-passes": _time_passes,
    "cancel": lambda link, op: link.send(link.client.cancel()),
    "cancel-one": lambda link, op: link.send(link.client.cancel(f"w{op.number}")),
    "unary-cancel": _unary_cancel,
    "release": lambda link, op: link.send(link.client.release()),
    "compute": _compute,
    "compute-more": _compute,
}
scripts = st.lists(
    st.builds(
        Op,
        st.sampled_from(list(KINDS)),
        st.sampled_from(NAMES),
        st.integers(0, 4),
        st.sampled_from([0, 0, 0, -1, 1]),
        st.booleans(),
    ),
    max_size=40,
)


@settings(max_examples=150, derandomize=True, deadline=None)
@given(script=scripts)
def test_any_script_ends_with_all_answered_and_the_state_that_the_acks_tell(
    script: list[Op],
) -> None:
    bench = Bench()
    links = {name: bench.session(name, credits_granted=4) for name in NAMES}
    for link in links.values():
        link.prefill(1, 2)
    bench.compute_all()
    for op in script:
        KINDS[op.kind](links[op.session], op)
    bench.compute_all()
    for link in links.values():
        _check_answered_once(link)
        _check_state(link)


def _check_answered_once(link: Link) -> None:
    units = [_work_of(message) for message in link.sent if _work_of(message)]
    answered = [
        message.ack.work_id or message.status.work_id
        for message in link.messages
        if message.WhichOneof("kind") in ("ack", "status")
    ]
    assert sorted(answered) == sorted(units)
    session = link.bench.worker.table.find(link.client.seam.session_id)
    assert session is not None
    assert session.outstanding == 0
    assert link.client.credit == link.client.limits.credits
    assert not link.client.in_flight


def _work_of(message: pb.SessionRequest) -> str:
    return message.chunk.envelope.work_id or message.decode.work_id


def _step_of(message: pb.SessionRequest) -> int:
    return message.chunk.envelope.idempotency_step or message.decode.idempotency_step


def _check_state(link: Link) -> None:
    """Replay what was acked: it must give the lengths that were told, and the same results."""
    requests = {_work_of(message): message for message in link.sent}
    results = {
        message.chunk.envelope.work_id: values_of(message.chunk.bundle)
        for message in link.messages
        if message.HasField("chunk")
    }
    acks = [
        message.ack
        for message in link.messages
        if message.HasField("ack") and not message.ack.duplicate
    ]
    steps = [ack.idempotency_step for ack in acks]
    assert steps == sorted(set(steps))
    assert results.keys() == {ack.work_id for ack in acks}
    held: list[int] = []
    for ack in acks:
        expected, mode, values = _asked(requests[ack.work_id])
        before = [] if mode == pb.CACHE_MODE_STATELESS or expected == 0 else held
        assert len(before) == expected
        sums = list(accumulate([*before, *values]))
        assert results[ack.work_id] == sums[expected:]
        if mode == pb.CACHE_MODE_STATELESS:
            assert ack.cache_result.past_len == 0
        else:
            held = [*before, *values]
            assert ack.cache_result.past_len == len(held)
    session = link.bench.worker.table.find(link.client.seam.session_id)
    assert session is not None
    assert session.held in (0, len(held))


def _asked(message: pb.SessionRequest) -> tuple[int, int, list[int]]:
    if message.HasField("decode"):
        decode = message.decode
        bundle = pb.TensorBundle(tensors=[decode.tensor])
        return decode.expected_past_len, pb.CACHE_MODE_DECODE, values_of(bundle)
    expectation = message.chunk.envelope.cache_expectation
    return expectation.expected_past_len, expectation.mode, values_of(message.chunk.bundle)
