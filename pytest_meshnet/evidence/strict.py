"""Strict JSON and typed payloads: the only things that a bundle may contain, written and read.

Exact values only: strings, booleans, null and integers that every JSON reader keeps exact; who
reads the measurements of others asks for fractions as well. A document is a frozen dataclass;
reading one refuses unknown, missing and mistyped fields.
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import (
    Any,
    Literal,
    NoReturn,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

MAX_INTEGER = 2**53 - 1
"""The largest magnitude that readers with double-precision numbers keep exact (RFC 8259, 6)."""

Scalar = str | int | bool | None
T = TypeVar("T")


class StrictError(ValueError):
    """The bytes are not what they must be; `code` is a stable reason code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def dumps(value: Any) -> bytes:
    """Return compact ASCII JSON with sorted keys. Raises StrictError for inexact values."""
    check(value)
    return _text(value).encode("ascii")


def same(one: Any, other: Any) -> bool:
    """Say whether two JSON values are the same; unlike ==, true is not 1."""
    return one == other and _text(one) == _text(other)


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def loads(data: bytes | str, *, fractions: bool = False) -> Any:
    """Parse JSON strictly.

    Raises StrictError for bytes that are not UTF-8 or not JSON, for a duplicate key, a number
    that is no exact integer, and nesting beyond the parser's depth. With `fractions`, any finite
    number and any integer of 64 bits is read.
    """
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
        return (_WITH_FRACTIONS if fractions else _DECODER).decode(text)
    except UnicodeDecodeError as error:
        raise StrictError("json-not-utf8", f"not UTF-8: {error.reason}") from error
    except json.JSONDecodeError as error:
        raise StrictError("json-malformed", f"not JSON: {error}") from error
    except RecursionError as error:
        raise StrictError("json-too-deep", "nested too deep; expected a few levels") from error


def check(value: Any) -> None:
    """Raise StrictError unless the value consists of exact JSON values only."""
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return
    if kind is int:
        _check_integer(value)
    elif kind is list or kind is tuple:
        for item in value:
            check(item)
    elif kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise StrictError("json-type", f"the key {key!r} is no string")
            check(item)
    elif isinstance(value, str):
        return
    else:
        raise StrictError(
            "json-number" if kind is float else "json-type",
            f"{value!r} is {kind.__name__}: expected a string, an integer, a boolean or null",
        )


def _check_integer(value: int) -> None:
    if not -MAX_INTEGER <= value <= MAX_INTEGER:
        raise StrictError("json-number", f"{value} is beyond 2**53 - 1: write it as a string")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise StrictError("json-duplicate-key", f"the key {twice!r} appears twice")
    return found


def _integer(text: str) -> int:
    if len(text) > 17:
        raise StrictError("json-number", f"{text[:20]} is beyond 2**53 - 1")
    value = int(text)
    _check_integer(value)
    return value


def _long_integer(text: str) -> int:
    value = int(text) if len(text) <= 20 else 2**64
    if not -(2**63) <= value < 2**64:
        raise StrictError("json-number", f"{text[:20]} is beyond 64 bits")
    return value


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse_constant(text)


def _refuse_constant(text: str) -> NoReturn:
    raise StrictError("json-number", f"{text[:20]} is no finite number")


def _refuse_number(text: str) -> NoReturn:
    raise StrictError("json-number", f"{text[:20]} is no exact integer")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_int=_integer,
    parse_float=_refuse_number,
    parse_constant=_refuse_number,
)
_WITH_FRACTIONS = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_int=_long_integer,
    parse_float=_finite,
    parse_constant=_refuse_constant,
)


_PLAIN = frozenset({str, int, bool, NoneType})


def encode(value: Any) -> Any:
    """Return the JSON form of a document: a dataclass becomes an object of its fields."""
    if type(value) in _PLAIN:
        return value
    if is_dataclass(value):
        return {one.name: encode(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    return value


def decode(kind: type[T], value: Any, where: str = "payload") -> T:
    """Read a dataclass from its JSON form, with exactly its fields and their types.

    Supports str, int, bool, float, None, Any, Literal, tuple[X, ...], Mapping[str, X], nested
    dataclasses, and unions of plain types with at most one other. Raises StrictError
    field-unknown, field-missing or field-type.
    """
    if type(value) is not dict:
        raise _mistyped(where, value, "an object")
    hints = _hints(cast(Hashable, kind))
    if value.keys() != hints.keys():
        _refuse_fields(where, value, hints)
    return kind(**{name: _read(hint, value[name], where, name) for name, hint in hints.items()})


@cache
def _hints(kind: Hashable) -> dict[str, Any]:
    return get_type_hints(kind)


def _refuse_fields(where: str, value: Mapping[str, Any], hints: Mapping[str, Any]) -> NoReturn:
    unknown = sorted(value.keys() - hints.keys())
    if unknown:
        raise StrictError("field-unknown", f"{where} has the unknown field {unknown[0]!r}")
    missing = sorted(hints.keys() - value.keys())
    raise StrictError("field-missing", f"{where} lacks the field {missing[0]!r}")


def _mistyped(where: str, value: Any, expected: str) -> StrictError:
    return StrictError("field-type", f"{where} is {type(value).__name__}: expected {expected}")


def _read(hint: Any, value: Any, where: str, name: str) -> Any:
    if hint is Any:
        return value
    if hint is str or hint is int or hint is bool:
        if type(value) is not hint:
            raise _mistyped(f"{where}.{name}", value, hint.__name__)
        return value
    return _read_compound(hint, value, f"{where}.{name}")


def _read_compound(hint: Any, value: Any, where: str) -> Any:
    if hint is float:
        if type(value) not in (int, float):
            raise _mistyped(where, value, "a number")
        return float(value)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is tuple:
        if type(value) is not list:
            raise _mistyped(where, value, "a list")
        return tuple(_read(arguments[0], item, where, "[]") for item in value)
    if origin is Literal:
        if value not in arguments:
            raise StrictError("field-type", f"{where} is {value!r}: expected one of {arguments}")
        return value
    if origin in (Union, UnionType):
        return _read_union(arguments, value, where)
    if origin is Mapping:
        if type(value) is not dict:
            raise _mistyped(where, value, "an object")
        return {key: _read(arguments[1], item, where, key) for key, item in value.items()}
    return decode(hint, value, where)


def _read_union(arguments: tuple[Any, ...], value: Any, where: str) -> Any:
    if type(value) in arguments:
        return value
    inner = [one for one in arguments if one not in _PLAIN]
    if value is None or len(inner) != 1:
        names = (getattr(one, "__name__", str(one)) for one in arguments)
        raise _mistyped(where, value, " or ".join(names))
    return _read_compound(inner[0], value, where)
