"""Who adds sections to a report: one provider for each media type that a room attaches."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_meshnet.evidence.report.sections import Provider

PROVIDERS = (
    "pytest_meshnet.evidence.report.measured:Measured",
    "pytest_meshnet.campaign.report.section:Campaign",
    "pytest_meshnet.suite.parity_report:Parity",
    "pytest_meshnet.alpha.section:Alpha",
)
"""Classes of `Provider`, as module and name, in the order of their sections on the page."""


def providers() -> tuple[Provider, ...]:
    """Return one of each, imported only now."""
    found = (one.partition(":") for one in PROVIDERS)
    return tuple(getattr(import_module(module), name)() for module, _, name in found)
