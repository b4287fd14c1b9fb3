"""The process in which the tests of some mutants run, one mutant after the other."""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal

import pytest

from pytest_meshnet import layout
from pytest_meshnet.ledger.requirements import Ledger
from pytest_meshnet.suite.bite.fate import Ending
from pytest_meshnet.suite.certify import own_configuration

RESULT = "meshnet-bite "
"""Begins a line of the child that is a result; pytest writes others."""

_SHARED = (
    "pytest_meshnet.suite_fixtures",
    "pytest_meshnet.reference.serve",
    "pytest_meshnet.runtime.in_process",
    "xdist.plugin",
)
"""What takes a second to import, before the forks. No test: a suite mutant comes before those."""


@dataclass(frozen=True, slots=True)
class Order:
    """The tests to run on one mutant, in this order; with `first_finding` until one finds it.

    `offer` is the compression that their sessions offer, as `--meshnet-offer` takes it. One that
    runs `apart` does so in a fork of this process, which stays as it is.
    """

    mutant: str
    transport: Literal["grpc", "in-process"]
    tests: tuple[str, ...]
    first_finding: bool = False
    offer: Literal["none", "zstd"] = "none"
    apart: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """How the tests of one order ended, and the seconds they took."""

    mutant: str
    endings: tuple[Ending, ...]
    seconds: float

    @classmethod
    def read(cls, line: str) -> Result:
        """Read a line that a child printed."""
        told = json.loads(line.removeprefix(RESULT))
        return cls(told["mutant"], tuple(Ending(**one) for one in told["endings"]), told["seconds"])


class _Plugin:
    """Chooses the tests of an order, brings them into its order, and keeps how each ended."""

    def __init__(self, order: Order, home: Path) -> None:
        self.order = order
        self.modules = {home / test.partition("::")[0] for test in order.tests}
        self.place = {test: number for number, test in enumerate(order.tests)}
        self.endings: dict[str, Ending] = {}
        self.session: pytest.Session | None = None

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self.session = session

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        is_other = collection_path.suffix == ".py" and collection_path not in self.modules
        return True if is_other else None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        from pytest_meshnet.suite.collection import test_id

        chosen = {test_id(item): item for item in items if test_id(item) in self.place}
        items[:] = [chosen[test] for test in sorted(chosen, key=self.place.__getitem__)]

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        told = report.__dict__.get("meshnet")
        if told is None:
            return
        record = told["record"]
        kind = record["kind"] or record["outcome"]
        if record["when"] == "call" or kind != "passed":
            self.endings[record["test"]] = Ending(record["test"], kind, record["message"])

    def pytest_runtest_logfinish(self) -> None:
        if self.is_done and self.session is not None:
            self.session.shouldfail = "found"

    @property
    def is_done(self) -> bool:
        """Whether a finding was enough, and came."""
        found = any(one.kind == "nonconformance" for one in self.endings.values())
        return self.order.first_finding and found

    def told(self) -> tuple[Ending, ...]:
        """How every test ended; one that was ordered and never started is not-run."""
        never = [] if self.is_done else [one for one in self.place if one not in self.endings]
        return (
            *self.endings.values(),
            *(Ending(one, "not-run", "never started") for one in never),
        )


def _run(order: Order) -> Result:
    began = time.monotonic()
    home = layout.folder("conformance").parent
    plugin = _Plugin(order, home)
    # Of many modules by name pytest would read their folder once for each.
    folders = sorted({module.parent for module in plugin.modules})
    code = pytest.main(
        [
            *own_configuration(),
            # They collect all garbage after every session, and take longer than most mutants do.
            *("-p", "no:unraisableexception", "-p", "no:threadexception"),
            f"--meshnet-target=reference:{order.mutant}",
            f"--meshnet-transport={order.transport}",
            f"--meshnet-offer={order.offer}",
            *(f"--meshnet-profile={name}" for name in Ledger.load().profiles),
            *map(str, folders),
        ],
        [plugin],
    )
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(f"pytest ended with {code!r} on {order.mutant}")
    return Result(order.mutant, plugin.told(), time.monotonic() - began)


def _tell(order: Order) -> None:
    print(f"{RESULT}{json.dumps(asdict(_run(order)))}", flush=True)  # noqa: T201


def _tell_apart(order: Order) -> None:
    fork = multiprocessing.get_context("fork").Process(target=_tell, args=(order,))
    fork.start()
    fork.join()
    if fork.exitcode:
        raise RuntimeError(f"the process of {order.mutant} ended with {fork.exitcode}")


def main() -> int:
    """Take a JSON list of orders on stdin and print a line for each that says how it ended."""
    orders = [Order(**told | {"tests": tuple(told["tests"])}) for told in json.load(sys.stdin)]
    if any(one.apart for one in orders):
        for name in _SHARED:
            import_module(name)
    for one in orders:
        (_tell_apart if one.apart else _tell)(one)
    return 0


if __name__ == "__main__":
    sys.exit(main())
