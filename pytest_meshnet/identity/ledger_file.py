"""The certification ledger on disk: append-only, and honest after SIGKILL and power loss.

One entry is one line `{"body", "prev", "seq", "sum"}`: `prev` is the SHA-256 of the line before and
`sum` the canonical digest of the other three. The newline commits: an entry is acknowledged after
its line, newline included, went to the disk (fsync). Bytes after the last newline are a torn tail
that nobody was promised; readers ignore them and the next writer cuts them off. Anything else that
does not add up is damage and refuses the whole file, because what it lost cannot be known.
"""

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_meshnet.identity.canonical import DocumentRefused, canonical_bytes, digest, load_strict
from pytest_meshnet.identity.certification import (
    Book,
    CertificationRefused,
    Entry,
    ForwardEvidence,
    Registration,
    from_record,
    to_record,
)
from pytest_meshnet.identity.declaration import Declaration

_GENESIS = "0" * 64


class LedgerDamaged(ValueError):
    """A committed line that is not what was written. Restore the file; nothing is skipped."""


class LedgerWriteFailed(OSError):
    """The entry was not acknowledged: the disk took none or only a part of it."""


@dataclass(frozen=True, slots=True)
class _Tail:
    book: Book
    count: int
    head: str  # SHA-256 of the last committed line
    size: int  # bytes up to and including the last newline


class LedgerFile:
    """The ledger at `path`, safe under concurrent threads and processes (flock) on one machine."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Book:
        """Return the state that the committed entries add up to; an absent file is empty.

        Raises LedgerDamaged for a line that was changed, removed or moved, and for an entry that
        no writer would have accepted.
        """
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return Book()
        try:
            # Waits for a writer's fsync: what nobody has acknowledged is not shown.
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            return self._replay(_read_all(descriptor)).book
        finally:
            os.close(descriptor)

    def register(self, declaration: Declaration) -> None:
        """Make the recipe of a declaration visible; registering it again changes nothing.

        Returns when the entry is on disk. Raises CertificationRefused, LedgerDamaged,
        LedgerWriteFailed.
        """
        self._append(Registration.of(declaration))

    def certify(self, evidence: ForwardEvidence) -> None:
        """Certify a registered recipe by a real distributed forward.

        Returns when the entry is on disk; the same evidence again changes nothing. Raises
        CertificationRefused when the evidence does not certify, LedgerDamaged, LedgerWriteFailed.
        """
        self._append(evidence)

    def _append(self, entry: Entry) -> None:
        with self._locked() as descriptor:
            tail = self._replay(_read_all(descriptor))
            if tail.book.holds(entry):
                # Whoever wrote it may have died before its fsync; this caller is promised it now.
                os.fsync(descriptor)
                return
            tail.book.add(entry)
            record = {"seq": tail.count, "prev": tail.head, "body": to_record(entry)}
            line = canonical_bytes({**record, "sum": digest(record)}) + b"\n"
            _commit(descriptor, line, tail.size)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        while True:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if not self._names(descriptor):
                    continue  # replaced while waiting: an entry written here would be lost
                if os.fstat(descriptor).st_size == 0:
                    # The name must outlive a power cut as well, whoever created it.
                    _sync_folder(self.path.parent)
                yield descriptor
                return
            finally:
                os.close(descriptor)

    def _names(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), self.path.stat())
        except FileNotFoundError:
            return False

    def _replay(self, data: bytes) -> _Tail:
        size = data.rfind(b"\n") + 1
        book, head, count = Book(), _GENESIS, 0
        for line in data[:size].split(b"\n")[:-1]:
            try:
                record = load_strict(line, f"{self.path} entry {count}")
                book.add(from_record(_checked(record, head, count)))
            except (DocumentRefused, CertificationRefused, _Unchained) as error:
                raise LedgerDamaged(
                    f"{self.path}: entry {count} is damaged ({error}): restore the file from a copy"
                ) from error
            head = hashlib.sha256(line).hexdigest()
            count += 1
        return _Tail(book, count, head, size)


class _Unchained(ValueError):
    """A line that is not the one that follows."""


def _checked(record: Any, head: str, count: int) -> dict[str, Any]:
    if not isinstance(record, dict) or record.keys() != {"seq", "prev", "body", "sum"}:
        raise _Unchained("its keys are not seq, prev, body, sum")
    claimed = record.pop("sum")
    if digest(record) != claimed:
        raise _Unchained("its digest is not the one it was written with")
    if type(record["seq"]) is not int or record["seq"] != count:
        raise _Unchained(f"its number is {record['seq']!r}, expected {count}")
    if record["prev"] != head:
        raise _Unchained("it does not follow the line before")
    if not isinstance(record["body"], dict):
        raise _Unchained("its body is no object")
    return record["body"]


def _read_all(descriptor: int) -> bytes:
    """Read a file that was just opened to its end."""
    parts = []
    while part := os.read(descriptor, 1 << 20):
        parts.append(part)
    return b"".join(parts)


def _commit(descriptor: int, line: bytes, size: int) -> None:
    """Write `line` after the first `size` bytes, cutting what was torn, and wait for the disk."""
    try:
        os.ftruncate(descriptor, size)
        written = os.pwrite(descriptor, line, size)
        if written != len(line):
            raise OSError(f"only {written} of {len(line)} bytes were written")
        os.fsync(descriptor)
    except OSError as error:
        os.ftruncate(descriptor, size)
        raise LedgerWriteFailed(
            f"the entry was not written ({error}): free the disk and add it again"
        ) from error


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
