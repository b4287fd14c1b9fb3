"""The requirement ledger: every normative statement with its id, level, profile and needs."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, get_args

from pytest_meshnet import layout

Level = Literal["MUST", "SHOULD", "MAY"]
Subject = Literal["runtime", "suite", "route"]

SCHEMA = 1
CORE_WIRE = "core-wire"
CORE_WIRE_GROUPS = ("WIRE", "CODEC", "OPEN", "PREFILL", "DECODE")

_ID = re.compile(r"[A-Z]+-[0-9]{2}")
_REQUIRED = frozenset({"id", "level", "profile", "subject", "title", "statement"})
_TOP_LEVEL = frozenset({"schema", "ledger_version", "needs", "requirement"})


class LedgerError(ValueError):
    """The ledger file is not a ledger: the message names the entry and what was expected."""


class UnknownRequirement(KeyError):
    """No requirement has this id; the message offers the nearest ids."""

    def __str__(self) -> str:
        return str(self.args[0])


class UnknownProfile(KeyError):
    """No requirement belongs to this profile; the message lists the profiles."""

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True, slots=True)
class Requirement:
    """One normative statement.

    `needs` are the ledger's names of facts without which the statement cannot apply;
    `subject` says whom a failing test speaks about: the runtime, the suite itself, or a route.
    """

    id: str
    level: Level
    profile: str
    subject: Subject
    title: str
    statement: str
    needs: tuple[str, ...] = ()

    @property
    def group(self) -> str:
        """The part of the id before the dash, e.g. `DECODE`."""
        return self.id.partition("-")[0]


@dataclass(frozen=True, slots=True)
class Ledger:
    """All requirements of one ledger version, in the order of the file.

    `digest` is the SHA-256 hex of the file's bytes. `needs` maps each need to its meaning.
    """

    version: str
    digest: str
    requirements: tuple[Requirement, ...]
    needs: Mapping[str, str]
    _by_id: Mapping[str, Requirement] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_id", {one.id: one for one in self.requirements})

    @classmethod
    def load(cls, path: Path | None = None) -> Ledger:
        """Read a ledger file, by default the suite's own `conformance/requirements.toml`.

        Raises LedgerError when the file is malformed, OSError when it cannot be read.
        """
        path = path or layout.folder("conformance") / "requirements.toml"
        try:
            return _read(path.read_bytes())
        except LedgerError as error:
            raise LedgerError(f"{path}: {error}") from None

    @property
    def profiles(self) -> tuple[str, ...]:
        """Every profile that can be claimed, the subset `core-wire` first."""
        named = dict.fromkeys(one.profile for one in self.requirements)
        return (CORE_WIRE, *(name for name in named if name != CORE_WIRE))

    def get(self, requirement_id: str) -> Requirement:
        """Return one requirement. Raises UnknownRequirement with the nearest ids."""
        try:
            return self._by_id[requirement_id]
        except KeyError:
            raise UnknownRequirement(self._no_such(requirement_id)) from None

    def group(self, name: str) -> tuple[Requirement, ...]:
        """Return the requirements of a group such as `DECODE`, empty when there is none."""
        return tuple(one for one in self.requirements if one.group == name)

    def profile(self, name: str) -> tuple[Requirement, ...]:
        """Return the requirements of a profile. Raises UnknownProfile."""
        self.check_profiles([name])
        return tuple(one for one in self.requirements if _belongs(one, name))

    def check_profiles(self, names: Iterable[str]) -> None:
        """Raise UnknownProfile for the first name that is no profile of this ledger."""
        for name in names:
            if name not in self.profiles:
                known = ", ".join(self.profiles)
                raise UnknownProfile(f"unknown profile {name!r}: choose from {known}")

    def is_claimed(self, requirement: Requirement, claimed: Iterable[str]) -> bool:
        """Say whether any of the claimed profile names contains the requirement."""
        return any(_belongs(requirement, name) for name in claimed)

    def claims(self, claimed: Iterable[str]) -> tuple[Requirement, ...]:
        """Return every requirement that the claimed profile names contain, in ledger order."""
        names = tuple(claimed)
        self.check_profiles(names)
        return tuple(one for one in self.requirements if self.is_claimed(one, names))

    def _no_such(self, requirement_id: str) -> str:
        from difflib import get_close_matches

        near = get_close_matches(requirement_id.upper(), self._by_id, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "see `pytest-meshnet ledger`"
        return f"unknown requirement {requirement_id!r} in ledger {self.version}: {hint}"


def own_ledgers() -> tuple[Path, ...]:
    """Return the ledger of the protocol and those of acceptance suites, which judge other runs."""
    acceptance = layout.folder("acceptance").glob("*/requirements.toml")
    return layout.folder("conformance") / "requirements.toml", *sorted(acceptance)


def _belongs(requirement: Requirement, profile: str) -> bool:
    if profile == CORE_WIRE:
        return requirement.profile == "core" and requirement.group in CORE_WIRE_GROUPS
    return requirement.profile == profile


@lru_cache(maxsize=4)
def _read(data: bytes) -> Ledger:
    """A process that runs many mutants, or judges many records, reads the same ledger each time."""
    try:
        document = tomllib.loads(data.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise LedgerError(f"{error}; expected a TOML ledger") from error
    return _from_document(document, hashlib.sha256(data).hexdigest())


def _from_document(document: Mapping[str, Any], digest: str) -> Ledger:
    unknown = document.keys() - _TOP_LEVEL
    if unknown:
        raise LedgerError(f"unknown keys {sorted(unknown)}; expected {sorted(_TOP_LEVEL)}")
    if document.get("schema") != SCHEMA:
        raise LedgerError(f"schema is {document.get('schema')!r}; this suite reads schema {SCHEMA}")
    version = document.get("ledger_version")
    if not isinstance(version, str):
        raise LedgerError(f"ledger_version is {version!r}; expected a string")
    needs = document.get("needs", {})
    requirements = tuple(_requirement(entry, needs) for entry in document.get("requirement", ()))
    if not requirements:
        raise LedgerError("no [[requirement]] entries; expected at least one")
    seen: set[str] = set()
    for one in requirements:
        if one.id in seen:
            raise LedgerError(f"{one.id} appears twice; ids are never reused")
        seen.add(one.id)
    return Ledger(version, digest, requirements, dict(needs))


def _requirement(entry: Mapping[str, Any], needs: Mapping[str, str]) -> Requirement:
    name = entry.get("id", "(entry without id)")
    missing = _REQUIRED - entry.keys()
    unknown = entry.keys() - _REQUIRED - {"needs"}
    if missing or unknown:
        raise LedgerError(f"{name}: missing {sorted(missing)}, unknown {sorted(unknown)}")
    texts = {key: entry[key] for key in _REQUIRED}
    for key, value in texts.items():
        if not isinstance(value, str) or not value:
            raise LedgerError(f"{name}: {key} is {value!r}; expected a non-empty string")
    if not _ID.fullmatch(texts["id"]):
        raise LedgerError(f"{name}: the id must look like GROUP-01")
    _expect_one_of(name, "level", texts["level"], get_args(Level))
    _expect_one_of(name, "subject", texts["subject"], get_args(Subject))
    listed = entry.get("needs", [])
    for need in listed:
        _expect_one_of(name, "needs", need, tuple(needs))
    return Requirement(**texts, needs=tuple(listed))


def _expect_one_of(name: str, key: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise LedgerError(f"{name}: {key} is {value!r}; expected one of {', '.join(allowed)}")
