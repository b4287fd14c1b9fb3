"""One server of one arm: started with its output captured, ready within a bound, and ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Self

from pytest_meshnet.campaign.client.http import Unanswered, get_json
from pytest_meshnet.runtime.ports import HOST
from pytest_meshnet.runtime.processes import shown_lines, signal_group, start_guarded

LOOK_S = (0.05, 1.0)
"""How long a loading server is left alone between two looks: at first, and at last."""

HEALTH_S = 5.0
STOP_S = 90.0
"""How long a server may take to answer /health, and to end after SIGTERM."""

FAMILY_S = 10.0
"""How long the processes that a server started may outlive it."""


class ServerFailed(Exception):
    """A server did not start, or went away; the message holds the end of its log."""


class Server:
    """A runtime that serves on a port of the loopback, with all that it started."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], port: int, log: Path
    ) -> None:
        """Start the command; it ends with this process. Raises ServerFailed."""
        self.origin = f"http://{HOST}:{port}"
        self._log = log
        with log.open("wb") as stream:
            self._process = _start(command, environment, stream)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Process id of the server, which leads a process group of its own."""
        return self._process.pid

    def wait_until_serving(self, limit: float) -> None:
        """Ask /health until the server serves. Raises ServerFailed after `limit` seconds."""
        until = time.monotonic() + limit
        pause, seen = LOOK_S[0], "no answer"
        while (left := until - time.monotonic()) > 0:
            with contextlib.suppress(Unanswered):
                health = get_json(self.origin, "/health", min(left, HEALTH_S))
                told = health if isinstance(health, Mapping) else {}
                if told.get("maintenance") == "serving":
                    return
                seen = f"{health!r:.200}"
                if told.get("status") == "error":
                    raise ServerFailed(f"the server reports an error: {seen}{self._end_of_log()}")
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(min(left, pause))
            pause = min(pause * 2, LOOK_S[1])
            if (death := self.death()) is not None:
                raise ServerFailed(f"before it served, {death}")
        raise ServerFailed(f"not serving after {limit:g} s ({seen}){self._end_of_log()}")

    def death(self) -> str | None:
        """Say how the server ended, None while it runs."""
        code = self._process.poll()
        return None if code is None else f"the server ended with {code}{self._end_of_log()}"

    def stop(self) -> None:
        """End the server and all that it started: SIGTERM, and SIGKILL when that is not enough."""
        for number, limit in ((signal.SIGTERM, STOP_S), (signal.SIGKILL, FAMILY_S)):
            signal_group(self._process, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(limit)
                # The leader may be gone while workers of its group still hold the GPU.
                if self._family_is_gone():
                    return

    def _family_is_gone(self) -> bool:
        until = time.monotonic() + FAMILY_S
        pause = threading.Event()
        while time.monotonic() < until:
            try:
                os.killpg(self._process.pid, 0)
            except ProcessLookupError:
                return True
            pause.wait(LOOK_S[0])
        return False

    def _end_of_log(self) -> str:
        lines = shown_lines(self._log.read_text(encoding="utf-8", errors="replace"))
        return "".join(f"\n{line}" for line in lines)


def _start(
    command: Sequence[str], environment: Mapping[str, str], log: IO[bytes]
) -> subprocess.Popen[bytes]:
    try:
        return start_guarded(command, environment=environment, stdout=log)
    except OSError as error:
        raise ServerFailed(f"{' '.join(command)}: {error}") from None
