"""Expected-failure lists: known failures with a reason and the message that must appear."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_KEYS = ("test", "reason", "message")


class ExpectedFailuresError(ValueError):
    """The expected-failure list is malformed or names tests that do not exist."""


@dataclass(frozen=True, slots=True)
class ExpectedFailure:
    """One known failure: the test's id, why it is known, and a substring of its message."""

    test: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class ExpectedFailures:
    """The known failures of one target by test id; empty unless a list was given."""

    entries: Mapping[str, ExpectedFailure] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> ExpectedFailures:
        """Read a TOML list of `[[failure]]` entries with `test`, `reason` and `message`.

        Raises ExpectedFailuresError when it is malformed, OSError when it cannot be read.
        """
        try:
            document = tomllib.loads(path.read_text(encoding="utf-8"))
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ExpectedFailuresError(f"{path}: {error}; expected a TOML list") from error
        return cls.from_document(document, str(path))

    @classmethod
    def from_document(cls, document: Mapping[str, Any], origin: str) -> ExpectedFailures:
        """Build the list from parsed TOML; `origin` names it in messages."""
        unknown = sorted(document.keys() - {"failure"})
        if unknown:
            raise ExpectedFailuresError(f"{origin}: unknown keys {unknown}; expected [[failure]]")
        entries: dict[str, ExpectedFailure] = {}
        for raw in document.get("failure", ()):
            entry = _entry(raw, origin)
            if entry.test in entries:
                raise ExpectedFailuresError(f"{origin}: {entry.test} is listed twice; keep one")
            entries[entry.test] = entry
        return cls(entries)

    def get(self, test: str) -> ExpectedFailure | None:
        """Return the entry of a test, or None when its failure is not expected."""
        return self.entries.get(test)

    def with_failures(self, failures: Iterable[tuple[str, str]]) -> str:
        """Return the TOML of this list and of new (test, message) pairs.

        The reason of a new entry is empty, which `load` refuses: only a person can give it.
        """
        new = [ExpectedFailure(test, "", message) for test, message in failures]
        parts = [_NOTE, *map(_written, [*self.entries.values(), *new])]
        return "\n".join(parts)

    def check(self, collected: Iterable[str]) -> None:
        """Raise ExpectedFailuresError when an entry names a test that was not collected."""
        unknown = sorted(self.entries.keys() - set(collected))
        if unknown:
            raise ExpectedFailuresError(
                f"expected failures name unknown tests {', '.join(unknown)}: "
                "correct the ids or remove the entries"
            )


_NOTE = """\
# Known failures. Give every entry its reason, and shorten a message that changes from run to run.
"""


def _written(one: ExpectedFailure) -> str:
    return "".join(["[[failure]]\n", *(f"{key} = {_quoted(getattr(one, key))}\n" for key in _KEYS)])


def _quoted(text: str) -> str:
    """A basic string of TOML, which is one of JSON but for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _entry(raw: Mapping[str, Any], origin: str) -> ExpectedFailure:
    if not isinstance(raw, Mapping) or set(raw) != set(_KEYS):
        found = sorted(raw) if isinstance(raw, Mapping) else raw
        raise ExpectedFailuresError(f"{origin}: an entry has {found}; expected exactly {_KEYS}")
    for key in _KEYS:
        if not isinstance(raw[key], str) or not raw[key].strip():
            raise ExpectedFailuresError(
                f"{origin}: {key} of {raw['test']!r} is {raw[key]!r}; write a non-empty text"
            )
    return ExpectedFailure(raw["test"], raw["reason"], raw["message"])
