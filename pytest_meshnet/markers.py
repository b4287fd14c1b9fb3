"""The marks of the suites: what they mean, and which arguments they accept.

One entry in `MARKERS` registers a mark, describes it in `pytest --markers` and checks it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_meshnet.ledger.requirements import Ledger


class MarkError(ValueError):
    """A mark of the suites has arguments that it does not accept."""


Check = Callable[[pytest.Mark, "Ledger"], None]


@dataclass(frozen=True, slots=True)
class Marker:
    """One mark: its name, its parameters as shown to a person, its meaning and its check."""

    name: str
    parameters: str
    meaning: str
    check: Check

    @property
    def line(self) -> str:
        """The line of the mark in `pytest --markers`."""
        return f"{self.name}{self.parameters}: {self.meaning}"


def _check_requirement(mark: pytest.Mark, ledger: Ledger) -> None:
    for name in _names(mark, "the ids of the ledger that the test speaks for"):
        try:
            ledger.get(name)
        except KeyError as error:
            raise MarkError(str(error)) from None
    if len(set(mark.args)) != len(mark.args):
        raise MarkError(f"requirement{mark.args} names an id twice: keep one")


def _check_profile(mark: pytest.Mark, ledger: Ledger) -> None:
    names = _names(mark, "one profile of the ledger")
    if len(names) != 1:
        raise MarkError(f"profile{mark.args}: expected one profile of the ledger")
    try:
        ledger.check_profiles(names)
    except KeyError as error:
        raise MarkError(str(error)) from None


def _check_lane(mark: pytest.Mark, _: Ledger) -> None:
    if mark.args or mark.kwargs:
        raise MarkError(f"{mark.name} takes no arguments: write @pytest.mark.{mark.name}")


def _names(mark: pytest.Mark, expected: str) -> tuple[str, ...]:
    if mark.kwargs or not mark.args or not all(isinstance(one, str) for one in mark.args):
        raise MarkError(f"{mark.name} has {mark.args} {mark.kwargs or ''}: expected {expected}")
    return mark.args


REQUIREMENT = Marker(
    "requirement",
    "(*ids)",
    "the requirements of the ledger that the test speaks for; a failure names them.",
    _check_requirement,
)
PROFILE = Marker(
    "profile",
    "(name)",
    "a test of the suites without a requirement runs when this profile is claimed.",
    _check_profile,
)
LANES = (
    Marker(
        "hardware",
        "",
        'implied by every hardware lane; `-m "not hardware"` runs all else.',
        _check_lane,
    ),
)
"""The hardware lanes; each names a class of machines."""

MARKERS = (REQUIREMENT, PROFILE, *LANES)


def register(config: pytest.Config) -> None:
    """Make every mark known to pytest, so that --strict-markers accepts it."""
    for one in MARKERS:
        config.addinivalue_line("markers", one.line)


def check(item: pytest.Item, ledger: Ledger) -> Iterator[str]:
    """Yield what is wrong with the marks of a test of the suites, one line a mark."""
    for marker in MARKERS:
        for mark in item.iter_markers(marker.name):
            try:
                marker.check(mark, ledger)
            except MarkError as error:
                yield f"{item.name}: {error}"


def requirements_of(item: pytest.Item) -> tuple[str, ...]:
    """Return the ids of the requirements that a test speaks for, each once."""
    named = (name for mark in item.iter_markers(REQUIREMENT.name) for name in mark.args)
    return tuple(sorted(dict.fromkeys(named)))


def profile_of(item: pytest.Item) -> str | None:
    """Return the profile that a test without a requirement belongs to, or None."""
    mark = item.get_closest_marker(PROFILE.name)
    return mark.args[0] if mark else None
