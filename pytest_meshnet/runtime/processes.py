"""External processes: they die with the process that started them, and end with their children."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

LOG_LINES = 15
"""How many last lines of a log a message to a person holds."""

Stream = IO[bytes] | int


def start_guarded(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    stdin: Stream = subprocess.DEVNULL,
    stdout: Stream,
    stderr: Stream = subprocess.STDOUT,
) -> subprocess.Popen[bytes]:
    """Start a command in a process group of its own; `environment` is added to this process's.

    A command that cannot be run ends with 127 and says so on its standard error. Raises OSError
    when not even the guard can be started.
    """
    guard = [sys.executable, "-m", "pytest_meshnet.runtime.guard", str(os.getpid())]
    return subprocess.Popen(
        [*guard, *command],
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env={**os.environ, **(environment or {})},
        cwd=folder,
        start_new_session=True,
    )


def signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to a process and to all that it started, where any of them is left."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL a process and all that it started, and wait until it is gone."""
    signal_group(process, signal.SIGKILL)
    process.wait()


def end_group(process: subprocess.Popen[bytes], limit: float) -> None:
    """SIGTERM, then after `limit` seconds SIGKILL, to a process and all that it started."""
    signal_group(process, signal.SIGTERM)
    try:
        process.wait(limit)
    except subprocess.TimeoutExpired:
        kill_group(process)


def shown_lines(log: str) -> list[str]:
    """The end of a log as the lines of a message."""
    return [f"  | {line}" for line in log.splitlines()[-LOG_LINES:]]


def text_of(log: IO[bytes], start: int = 0) -> str:
    """What a process wrote to a file from byte `start` on, without moving its position."""
    size = os.fstat(log.fileno()).st_size - start
    return os.pread(log.fileno(), size, start).decode(errors="replace")
