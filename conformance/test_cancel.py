"""Cancelled units: one outcome each, counted by the unary call, and nothing for what is not there.

Whether a cancel meets a unit is a matter of time. Where it did not, finished units are as right.
"""

from __future__ import annotations

import pytest

from pytest_meshnet.runtime.errors import Nonconformance, NotProvoked
from pytest_meshnet.runtime.results import joined
from pytest_meshnet.runtime.session import Session
from pytest_meshnet.runtime.shard import ShardUnderTest

from .in_flight import (
    ATTEMPTS,
    PROMPT,
    Flight,
    cancel,
    check_silent,
    covered_steps,
    drawn,
    outcomes,
    take_off,
    unary_cancel,
)

HOW = pytest.mark.parametrize("how", ["in-band", "unary"])


def airborne(session: Session, shard: ShardUnderTest, wanted: int) -> Flight:
    """A flight of at most `wanted` steps, all covered by credit."""
    tokens = drawn(shard, wanted)
    return take_off(session, shard, tokens, covered_steps(session, shard, wanted))


@pytest.mark.requirement("CANCEL-01")
@HOW
@pytest.mark.parametrize("which", ["all", "first", "second", "last"])
def test_each_cancelled_unit_ends_in_exactly_one_way(
    slow_shard: ShardUnderTest, which: str, how: str
) -> None:
    """Faults row 91: the named unit runs, waits, or is the last; the session is read to its end."""
    with slow_shard.session() as session:
        flight = airborne(session, slow_shard, 3)
        units = flight.exchanges
        chosen = {"all": units, "first": units[:1], "second": units[1:2] or units[:1]}
        doomed = chosen.get(which, units[-1:])
        count = cancel(flight, how, "" if which == "all" else doomed[0].work_id)
        outcomes(flight, cancelled=doomed)
        _check_count(flight, count)
    check_silent(session)


def _check_count(flight: Flight, count: int | None) -> None:
    found = len(flight.cancelled())
    if count not in (None, found):
        raise Nonconformance(
            f"{count} units CANCELLED, as the unary cancel reported", f"{found} were"
        )


@pytest.mark.requirement("CANCEL-01")
@HOW
def test_a_cancel_that_races_the_answer_leaves_one_outcome(shard: ShardUnderTest, how: str) -> None:
    """Faults row 82: again and again a cancel is sent when the answer to its unit is due."""
    for units in [1, 2, 3] * 4:
        with shard.session() as session:
            flight = airborne(session, shard, units)
            if units > 1:
                session.wait(flight.exchanges[0])
            last = flight.exchanges[-1]
            count = cancel(flight, how, last.work_id)
            outcomes(flight, cancelled=[last])
            _check_count(flight, count)
        check_silent(session)


def cancelled_flight(shard: ShardUnderTest, session: Session, wanted: int) -> tuple[Flight, int]:
    """Cancel a whole flight by the unary call, until one was met there. Returns what it reported.

    Every unit that was in flight beyond doubt must have ended CANCELLED. Raises NotProvoked.
    """
    for _ in range(ATTEMPTS):
        flight = airborne(session, shard, wanted)
        count = unary_cancel(shard, session)
        certain = flight.certain()
        outcomes(flight, cancelled=flight.exchanges)
        spared = [one for one in flight.exchanges[:certain] if one not in flight.cancelled()]
        if spared:
            raise Nonconformance(
                f"{certain} units CANCELLED, which Health counted before the cancel",
                f"work {spared[0].work_id!r} was not",
                "look for units in every place where they run or wait",
            )
        if count or certain:
            return flight, count
    raise NotProvoked(f"every unit had finished before its cancel was read, {ATTEMPTS} times")


@pytest.mark.requirement("CANCEL-02")
@pytest.mark.parametrize("wanted", [1, 8], ids=["one-unit", "no-credit-left"])
def test_a_unary_cancel_takes_effect_while_the_stream_is_blocked(
    slow_shard: ShardUnderTest, wanted: int
) -> None:
    """The client has sent what it may and waits; only the unary call can end it."""
    with slow_shard.session() as session:
        flight, count = cancelled_flight(slow_shard, session, wanted)
        found = len(flight.cancelled())
        if found != count:
            raise Nonconformance(f"{count} units CANCELLED, as reported", f"{found} were")
        session.prefill(slow_shard.tokens(PROMPT), fresh=True)
    check_silent(session)


