"""Properties that hold for all inputs, checked alike in every run and on a machine of any speed."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis.strategies import SearchStrategy


def law(**inputs: SearchStrategy) -> Callable:
    """Make a test of its parameters hold for any of these inputs."""
    return lambda test: settings(max_examples=100, deadline=None, derandomize=True, database=None)(
        given(**inputs)(test)
    )
