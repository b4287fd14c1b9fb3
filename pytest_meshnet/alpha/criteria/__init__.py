"""One criterion for every key of the contract, entered by section and key.

Each reads the record through a `Reading` and notes what is wrong; that it notes nothing means met.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from pytest_meshnet.alpha.reading import Reading

Judge = Callable[[Reading], None]

_MODULES = ("identity", "fit", "semantics", "target_run", "performance", "reliability", "storage")


@dataclass(frozen=True, slots=True)
class Criterion:
    """How one key of the contract is judged, and the next narrow action where it is not met."""

    section: str
    key: str
    judge: Judge
    action: str

    @property
    def id(self) -> str:
        """Section and key, as in the contract."""
        return f"{self.section}.{self.key}"


_CRITERIA: dict[tuple[str, str], Criterion] = {}


def criterion(section: str, *keys: str, action: str) -> Callable[[Judge], Judge]:
    """Enter a function as the judge of these keys."""

    def enter(judge: Judge) -> Judge:
        for key in keys:
            _CRITERIA[section, key] = Criterion(section, key, judge, action)
        return judge

    return enter


@cache
def criteria() -> Mapping[tuple[str, str], Criterion]:
    """Every criterion by section and key."""
    for name in _MODULES:
        importlib.import_module(f"{__name__}.{name}")
    return dict(_CRITERIA)
