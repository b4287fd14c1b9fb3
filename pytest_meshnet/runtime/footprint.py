"""What a runtime holds on to: session counts by Health, and for a started one its process."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Footprint:
    """Live counts of a runtime. Of an endpoint the three last are unknown (None).

    `resident` is in bytes.
    """

    sessions: int
    queued: int
    threads: int | None = None
    descriptors: int | None = None
    resident: int | None = None


def process_counts(pid: int) -> tuple[int, int, int]:
    """Threads, open descriptors and resident bytes of a process, from /proc.

    Raises FileNotFoundError when there is none, or no /proc.
    """
    status = Path(f"/proc/{pid}/status").read_text()
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    descriptors = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    return int(fields["Threads"]), descriptors, int(fields["VmRSS"].split()[0]) * 1024


_SLACK = {"sessions": 0, "queued": 0, "threads": 4, "descriptors": 4, "resident": 32 * 1024 * 1024}


def grown_since(before: Footprint, after: Footprint) -> list[str]:
    """Say what grew by more than its slack: none for counts, a pool's breath for the process."""
    found = []
    for name, slack in _SLACK.items():
        old, new = getattr(before, name), getattr(after, name)
        if old is not None and new is not None and new > old + slack:
            found.append(f"{name} from {old} to {new}")
    return found


def group_peak(group: int) -> int | None:
    """The peak of resident bytes of all processes of a group, None where /proc does not tell."""
    return _summed(group, "VmHWM")


def group_resident(group: int) -> int | None:
    """The resident bytes of all processes of a group, None where /proc does not tell."""
    return _summed(group, "VmRSS")


def reset_group_peak(group: int) -> int | None:
    """Forget the peaks of a process group; return the resident bytes in use, None if unknown.

    Unknown also where the kernel forbids it: a growth below an earlier peak would pass unseen.
    """
    return group_peak(group) if all(_reset_peak(pid) for pid in _members(group)) else None


def _reset_peak(pid: int) -> bool:
    """Forget the peak of a process. Returns whether none is left that is older."""
    folder = Path(f"/proc/{pid}")
    try:
        (folder / "clear_refs").write_text("5")
    except OSError:
        return not folder.exists()  # It ended meanwhile, and its peak with it.
    return True


def _members(group: int) -> list[int]:
    """Process ids of a group, from /proc; empty where there is none."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            # The name of the program, in parentheses, may hold anything.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[2]) == group:
                found.append(int(folder.name))
    return found


def _summed(group: int, name: str) -> int | None:
    known = [size for pid in _members(group) if (size := _size(pid, name)) is not None]
    return sum(known) if known else None


def _size(pid: int, name: str) -> int | None:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return None