@pytest.mark.requirement("CANCEL-03")
@pytest.mark.parametrize("wanted", [1, 2, 5])
def test_a_unary_cancel_of_all_ends_every_unit_and_tells_how_many(
    slow_shard: ShardUnderTest, wanted: int
) -> None:
    """Faults rows 91 and 167: counted are the units that ended so, and nothing is left queued."""
    with slow_shard.session() as session:
        flight, count = cancelled_flight(slow_shard, session, wanted)
        found = len(flight.cancelled())
        if found != count:
            raise Nonconformance(f"cancelled_work_items {found}, the units CANCELLED", f"{count}")
        again = unary_cancel(slow_shard, session)
        if again:
            raise Nonconformance("nothing in flight after a cancel of all", f"{again} units")
    check_silent(session)


NOTHING = ["never-sent", "finished", "refused", "all-of-none"]


@pytest.mark.requirement("CANCEL-04")
@HOW
@pytest.mark.parametrize("what", NOTHING)
def test_a_cancel_of_what_is_not_in_flight_changes_nothing(
    shard: ShardUnderTest, what: str, how: str
) -> None:
    """Unary it reports 0 and no error, in band it is silent; the session goes on as if never."""
    tokens = shard.tokens(4)
    prompt, steps = tokens.rows(0, 2), (tokens.rows(2, 3), tokens.rows(3, 4))
    expected = shard.undisturbed(prompt, *steps)
    with shard.session() as session:
        rows = session.prefill(prompt)
        done = session.exchange(session.client.decode(steps[0]))
        rows = joined(rows, session.result(done))
        missed = session.exchange(session.client.decode(steps[1], expected=1))
        named = {"finished": done.work_id, "refused": missed.work_id, "all-of-none": ""}
        work_id = named.get(what, "never-sent")
        for _ in range(2):
            if how == "in-band":
                session.send(session.client.cancel(work_id))
            else:
                _check_nothing(unary_cancel(shard, session, work_id))
        rows = joined(rows, session.decode(steps[1]))
    check_silent(session)
    shard.check_equal(rows, expected, "a session with cancels of nothing")


def _check_nothing(count: int) -> None:
    if count:
        raise Nonconformance("cancelled_work_items 0 for what is not in flight", f"{count}")


@pytest.mark.requirement("CANCEL-04")
@pytest.mark.parametrize("work_id", ["", "w1"], ids=["all", "one"])
@pytest.mark.parametrize("which", ["unknown", "ended"])
def test_a_cancel_in_a_session_that_is_not_there_reports_0_and_no_error(
    shard: ShardUnderTest, which: str, work_id: str
) -> None:
    """A session that never was, and one that has worked and ended."""
    session = shard.unopened()
    if which == "ended":
        with shard.session() as session:
            session.prefill(shard.tokens(2))
    else:
        session.drop()
    _check_nothing(unary_cancel(shard, session, work_id))


@pytest.mark.requirement("CANCEL-12")
@pytest.mark.parametrize("which", ["all", "running", "queued"])
def test_stalled_units_are_cancelled_where_they_run_and_where_they_wait(
    slow_shard: ShardUnderTest, which: str
) -> None:
    """Faults row 91: of four slow units all, the first, or the third is cancelled."""
    if not 0 < slow_shard.unit_seconds < float("inf"):
        raise NotProvoked("no runtime was started with stalled units")
    with slow_shard.session() as session:
        if which == "all":
            cancelled_flight(slow_shard, session, 4)
        else:
            _check_one_cancelled(slow_shard, session, 0 if which == "running" else 2)
    check_silent(session)


def _check_one_cancelled(shard: ShardUnderTest, session: Session, index: int) -> None:
    """Cancel one unit of a flight, of those that Health counted; there it must be met.

    A worker that reads one message at a time has no unit that waits: of it the one that runs is
    cancelled every time, while Health never counts a second.
    """
    met = []
    for _ in range(ATTEMPTS):
        flight = airborne(session, shard, 4)
        at = min(index, max(0, flight.seen - 1))
        one = flight.exchanges[at]
        count = unary_cancel(shard, session, one.work_id)
        certain = at < flight.certain()
        outcomes(flight, cancelled=[one])
        found = len(flight.cancelled())
        if found != count or (certain and not count):
            raise Nonconformance(
                f"work {one.work_id!r} in flight CANCELLED and counted once",
                f"{found} CANCELLED, {count} reported",
            )
        met += [at] if certain or count else []
        if met and (met[-1] > 0) == (index > 0):
            return
    if len(met) < ATTEMPTS:
        raise NotProvoked("the unit had finished before its cancel was read")
