"""The time limit of a test, kept by pytest-timeout, and what does not count against it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

# What pytest-timeout set the running timer of a test with; only handed back to it.
_SETTINGS = pytest.StashKey[object]()


def note_set(item: pytest.Item, settings: object) -> None:
    """Note that the timer of a test runs."""
    item.stash[_SETTINGS] = settings


def note_cancelled(item: pytest.Item) -> None:
    """Note that the timer of a test runs no more."""
    if _SETTINGS in item.stash:
        del item.stash[_SETTINGS]


@contextmanager
def suspended(item: pytest.Item) -> Iterator[None]:
    """Let no limit end the test in here; behind it the test has all of its time.

    For the start of a runtime, which may build itself first: `time.start` of the descriptor bounds
    it, whatever the limit of the test is that happens to need it.
    """
    if _SETTINGS not in item.stash:
        yield
        return
    settings = item.stash[_SETTINGS]
    hooks = item.config.pluginmanager.hook
    hooks.pytest_timeout_cancel_timer(item=item)
    try:
        yield
    finally:
        hooks.pytest_timeout_set_timer(item=item, settings=settings)
