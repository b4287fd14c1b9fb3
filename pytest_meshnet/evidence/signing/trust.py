"""The trust file: whose signatures count, for which runtimes, from when until when.

[[key]]
name = "rig of Ada"
keyid = "..."              # SHA-256 of the SPKI DER; or public_key = PEM, or both
scope = ["vendor-*"]       # patterns of runtime names; ["*"] when left out
valid_from = 2026-01-01T00:00:00Z      # optional, compared with the run's own wall clock
valid_until = 2027-01-01T00:00:00Z     # optional
status = "active"          # or "revoked": then nothing that it ever signed counts
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pytest_meshnet.evidence.documents import HEX_DIGEST
from pytest_meshnet.evidence.signing.keys import KeyRefused, PublicKey, keygen

_FIELDS = {"name", "keyid", "public_key", "scope", "valid_from", "valid_until", "status"}


class TrustError(ValueError):
    """The trust file is malformed: nothing is trusted by guess."""


@dataclass(frozen=True, slots=True)
class TrustedKey:
    """One entry: window bounds are Unix nanoseconds, None where the window is open."""

    keyid: str
    name: str
    scope: tuple[str, ...] = ("*",)
    valid_from: int | None = None
    valid_until: int | None = None
    revoked: bool = False

    def objection(self, target: str, times_ns: Sequence[int]) -> tuple[str, str] | None:
        """Return (code, message) why this key does not count for a run, or None."""
        if self.revoked:
            return "signer-revoked", f"the key of {self.name} is revoked"
        if not any(fnmatchcase(target, pattern) for pattern in self.scope):
            return "signer-scope", f"{self.name} may sign for {list(self.scope)}, not {target!r}"
        early = self.valid_from is not None and min(times_ns) < self.valid_from
        late = self.valid_until is not None and max(times_ns) > self.valid_until
        if early or late:
            when = "before" if early else "after"
            return "signer-window", f"the run is {when} the time that {self.name} is trusted for"
        return None


@dataclass(frozen=True, slots=True)
class Trust:
    """All entries of a trust file by keyid; empty when no file was given."""

    keys: Mapping[str, TrustedKey]

    @classmethod
    def load(cls, path: Path) -> Trust:
        """Read a trust file. Raises TrustError, with the entry at fault."""
        try:
            document = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise TrustError(f"the trust file {path} cannot be read: {error.strerror}") from error
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise TrustError(f"{path}: {error}; expected TOML with [[key]] entries") from error
        entries = document.get("key")
        if document.keys() != {"key"} or not isinstance(entries, list):
            raise TrustError(f"{path}: expected [[key]] entries and nothing else")
        keys: dict[str, TrustedKey] = {}
        for number, entry in enumerate(entries, 1):
            try:
                key = _entry(entry)
            except (TrustError, KeyRefused) as error:
                raise TrustError(f"{path}: key {number}: {error}") from error
            if key.keyid in keys:
                raise TrustError(f"{path}: key {number}: {key.keyid} is listed twice; keep one")
            keys[key.keyid] = key
        return cls(keys)


def trust_entry(key: PublicKey, name: str, scope: Sequence[str] = ("*",)) -> str:
    """Return the text of a trust file that lists one key. Raises TrustError for a bad name."""
    return (
        "[[key]]\n"
        f"name = {_quoted(name)}\n"
        f'keyid = "{key.keyid}"\n'
        f'public_key = """\n{key.pem}"""\n'
        f"scope = [{', '.join(map(_quoted, scope))}]\n"
        'status = "active"\n'
    )


def write_trust_file(path: Path, key: PublicKey, name: str, scope: Sequence[str] = ("*",)) -> None:
    """Write a trust file for one key. Raises TrustError when the file exists."""
    text = trust_entry(key, name, scope)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError as error:
        raise TrustError(f"{path} exists: add this entry to it by hand:\n{text}") from error
    with open(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)


def run_keygen(path: Path) -> tuple[str, int]:
    """Make a key and, beside it, a trust file: return (text, exit code 0 or 2)."""
    beside = path.with_name(f"{path.name}.trust.toml")
    if beside.exists():
        return f"{beside} exists and is never overwritten: choose another path\n", 2
    try:
        key = keygen(path)
        write_trust_file(beside, key, path.stem)
    except (KeyRefused, TrustError) as error:
        return f"{error}\n", 2
    except OSError as error:
        return f"no key in {path}: {error.strerror}; choose a writable folder\n", 2
    return (
        f"private key  {path}  (mode 0600: keep it, show it to nobody)\n"
        f"trust file   {beside}  (give it to whoever verifies)\n"
        f"keyid        {key.keyid}\n"
        f"raw key      SHA-256 {key.raw_sha256}\n"
    ), 0


def _entry(raw: Any) -> TrustedKey:
    if not isinstance(raw, dict):
        raise TrustError("expected a table")
    unknown = sorted(raw.keys() - _FIELDS)
    if unknown:
        raise TrustError(f"unknown field {unknown[0]!r}; expected {sorted(_FIELDS)}")
    keyid = _keyid(raw)
    name = raw.get("name", keyid[:12])
    scope = raw.get("scope", ["*"])
    status = raw.get("status", "active")
    if not isinstance(name, str) or not name.isprintable():
        raise TrustError(f"name is {name!r}; expected one line of text")
    if not isinstance(scope, list) or not all(isinstance(one, str) for one in scope):
        raise TrustError(f"scope is {scope!r}; expected a list of patterns of runtime names")
    if status not in ("active", "revoked"):
        raise TrustError(f'status is {status!r}; expected "active" or "revoked"')
    return TrustedKey(
        keyid,
        name,
        tuple(scope),
        _moment(raw, "valid_from"),
        _moment(raw, "valid_until"),
        status == "revoked",
    )


def _keyid(raw: Mapping[str, Any]) -> str:
    keyid, pem = raw.get("keyid"), raw.get("public_key")
    if pem is not None:
        found = PublicKey.from_pem(str(pem)).keyid
        if keyid not in (None, found):
            raise TrustError(f"public_key has the keyid {found}, the entry says {keyid}")
        return found
    if not isinstance(keyid, str) or not HEX_DIGEST.fullmatch(keyid):
        raise TrustError(f"keyid is {keyid!r}; expected 64 hex digits, or a public_key")
    return keyid


def _moment(raw: Mapping[str, Any], name: str) -> int | None:
    value = raw.get(name)
    if value is None:
        return None
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise TrustError(f"{name} is {value!r}; expected a time with zone, 2026-01-31T00:00:00Z")
    return int(value.timestamp()) * 10**9


def _quoted(text: str) -> str:
    if not text.isprintable():
        raise TrustError(f"{text!r} cannot be written in a trust file: use printable text")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
