"""Whether files are the pinned ones: size and SHA-256, in parallel, resumable, bounded in memory.

Each file is hashed whole by one thread (hashlib releases the interpreter), a megabyte at a time.
What a run found about a finished file can be kept (`ResumeLog`), bound to the file's identity on
disk, so that a later run hashes only what is new or changed.
"""

import errno
import hashlib
import os
import stat
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from pytest_meshnet.identity.canonical import digest
from pytest_meshnet.target.artifact.resume import ResumeLog, Stamp
from pytest_meshnet.target.fields import TargetRefused

CHUNK_BYTES = 2**20

Progress = Callable[[str, int], None]


class Code(StrEnum):
    """The stable outcome of one file. Only `verified` is good."""

    VERIFIED = "verified"
    MISSING = "missing"
    NOT_A_FILE = "not-a-file"
    UNREADABLE = "unreadable"
    EMPTY = "empty"
    WRONG_SIZE = "wrong-size"
    WRONG_DIGEST = "wrong-digest"
    FORBIDDEN_STORAGE = "forbidden-storage"
    CHANGED_WHILE_READING = "changed-while-reading"


@dataclass(frozen=True, slots=True)
class Expected:
    """One file to verify: where it is, and its pinned bytes and SHA-256 (None: size unknown)."""

    path: Path
    size_bytes: int | None
    sha256: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found of one file. `sha256` is None where it was not hashed.

    `resumed` says that the digest comes from an earlier run's log and not from this one.
    """

    path: Path
    code: Code
    message: str
    size_bytes: int | None = None
    sha256: str | None = None
    resumed: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "path": str(self.path),
            "code": str(self.code),
            "message": self.message,
            "size_bytes": self.size_bytes,
            "sha256": self.sha256,
            "resumed": self.resumed,
        }


@dataclass(frozen=True, slots=True)
class Verification:
    """The verdicts, in the order in which the files were given."""

    verdicts: tuple[Verdict, ...]

    @property
    def verified(self) -> bool:
        """Whether there was something to verify and all of it is the pinned content."""
        return bool(self.verdicts) and all(v.code is Code.VERIFIED for v in self.verdicts)

    def content_digest(self) -> str | None:
        """Return one digest of the verified content: of sizes and SHA-256 in order, never of paths.

        None unless everything is verified.
        """
        if not self.verified:
            return None
        body = [{"size_bytes": v.size_bytes, "sha256": v.sha256} for v in self.verdicts]
        return digest({"domain": "meshnet.artifact-content.v1", "body": body})


class _Refused(Exception):
    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def verify_files(
    files: Sequence[Expected],
    *,
    forbidden_prefixes: Sequence[str],
    workers: int | None = None,
    resume: ResumeLog | None = None,
    progress: Progress | None = None,
) -> Verification:
    """Verify every file; never stops at the first bad one.

    `workers` threads hash at once (default: one for each file, at most one for each core);
    `progress(path, bytes)` is called from them after each chunk. Files below a forbidden prefix,
    before or after links are resolved, are not read. Raises TargetRefused for no files, one path
    twice, and fewer than one worker.
    """
    if not files:
        raise TargetRefused("nothing-to-verify", "no file is named: name the files or their folder")
    if len({expected.path for expected in files}) < len(files):
        raise TargetRefused("file-twice", "a file is named twice: name each once")
    limit = min(len(files), os.cpu_count() or 1) if workers is None else workers
    if limit < 1:
        raise TargetRefused("workers", f"{limit} workers verify nothing: use at least 1")
    stop = threading.Event()
    prefixes = [Path(prefix) for prefix in forbidden_prefixes]
    with ThreadPoolExecutor(limit, thread_name_prefix="verify") as pool:
        jobs = [
            pool.submit(_verify, expected, prefixes, resume, progress or _quiet, stop)
            for expected in files
        ]
        try:
            return Verification(tuple(job.result() for job in jobs))
        finally:
            # An interrupt must not wait for hours of hashing; finished files are in the log.
            stop.set()


def _verify(
    expected: Expected,
    prefixes: Sequence[Path],
    resume: ResumeLog | None,
    progress: Progress,
    stop: threading.Event,
) -> Verdict:
    try:
        resolved = _allowed(expected.path, prefixes)
        return _verify_open(expected, resolved, resume, progress, stop)
    except _Refused as refused:
        return Verdict(expected.path, refused.code, refused.message)
    except OSError as error:
        message = (
            f"{expected.path} cannot be read ({error.strerror}): check the disk and its rights"
        )
        return Verdict(expected.path, Code.UNREADABLE, message)


def _verify_open(
    expected: Expected,
    resolved: Path,
    resume: ResumeLog | None,
    progress: Progress,
    stop: threading.Event,
) -> Verdict:
    # Resolved already, so a link here now is a swap; a pipe must not block the open.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(resolved, flags)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise _Refused(Code.NOT_A_FILE, f"{expected.path} is no regular file: name one")
    with os.fdopen(descriptor, "rb", buffering=0) as stream:
        wrong = _wrong_size(expected, status.st_size)
        if wrong is not None:
            return wrong
        stamp = Stamp.of(status)
        known = None if resume is None else resume.get(resolved, stamp)
        if known is not None:
            progress(str(expected.path), status.st_size)
            return _judge(expected, status.st_size, known, resumed=True)
        found = _hash(stream, lambda count: progress(str(expected.path), count), stop)
        if Stamp.of(os.fstat(descriptor)) != stamp:
            raise _Refused(
                Code.CHANGED_WHILE_READING,
                f"{expected.path} changed while it was read: stop whoever writes it, verify again",
            )
    if resume is not None:
        resume.put(resolved, stamp, found)
    return _judge(expected, status.st_size, found, resumed=False)


def _allowed(path: Path, forbidden_prefixes: Sequence[Path]) -> Path:
    """Return `path` with links resolved; refuse it below a forbidden prefix, as named or as is."""
    try:
        resolved = path.resolve(strict=True)
    except FileNotFoundError:
        raise _Refused(Code.MISSING, f"{path} does not exist: fetch it") from None
    except (OSError, RuntimeError) as error:
        raise _Refused(Code.UNREADABLE, f"{path} cannot be resolved ({error}): check it") from error
    lexical = Path(os.path.abspath(path))
    for prefix in forbidden_prefixes:
        for place in (lexical, resolved):
            if place.is_relative_to(prefix) or place.is_relative_to(prefix.resolve()):
                raise _Refused(
                    Code.FORBIDDEN_STORAGE,
                    f"{path} lies at {place}, below {prefix}: move it to mounted storage",
                )
    return resolved


def _wrong_size(expected: Expected, size: int) -> Verdict | None:
    if size == 0:
        message = f"{expected.path} has 0 bytes: fetch it again"
        return Verdict(expected.path, Code.EMPTY, message, 0)
    if expected.size_bytes is not None and size != expected.size_bytes:
        message = (
            f"{expected.path} has {size} bytes, pinned are {expected.size_bytes}: fetch it again"
        )
        return Verdict(expected.path, Code.WRONG_SIZE, message, size)
    return None


def _judge(expected: Expected, size: int, found: str, *, resumed: bool) -> Verdict:
    if found == expected.sha256:
        message = f"{expected.path} is the pinned file"
        return Verdict(expected.path, Code.VERIFIED, message, size, found, resumed)
    message = (
        f"{expected.path} has the right size but SHA-256 {found}, pinned is {expected.sha256}: "
        "it is another file or a damaged copy; fetch it again"
    )
    if expected.size_bytes is None:
        message = (
            f"{expected.path} has SHA-256 {found}, expected is {expected.sha256}: fetch it again"
        )
    return Verdict(expected.path, Code.WRONG_DIGEST, message, size, found, resumed)


def _hash(stream: Any, progress: Callable[[int], None], stop: threading.Event) -> str:
    sha256 = hashlib.sha256()
    buffer = bytearray(CHUNK_BYTES)
    view = memoryview(buffer)
    while not stop.is_set():
        count = stream.readinto(buffer)
        if not count:
            return sha256.hexdigest()
        sha256.update(view[:count])
        progress(count)
    raise InterruptedError(errno.EINTR, "the verification was interrupted")


def _quiet(_path: str, _count: int) -> None:
    """Report to nobody."""
