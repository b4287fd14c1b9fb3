"""The pytest hooks; each hands over to the module that owns the idea.

Nothing is imported before it is used, so that an unrelated run pays for the hooks and no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_meshnet import markers, options

if TYPE_CHECKING:
    from pytest_meshnet.suite.collection import SuiteModule
    from pytest_meshnet.suite.session import Worker


def pytest_addoption(parser: pytest.Parser) -> None:
    options.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    markers.register(config)
    if options.hardware_may_run(config):
        from pytest_meshnet.suite import hardware

        hardware.register(config)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    if options.are_used(session.config):
        from pytest_meshnet.suite.session import begin

        begin(session)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> SuiteModule | None:
    if not any(parent.name in options.SUITES for parent in module_path.parents):
        return None
    from pytest_meshnet.suite import collection

    return collection.make_module(module_path, parent)


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_node_collection_finished(node: Worker, ids: Sequence[str]) -> None:
    # A controller collects nothing, and so hears only here that a suite takes part.
    if any(one.startswith(options.SUITE_PREFIXES) for one in ids):
        from pytest_meshnet.suite.session import ensure

        ensure(node.config)
