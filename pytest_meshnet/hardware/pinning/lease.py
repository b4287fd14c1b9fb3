"""One test at a time on a device: file locks that die with their holder, and bounded waits.

A lock is an flock on a file named after the device. The kernel frees it when its holder ends,
however that ends. Waiting is a thread asleep in flock, never a loop that looks again.
"""

from __future__ import annotations

import fcntl
import os
import stat
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pytest_meshnet.hardware.inventory.device import Device

SUFFIX = ".lock"
QUEUE = f"several{SUFFIX}"
"""Whoever wants several devices holds this lock meanwhile.

Only such a taker holds one device while it waits for another, so two of them could wait for each
other for ever.
"""


class LeaseError(Exception):
    """No lease: the wait was too long, or the folder of the locks is not safe to use."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Devices that no other process of this folder's users has, until the context ends."""

    devices: tuple[Device, ...]
    waited_s: float


class Desk:
    """Hands out the devices of a machine through a folder that all takers share.

    One desk per process and folder, used by one thread.
    """

    def __init__(self, folder: Path) -> None:
        """Make the folder, for this user alone. Raises LeaseError when somebody else owns it."""
        _make_private(folder)
        self._folder = folder
        self._locks = _Locks()
        self._waiters = _Waiters(self._locks)
        self._held: dict[Path, int] = {}
        os.register_at_fork(after_in_child=self._forget)

    @contextmanager
    def lease(
        self, candidates: Sequence[Device], count: int, *, timeout_s: float, holder: str
    ) -> Iterator[Lease]:
        """Hold `count` of the candidates, first free first. `holder` is shown to who waits.

        Devices come in the order of the candidates. Raises LeaseError after `timeout_s` seconds.
        """
        if len(candidates) < count:
            raise LeaseError(f"{count} devices are wanted and only {len(candidates)} can be had")
        if self._held:
            raise LeaseError("this process already holds devices: give them back first")
        started = time.monotonic()
        paths = [self._path(device) for device in candidates]
        queue = [self._folder / QUEUE]
        try:
            taken: list[Path] = []
            if count > 1:
                self._take_any(queue, started, timeout_s)
            while len(taken) < count:
                free = [path for path in paths if path not in taken]
                taken.append(self._take_any(free, started, timeout_s))
            self._give_back(queue)
            for path in taken:
                _sign(self._held[path], holder)
            chosen = [
                device for device, path in zip(candidates, paths, strict=True) if path in taken
            ]
            yield Lease(tuple(chosen), time.monotonic() - started)
        finally:
            self._give_back(list(self._held))

    def _take_any(self, paths: Sequence[Path], started: float, timeout_s: float) -> Path:
        for path in paths:
            descriptor = self._locks.take(path, wait=False)
            if descriptor is not None:
                self._held[path] = descriptor
                return path
        granted = self._waiters.wait_for_any(paths, started + timeout_s)
        if granted is None:
            who = "; ".join(f"{path.stem} is held by {_signature(path)}" for path in paths)
            raise LeaseError(f"waited {timeout_s:g} s in vain: {who}")
        path, descriptor = granted
        self._held[path] = descriptor
        return path

    def _path(self, device: Device) -> Path:
        if device.uuid is None:
            raise LeaseError(f"{device} has no UUID, so it cannot be leased")
        return self._folder / f"{device.uuid.lower().replace('/', '_')}{SUFFIX}"

    def _give_back(self, paths: Iterable[Path]) -> None:
        for path in paths:
            descriptor = self._held.pop(path, None)
            if descriptor is not None:
                self._locks.give_back(descriptor)

    def _forget(self) -> None:
        self._locks.forget()
        self._held.clear()
        self._waiters = _Waiters(self._locks)


class _Locks:
    """Locked files, and those that a thread waits for, so that a forked child can let go of all.

    The child has the same open files; held there, a lock would outlive its holder.
    """

    def __init__(self) -> None:
        self._open: set[int] = set()

    def take(self, path: Path, *, wait: bool) -> int | None:
        """Return a descriptor that holds the lock; None when another holds it."""
        while True:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(path, flags, 0o600)
            self._open.add(descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._close(descriptor)
                return None
            if _is_at(descriptor, path):
                return descriptor
            # Somebody cleaned the folder meanwhile: a lock on a deleted file keeps nobody out.
            self._close(descriptor)

    def give_back(self, descriptor: int) -> None:
        os.ftruncate(descriptor, 0)
        # Unlocked and not only closed: a child may have been forked at a bad moment.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        self._close(descriptor)

    def forget(self) -> None:
        """Close every file without unlocking it: the parent goes on holding its locks."""
        for descriptor in self._open:
            os.close(descriptor)
        self._open.clear()

    def _close(self, descriptor: int) -> None:
        self._open.discard(descriptor)
        os.close(descriptor)


class _Waiters:
    """Threads asleep in flock, one a file. Who stops waiting leaves its threads to the next."""

    def __init__(self, locks: _Locks) -> None:
        self._locks = locks
        self._changed = threading.Condition()
        self._asleep: set[Path] = set()
        self._wanted: set[Path] = set()
        self._granted: tuple[Path, int] | None = None

    def wait_for_any(self, paths: Iterable[Path], deadline: float) -> tuple[Path, int] | None:
        """Return the first file that could be locked and its descriptor, None at the deadline."""
        with self._changed:
            self._wanted = set(paths)
            for path in self._wanted - self._asleep:
                self._asleep.add(path)
                threading.Thread(target=self._sleep, args=(path,), daemon=True).start()
            remaining = max(0.0, deadline - time.monotonic())
            self._changed.wait_for(lambda: self._granted is not None, remaining)
            granted, self._granted = self._granted, None
            self._wanted = set()
        return granted

    def _sleep(self, path: Path) -> None:
        descriptor = self._locks.take(path, wait=True)
        assert descriptor is not None, "a blocking flock returned without the lock"
        with self._changed:
            self._asleep.discard(path)
            if path in self._wanted and self._granted is None:
                self._granted = path, descriptor
                self._changed.notify()
                return
        self._locks.give_back(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        there = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    here = os.fstat(descriptor)
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


def _sign(descriptor: int, holder: str) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"process {os.getpid()}: {holder}".encode(), 0)


def _signature(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace") or "somebody unnamed"
    except OSError:
        return "somebody unnamed"


def _make_private(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = os.stat(folder, follow_symlinks=False)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise LeaseError(
            f"{folder} is not this user's own folder: remove it, or set another TMPDIR"
        )
