"""States are values: whatever is appended to one, every other keeps what it holds."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier, BrokenBarrierError

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_meshnet.reference.kv_state import KvBuffer, KvState, empty_state, extended
from pytest_meshnet.tests.reference.works import repeatable


def _append(state: KvState, marks: list[int]) -> KvState:
    longer = extended(state, len(marks))
    for layer in (4, 5):
        longer.keys(layer)[state.length :] = np.array(marks, np.float32)[:, None, None] + layer
        longer.values(layer)[state.length :] = -np.array(marks, np.float32)[:, None, None] - layer
    return longer


def _assert_holds(state: KvState, marks: list[int]) -> None:
    expected = np.array(marks, np.float32)[:, None, None] * np.ones((1, 2, 2), np.float32)
    for layer in (4, 5):
        np.testing.assert_array_equal(state.keys(layer), expected + layer)
        np.testing.assert_array_equal(state.values(layer), -expected - layer)


@repeatable(100)
@given(st.lists(st.tuples(st.integers(0, 10), st.integers(1, 40)), max_size=12))
def test_a_tree_of_forks_keeps_every_state_whole(forks: list[tuple[int, int]]) -> None:
    states = [(empty_state(4, 2, 2, 2), list[int]())]
    for number, (parent, count) in enumerate(forks):
        state, marks = states[parent % len(states)]
        added = [100 * number + i for i in range(count)]
        states.append((_append(state, added), marks + added))
    for state, marks in states:
        assert state.length == len(marks)
        _assert_holds(state, marks)


def test_the_newest_state_grows_in_place() -> None:
    first = _append(empty_state(4, 2, 2, 2), [1, 2])
    second = _append(first, [3])
    assert second.buffer is first.buffer


def test_a_state_that_was_overtaken_gets_a_buffer_of_its_own() -> None:
    first = _append(empty_state(4, 2, 2, 2), [1, 2])
    abandoned = _append(first, [3])
    kept = _append(first, [4])
    assert kept.buffer is not abandoned.buffer
    _assert_holds(abandoned, [1, 2, 3])
    _assert_holds(kept, [1, 2, 4])


def test_of_two_threads_that_extend_one_state_only_one_grows_in_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each thread waits, after it found the rows free, for the other to find the same."""
    base = _append(empty_state(4, 2, 2, 2), [1])
    meeting = Barrier(2, timeout=0.2)

    def capacity(buffer: KvBuffer) -> int:
        with suppress(BrokenBarrierError):
            meeting.wait()
        return buffer.rows.shape[2]

    monkeypatch.setattr(KvBuffer, "capacity", property(capacity))
    with ThreadPoolExecutor(2) as threads:
        grown = list(threads.map(lambda count: extended(base, count), [1, 1]))
    assert [state.buffer is base.buffer for state in grown].count(True) == 1
