"""What evidence costs: `append FOLDER`, `make FOLDER`, `floor BUNDLE` or `verify BUNDLE`. JSON out.

The floor of a journal's record is one SHA-256 and one write() of as many bytes; the floor of a
verification is one SHA-256 and one JSON parse of every line of the journals.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pytest_meshnet.evidence.bundle import About, BundleWriter
from pytest_meshnet.evidence.documents import Named
from pytest_meshnet.evidence.journal import Collection
from pytest_meshnet.evidence.signing.keys import SigningKey
from pytest_meshnet.evidence.verify import Question, verify
from pytest_meshnet.ledger.requirements import Ledger
from pytest_meshnet.ledger.status import PhaseRecord, PlannedTest, When

TESTS = 20_000
RECORDS = 5_000
PROFILE = "core-wire"
_PHASES: tuple[When, ...] = ("setup", "call", "teardown")


def _begin(folder: Path) -> BundleWriter:
    target = Named("reference", hashlib.sha256(b"descriptor").hexdigest())
    about = About(target, (PROFILE,), Ledger.load(), certificate=False)
    return BundleWriter.create(folder, about, SigningKey.make_ephemeral())


def _phases(test: str) -> Iterator[PhaseRecord]:
    for when in _PHASES:
        yield PhaseRecord(test, 1, when, "passed", "", "", "", None, 1000)


def append(folder: Path) -> dict[str, float]:
    """Medians in microseconds of one record and of its floor, in turns."""
    writer = _begin(folder)
    phase = next(_phases("conformance/test_decode.py::test_every_step_is_applied_once[case-17]"))
    writer.recorder.phase(phase)
    (journal,) = (writer.path / "journal").iterdir()
    line = journal.read_bytes().splitlines(keepends=True)[-1]
    descriptor = os.open(folder / "floor", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def floor() -> None:
        hashlib.sha256(line).hexdigest()
        os.write(descriptor, line)

    roles: dict[str, Callable[[], None]] = {
        "floor": floor,
        "figure": lambda: writer.recorder.phase(phase),
    }
    times: dict[str, list[int]] = {name: [] for name in roles}
    for _ in range(RECORDS):
        for name, act in roles.items():
            started = time.perf_counter_ns()
            act()
            times[name].append(time.perf_counter_ns() - started)
    os.close(descriptor)
    writer.recorder.close()
    return {name: statistics.median(found) / 1000 for name, found in times.items()}


def make(folder: Path) -> dict[str, str]:
    """Make a sealed bundle of TESTS tests that all pass."""
    writer = _begin(folder)
    names = [one.id for one in Ledger.load().profile(PROFILE)]
    tests = tuple(
        PlannedTest(f"conformance/test_all.py::test_all[case-{n}]", (names[n % len(names)],))
        for n in range(TESTS)
    )
    collection = Collection(tests)
    writer.recorder.collected(collection)
    writer.plan(collection)
    for one in tests:
        writer.recorder.attempt(one.test)
        for phase in _phases(one.test):
            writer.recorder.phase(phase)
    writer.seal(0)
    return {"bundle": str(writer.path)}


def floor(bundle: Path) -> dict[str, float]:
    """Hash and parse every line of the journals once."""

    def read() -> None:
        for journal in (bundle / "journal").iterdir():
            with journal.open("rb") as stream:
                for line in stream:
                    hashlib.sha256(line).hexdigest()
                    json.loads(line)

    return _measured(read)


def whole(bundle: Path) -> dict[str, float]:
    """Verify the bundle with every check."""
    return _measured(lambda: verify(bundle, Question()).result)


def _measured(act: Callable[[], object]) -> dict[str, float]:
    """Return seconds of processor time, and the most memory of this process in MB."""
    started = time.process_time()
    act()
    seconds = time.process_time() - started
    return {
        "seconds": seconds,
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


if __name__ == "__main__":
    role = {"append": append, "make": make, "floor": floor, "verify": whole}[sys.argv[1]]
    print(json.dumps(role(Path(sys.argv[2]))))  # noqa: T201
