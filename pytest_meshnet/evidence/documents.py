"""The files of a bundle: their names and limits, and what each signed document says.

Every signed document is an in-toto Statement v1 about the target's descriptor. `statement` speaks
the standard test-result predicate, the other four the project's own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_meshnet.evidence import strict
from pytest_meshnet.evidence.journal import Collection, Plugin
from pytest_meshnet.evidence.strict import Scalar, StrictError

FORMAT = 1
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
TEST_RESULT = "https://in-toto.io/attestation/test-result/v0.1"
OWN = "urn:pytest-meshnet:evidence:{}/v1"

PREDICATES: Mapping[str, str] = {
    "start": OWN.format("start"),
    "plan": OWN.format("plan"),
    "statement": TEST_RESULT,
    "run": OWN.format("run"),
    "seal": OWN.format("seal"),
}
"""The predicate type of each signed document, by the first part of its file name."""

FILE_NAME = re.compile(
    r"(?:start|plan|statement|run|seal)\.dsse\.json"
    r"|journal/(?:main|gw[0-9]{1,4})\.jsonl"
    r"|artifacts/sha256/[0-9a-f]{64}"
    r"|report\.html|report\.md|junit\.xml"
    r"|anchors/[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
)
FOLDERS = frozenset({"journal", "artifacts", "artifacts/sha256", "anchors"})
ANCHORS = "anchors/"
"""Countersignatures and timestamps by others; added after the seal, so not listed in it.

What an anchor there stands for is the file `seal.dsse.json`, and through it everything else.
"""
PARTIAL = ".partial"
"""End of the names of files being written; a dot starts them. Legal only before the seal."""
DERIVED = frozenset({"report.html", "report.md", "junit.xml"})

DOCUMENT_LIMIT = 64 * 1024 * 1024
ANCHOR_LIMIT = 1024 * 1024
FILE_LIMIT = 4 * 1024**3
COUNT_LIMIT = 100_000
"""Size limits in bytes of a signed document, an anchor and any other file; most files."""

CERTIFICATE_PLUGINS = frozenset({"hypothesis", "pytest-meshnet", "pytest-timeout", "pytest-xdist"})
"""The distributions whose pytest plugins may be active in a certificate run; no others."""
UNSET_FOR_CERTIFICATE = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS")
SET_FOR_CERTIFICATE = "PYTEST_DISABLE_PLUGIN_AUTOLOAD"
"""The environment variables of a certificate run: those that are empty, the one that is not."""

HEX_DIGEST = re.compile(r"[0-9a-f]{64}")


def document_name(kind: str) -> str:
    """Return the file name of a signed document, e.g. `seal.dsse.json`."""
    return f"{kind}.dsse.json"


@dataclass(frozen=True, slots=True)
class Signer:
    """Who signed: base64 of the SPKI DER, both published names of the key, kept or not."""

    public_key: str
    keyid: str
    raw_sha256: str
    ephemeral: bool


@dataclass(frozen=True, slots=True)
class Versioned:
    """Something with a version and the SHA-256 hex of its bytes."""

    version: str
    digest: str


@dataclass(frozen=True, slots=True)
class Named:
    """Something with a name and the SHA-256 hex of its bytes."""

    name: str
    digest: str


@dataclass(frozen=True, slots=True)
class Start:
    """Signed before collection: what was going to run, on what, by whom.

    `challenge`, `previous_seal`, `policy_digest` and `expected_failures` may be empty. `counter`
    counts the runs by this key in this output folder, from 1. `gpu_inventory` says how the list
    `gpus` came about; "not collected" is not the same as an empty machine.
    """

    format: int
    run_id: str
    challenge: str
    counter: int
    previous_seal: str
    signer: Signer
    suite: Versioned
    ledger: Versioned
    target: Named
    profiles: tuple[str, ...]
    policy_digest: str
    expected_failures: str
    plugins: tuple[Plugin, ...]
    certificate: bool
    options: Mapping[str, str]
    host: Mapping[str, str]
    environment: Mapping[str, str]
    gpu_inventory: str
    gpus: tuple[Mapping[str, Scalar], ...]
    artifacts: tuple[Named, ...]
    boot_id: str
    t_mono: str
    t_wall: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Signed after collection: every test that must have a result."""

    run_id: str
    start_sha256: str
    collection: Collection
    t_mono: str
    t_wall: str


@dataclass(frozen=True, slots=True)
class SealedJournal:
    """How far one journal reached; `torn` when an incomplete line follows."""

    records: int
    head: str
    torn: bool


@dataclass(frozen=True, slots=True)
class Seal:
    """Signed last: the digest of every other file, and what the run came to."""

    run_id: str
    counter: int
    files: Mapping[str, str]
    journals: Mapping[str, SealedJournal]
    counts: Mapping[str, int]
    verdict: str
    exit_status: int
    suite_digest: str
    t_mono: str
    t_wall: str


def wrap(kind: str, target: Named, predicate: Any) -> dict[str, Any]:
    """Return the in-toto Statement v1 of a document about a target."""
    return {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": target.name, "digest": {"sha256": target.digest}}],
        "predicateType": PREDICATES[kind],
        "predicate": strict.encode(predicate),
    }


def unwrap(kind: str, payload: bytes) -> tuple[Named, Any]:
    """Return (target, predicate) of a stored document. Raises StrictError."""
    raw = strict.loads(payload)
    keys = {"_type", "subject", "predicateType", "predicate"}
    if type(raw) is not dict or raw.keys() != keys:
        raise StrictError("statement-form", f"{kind}: expected exactly the fields {sorted(keys)}")
    if raw["_type"] != STATEMENT_TYPE or raw["predicateType"] != PREDICATES[kind]:
        raise StrictError(
            "statement-type",
            f"{kind} is {raw['predicateType']!r}: expected {PREDICATES[kind]!r}",
        )
    subject = raw["subject"]
    if type(subject) is not list or len(subject) != 1:
        raise StrictError("statement-form", f"{kind}: expected one subject")
    found = strict.decode(_Subject, subject[0], f"{kind}.subject")
    return Named(found.name, found.digest.sha256), raw["predicate"]


@dataclass(frozen=True, slots=True)
class _Digest:
    sha256: str


@dataclass(frozen=True, slots=True)
class _Subject:
    name: str
    digest: _Digest
