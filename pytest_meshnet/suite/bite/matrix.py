"""Running tests on the catalogue, in child processes, and judging what came of each entry."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, replace
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from pytest_meshnet.ledger.requirements import Ledger
from pytest_meshnet.suite.bite.child import RESULT, Order, Result
from pytest_meshnet.suite.bite.fate import Bite, bystanders, designated, is_long, judged
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
    small model; otherwise the first finding is enough. On a variant all tests of runtimes run, and
    the quick ones once more with zstd offered; without `whole` these alone, once. Results come as
    they are ready. Raises RuntimeError when a child breaks.
    """
    ledger = Ledger.load()
    long = {one.test for one in tests if is_long(one, ledger)}
    own = {one.name: designated(one, tests, ledger) for one in mutants}
    orders = {}
    for one in mutants:
        others = bystanders(one, tests, ledger) if whole or one.kind == "variant" else []
        if one.kind == "variant":
            orders[one.name] = _of_variant(one, [*own[one.name], *others], long, whole=whole)
        else:
            orders[one.name] = _orders(one, own[one.name], others, ledger)
    tested = [one for one in mutants if own[one.name]]
    yield from (judged(one, [], (), 0.0) for one in mutants if not own[one.name])
    with TemporaryDirectory(prefix="meshnet-") as compiled, ThreadPoolExecutor(processes) as pool:
        running = {
            pool.submit(
                _run_child, _in_turn(order for one in batch for order in orders[one.name]), compiled
            ): batch
            for batch in _batches(tested)
        }
        for future in as_completed(running):
            for one in running[future]:
                results = [found for found in future.result() if found.mutant == one.name]
                endings = [ending for found in results for ending in found.endings]
                seconds = sum(found.seconds for found in results)
                yield judged(one, endings, own[one.name], seconds)


def _of_variant(
    variant: Entry, tests: Sequence[str], long: Collection[str], *, whole: bool
) -> list[Order]:
    quick = Order(
        variant.name, "in-process", tuple(one for one in tests if one not in long), apart=True
    )
    # Once more with zstd offered, or one that compresses would do so in few tests.
    return [replace(quick, tests=tuple(tests)), replace(quick, offer="zstd")] if whole else [quick]


def _orders(
    mutant: Entry, own: Sequence[str], others: Sequence[str], ledger: Ledger
) -> list[Order]:
    """In process, where order is certain and a start costs nothing, unless a process is needed."""
    if mutant.kind == "testee-variant":
        return [Order(mutant.name, "in-process", tuple(own))]
    # A suite mutant patches its process.
    apart = mutant.kind == "suite-mutant"
    if not _PROCESS_NEEDS.intersection(ledger.get(mutant.requirement).needs):
        return [
            Order(mutant.name, "in-process", (*own, *others), first_finding=not others, apart=apart)
        ]
    separate = [
        Order(mutant.name, "grpc", tuple(own), first_finding=not others, apart=apart),
        Order(mutant.name, "in-process", tuple(others), apart=apart),
    ]
    return [one for one in separate if one.tests]


def _batches(mutants: Sequence[Entry]) -> Iterator[list[Entry]]:
    """What takes long comes first, in small batches, so that all processes end at one time."""
    for variant, size in ((True, 3), (False, BATCH)):
        alike = [one for one in mutants if (one.kind == "variant") == variant]
        yield from (alike[start : start + size] for start in range(0, len(alike), size))


def _in_turn(orders: Iterable[Order]) -> list[Order]:
    """Forks first: a test module that the child had imported would keep what a patch replaces."""
    return sorted(orders, key=lambda order: not order.apart)


def _run_child(orders: Sequence[Order], compiled: str) -> list[Result]:
    # Wherever bytecode is not kept, each child would compile the whole suite again.
    kept = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": compiled}
    child = subprocess.run(
        [sys.executable, "-P", "-m", "pytest_meshnet.suite.bite.child"],
        env=environment(os.environ) | kept,
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
