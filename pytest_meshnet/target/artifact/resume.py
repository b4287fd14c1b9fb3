"""What an interrupted verification already knows: digests of files that have not changed since.

A convenience for the same person on the same machine, and no evidence: whoever can write the log
can write anything into it, so a verdict says when its digest comes from here.
"""

import errno
import fcntl
import json
import os
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pytest_meshnet.identity.canonical import DocumentRefused, load_strict
from pytest_meshnet.target.fields import TargetRefused

# A file this young may be rewritten within the same tick of its clock and keep its stamp.
SETTLE_NANOS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Stamp:
    """A file's identity on disk. Rewriting a file changes its ctime, which no user can set back."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Self:
        """Return the stamp of a stat result."""
        return cls(
            status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
        )


class ResumeLog:
    """Digests by path and stamp, one JSON line a file, on disk as soon as each is known.

    A context manager, held by one process at a time and usable from its threads. A torn last line
    is dropped. Raises TargetRefused: resume-log-busy, and resume-log for a line that is no entry.
    """

    def __init__(self, path: Path, *, settle_nanos: int = SETTLE_NANOS) -> None:
        self._path = path
        self._settle_nanos = settle_nanos
        self._lock = threading.Lock()
        self._known: dict[tuple[str, Stamp], str] = {}
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._size = self._load()
        except BaseException:
            os.close(self._descriptor)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)

    def get(self, path: Path, stamp: Stamp) -> str | None:
        """Return the SHA-256 of `path` when it still has that stamp."""
        with self._lock:
            return self._known.get((str(path), stamp))

    def put(self, path: Path, stamp: Stamp, sha256: str) -> None:
        """Remember a finished file; returns when the line is on disk.

        A file changed within the last second is not remembered: its stamp could still stay the same
        when it changes again. Raises OSError when the disk does not take the line.
        """
        if time.time_ns() - max(stamp.ctime_ns, stamp.mtime_ns) < self._settle_nanos:
            return
        record = {"path": str(path), "sha256": sha256, **asdict(stamp)}
        line = json.dumps(record, sort_keys=True).encode() + b"\n"
        with self._lock:
            os.ftruncate(self._descriptor, self._size)
            if os.pwrite(self._descriptor, line, self._size) != len(line):
                raise OSError(errno.ENOSPC, "the resume log could not be written")
            os.fsync(self._descriptor)
            self._size += len(line)
            self._known[str(path), stamp] = sha256

    def _load(self) -> int:
        """Read the committed lines; return the bytes they take."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise TargetRefused(
                "resume-log-busy", f"{self._path} is used by another verification: wait for it"
            ) from error
        data = os.pread(self._descriptor, os.fstat(self._descriptor).st_size, 0)
        size = data.rfind(b"\n") + 1
        for number, line in enumerate(data[:size].splitlines(), start=1):
            self._read(number, line)
        return size

    def _read(self, number: int, line: bytes) -> None:
        try:
            record: dict[str, Any] = dict(load_strict(line, self._path.name))
            path, sha256 = record.pop("path"), record.pop("sha256")
            if not (isinstance(path, str) and isinstance(sha256, str)):
                raise ValueError("path and sha256 are texts")
            self._known[path, Stamp(**record)] = sha256
        except (DocumentRefused, KeyError, TypeError, ValueError) as error:
            raise TargetRefused(
                "resume-log", f"{self._path} line {number} is no entry ({error}): delete the file"
            ) from error
