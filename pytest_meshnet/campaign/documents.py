"""Reading JSON that somebody else wrote: no doubled key, no NaN, and types that are checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, NoReturn, TypeVar, cast, get_args, get_origin, get_type_hints

from pytest_meshnet.campaign.errors import CampaignRefused

T = TypeVar("T")


def loads(text: str | bytes) -> Any:
    """Parse JSON. Raises ValueError for anything but one document, a doubled key or NaN."""
    return json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} stands twice")
    return found


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number that JSON knows")


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
    """Read a dataclass from the JSON form that `encode` gives it.

    Fields may be texts, numbers, truth values, Any, unions with None, tuples of one type, mappings
    from text and further dataclasses. Raises CampaignRefused for a missing, unknown or mistyped
    field.
    """
    return cast("T", _decoded(kind, told, where))


def encode(value: Any) -> Any:
    """Return the JSON form of a dataclass, a tuple or a mapping, with all that they hold."""
    if is_dataclass(value):
        return {one.name: encode(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): encode(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(one) for one in value]
    return value


def _decoded(kind: Any, told: Any, where: str) -> Any:
    if is_dataclass(kind):
        return _dataclass(kind, told, where)
    if get_origin(kind) is UnionType:
        (inner,) = (one for one in get_args(kind) if one is not NoneType)
        return None if told is None else _decoded(inner, told, where)
    if get_origin(kind) is not None:
        return _collection(kind, told, where)
    if kind is float and type(told) is int:
        return float(told)
    if kind is Any or type(told) is kind:
        return told
    raise CampaignRefused(f"{where} is {_short(told)}: expected {kind.__name__}")


def _collection(kind: Any, told: Any, where: str) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is tuple and isinstance(told, list):
        return tuple(_decoded(arguments[0], one, f"{where}[]") for one in told)
    if origin is Mapping and isinstance(told, dict):
        return {key: _decoded(arguments[1], one, f"{where}.{key}") for key, one in told.items()}
    raise CampaignRefused(f"{where} is {_short(told)}: expected {kind}")


def _dataclass(kind: Any, told: Any, where: str) -> Any:
    if not isinstance(told, dict):
        raise CampaignRefused(f"{where} is {_short(told)}: expected an object")
    hints = get_type_hints(kind)
    names = [one.name for one in fields(kind)]
    odd = sorted(set(names) ^ told.keys())
    if odd:
        raise CampaignRefused(f"{where} has the fields {sorted(told)}: expected {sorted(names)}")
    return kind(**{name: _decoded(hints[name], told[name], f"{where}.{name}") for name in names})
