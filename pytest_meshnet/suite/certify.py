"""Starting the pytest of a certificate run, and asking pytest which tests the suites hold."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_meshnet import layout
from pytest_meshnet.evidence.documents import SET_FOR_CERTIFICATE
from pytest_meshnet.ledger.verdict import INCOMPLETE, REFUSED
from pytest_meshnet.options import DEFAULT_OUT, SUITES
from pytest_meshnet.suite.certificate import ENVIRONMENT, INI

if TYPE_CHECKING:
    from pytest_meshnet.ledger.status import PlannedTest

PLUGINS = ("meshnet", "timeout", "xdist", "hypothesispytest")
"""Every plugin of a certificate run, by entry point: so pytest knows its version as well."""

_SUITES = ("--meshnet-suite=conformance", "--meshnet-suite=acceptance/parity")
"""What a certificate is about: every requirement of the ledger has its tests there."""

_CODES = {int(pytest.ExitCode.USAGE_ERROR): REFUSED}


@dataclass(frozen=True, slots=True)
class Order:
    """What a certificate run is asked for; see `pytest-meshnet certify --help`."""

    target: str
    profiles: tuple[str, ...] = ()
    shard: str | None = None
    expect: Path | None = None
    out: Path | None = None
    key: Path | None = None
    challenge: str | None = None
    policy: Path | None = None
    seed: int | None = None
    processes: int | None = None
    write_expect: Path | None = None


def certify(order: Order) -> int:
    """Run the conformance suite in a process of its own and return the exit code.

    0 certified, 1 not conformant, 2 refused, 3 incomplete or engine error. The process dies with
    this one.
    """
    from pytest_meshnet.evidence.badge import forget_badge

    forget_badge(order.out or Path(DEFAULT_OUT))
    command = [*_python("pytest_meshnet.runtime.guard"), str(os.getpid()), *_python("pytest")]
    child = subprocess.Popen([*command, *arguments(order)], env=environment(os.environ))
    while True:
        try:
            code = child.wait()
            break
        except KeyboardInterrupt:
            continue  # the child heard it too, and seals what there is
    return _CODES.get(code, code if code in (0, 1, 2, 3) else INCOMPLETE)


def arguments(order: Order) -> list[str]:
    """Return the arguments of the pytest of a certificate run."""
    chosen = {
        "--meshnet-target": order.target,
        "--meshnet-shard": order.shard,
        "--meshnet-expect": order.expect,
        "--meshnet-write-expect": order.write_expect,
        "--meshnet-out": order.out,
        "--meshnet-signing-key": order.key,
        "--meshnet-challenge": order.challenge,
        "--meshnet-policy": order.policy,
        "--meshnet-seed": order.seed,
    }
    told = [f"{flag}={value}" for flag, value in chosen.items() if value is not None]
    told += [f"--meshnet-profile={one}" for one in order.profiles]
    told += [] if order.processes is None else [f"-n{order.processes}"]
    return [*own_configuration(), *_SUITES, "--meshnet-certificate", *told]


def own_configuration() -> list[str]:
    """Return the arguments that keep a pytest to the suite's own configuration."""
    folder = layout.folder("conformance")
    plugins = [part for name in PLUGINS for part in ("-p", name)]
    # The root above the suite makes pytest show the same paths that are in the ids.
    return ["-c", str(folder / INI), f"--rootdir={folder.parent}", "--noconftest", *plugins]


def environment(current: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without what would let a stranger into the run."""
    kept = {name: value for name, value in current.items() if name not in ENVIRONMENT}
    return kept | {SET_FOR_CERTIFICATE: "1", "HYPOTHESIS_NO_PLUGINS": "1"}


def _python(module: str) -> list[str]:
    # -P: the current folder must not take the place of an installed package.
    return [sys.executable, "-P", "-m", module]


class _Listener:
    """A plugin that keeps what was collected."""

    def __init__(self) -> None:
        self.planned: list[PlannedTest] = []
        self.errors: list[str] = []

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.errors.append(f"{report.nodeid}: {report.longreprtext}")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        from pytest_meshnet.suite.recording import planned

        self.planned = [planned(item) for item in session.items]


class CollectionFailed(RuntimeError):
    """The suites cannot be collected; the message has a line for each module."""


def planned_tests() -> Sequence[PlannedTest]:
    """Collect both suites in this process and return their tests. Raises CollectionFailed."""
    listener = _Listener()
    suites = [f"--meshnet-suite={name}" for name in SUITES]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment({}).items():
            patch.setenv(name, value)
        for name in ENVIRONMENT:
            patch.delenv(name, raising=False)
        with redirect_stdout(StringIO()):
            code = pytest.main([*own_configuration(), *suites, "--collect-only"], [listener])
    if listener.errors or code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise CollectionFailed("\n".join(listener.errors) or f"pytest ended with {code}")
    return listener.planned
