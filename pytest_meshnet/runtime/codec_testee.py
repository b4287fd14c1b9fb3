"""The codec testee: a runtime's own codec as a program on stdin and stdout, and how it is asked.

Every wait is bounded. A program that ends, hangs or talks nonsense is a finding of the request at
hand; it is then started once more and asked for something known, so that the finding says whether
the program or only its answer to this request is broken.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from google.protobuf.message import DecodeError

from pytest_meshnet.protocol.generated import codec_testee_pb2 as testee
from pytest_meshnet.runtime.descriptor import Launch, TimeLimits
from pytest_meshnet.runtime.errors import Nonconformance, NotProvoked, Refusal
from pytest_meshnet.runtime.footprint import group_peak, reset_group_peak
from pytest_meshnet.runtime.launch import fill
from pytest_meshnet.runtime.processes import kill_group, shown_lines, start_guarded, text_of

MAX_FRAME = 64 * 1024 * 1024
"""The longest frame either side may send, in bytes."""

MAX_STARTS = 20
"""A program that breaks at every request is started again this often, and then left alone."""

# A HealthRequest of schema version 1, which any testee serializes again as it is.
_KNOWN = testee.CodecRequest(
    task=testee.TASK_RESERIALIZE, message="HealthRequest", data=bytes.fromhex("0801")
)
_PREFIX = 4
_READ = 1024 * 1024
_SHOWN = 1000


class Broken(Exception):
    """The program did not answer.

    `what` says what it did instead; `tail` is the end of its standard error, a line each.
    """

    def __init__(self, what: str, tail: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.tail = tail


class CodecTestee:
    """One testee process for one process of the suite, started when first asked.

    `while_starting` is entered while it starts, which may take as long as building it does.
    """

    def __init__(self, launch: Launch, folder: Path, time_limits: TimeLimits) -> None:
        self.while_starting: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
        self._folder = folder
        self._environment = launch.environment
        self._limits = time_limits
        self.command = fill(launch.command, {"python": sys.executable, "folder": str(folder)})
        self._process: subprocess.Popen[bytes] | None = None
        self._log = tempfile.TemporaryFile(prefix="meshnet-testee-")  # noqa: SIM115
        self._log_start = 0
        self._starts = 0

    def ask(self, request: testee.CodecRequest) -> testee.CodecAnswer:
        """Return the answer to a request.

        Raises Nonconformance when there is none in time or it is no CodecAnswer, NotProvoked when
        it is `unsupported`, Refusal when the program cannot be started at all.
        """
        if self._process is None:
            self._start()
        try:
            answer = self._exchange(request, self._limits.answer)
        except Broken as broken:
            after = self._after_breaking()
            raise Nonconformance(
                f"an answer to {described(request)}",
                f"{broken.what}; {after}{broken.tail}",
                shown(request),
            ) from None
        if answer.WhichOneof("kind") == "unsupported":
            task = testee.Task.Name(request.task)
            raise NotProvoked(f"the codec testee does not support {task}: {answer.unsupported}")
        return answer

    # The process -------------------------------------------------------------------------------

    def _start(self) -> None:
        """Start it and see it answer. Raises Refusal, or Nonconformance when it broke too often."""
        if self._starts > MAX_STARTS:
            raise Nonconformance(
                "a codec testee that goes on", f"it broke {self._starts} times and is left alone"
            )
        self._starts += 1
        self._log_start = os.fstat(self._log.fileno()).st_size
        self._process = start_guarded(
            self.command,
            environment=self._environment,
            folder=self._folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
        try:
            with self.while_starting():
                self._exchange(_KNOWN, self._limits.start)
        except Broken as broken:
            raise Refusal(
                f"the codec testee {' '.join(self.command)} does not answer ({broken.what}): "
                f"correct codec.command, or see docs/codec-testee.md{broken.tail}"
            ) from None

    def _after_breaking(self) -> str:
        try:
            self._start()
        except Refusal:
            return "started once more it does not even answer a known request"
        except Nonconformance as left_alone:
            return left_alone.actual
        return "started once more it answers a known request"

    def close(self) -> int | None:
        """End the input, wait for the process, return its exit code; None when none was running.

        One that stays is killed, with what it started.
        """
        if self._process is None:
            return None
        process, self._process = self._process, None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(self._limits.stop)
        except subprocess.TimeoutExpired:
            kill_group(process)
        process.stdout.close()
        return process.returncode

    def dispose(self) -> None:
        """End the process and give everything back."""
        self.close()
        self._log.close()

    def _kill(self) -> None:
        assert self._process is not None
        kill_group(self._process)
        self.close()

    # Frames ------------------------------------------------------------------------------------

    def _exchange(self, request: testee.CodecRequest, limit: float) -> testee.CodecAnswer:
        """Send a frame and read one. Raises Broken, with the process ended."""
        data = request.SerializeToString(deterministic=True)
        frame = len(data).to_bytes(_PREFIX, "little") + data
        try:
            answer = testee.CodecAnswer.FromString(self._carry(frame, time.monotonic() + limit))
            if answer.WhichOneof("kind") is None:
                raise Broken("it answered with an empty CodecAnswer")
        except DecodeError:
            self._kill()
            raise Broken("it answered with bytes that are no CodecAnswer", self._tail()) from None
        except TimeoutError:
            self._kill()
            raise Broken(f"silence for {limit:g} s", self._tail()) from None
        except Broken as broken:
            self._kill()
            raise Broken(broken.what, self._tail()) from None
        return answer

    def _carry(self, frame: bytes, until: float) -> bytes:
        """Write and read at once: either pipe may be full while the other is waited for."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        left, found = memoryview(frame), bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdin, selectors.EVENT_WRITE)
            selector.register(process.stdout, selectors.EVENT_READ)
            while not _is_whole(found):
                ready = selector.select(max(0.0, until - time.monotonic()))
                if not ready:
                    raise TimeoutError
                for key, _ in ready:
                    if key.fileobj is process.stdout:
                        found += self._read(process)
                    elif left:
                        left = left[self._write(process, left) :]
                    if not left and process.stdin in selector.get_map():
                        selector.unregister(process.stdin)
        if left:
            raise Broken("it answered before it had read the whole request")
        return bytes(found[_PREFIX:])

    def _write(self, process: subprocess.Popen[bytes], data: memoryview) -> int:
        assert process.stdin is not None
        try:
            return os.write(process.stdin.fileno(), data[:_READ])
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            raise Broken(self._ended(process)) from None

    def _read(self, process: subprocess.Popen[bytes]) -> bytes:
        assert process.stdout is not None
        try:
            data = os.read(process.stdout.fileno(), _READ)
        except BlockingIOError:
            return b""
        if not data:
            raise Broken(self._ended(process))
        return data

    def _ended(self, process: subprocess.Popen[bytes]) -> str:
        try:
            return f"its process ended with {process.wait(self._limits.stop)}"
        except subprocess.TimeoutExpired:
            return "it closed its output"

    def _tail(self) -> str:
        """What this process, and not an earlier one, wrote to its standard error last."""
        lines = "\n".join(shown_lines(text_of(self._log, self._log_start)))
        return f"; the end of its standard error:\n{lines}" if lines else ""

    # Memory ------------------------------------------------------------------------------------

    def reset_peak(self) -> int | None:
        """Forget the peak of memory; return what is in use in bytes, None where none can tell."""
        if self._process is None:
            self._start()
        assert self._process is not None
        return reset_group_peak(self._process.pid)

    def peak(self) -> int | None:
        """The most memory used since `reset_peak` in bytes, None where nobody can tell."""
        return group_peak(self._process.pid) if self._process else None


def _is_whole(found: bytearray) -> bool:
    if len(found) < _PREFIX:
        return False
    size = int.from_bytes(found[:_PREFIX], "little")
    if size > MAX_FRAME or len(found) > _PREFIX + size:
        raise Broken(f"it wrote what is no frame: {bytes(found[:24]).hex(' ')}...")
    return len(found) == _PREFIX + size


def described(request: testee.CodecRequest) -> str:
    """Name a request for a person."""
    about = request.message or f"{len(request.encoding.tensors)} tensors"
    return f"{testee.Task.Name(request.task)} of {about} ({len(request.data)} bytes)"


def shown(request: testee.CodecRequest) -> str:
    """A request as the frame to be piped into the program, when it is not too long to read."""
    data = request.SerializeToString(deterministic=True)
    if len(data) > _SHOWN:
        return f"the request has {len(data)} bytes: the test writes it again"
    frame = len(data).to_bytes(_PREFIX, "little") + data
    return f"this request alone: echo {frame.hex()} | xxd -r -p | the program"
