"""Starting a runtime under test: a port, a process, readiness by Health, and a clean stop."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.runtime.descriptor import Command, Launch
from pytest_meshnet.runtime.errors import Refusal
from pytest_meshnet.runtime.grpc_transport import GrpcTransport
from pytest_meshnet.runtime.ports import HOST, free_port
from pytest_meshnet.runtime.processes import (
    end_group,
    kill_group,
    shown_lines,
    start_guarded,
    text_of,
)
from pytest_meshnet.runtime.transport import UnaryFailed

# How long one readiness call may connect before the process is looked at again, in seconds.
_LOOK = 0.5

# Limit of a command of the descriptor, in seconds.
_COMMAND = 30.0


def fill(command: Command, words: Mapping[str, str]) -> list[str]:
    """Replace {word} in every argument. Raises Refusal for an unknown word."""
    try:
        return [argument.format_map(words) for argument in command]
    except (KeyError, ValueError, IndexError) as error:
        known = ", ".join("{" + word + "}" for word in words)
        raise Refusal(f"the command {list(command)} names {error}: known are {known}") from None


class RunningShard:
    """A started runtime process with its log. Ends by pid, with all that it started."""

    def __init__(self, launch: Launch, folder: Path, extra: Mapping[str, str]) -> None:
        self.port = free_port()
        self.address = f"{HOST}:{self.port}"
        self._log = tempfile.TemporaryFile(prefix="meshnet-")  # noqa: SIM115
        self._words = {
            "python": sys.executable,
            "host": HOST,
            "port": str(self.port),
            "listen": self.address,
            "folder": str(folder),
        }
        self.command = fill(launch.command, self._words)
        self._process = start_guarded(
            self.command,
            environment={**launch.environment, **extra},
            folder=folder,
            stdout=self._log,
        )

    @property
    def pid(self) -> int:
        """Process id of the runtime."""
        return self._process.pid

    def command_on(self, command: Command) -> None:
        """Run a command about this process; {pid} is its process id. Raises Refusal."""
        filled = fill(command, {**self._words, "pid": str(self.pid)})
        try:
            subprocess.run(filled, check=True, capture_output=True, text=True, timeout=_COMMAND)
        except (OSError, subprocess.SubprocessError) as error:
            raise Refusal(f"{' '.join(filled)} failed: {error}; correct the command") from None

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative is a signal."""
        return self._process.poll()

    def log(self) -> str:
        """Everything the runtime wrote so far."""
        return text_of(self._log)

    def last_lines(self) -> str:
        """The end of its log, for a message to a person."""
        return "\n".join(shown_lines(self.log())) or "  | (it wrote nothing)"

    def wait_until_serving(self, transport: GrpcTransport, limit: float) -> None:
        """Ask Health until it says SERVING. Raises Refusal with the last log lines."""
        until = time.monotonic() + limit
        request = pb.HealthRequest(schema_version=pb.SCHEMA_VERSION_1)
        seen = "no answer"
        while (left := until - time.monotonic()) > 0:
            try:
                report = transport.health(request, min(left, _LOOK), wait_for_ready=True)
            except UnaryFailed as failed:
                if failed.code == "UNIMPLEMENTED":
                    raise Refusal(
                        f"{self.command[0]} does not implement Health: answer SERVING (1) there"
                    ) from None
                seen = str(failed)
            else:
                if report.state == pb.SERVING_STATE_SERVING:
                    return
                seen = f"state {report.state}"
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(min(left, _LOOK / 10))
            if self.exit_code is not None:
                raise Refusal(
                    f"{self.command[0]} ended with {self.exit_code} before it served; "
                    f"its last lines:\n{self.last_lines()}"
                )
        raise Refusal(
            f"{' '.join(self.command)} did not serve within {limit:g} s ({seen}); "
            f"its last lines:\n{self.last_lines()}"
        )

    def wait_for_exit(self, limit: float) -> None:
        """Give a dying process `limit` seconds to end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(limit)

    def kill(self) -> None:
        """SIGKILL the process and its children, and wait until it is gone."""
        kill_group(self._process)

    def stop(self, limit: float) -> None:
        """SIGTERM, then after `limit` seconds SIGKILL, to the process and its children."""
        end_group(self._process, limit)
