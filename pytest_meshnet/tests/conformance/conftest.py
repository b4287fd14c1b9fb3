"""These tests import those of the suite, which need what is set up for them before."""

from __future__ import annotations

import pytest

from pytest_meshnet.suite.target import register_fixtures


def pytest_configure(config: pytest.Config) -> None:
    """Have hypothesis set up: a test keeps the settings that were there when it was defined."""
    register_fixtures(config)
