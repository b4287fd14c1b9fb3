"""What a prefill leaves behind: fresh starts, unfinished prefills, appends, and nothing else."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.tensors import Tensor
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.results import joined
from pytest_meshnet.runtime.session import Session
from pytest_meshnet.runtime.shard import ShardUnderTest

from .side_by_side import places

if TYPE_CHECKING:
    from pytest_meshnet.runtime.shard import Rows

FULL_FORM = pytest.mark.parametrize("full", [False, True], ids=["decode-step", "full-form"])


@pytest.mark.requirement("PREFILL-07")
@pytest.mark.parametrize("earlier", [1, 3, 6], ids=["shorter", "as-long", "longer"])
@pytest.mark.parametrize("left", ["unfinished", "finished", "decoded"])
def test_a_prefill_expecting_zero_starts_afresh(
    shard: ShardUnderTest, left: str, earlier: int
) -> None:
    """A second prompt over what another prompt left, against the same on a new session."""
    old = shard.tokens(earlier + 1, key=1)
    new = shard.tokens(4, key=2)
    expected = shard.undisturbed(new.rows(0, 3), new.rows(3, 4))
    with shard.session() as session:
        session.prefill(old.rows(0, earlier), finish=left != "unfinished")
        if left == "decoded":
            session.decode(old.rows(earlier, earlier + 1))
        again = session.prefill(new.rows(0, 3), chunk_tokens=2, fresh=True)
        check_past_len(session, 3)
        again = joined(again, session.decode(new.rows(3, 4)))
    shard.check_equal(again, expected, "a fresh prefill against the same on a new session")


def check_past_len(session: Session, expected: int) -> None:
    """Hold the length of the last ack against what the session should hold."""
    found = session.client.past_len
    if found != expected:
        raise Nonconformance(f"past_len {expected}", f"past_len {found}")


@pytest.mark.requirement("PREFILL-11")
@FULL_FORM
@pytest.mark.parametrize("expected_past_len", [0, 2, 4, 6], ids=["zero", "less", "more", "all"])
def test_a_decode_at_another_length_than_an_unfinished_prefill_holds_is_a_cache_miss(
    shard: ShardUnderTest, expected_past_len: int, full: bool
) -> None:
    """Three of six tokens are there when a decode step comes; then the prefill goes on."""
    tokens = shard.tokens(7)
    prompt, step = tokens.rows(0, 6), tokens.rows(6, 7)
    expected = shard.undisturbed(prompt, step)
    with shard.session() as session:
        before = session.prefill(tokens.rows(0, 3), finish=False)
        message = session.client.decode(step, full=full, expected=expected_past_len)
        session.refused(session.exchange(message), pb.ERROR_CODE_CACHE_MISS)
        after = session.prefill(tokens.rows(3, 6))
        after = joined(before, after, session.decode(step))
    shard.check_equal(after, expected, "the prefill that went on after the miss")


@pytest.mark.requirement("PREFILL-12")
@FULL_FORM
@pytest.mark.parametrize("held", [1, 3])
def test_an_unfinished_prefill_refuses_a_decode_even_at_its_length(
    shard: ShardUnderTest, held: int, full: bool
) -> None:
    """The final chunk is still to come when a decode step of matching length arrives."""
    tokens = shard.tokens(held + 2)
    expected = shard.undisturbed(tokens.rows(0, held + 1), tokens.rows(held + 1, held + 2))
    with shard.session() as session:
        before = session.prefill(tokens.rows(0, held), finish=False)
        message = session.client.decode(tokens.rows(held, held + 1), full=full)
        session.refused(session.exchange(message), pb.ERROR_CODE_CACHE_MISS)
        after = session.prefill(tokens.rows(held, held + 1))
        after = joined(before, after, session.decode(tokens.rows(held + 1, held + 2)))
    shard.check_equal(after, expected, "the prefill that went on after the miss")


@pytest.mark.requirement("PREFILL-13")
@pytest.mark.parametrize("key", range(3))
def test_the_same_prefill_gives_the_same_result(shard: ShardUnderTest, key: int) -> None:
    """Three new sessions, with a stranger's prompt before the last."""
    tokens = shard.tokens(5, key)
    prompt, step = tokens.rows(0, 4), tokens.rows(4, 5)
    first = shard.undisturbed(prompt, step)
    shard.check_equal(shard.undisturbed(prompt, step), first, "a prefill repeated at once")
    shard.undisturbed(shard.tokens(6, key + 100))
    shard.check_equal(shard.undisturbed(prompt, step), first, "a prefill repeated after another")


@pytest.mark.requirement("PREFILL-14")
@pytest.mark.parametrize("key", range(4))
def test_finite_inputs_give_finite_outputs(shard: ShardUnderTest, key: int) -> None:
    """Prompts of one to seven tokens at the declared scale, and a decode step."""
    tokens = shard.tokens(8, key)
    length = 1 + 2 * key
    rows = shard.undisturbed(tokens.rows(0, length), tokens.rows(length, length + 1))
    bad = int(np.count_nonzero(~np.isfinite(rows)))
    if bad:
        raise Nonconformance(
            f"finite results for {length} finite tokens",
            f"{bad} of {rows.size} values are not finite",
            "check the range of the boundary dtype and input_scale in the descriptor",
        )


