"""The journal: one append-only file per process, each line chained to the one before.

A line is the JSON object {seq, prev, t_mono, t_wall, type, body}; `prev` is the SHA-256 of the
previous line's bytes without its line feed, 64 zeros in the first. A record is one write() with
O_APPEND, so that SIGKILL at any moment loses none that was acknowledged. Times are nanoseconds as
strings; the monotonic one counts suspended time where the system can.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal

from pytest_meshnet.evidence import strict
from pytest_meshnet.evidence.strict import Scalar, StrictError
from pytest_meshnet.ledger.status import PlannedTest

GENESIS = "0" * 64
LINE_LIMIT = 64 * 1024 * 1024
"""Longest line in bytes; a `collected` record of 100,000 tests is about 20 MB."""

Clock = Callable[[], tuple[int, int]]


def system_clock() -> tuple[int, int]:
    """Return (monotonic, wall) time in nanoseconds."""
    return time.clock_gettime_ns(_MONOTONIC), time.time_ns()


_MONOTONIC = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class JournalError(OSError):
    """A record could not be written; nothing may be appended after it."""


class JournalFault(StrictError):
    """A journal file is no legal journal: `code` and the line (from 1) say where and why."""

    def __init__(self, code: str, line: int, message: str) -> None:
        super().__init__(code, f"line {line}: {message}")
        self.line = line


class Journal:
    """The writing side. Safe for threads; a forked child is refused."""

    def __init__(self, path: Path, clock: Clock = system_clock) -> None:
        """Create the file. Raises FileExistsError: a journal is never continued."""
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        # Held until close: whoever seals the bundle sees that this file still grows.
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._seq = 0
        self._size = 0
        self._head = GENESIS
        self._ended = ""

    def append(self, kind: str, body: Mapping[str, Any]) -> None:
        """Write one record. Raises JournalError when it did not reach the kernel whole."""
        strict.check(body)
        with self._lock:
            if self._ended or os.getpid() != self._owner:
                why = self._ended or "this process is a fork of the one that opened it"
                raise JournalError(f"cannot append to {self._path}: {why}")
            mono, wall = self._clock()
            record = {
                "seq": self._seq,
                "prev": self._head,
                "t_mono": str(mono),
                "t_wall": str(wall),
                "type": kind,
                "body": body,
            }
            line = json.dumps(record, separators=(",", ":")).encode("ascii")
            self._write(line + b"\n")
            self._seq += 1
            self._head = hashlib.sha256(line).hexdigest()

    def _write(self, data: bytes) -> None:
        try:
            written = os.write(self._fd, data)
        except OSError as error:
            self._ended = f"an earlier write failed ({error.strerror})"
            raise JournalError(
                error.errno, f"{error.strerror}: free space or fix the folder, then run again"
            ) from error
        if written != len(data):
            # Only this process appends, so the torn record can be taken back.
            os.ftruncate(self._fd, self._size)
            self._ended = "the disk is full"
            raise JournalError(f"cannot write {self._path}: the disk is full, free space")
        self._size += written

    def sync(self) -> None:
        """Return when every record so far is on the disk."""
        if self._ended != "closed":
            os.fsync(self._fd)

    def close(self) -> None:
        """Sync and close; a second call does nothing."""
        with self._lock:
            if self._ended == "closed":
                return
            self._ended = "closed"
            if os.getpid() == self._owner:
                os.fsync(self._fd)
                # Unlocked and not only closed: a child that inherited the file may live on.
                fcntl.flock(self._fd, fcntl.LOCK_UN)
            os.close(self._fd)


@dataclass(frozen=True, slots=True)
class Record:
    """One record as read; times in nanoseconds, `line` from 1."""

    line: int
    t_mono: int
    t_wall: int
    type: str
    body: Mapping[str, Any]


class Replay:
    """The reading side: iterates the records of a stream while it replays the chain.

    After the iteration `records`, `head` and `torn` describe what was read. A last line without
    line feed is torn: it is not a record. Anything else that is wrong raises JournalFault.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.records = 0
        self.head = GENESIS
        self.torn = False

    def __iter__(self) -> Iterator[Record]:
        finished = False
        while line := self._stream.readline(LINE_LIMIT + 1):
            number = self.records + 1
            if not line.endswith(b"\n"):
                if len(line) > LINE_LIMIT:
                    raise JournalFault("journal-line", number, f"longer than {LINE_LIMIT} bytes")
                self.torn = True
                return
            content = line[:-1]
            record = self._parse(content, number)
            if finished or (record.type == "open") != (number == 1):
                raise JournalFault(
                    "journal-order", number, f"{record.type}: open comes first, finish last"
                )
            finished = record.type == "finish"
            self.head = hashlib.sha256(content).hexdigest()
            self.records = number
            yield record

    def _parse(self, content: bytes, number: int) -> Record:
        try:
            raw = strict.loads(content)
            if type(raw) is not dict or raw.keys() != _LINE_KEYS:
                raise StrictError("journal-record", f"expected exactly the keys {_LINE_KEYS}")
            if raw["prev"] != self.head:
                raise StrictError("journal-chain", "prev is not the digest of the line before")
            if type(raw["seq"]) is not int or raw["seq"] != self.records:
                raise StrictError("journal-seq", f"seq is {raw['seq']}, expected {self.records}")
            check_body(raw["type"], raw["body"])
            times = nanoseconds(raw["t_mono"]), nanoseconds(raw["t_wall"])
        except StrictError as error:
            raise JournalFault(error.code, number, str(error)) from error
        return Record(number, *times, raw["type"], raw["body"])


