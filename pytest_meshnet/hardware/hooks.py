"""Hooks that a project may implement to add lanes and to hear of placements.

In a conftest.py they need `@pytest.hookimpl(optionalhook=True)`: pytest knows them only in a run
in which hardware lanes take part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_meshnet.hardware.lanes import Lane
    from pytest_meshnet.hardware.placement.gpu import Placement


@pytest.hookspec
def pytest_meshnet_lanes(config: pytest.Config) -> Sequence[Lane]:  # type: ignore[empty-body]
    """Return hardware lanes beside the built-in ones."""


@pytest.hookspec
def pytest_meshnet_present(config: pytest.Config) -> Sequence[str]:  # type: ignore[empty-body]
    """Return facts about this host that lanes need, e.g. `real_runtime:llama.cpp`."""


@pytest.hookspec
def pytest_meshnet_placement(item: pytest.Item, placement: Placement) -> None:
    """Hear of every look at the devices of a test: before, during and after it."""
