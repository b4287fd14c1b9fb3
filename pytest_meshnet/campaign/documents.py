"""Reading JSON that somebody else wrote: no doubled key, no NaN, and types that are checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pytest_meshnet.campaign.errors import CampaignRefused
from pytest_meshnet.evidence import strict
from pytest_meshnet.evidence.strict import StrictError

T = TypeVar("T")


def loads(text: str | bytes) -> Any:
    """Parse JSON with fractions. Raises StrictError, a ValueError, as `strict.loads` does."""
    return strict.loads(text, fractions=True)


class Fields:
    """Typed access to an object; every error names where it was and what was expected there."""

    def __init__(self, told: Any, where: str) -> None:
        """Wrap an object. Raises CampaignRefused when `told` is none."""
        if not isinstance(told, dict):
            raise CampaignRefused(f"{where} is {_short(told)}: expected an object")
        self._told: Mapping[str, Any] = told
        self._where = where

    def text(self, name: str) -> str:
        """Return a text that must be there."""
        return self._typed(name, str, "a text")

    def flag(self, name: str) -> bool:
        """Return a truth value that must be there."""
        return self._typed(name, bool, "true or false")

    def whole(self, name: str) -> int:
        """Return a whole number that must be there; true and false are none."""
        value = self._told.get(name)
        if type(value) is not int:
            raise self._refusal(name, "a whole number")
        return value

    def number(self, name: str) -> float:
        """Return a number that must be there, as a float."""
        value = self._told.get(name)
        if type(value) not in (int, float):
            raise self._refusal(name, "a number")
        return float(self._told[name])

    def maybe_whole(self, name: str) -> int | None:
        """Return a whole number, or None where it is absent or null."""
        return None if self._told.get(name) is None else self.whole(name)

    def maybe_number(self, name: str) -> float | None:
        """Return a number, or None where it is absent or null."""
        return None if self._told.get(name) is None else self.number(name)

    def maybe_text(self, name: str) -> str | None:
        """Return a text, or None where it is absent or null."""
        return None if self._told.get(name) is None else self.text(name)

    def numbers(self, name: str) -> tuple[float, ...] | None:
        """Return a list of numbers, or None where it is absent or null."""
        value = self._told.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or any(type(one) not in (int, float) for one in value):
            raise self._refusal(name, "a list of numbers")
        return tuple(float(one) for one in value)

    def inner(self, name: str) -> Fields | None:
        """Return an object inside, or None where it is absent or null."""
        value = self._told.get(name)
        return None if value is None else Fields(value, f"{self._where}.{name}")

    def _typed(self, name: str, kind: type[T], words: str) -> T:
        value = self._told.get(name)
        if not isinstance(value, kind):
            raise self._refusal(name, words)
        return value

    def _refusal(self, name: str, words: str) -> CampaignRefused:
        found = _short(self._told[name]) if name in self._told else "absent"
        return CampaignRefused(f"{self._where}: {name} is {found}: expected {words}")


def _short(value: Any) -> str:
    return f"{value!r:.60}"


def decode(kind: type[T], told: Any, where: str) -> T:
    """Read a dataclass from the JSON form that `strict.encode` gives it.

    Raises CampaignRefused for a missing, unknown or mistyped field.
    """
    try:
        return strict.decode(kind, told, where)
    except StrictError as error:
        raise CampaignRefused(str(error)) from None
