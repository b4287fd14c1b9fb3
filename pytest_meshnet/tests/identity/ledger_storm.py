"""A program the kill test runs: writers forked from one process, each killed by its own id.

usage: python -m pytest_meshnet.tests.identity.ledger_storm LEDGER TRIALS SEED SECONDS

Each trial forks one writer that registers entries one after another and reports each on a pipe
only after `register` returned; another writes at the same time in every third trial. Each is killed
by SIGKILL after a random moment. Prints one JSON object: trials run, the acknowledged entries, how
many of the kills hit a writer inside `register`, and where every writer stopped asking.
"""

import json
import os
import random
import select
import signal
import sys
import time
from pathlib import Path

from pytest_meshnet.identity.declaration import Declaration
from pytest_meshnet.identity.ledger_file import LedgerFile
from pytest_meshnet.tests.identity import samples


def entry(writer: int, number: int) -> Declaration:
    """Return the one declaration that this writer registers as its `number`-th."""
    return samples.declaration(runtime_version=f"writer-{writer}-entry-{number}")


def write_until_killed(ledger: LedgerFile, writer: int, channel: int) -> None:
    number = 0
    while True:
        declaration = entry(writer, number)
        os.write(channel, f"asked {number}\n".encode())
        ledger.register(declaration)
        os.write(channel, f"done {number}\n".encode())
        number += 1


def start(ledger: LedgerFile, writer: int) -> tuple[int, int]:
    """Fork one writer; return its process id and the pipe it reports on."""
    reader, channel = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            write_until_killed(ledger, writer, channel)
        finally:
            os._exit(70)
    os.close(channel)
    return pid, reader


def stop(pid: int, reader: int) -> tuple[int, int]:
    """Kill one writer; return how many entries it asked for and how many were acknowledged."""
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if not os.WIFSIGNALED(status):
        raise SystemExit(f"writer {pid} ended by itself with status {status}")
    with os.fdopen(reader) as lines:
        told = [line.split()[0] for line in lines.read().splitlines()]
    return told.count("asked"), told.count("done")


def main(path: Path, trials: int, seed: int, seconds: float) -> None:
    ledger, chance = LedgerFile(path), random.Random(seed)
    limit = time.monotonic() + seconds
    asked: dict[int, int] = {}
    done: dict[int, int] = {}
    while len(asked) < trials and time.monotonic() < limit:
        count = min(2 if len(asked) % 3 == 0 else 1, trials - len(asked))
        writers = {
            len(asked) + offset: start(ledger, len(asked) + offset) for offset in range(count)
        }
        for writer, (pid, reader) in writers.items():
            select.select([reader], [], [], 10)
            time.sleep(chance.uniform(0, 0.025))
            asked[writer], done[writer] = stop(pid, reader)
    inside = sum(asked[writer] > done[writer] for writer in asked)
    sys.stdout.write(json.dumps({"asked": asked, "done": done, "inside": inside}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
