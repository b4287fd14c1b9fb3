"""Running tests on the catalogue: the proof that they bite, and that they are fair.

A mutant is killed by a finding: a test of its requirement that fails by an assertion. One that only
makes a test break is flagged, because a crash proves little about what the test looks at. A variant
is an honest worker: every test of a runtime must pass it, and one that does not is a wrong test.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

import pytest

from pytest_meshnet import layout
from pytest_meshnet.ledger.requirements import Ledger
from pytest_meshnet.suite.certify import environment, own_configuration

if TYPE_CHECKING:
    from pytest_meshnet.ledger.status import PlannedTest
    from pytest_meshnet.reference.catalogue import Entry

Fate = Literal["killed", "only crashed", "SURVIVED", "no test", "passed", "VARIANT FAILED"]

GOOD: frozenset[Fate] = frozenset({"killed", "passed"})
"""What must become of every mutant and of every variant."""

CHILD_LIMIT = 900.0
"""Seconds that one child process may take; each test has a limit of its own."""

BATCH = 16
"""Runtime mutants in one child process, so that Python starts once for all of them."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How one test ended on a mutant: `kind` as in the phase records, "passed" when it passed."""

    test: str
    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class Bite:
    """What became of one mutant or variant, and which tests did it.

    `killers` are the tests of its requirement that a mutant fails, or any that a variant fails.
    """

    mutant: str
    requirement: str
    fate: Fate
    killers: tuple[str, ...]
    message: str
    seconds: float


def bite(mutants: Sequence[Entry], tests: Sequence[PlannedTest], processes: int) -> Iterator[Bite]:
    """Run the tests of its requirement on each mutant, in process, and yield what came of it.

    On a variant all tests of runtime requirements run. Results come as they are ready. Raises
    RuntimeError when a child process breaks.
    """
    every = [test.test for test in tests if _concerns_runtimes(test)]
    chosen = {
        one.name: every
        if one.kind == "variant"
        else [test.test for test in tests if one.requirement in test.requirements]
        for one in mutants
    }
    tested = [one for one in mutants if chosen[one.name]]
    yield from (judged(one, [], 0.0) for one in mutants if not chosen[one.name])
    with ThreadPoolExecutor(processes) as pool:
        running = [pool.submit(_run_child, batch, chosen) for batch in _batches(tested)]
        for future in as_completed(running):
            yield from future.result()


def _batches(mutants: Sequence[Entry]) -> Iterator[list[Entry]]:
    """A suite mutant patches its process, a variant runs for long: each has one of its own."""
    yield from ([one] for one in mutants if one.kind != "mutant")
    shared = [one for one in mutants if one.kind == "mutant"]
    yield from (shared[start : start + BATCH] for start in range(0, len(shared), BATCH))


def _concerns_runtimes(test: PlannedTest) -> bool:
    """Whether a test looks at a runtime, and not at the suite itself or at a whole route."""
    ledger = Ledger.load()
    return any(ledger.get(one).subject == "runtime" for one in test.requirements)


def judged(mutant: Entry, endings: Sequence[Ending], seconds: float) -> Bite:
    """Say what became of a mutant, or of a variant, from how its tests ended."""
    found = [one for one in endings if one.kind == "nonconformance"]
    broke = [one for one in endings if one.kind == "engine-error"]
    ran = [one for one in endings if one.kind not in ("not-claimed", "not-applicable")]
    fate: Fate = "SURVIVED" if ran else "no test"
    if found or broke:
        fate = "killed" if found else "only crashed"
    if mutant.kind == "variant" and ran:
        fate = "VARIANT FAILED" if found or broke else "passed"
    decisive = found or broke
    return Bite(
        mutant.name,
        mutant.requirement,
        fate,
        tuple(one.test for one in decisive),
        decisive[0].message if decisive else "",
        seconds,
    )


def _run_child(mutants: Sequence[Entry], chosen: Mapping[str, Sequence[str]]) -> list[Bite]:
    orders = [[one.name, *chosen[one.name]] for one in mutants]
    child = subprocess.run(
        [sys.executable, "-P", "-m", "pytest_meshnet.suite.bite"],
        env=environment(os.environ),
        input=json.dumps(orders),
        capture_output=True,
        text=True,
        timeout=CHILD_LIMIT,
    )
    lines = [line for line in child.stdout.splitlines() if line.startswith(_RESULT)]
    if len(lines) != len(mutants):
        raise RuntimeError(
            f"the tests of {mutants[len(lines)].name} could not run (exit code "
            f"{child.returncode}):\n{child.stdout[-2000:]}{child.stderr[-2000:]}"
        )
    results = [json.loads(line.removeprefix(_RESULT)) for line in lines]
    return [
        judged(mutant, [Ending(**one) for one in result["endings"]], result["seconds"])
        for mutant, result in zip(mutants, results, strict=True)
    ]


_RESULT = "meshnet-bite "
"""Begins a line of the child that is a result; pytest writes others."""


class _Listener:
    """A plugin in the child that keeps how each test ended."""

    def __init__(self) -> None:
        self.endings: dict[str, Ending] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        told = report.__dict__.get("meshnet")
        if told is None:
            return
        record = told["record"]
        kind = record["kind"] or record["outcome"]
        if record["when"] == "call" or kind != "passed":
            self.endings[record["test"]] = Ending(record["test"], kind, record["message"])


def main() -> int:
    """Be the child: take orders [[mutant, test...]...] and print how the tests of each ended."""
    for mutant, *tests in json.load(sys.stdin):
        began = time.monotonic()
        endings = _run_tests(mutant, tests)
        result = {
            "endings": [asdict(one) for one in endings],
            "seconds": time.monotonic() - began,
        }
        print(f"{_RESULT}{json.dumps(result)}", flush=True)  # noqa: T201
    return 0


def _run_tests(mutant: str, tests: Sequence[str]) -> list[Ending]:
    home = layout.folder("conformance").parent
    listener = _Listener()
    pytest.main(
        [
            *own_configuration(),
            f"--meshnet-target=reference:{mutant}",
            f"--meshnet-transport={_transport(mutant)}",
            *(f"--meshnet-profile={name}" for name in Ledger.load().profiles),
            *(str(home / test) for test in tests),
        ],
        [listener],
    )
    return list(listener.endings.values())


def _transport(mutant: str) -> str:
    """In process, where order is certain and a start costs nothing, unless a process is needed."""
    from pytest_meshnet.reference.catalogue import entry

    if entry(mutant).kind == "variant":
        return "in-process"
    needs = Ledger.load().get(entry(mutant).requirement).needs
    return "grpc" if _PROCESS_NEEDS.intersection(needs) else "in-process"


_PROCESS_NEEDS = frozenset({"launch", "stall-hook", "drain-command"})


if __name__ == "__main__":
    sys.exit(main())