_LINE_KEYS = {"seq", "prev", "t_mono", "t_wall", "type", "body"}


def nanoseconds(text: Any) -> int:
    """Read a time or a duration: decimal digits in a string. Raises StrictError."""
    if type(text) is str and text.isascii() and text.isdecimal() and len(text) <= 20:
        return int(text)
    raise StrictError("journal-record", f"{text!r} is no time in nanoseconds")


@dataclass(frozen=True, slots=True)
class CollectionError:
    """A module or folder that could not be collected."""

    id: str
    message: str


@dataclass(frozen=True, slots=True)
class Collection:
    """What one process collected. `hardware` maps each hardware test to its lane."""

    tests: tuple[PlannedTest, ...] = ()
    deselected: tuple[PlannedTest, ...] = ()
    errors: tuple[CollectionError, ...] = ()
    hardware: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plugin:
    """A pytest plugin that was active.

    `version` is that of its distribution; of a module or a conftest without one `sha256:` and the
    digest of its file, of anything else "unknown".
    """

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class _Plugins:
    plugins: tuple[Plugin, ...]


@dataclass(frozen=True, slots=True)
class _Facts:
    facts: Mapping[str, _Fact]


@dataclass(frozen=True, slots=True)
class _Fact:
    value: Scalar
    source: Literal["capability", "descriptor", "observed"]


@dataclass(frozen=True, slots=True)
class _Claims:
    claims: Mapping[str, _Fact]


@dataclass(frozen=True, slots=True)
class _Device:
    test: str | None
    requested: Mapping[str, Scalar]
    observed: Mapping[str, Scalar]


_TEXT: tuple[type, ...] = (str,)
_TEXT_OR_NONE: tuple[type, ...] = (str, type(None))
_NUMBER: tuple[type, ...] = (int,)
_Shape = Mapping[str, tuple[type, ...] | frozenset[str]]
_PHASE: _Shape = {
    "test": _TEXT,
    "attempt": _NUMBER,
    "when": frozenset({"setup", "call", "teardown"}),
    "outcome": frozenset({"passed", "failed", "skipped"}),
    "kind": frozenset(
        {"", "nonconformance", "not-run", "not-applicable", "not-claimed", "engine-error"}
    ),
    "reason": _TEXT,
    "message": _TEXT,
    "wasxfail": _TEXT_OR_NONE,
    "duration_ns": _TEXT,
}
_FLAT: Mapping[str, _Shape] = {
    "open": {"process": _TEXT, "run_id": _TEXT, "pid": _NUMBER},
    "attempt": {"test": _TEXT, "attempt": _NUMBER},
    "phase": _PHASE,
    "attachment": {
        "test": _TEXT_OR_NONE,
        "name": _TEXT,
        "sha256": _TEXT,
        "size": _NUMBER,
        "media_type": _TEXT,
        "stored": (bool,),
    },
    "worker-lost": {"process": _TEXT, "test": _TEXT_OR_NONE, "message": _TEXT},
    "target-lost": {"reason": _TEXT},
    "refusal": {"message": _TEXT},
    "warning": {"test": _TEXT_OR_NONE, "message": _TEXT},
    "finish": {"exit_status": _NUMBER},
}
_NESTED: Mapping[str, type[Any]] = {
    "facts": _Facts,
    "claims": _Claims,
    "collected": Collection,
    "device": _Device,
    "plugins": _Plugins,
}


def check_body(kind: Any, body: Any) -> None:
    """Raise StrictError unless the body is exactly what a record of this type holds."""
    if type(kind) is not str or (kind not in _FLAT and kind not in _NESTED):
        raise StrictError("journal-type", f"the record type {kind!r} is unknown")
    if kind in _NESTED:
        strict.decode(_NESTED[kind], body, kind)
        return
    shape = _FLAT[kind]
    if type(body) is not dict or body.keys() != shape.keys():
        raise StrictError("journal-record", f"{kind}: expected exactly the fields {list(shape)}")
    for name, allowed in shape.items():
        value = body[name]
        if type(allowed) is frozenset:
            good = type(value) is str and value in allowed
        else:
            good = type(value) in allowed
        if not good:
            raise StrictError("journal-record", f"{kind}.{name} is {value!r}")
    if kind == "phase":
        nanoseconds(body["duration_ns"])
