"""Fixtures that several rooms' tests share."""

from pytest_meshnet.tests.browsing import browser

__all__ = ["browser"]
