"""The one place where the plugin meets the module that holds the target and its fixtures.

`pytest_meshnet.suite_fixtures` is imported only when a suite takes part in a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_meshnet.ledger.applicability import Fact
    from pytest_meshnet.runtime.descriptor import Descriptor


def register_fixtures(config: pytest.Config) -> None:
    """Make the fixtures of the suites known to pytest; a second call does nothing."""
    module = _module()
    if not config.pluginmanager.is_registered(module):
        config.pluginmanager.register(module, "meshnet-fixtures")


def descriptor(config: pytest.Config) -> Descriptor:
    """Return the descriptor of the run's target. A refusal ends the run with exit code 2."""
    from pytest_meshnet.runtime.errors import Refusal

    try:
        found: Descriptor = _module().descriptor_of(config)
    except Refusal as refusal:
        pytest.exit(f"refused: {refusal.message}", returncode=2)
    return found


def connect(config: pytest.Config, claimed: frozenset[str]) -> Mapping[str, Fact]:
    """Reach or start the target and return the facts about it. Raises Refusal.

    `claimed` are the profiles for which Shards beside it must be there.
    """
    found: Mapping[str, Fact] = _module().connect(config, claimed)
    return found


def claims(config: pytest.Config) -> Mapping[str, Fact]:
    """Return what the connected target says of itself: shown in evidence, never judged by."""
    found: Mapping[str, Fact] = _module().claims(config)
    return found


def logs(config: pytest.Config) -> Mapping[str, str]:
    """Return what each runtime that was started has written so far, by the name of its start."""
    found: Mapping[str, str] = _module().logs(config)
    return found


def granted(config: pytest.Config) -> bool:
    """Return whether a FlowControl grant came in any session of the run."""
    found: bool = _module().granted(config)
    return found


def disconnect(config: pytest.Config) -> str:
    """Leave or stop the target. Returns how it crashed after the last test, or an empty text."""
    return str(_module().disconnect(config))


def trace_text(item: pytest.Item, broken: str) -> str:
    """Return the last frames of a test, decoded for a person; empty when there are none.

    The frame whose line is in `broken` is marked.
    """
    return _module().trace_text(item, broken) or ""


def _module() -> Any:
    return import_module("pytest_meshnet.suite_fixtures")
