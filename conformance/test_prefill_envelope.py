"""A chunk must belong to its stream, say what it is, and run the layers that its open named."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from itertools import combinations
from typing import TYPE_CHECKING

import pytest

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.tensors import Tensor
from pytest_meshnet.runtime.errors import Nonconformance, NotProvoked
from pytest_meshnet.runtime.session import Session
from pytest_meshnet.runtime.shard import ShardUnderTest

from .side_by_side import places

if TYPE_CHECKING:
    from pytest_meshnet.runtime.shard import Rows

EPOCH = 7


def other_session(envelope: pb.Envelope) -> None:
    envelope.route_session_id += "-other"


def no_session(envelope: pb.Envelope) -> None:
    envelope.ClearField("route_session_id")


def lower_epoch(envelope: pb.Envelope) -> None:
    envelope.route_epoch = EPOCH - 1


def no_epoch(envelope: pb.Envelope) -> None:
    envelope.ClearField("route_epoch")


def higher_epoch(envelope: pb.Envelope) -> None:
    envelope.route_epoch = EPOCH + 1


def other_artifact(envelope: pb.Envelope) -> None:
    envelope.fingerprint.model_artifact_digest = "sha256:" + "0" * 64


def other_recipe(envelope: pb.Envelope) -> None:
    envelope.fingerprint.runtime_recipe_digest = "sha256:" + "0" * 64


def no_fingerprint(envelope: pb.Envelope) -> None:
    envelope.ClearField("fingerprint")


def other_start(envelope: pb.Envelope) -> None:
    envelope.shard_range.start_layer += 1


def other_end(envelope: pb.Envelope) -> None:
    envelope.shard_range.end_layer += 1


def other_effective_start(envelope: pb.Envelope) -> None:
    envelope.shard_range.effective_start_layer += 1


def no_range(envelope: pb.Envelope) -> None:
    envelope.ClearField("shard_range")


def no_schema(envelope: pb.Envelope) -> None:
    envelope.ClearField("schema_version")


def newer_schema(envelope: pb.Envelope) -> None:
    envelope.schema_version = 999  # type: ignore[assignment]


FINGERPRINT = (pb.ERROR_CODE_FINGERPRINT_MISMATCH,)
RANGE = (pb.ERROR_CODE_SHARD_RANGE_MISMATCH,)
SCHEMA = (pb.ERROR_CODE_SCHEMA_UNSUPPORTED,)
STALE = (pb.ERROR_CODE_EPOCH_STALE,)
# A field that is absent may be called by its own code or be corrupt: both apply.
ANY: tuple[int, ...] = ()
FALSE_IDENTITIES: dict[Callable[[pb.Envelope], None], tuple[int, ...]] = {
    other_session: ANY,
    no_session: ANY,
    lower_epoch: STALE,
    no_epoch: STALE,
    higher_epoch: ANY,
    other_artifact: FINGERPRINT,
    other_recipe: FINGERPRINT,
    no_fingerprint: ANY,
    other_start: RANGE,
    other_end: RANGE,
    other_effective_start: RANGE,
    no_range: ANY,
    no_schema: SCHEMA,
    newer_schema: SCHEMA,
}


@pytest.mark.requirement("PREFILL-09")
@pytest.mark.parametrize("phase", ["prefill", "decode"])
@pytest.mark.parametrize("falsify", FALSE_IDENTITIES, ids=lambda one: one.__name__)
def test_a_chunk_that_differs_from_its_stream_is_refused(
    shard: ShardUnderTest, falsify: Callable[[pb.Envelope], None], phase: str
) -> None:
    """One field of a right envelope is falsified; where the stream goes on, so does the state."""
    tokens = shard.tokens(3)
    prompt, step = tokens.rows(0, 2), tokens.rows(2, 3)
    expected = shard.undisturbed(prompt, step)
    with shard.session(shard.seam(epoch=EPOCH)) as session:
        session.prefill(prompt)
        mode = pb.CACHE_MODE_DECODE if phase == "decode" else pb.CACHE_MODE_PREFILL
        message = session.client.chunk([step], mode=mode)
        falsify(message.chunk.envelope)
        session.refused(session.exchange(message), *FALSE_IDENTITIES[falsify])
        if session.client.ended is None:
            shard.check_equal(session.decode(step), expected[-1:], "the step after the refusal")


@pytest.mark.requirement("PREFILL-09")
def test_a_chunk_that_names_another_session_changes_neither(shard: ShardUnderTest) -> None:
    """The other session is a real one, alive where the runtime has two places."""
    tokens = shard.tokens(3)
    prompt, step = tokens.rows(0, 2), tokens.rows(2, 3)
    expected = shard.undisturbed(prompt, step)
    seam = shard.seam()
    with ExitStack() as open_ones:
        victim = open_ones.enter_context(shard.session(seam))
        victim.prefill(prompt)
        if places(shard, 2) < 2:
            victim.finish()
        with shard.session() as session:
            session.prefill(prompt)
            message = session.client.chunk([shard.tokens(1, key=9)])
            message.chunk.envelope.route_session_id = seam.session_id
            session.refused(session.exchange(message))
            if session.client.ended is None:
                shard.check_equal(session.decode(step), expected[-1:], "the sender's next step")
        if victim.ended is None:
            shard.check_equal(victim.decode(step), expected[-1:], "the named session's next step")


AGREE: dict[int, set[int]] = {
    pb.PHASE_PREFILL: {pb.CACHE_MODE_PREFILL, pb.CACHE_MODE_STATELESS},
    pb.PHASE_DECODE: {pb.CACHE_MODE_DECODE},
}
# With a phase of work an unspecified mode contradicts nothing, so nothing is asked about it.
DISAGREE = {
    f"{phase}-{mode}".replace("PHASE_", "").replace("CACHE_MODE_", "").lower(): (number, value)
    for phase, number in pb.Phase.items()
    for mode, value in pb.CacheMode.items()
    if number not in AGREE or value not in {pb.CACHE_MODE_UNSPECIFIED, *AGREE[number]}
}


@pytest.mark.requirement("PREFILL-15")
@pytest.mark.parametrize(("phase", "mode"), DISAGREE.values(), ids=list(DISAGREE))
def test_a_chunk_whose_phase_and_cache_mode_disagree_is_refused(
    shard: ShardUnderTest, phase: int, mode: int
) -> None:
    """One token that would be right as a prefill, as a decode step and as stateless work."""
    tokens = shard.tokens(3)
    prompt, step = tokens.rows(0, 2), tokens.rows(2, 3)
    expected = shard.undisturbed(prompt, step)
    with shard.session() as session:
        session.prefill(prompt)
        message = session.client.chunk([step], phase=phase, mode=mode)
        session.refused(session.exchange(message))
        shard.check_equal(session.decode(step), expected[-1:], "the step after the refusal")


@pytest.mark.requirement("PREFILL-10")
def test_every_effective_start_gives_another_result(shard: ShardUnderTest) -> None:
    """The same hidden states through fewer and fewer layers; none may pass them on untouched."""
    results = {}
    starts = starts_with_hidden_states(shard)
    if shard.is_tail and len(starts) < 2:
        raise NotProvoked("one start with hidden states of a whole model has none to differ from")
    for start in starts:
        states = shard.tokens(4, effective_start=start)
        results[start] = shard.undisturbed(states, seam=shard.seam(effective_start=start))
        if not shard.is_tail:
            check_differ(shard, results[start], states.to_float32()[0], f"layers {start} onwards")
    for one, other in combinations(starts, 2):
        check_differ(shard, results[one], results[other], f"starts {one} and {other}")


@pytest.mark.requirement("PREFILL-10")
def test_each_session_keeps_its_own_effective_start(shard: ShardUnderTest) -> None:
    """First and last start decode by turns, at the same time where there is place for both."""
    starts = (shard.layers.start, shard.layers.stop - 1)
    expected = {start: from_start(shard, start) for start in starts}
    together = places(shard, 2) >= 2
    results: dict[int, Rows] = {}
    with ExitStack() as open_ones:
        sessions = {}
        for start in starts:
            tokens = shard.tokens(4, effective_start=start)
            session = open_ones.enter_context(shard.session(shard.seam(effective_start=start)))
            session.prefill(tokens.rows(0, 1))
            sessions[start] = session
            if not together:
                results[start] = decoded(session, tokens, 1, 4)
                session.finish()
        for position in (1, 2, 3) if together else ():
            for start, session in sessions.items():
                tokens = shard.tokens(4, effective_start=start)
                results[start] = decoded(session, tokens, position, position + 1)
    for start, rows in results.items():
        shard.check_equal(rows, expected[start], f"decode from layer {start} against prefill")


def decoded(session: Session, tokens: Tensor, first: int, end: int) -> Rows:
    """The result of the last of the decode steps [first, end)."""
    rows = [session.decode(tokens.rows(at, at + 1)) for at in range(first, end)]
    return rows[-1]


def from_start(shard: ShardUnderTest, start: int) -> Rows:
    """The last row of four tokens prefilled by the layers from `start` onwards."""
    tokens = shard.tokens(4, effective_start=start)
    return shard.undisturbed(tokens, seam=shard.seam(effective_start=start))[-1:]


def starts_with_hidden_states(shard: ShardUnderTest) -> list[int]:
    """Effective starts that take the same input: the first few, and the last."""
    starts = [start for start in shard.layers if start > 0]
    return starts[:3] + [start for start in starts[-1:] if start not in starts[:3]]


def check_differ(shard: ShardUnderTest, one: Rows, other: Rows, what: str) -> None:
    """Require that two results are certainly not the same."""
    if not shard.differ(one, other):
        raise Nonconformance(
            f"{what}: results that differ",
            "equal within the declared tolerance",
            "execute the layers [effective_start_layer, end_layer) of the session's open",
        )
