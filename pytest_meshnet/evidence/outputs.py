"""The output folder: one subfolder per run, and the chain of runs by one key through it."""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pytest_meshnet.evidence import documents
from pytest_meshnet.evidence.signing import dsse
from pytest_meshnet.evidence.signing.keys import SigningKey
from pytest_meshnet.evidence.strict import StrictError

_LOCK = ".meshnet-lock"


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Let one run at a time take its counter."""
    descriptor = os.open(out / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def make_folder(out: Path, wall_ns: int) -> Path:
    stamp = datetime.fromtimestamp(wall_ns // 10**9, UTC).strftime("%Y%m%dT%H%M%SZ")
    path = out / f"{stamp}-{secrets.token_hex(4)}"
    path.mkdir()
    (path / "journal").mkdir()
    (path / "artifacts" / "sha256").mkdir(parents=True)
    sync_folder(out)
    return path


def history(path: Path, key: SigningKey) -> tuple[int, str]:
    """Return the next counter of this key in the output folder, and its last seal's digest."""
    runs: list[tuple[int, Path]] = []
    for other in path.parent.iterdir():
        start = _signed_by(other / documents.document_name("start"), key)
        if start is not None:
            runs.append((start["counter"], other))
    last_first = sorted(runs, reverse=True)
    for _, other in last_first:
        seal = other / documents.document_name("seal")
        if _signed_by(seal, key) is not None:
            return last_first[0][0] + 1, hashlib.sha256(seal.read_bytes()).hexdigest()
    return (last_first[0][0] + 1 if last_first else 1), ""


def _signed_by(path: Path, key: SigningKey) -> Any:
    """Return the predicate of a document that this very key signed, else None."""
    try:
        envelope = dsse.Envelope.from_bytes(path.read_bytes())
        kind = path.name.partition(".")[0]
        if envelope.signed_by(key.public):
            return documents.unwrap(kind, envelope.payload)[1]
    except (OSError, StrictError):
        return None
    return None


def sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
