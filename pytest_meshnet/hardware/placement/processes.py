"""Which process a pid is: its start time and its namespace tell it from any other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HOST_PID_NAMESPACE = 0xEFFFFFFC
"""The inode of the host's own pid namespace: PROC_PID_INIT_INO of Linux's proc_ns.h."""


@dataclass(frozen=True, slots=True)
class ProcessId:
    """One process for ever: `started` counts clock ticks since boot, a pid may be used again.

    `namespace` is the inode of its pid namespace, None when this user may not see it.
    """

    pid: int
    started: int
    namespace: int | None


class ProcFs:
    """Reads processes from a proc file system; a test gives it a folder of its own."""

    def __init__(self, root: Path = Path("/proc")) -> None:
        self._root = root

    def identify(self, pid: int) -> ProcessId | None:
        """Return the process that has this pid now, in the namespace of this proc file system."""
        found = self._stat(pid)
        return None if found is None else ProcessId(pid, found[1], self._namespace(str(pid)))

    def family(self, process: ProcessId) -> frozenset[ProcessId]:
        """Return a process and its descendants, empty when it has ended.

        A runtime computes in its own children more often than in the process that was started.
        """
        if self.identify(process.pid) != process:
            return frozenset()
        children: dict[int, list[int]] = {}
        for pid, parent in self._parents():
            children.setdefault(parent, []).append(pid)
        found, waiting = {process}, [process.pid]
        while waiting:
            for pid in children.get(waiting.pop(), ()):
                one = self.identify(pid)
                if one is not None:
                    found.add(one)
                    waiting.append(pid)
        return frozenset(found)

    def counts_as_the_host(self) -> bool | None:
        """Say whether pids here are those of the host, None when that cannot be seen."""
        own = self._namespace("self")
        return None if own is None else own == HOST_PID_NAMESPACE

    def _parents(self) -> Iterator[tuple[int, int]]:
        for name in os.listdir(self._root):
            if name.isdecimal() and (found := self._stat(int(name))) is not None:
                yield int(name), found[0]

    def _stat(self, pid: int) -> tuple[int, int] | None:
        """Return (parent, start time); the name in parentheses may hold anything."""
        try:
            text = (self._root / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError, NotADirectoryError):
            return None
        fields = text.rpartition(")")[2].split()
        return int(fields[1]), int(fields[19])

    def _namespace(self, name: str) -> int | None:
        try:
            link = os.readlink(self._root / name / "ns" / "pid")
        except OSError:
            return None
        number = link.removeprefix("pid:[").removesuffix("]")
        return int(number) if number.isdecimal() else None
