"""Everything that a bundle holds, read strictly and judged by nobody yet.

Reading never stops at the first fault: each is kept where a check finds it. No link is followed
and no file is opened whose name a bundle cannot have.
"""

from __future__ import annotations

import binascii
import hashlib
import os
import stat
from base64 import b64decode
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import Any, TypeVar

from pytest_meshnet.evidence import documents, strict
from pytest_meshnet.evidence.documents import Named, Plan, Seal, Start
from pytest_meshnet.evidence.journal import Collection, Replay, nanoseconds
from pytest_meshnet.evidence.recorded import Recorded, fold
from pytest_meshnet.evidence.signing.dsse import Envelope
from pytest_meshnet.evidence.signing.keys import KeyRefused, PublicKey
from pytest_meshnet.evidence.strict import StrictError
from pytest_meshnet.evidence.summary import Summary, summarize
from pytest_meshnet.ledger.requirements import Ledger, LedgerError, own_ledgers

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Oddity:
    """Something in the folder that no bundle holds: `code` is a stable reason code."""

    code: str
    name: str
    message: str


@dataclass(slots=True)
class Material:
    """What was read. A document that is absent or broken is None; `faults` says which and why."""

    root: Path
    files: dict[str, int] = field(default_factory=dict)
    oddities: list[Oddity] = field(default_factory=list)
    envelopes: dict[str, Envelope] = field(default_factory=dict)
    faults: dict[str, StrictError] = field(default_factory=dict)
    subjects: dict[str, Named] = field(default_factory=dict)
    predicates: dict[str, Any] = field(default_factory=dict)
    start: Start | None = None
    plan: Plan | None = None
    seal: Seal | None = None
    key: PublicKey | None = None
    key_fault: str = ""
    recorded: Recorded = field(default_factory=Recorded)
    ledger: Ledger | None = None
    summary: Summary | None = None
    summary_fault: StrictError | None = None
    _digests: dict[str, str] = field(default_factory=dict)

    @property
    def sealed(self) -> bool:
        """Whether there is a seal, sound or not."""
        return documents.document_name("seal") in self.files

    @property
    def collection(self) -> Collection:
        """The plan, or while none is signed what the first process collected."""
        if self.plan is not None:
            return self.plan.collection
        return next(iter(self.recorded.collections.values()), Collection())

    def open(self, name: str) -> BufferedReader:
        """Open a listed regular file; raises OSError when it has become a link."""
        descriptor = os.open(self.root / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        return open(descriptor, "rb")

    def read(self, name: str) -> bytes:
        """Return the content of a listed file that is small by the limit of its kind."""
        with self.open(name) as stream:
            return stream.read(documents.DOCUMENT_LIMIT + 1)

    def digest(self, name: str) -> str:
        """Return the SHA-256 hex of a listed file, empty when there is no such file."""
        if name not in self.files:
            return ""
        if name not in self._digests:
            with self.open(name) as stream:
                self._digests[name] = hashlib.file_digest(stream, "sha256").hexdigest()
        return self._digests[name]


def read_material(root: Path, accepted_ledgers: tuple[str, ...] = ()) -> Material:
    """Read a bundle folder. Raises OSError when it is no readable folder.

    The run is judged by one of the suite's own ledgers, or by the bundle's copy of one whose
    digest is in `accepted_ledgers`; by no other.
    """
    material = Material(root.resolve(strict=True))
    _scan(material)
    for kind in documents.PREDICATES:
        _read_envelope(material, kind)
    material.start = _read_document(material, "start", Start)
    material.plan = _read_document(material, "plan", Plan)
    material.seal = _read_document(material, "seal", Seal)
    _read_key(material)
    _read_journals(material)
    material.ledger = _find_ledger(material, accepted_ledgers)
    if material.start is not None and material.ledger is not None:
        try:
            material.summary = summarize(
                material.start, material.collection, material.recorded, material.ledger
            )
        except StrictError as error:
            material.summary_fault = error
    return material


def _scan(material: Material) -> None:
    for count, (name, facts) in enumerate(_walk(material.root, "")):
        if count >= documents.COUNT_LIMIT:
            message = f"more than {documents.COUNT_LIMIT} entries"
            material.oddities.append(Oddity("too-many-files", name, message))
            return
        oddity = _oddity(name, facts)
        if oddity is not None:
            material.oddities.append(oddity)
        elif not stat.S_ISDIR(facts.st_mode):
            material.files[name] = facts.st_size


def _walk(root: Path, prefix: str) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(root / prefix) as found:
        entries = sorted(found, key=lambda one: one.name)
    for entry in entries:
        name = f"{prefix}{entry.name}"
        facts = entry.stat(follow_symlinks=False)
        yield name, facts
        if stat.S_ISDIR(facts.st_mode) and name in documents.FOLDERS:
            yield from _walk(root, f"{name}/")


def _oddity(name: str, facts: os.stat_result) -> Oddity | None:
    if stat.S_ISLNK(facts.st_mode):
        return Oddity("link", name, "is a symbolic link")
    if stat.S_ISDIR(facts.st_mode):
        known = name in documents.FOLDERS
        return None if known else Oddity("unexpected-name", name, "is no folder of a bundle")
    if not stat.S_ISREG(facts.st_mode):
        return Oddity("not-regular", name, "is no regular file")
    last = name.rpartition("/")[2]
    partial = last.startswith(".") and last.endswith(documents.PARTIAL)
    if not documents.FILE_NAME.fullmatch(name):
        code = "partial-file" if partial else "unexpected-name"
        return Oddity(code, name, "is no file of a bundle")
    limit = _limit(name)
    if facts.st_size > limit:
        return Oddity("too-large", name, f"has {facts.st_size} bytes, more than {limit}")
    return None


def _limit(name: str) -> int:
    if name.startswith(documents.ANCHORS):
        return documents.ANCHOR_LIMIT
    return documents.DOCUMENT_LIMIT if name.endswith(".dsse.json") else documents.FILE_LIMIT


def _read_envelope(material: Material, kind: str) -> None:
    name = documents.document_name(kind)
    if name not in material.files:
        return
    try:
        envelope = material.envelopes[kind] = Envelope.from_bytes(material.read(name))
        found = documents.unwrap(kind, envelope.payload)
        material.subjects[kind], material.predicates[kind] = found
    except StrictError as error:
        material.faults[kind] = error


def _read_document(material: Material, name: str, kind: type[T]) -> T | None:
    if name not in material.predicates:
        return None
    try:
        predicate = material.predicates.pop(name)
        document = strict.decode(kind, predicate, name)
        for moment in ("t_mono", "t_wall"):
            nanoseconds(predicate[moment])
    except StrictError as error:
        material.faults[name] = error
        return None
    return document


def _read_key(material: Material) -> None:
    if material.start is None:
        return
    signer = material.start.signer
    try:
        key = PublicKey.from_spki(b64decode(signer.public_key, validate=True))
    except (binascii.Error, ValueError, KeyRefused) as error:
        material.key_fault = f"the start names no usable key: {error}"
        return
    if (key.keyid, key.raw_sha256) != (signer.keyid, signer.raw_sha256):
        material.key_fault = "the start gives its key other names than the key has"
        return
    material.key = key


def _read_journals(material: Material) -> None:
    names = sorted(name for name in material.files if name.startswith("journal/"))
    with ExitStack() as opened:
        material.recorded = fold(
            (Path(name).stem, Replay(opened.enter_context(material.open(name)))) for name in names
        )


def _find_ledger(material: Material, accepted: tuple[str, ...]) -> Ledger | None:
    if material.start is None:
        return Ledger.load()
    digest = material.start.ledger.digest
    for path in own_ledgers():
        if (ours := Ledger.load(path)).digest == digest:
            return ours
    copy = f"artifacts/sha256/{digest}"
    if digest not in accepted or copy not in material.files:
        return None
    try:
        theirs = Ledger.load(material.root / copy)
    except LedgerError:
        return None
    return theirs if theirs.digest == digest else None
