"""Running tests on the catalogue, in child processes, and judging what came of each entry."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from typing import TYPE_CHECKING

from pytest_meshnet.ledger.requirements import Ledger
from pytest_meshnet.suite.bite.child import RESULT, Order, Result
from pytest_meshnet.suite.bite.fate import Bite, bystanders, designated, judged
from pytest_meshnet.suite.certify import environment

if TYPE_CHECKING:
    from pytest_meshnet.ledger.status import PlannedTest
    from pytest_meshnet.reference.catalogue import Entry

CHILD_LIMIT = 900.0
"""Seconds that one child process may take; each test has a limit of its own."""

BATCH = 16
"""Runtime mutants in one child process, so that Python starts once for all of them."""

_PROCESS_NEEDS = frozenset({"launch", "stall-hook", "drain-command"})


def bite(
    mutants: Sequence[Entry], tests: Sequence[PlannedTest], processes: int, whole: bool = False
) -> Iterator[Bite]:
    """Run the tests of its requirement on each mutant and yield what came of it.

    With `whole`, all of them run, and then every other test of its profile, in process with the
    small model; otherwise the first finding is enough. On a variant all tests of runtime
    requirements run. Results come as they are ready. Raises RuntimeError when a child breaks.
    """
    own = {one.name: designated(one, tests) for one in mutants}
    orders = {one.name: _orders(one, own[one.name], tests, whole) for one in mutants}
    tested = [one for one in mutants if own[one.name]]
    yield from (judged(one, [], (), 0.0) for one in mutants if not own[one.name])
    with ThreadPoolExecutor(processes) as pool:
        running = {
            pool.submit(_run_child, [order for one in batch for order in orders[one.name]]): batch
            for batch in _batches(tested)
        }
        for future in as_completed(running):
            for one in running[future]:
                results = [found for found in future.result() if found.mutant == one.name]
                endings = [ending for found in results for ending in found.endings]
                seconds = sum(found.seconds for found in results)
                yield judged(one, endings, own[one.name], seconds)


def _orders(
    mutant: Entry, own: Sequence[str], tests: Sequence[PlannedTest], whole: bool
) -> list[Order]:
    """In process, where order is certain and a start costs nothing, unless a process is needed."""
    others = bystanders(mutant, tests) if whole or mutant.kind == "variant" else []
    if mutant.kind == "variant":
        return [Order(mutant.name, "in-process", (*own, *others))]
    if not _needs_a_process(mutant):
        return [Order(mutant.name, "in-process", (*own, *others), not whole)]
    orders = [
        Order(mutant.name, "grpc", tuple(own), not whole),
        Order(mutant.name, "in-process", tuple(others)),
    ]
    return [one for one in orders if one.tests]


def _needs_a_process(mutant: Entry) -> bool:
    return bool(_PROCESS_NEEDS.intersection(Ledger.load().get(mutant.requirement).needs))


def _batches(mutants: Sequence[Entry]) -> Iterator[list[Entry]]:
    """A suite mutant patches its process, a variant runs for long: each has one of its own."""
    yield from ([one] for one in mutants if one.kind != "mutant")
    shared = [one for one in mutants if one.kind == "mutant"]
    yield from (shared[start : start + BATCH] for start in range(0, len(shared), BATCH))


def _run_child(orders: Sequence[Order]) -> list[Result]:
    child = subprocess.run(
        [sys.executable, "-P", "-m", "pytest_meshnet.suite.bite.child"],
        env=environment(os.environ),
        input=json.dumps([asdict(one) for one in orders]),
        capture_output=True,
        text=True,
        timeout=CHILD_LIMIT,
    )
    lines = [line for line in child.stdout.splitlines() if line.startswith(RESULT)]
    if len(lines) != len(orders):
        raise RuntimeError(
            f"the tests of {orders[len(lines)].mutant} could not run (exit code "
            f"{child.returncode}):\n{child.stdout[-2000:]}{child.stderr[-2000:]}"
        )
    return [Result.read(line) for line in lines]