@pytest.mark.requirement("PREFILL-14")
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf], ids=["nan", "inf", "minus-inf"])
@pytest.mark.parametrize("unit", ["prefill", "decode"])
def test_what_is_not_finite_stays_in_its_own_session(
    shard: ShardUnderTest, unit: str, value: float
) -> None:
    """One session is poisoned beside a live neighbour, where there is place, and before another."""
    tokens = shard.tokens(4)
    prompt, step = tokens.rows(0, 3), tokens.rows(3, 4)
    expected = shard.undisturbed(prompt, step)
    with ExitStack() as open_ones:
        neighbour = open_ones.enter_context(shard.session())
        before = neighbour.prefill(prompt)
        if places(shard, 2) < 2:
            before = joined(before, neighbour.decode(step))
            neighbour.finish()
        poison(shard, unit, value)
        if neighbour.ended is None:
            before = joined(before, neighbour.decode(step))
    shard.check_equal(before, expected, "a session beside one with a non-finite input")
    after = shard.undisturbed(prompt, step)
    shard.check_equal(after, expected, "a session after one with a non-finite input")


def poison(shard: ShardUnderTest, unit: str, value: float) -> None:
    """Send a unit with a non-finite value in it to a session of its own; it may be refused.

    A head takes hidden states only from a later start on.
    """
    later = shard.layers.start == 0 and shard.target.spec.later_start
    start = shard.layers.stop - 1 if later else shard.layers.start
    clean = shard.tokens(3, effective_start=start)
    with shard.session(shard.seam(effective_start=start)) as session:
        session.prefill(clean.rows(0, 2))
        bad = poisoned(clean.rows(2, 3), value)
        message = session.client.chunk([bad]) if unit == "prefill" else session.client.decode(bad)
        exchange = session.exchange(message)
        if exchange.status is not None or session.client.ended is not None:
            session.refused(exchange)


def poisoned(tensor: Tensor, value: float) -> Tensor:
    """The tensor with one value replaced. Token ids are always finite and stay as they are."""
    if not tensor.dtype.is_float:
        return tensor
    rows = tensor.to_float32()
    rows[0, 0, -1] = value
    return Tensor.from_float32(tensor.name, rows, tensor.dtype)


@pytest.mark.requirement("PREFILL-16")
@pytest.mark.parametrize("decoded", [0, 1, 2])
@pytest.mark.parametrize("counts", [[3], [1, 2], [1, 1, 1]], ids=["one", "two", "three"])
def test_a_prefill_at_the_held_length_appends_to_a_finished_one(
    shard: ShardUnderTest, counts: list[int], decoded: int
) -> None:
    """A prompt, some decode steps, another prompt and a decode step, against all in one prefill."""
    held = 2 + decoded
    tokens = shard.tokens(held + 4)
    expected = shard.undisturbed(tokens.rows(0, held + 3), tokens.rows(held + 3, held + 4))
    with shard.session() as session:
        session.prefill(tokens.rows(0, 2))
        for position in range(2, held):
            session.decode(tokens.rows(position, position + 1))
        appended = session.prefill_chunks(tokens.rows(held, held + 3), counts)
        check_past_len(session, held + 3)
        appended = joined(appended, session.decode(tokens.rows(held + 3, held + 4)))
    shard.check_equal(appended, last(expected, len(appended)), "an append against one prefill")


def last(rows: Rows, count: int) -> Rows:
    """The last `count` rows."""
    return rows[len(rows) - count :]


@pytest.mark.requirement("PREFILL-16")
@FULL_FORM
def test_an_append_is_unfinished_until_its_own_final_chunk(
    shard: ShardUnderTest, full: bool
) -> None:
    """Amid an append a decode step must fare as it does amid a first prefill."""
    with shard.session() as session:
        session.prefill(shard.tokens(2), finish=False)
        served = serves_decode(shard, session, full)
    with shard.session() as session:
        session.prefill(shard.tokens(1))
        session.prefill(shard.tokens(2), finish=False)
        if serves_decode(shard, session, full) != served:
            raise Nonconformance(
                f"a decode step amid an append {'served' if served else 'refused'}, as in a first "
                "prefill",
                f"it was {'refused' if served else 'served'}",
                "any prefill chunk that is not final leaves the session unfinished",
            )


def serves_decode(shard: ShardUnderTest, session: Session, full: bool) -> bool:
    """Whether a decode step at the held length is served; refusing it must be a CACHE_MISS."""
    exchange = session.exchange(session.client.decode(shard.tokens(1), full=full))
    if exchange.ack is not None:
        session.applied(exchange)
        return True
    session.refused(exchange, pb.ERROR_CODE_CACHE_MISS)
    return False
