"""Reading a document field by field: each one typed, none defaulted, none left over."""

import math
import re
from collections.abc import Mapping
from typing import Any, NoReturn, Self

from pytest_meshnet.identity.canonical import Refused

_DIGEST = re.compile(r"[0-9a-f]{64}")
_REVISION = re.compile(r"[0-9a-f]{40}")


class TargetRefused(Refused):
    """Something about the target that cannot be accepted; `code` is stable, the message is not."""


class Fields:
    """One JSON object, read key by key; `close` refuses the keys nobody read.

    Every reader raises TargetRefused: `missing-field` or `wrong-type`, and what its name adds.
    Booleans are never numbers.
    """

    def __init__(self, where: str, value: object) -> None:
        if not isinstance(value, Mapping):
            raise TargetRefused(
                "wrong-type", f"{where} is a {type(value).__name__}, expected an object: restore it"
            )
        self.where = where
        self._values: Mapping[str, Any] = value
        self._read: set[str] = set()

    def take(self, key: str) -> Any:
        """Return the raw value of `key`."""
        self._read.add(key)
        if key not in self._values:
            raise TargetRefused(
                "missing-field", f"{self.where} has no {key!r}: restore the published document"
            )
        return self._values[key]

    def text(self, key: str) -> str:
        """Return a string that is not blank."""
        value = self.take(key)
        if not isinstance(value, str) or not value.strip():
            self._wrong(key, "a non-empty string")
        return value

    def integer(self, key: str, minimum: int = 0) -> int:
        """Return an integer of at least `minimum` (`out-of-range` below it)."""
        value = self.take(key)
        if isinstance(value, bool) or not isinstance(value, int):
            self._wrong(key, "an integer")
        if value < minimum:
            raise TargetRefused(
                "out-of-range", f"{self.where}.{key} is {value}, expected at least {minimum}"
            )
        return value

    def number(self, key: str) -> int | float:
        """Return a finite number."""
        value = self.take(key)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self._wrong(key, "a number")
        if not math.isfinite(value):
            self._wrong(key, "a finite number")
        return value

    def boolean(self, key: str) -> bool:
        """Return true or false."""
        value = self.take(key)
        if not isinstance(value, bool):
            self._wrong(key, "a boolean")
        return value

    def digest(self, key: str) -> str:
        """Return a SHA-256 as 64 lowercase hex digits (`digest-format` otherwise)."""
        value = self.text(key)
        if not _DIGEST.fullmatch(value):
            raise TargetRefused(
                "digest-format",
                f"{self.where}.{key} is {value!r}, expected 64 lowercase hex digits",
            )
        return value

    def revision(self, key: str) -> str:
        """Return a full commit (`revision-format` for anything shorter or moving)."""
        value = self.text(key)
        if not _REVISION.fullmatch(value):
            raise TargetRefused(
                "revision-format",
                f"{self.where}.{key} is {value!r}, expected a full 40-hex commit: pin it",
            )
        return value

    def exactly(self, key: str, expected: object, code: str) -> None:
        """Refuse with `code` any value that is not `expected`, in type as well."""
        value = self.take(key)
        if type(value) is not type(expected) or value != expected:
            raise TargetRefused(
                code, f"{self.where}.{key} is {value!r}, expected {expected!r}: another document"
            )

    def object(self, key: str) -> Self:
        """Return the object at `key`, to be read and closed by the caller."""
        return type(self)(f"{self.where}.{key}", self.take(key))

    def list(self, key: str) -> tuple[Any, ...]:
        """Return the items of a JSON array."""
        value = self.take(key)
        if not isinstance(value, (list, tuple)):
            self._wrong(key, "an array")
        return tuple(value)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return an array of non-empty strings."""
        items = self.list(key)
        if not all(isinstance(item, str) and item for item in items):
            self._wrong(key, "an array of non-empty strings")
        return items

    def copy(self) -> dict[str, Any]:
        """Return the whole object, read or not, one level deep."""
        return dict(self._values)

    def close(self) -> None:
        """Refuse keys that mean nothing here (`unknown-field`)."""
        extra = sorted(str(key) for key in self._values.keys() - self._read)
        if extra:
            raise TargetRefused(
                "unknown-field", f"{self.where} has {', '.join(extra)}, unknown here: remove it"
            )

    def _wrong(self, key: str, expected: str) -> NoReturn:
        value = self._values[key]
        raise TargetRefused(
            "wrong-type",
            f"{self.where}.{key} is a {type(value).__name__}, expected {expected}: restore it",
        )
