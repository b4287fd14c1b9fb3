"""The pytest side of the lanes: selection, the lease around each test, and the demand for proof.

A plugin of its own: registered when a run may hold hardware tests, or named with
`-p pytest_meshnet.hardware.fixtures`. No driver is touched before a test or a `-m` asks for one.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Generator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from _pytest.outcomes import Failed, Skipped

from pytest_meshnet.hardware import hooks, lanes
from pytest_meshnet.hardware.lanes import Lane, LaneError, Need
from pytest_meshnet.hardware.lanes.matching import Match
from pytest_meshnet.hardware.lanes.tally import Tally
from pytest_meshnet.hardware.placement.gpu import Gpu, Misplaced, NativeKernelMissing, Placement
from pytest_meshnet.hardware.session import (
    WAIT_S,
    Hardware,
    Unmeasured,
    Wishes,
    machine_wide_leases,
)

WORKER_INPUT = "meshnet_leases"


class NotRun(Skipped):
    """A test cannot run here. `kind` is the word of the phase records for it."""

    kind = "not-run"


class Missing(Failed):
    """A test cannot run here although its lane was asked for by name."""

    kind = "not-run"


@dataclass(frozen=True, slots=True)
class Run:
    """What this process knows of lanes, and which of them `-m` asks for by name.

    `own_leases` is a folder that this process made for the run and must remove.
    """

    hardware: Hardware
    asked: frozenset[str]
    own_leases: Path | None


_RUN = pytest.StashKey[Run]()
_GPU = pytest.StashKey[Gpu]()
_LOAN = pytest.StashKey[ExitStack]()


@pytest.fixture
def gpu(request: pytest.FixtureRequest) -> Gpu:
    """The leased devices of a test in a hardware lane, and the environment to start a child with.

    The test must show where its runtime is: `gpu.watch(pid)`, with the runtime still there when
    the test ends or at a `gpu.observe()`, or `gpu.report` of what the process itself measured.
    """
    found: Gpu | None = request.node.stash.get(_GPU, None)
    if found is None:
        pytest.fail(
            "the fixture gpu needs a lane with a device, e.g. @pytest.mark.gpu", pytrace=False
        )
    return found


# The run ---------------------------------------------------------------------------------------


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Make the hooks of lanes and placements known, once."""
    known = getattr(pluginmanager.hook, "pytest_meshnet_lanes", None)
    if known is None or known.spec is None:
        pluginmanager.add_hookspecs(hooks)


def pytest_configure(config: pytest.Config) -> None:
    """Know the lanes, register the marks of a user's own, and what `-m` asks for by name."""
    try:
        own = [lanes.parse(text) for text in _option(config, "lanes")[0] or ()]
        own += [lane for told in config.hook.pytest_meshnet_lanes(config=config) for lane in told]
        table = lanes.table(own)
    except LaneError as error:
        raise pytest.UsageError(str(error)) from None
    _register_marks(config, table)
    wishes = _wishes(config)
    asked = lanes.asked_for(config.option.markexpr or "", (*table, lanes.UMBRELLA))
    folder, own_folder = _leases(config, wishes)
    config.stash[_RUN] = Run(Hardware(table, wishes, folder), asked, own_folder)
    if asked and not config.option.collectonly and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Tally(asked, table), "meshnet-hardware-tally")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the lease folder of a simulated run."""
    run = config.stash.get(_RUN, None)
    if run is not None and run.own_leases is not None:
        shutil.rmtree(run.own_leases, ignore_errors=True)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell an xdist worker where the workers of this run lock devices."""
    run: Run = node.config.stash[_RUN]
    if run.own_leases is not None:
        node.workerinput[WORKER_INPUT] = str(run.own_leases)


def _leases(config: pytest.Config, wishes: Wishes) -> tuple[Path, Path | None]:
    """Return (folder of the locks, the same again when this process made it).

    Real devices are locked machine-wide; invented ones only among the processes of one run.
    """
    if wishes.inventory is None:
        return machine_wide_leases(), None
    given = getattr(config, "workerinput", {}).get(WORKER_INPUT)
    if given is not None:
        return Path(given), None
    made = Path(tempfile.mkdtemp(prefix="pytest-meshnet-leases-"))
    return made, made


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say loudly that devices are invented."""
    path = config.stash[_RUN].hardware.wishes.inventory
    return f"meshnet: SIMULATED GPUs from {path}: no proof of any hardware" if path else None


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Refuse a run whose hardware was asked for by name and is not here, before it begins."""
    config, run = session.config, session.config.stash[_RUN]
    if not run.asked or config.option.collectonly or hasattr(config, "workerinput"):
        return
    try:
        absent = [why for name in sorted(run.asked) for why in _absence(name, run.hardware)]
    except Unmeasured as error:
        absent = [str(error)]
    if absent:
        asked = f"-m {config.option.markexpr!r} asks for hardware that is not here"
        raise pytest.UsageError(f"refused: {asked}: {'; '.join(absent)}")


def _absence(name: str, hardware: Hardware) -> list[str]:
    if name != lanes.UMBRELLA:
        found = hardware.match([hardware.table[name].least()])
        return [] if found.word == "ready" else [found.reason]
    if any(hardware.match([lane.least()]).word == "ready" for lane in hardware.table.values()):
        return []
    return [f"no lane has what it needs: found {hardware.machine.inventory.summary}"]


def evidence(config: pytest.Config) -> tuple[str, tuple[dict[str, str | int | bool | None], ...]]:
    """Return (how the list came about, facts of every device) for the start of a bundle.

    A run that deselects every hardware test touches no driver for it either.
    """
    if lanes.excludes_hardware(config.option.markexpr or ""):
        return f"not collected: -m {config.option.markexpr!r} leaves out hardware", ()
    run = config.stash.get(_RUN, None)
    if run is None:
        return "not collected: hardware lanes take no part in this run", ()
    return run.hardware.evidence()


# Each test -------------------------------------------------------------------------------------


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let every lane imply `hardware`, so that `-m "not hardware"` leaves them all out."""
    table = item.config.stash[_RUN].hardware.table
    if any(item.get_closest_marker(name) for name in table):
        item.add_marker(lanes.UMBRELLA)


def needs_of(item: pytest.Item, hardware: Hardware) -> list[Need]:
    """Return what the lanes of a test need. Raises LaneError for a mark that says nothing."""
    marks = [
        (lane, mark) for name, lane in hardware.table.items() for mark in item.iter_markers(name)
    ]
    if not marks and item.get_closest_marker(lanes.UMBRELLA):
        known = ", ".join(hardware.table)
        raise LaneError(
            f"{lanes.UMBRELLA} alone names no device: mark the test with one of {known}"
        )
    return [lane.need(mark.args, mark.kwargs) for lane, mark in marks]


def device_lane(item: pytest.Item) -> str | None:
    """Return the lane by which a test gets a device, None when it gets none."""
    run = item.config.stash.get(_RUN, None)
    table = {} if run is None else run.hardware.table
    gives = (name for name, lane in table.items() if lane.want is not None)
    return next((name for name in gives if item.get_closest_marker(name)), None)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Lease the devices of a test, or say why it cannot run."""
    __tracebackhide__ = True
    run = item.config.stash[_RUN]
    needs = needs_of(item, run.hardware)
    if not needs:
        return
    found = run.hardware.match(needs)
    if found.word == "unmeasured":
        raise Unmeasured(found.reason)
    if found.word == "absent":
        by_name = run.asked & {lanes.UMBRELLA, *(need.lane for need in needs)}
        raise Missing(found.reason, pytrace=False) if by_name else NotRun(found.reason)
    if found.count:
        _lend(item, run.hardware, found)


def _lend(item: pytest.Item, hardware: Hardware, found: Match) -> None:
    __tracebackhide__ = True

    def journal(placement: Placement) -> None:
        item.config.hook.pytest_meshnet_placement(item=item, placement=placement)

    loan = item.stash[_LOAN] = ExitStack()
    item.stash[_GPU] = loan.enter_context(hardware.lend(found, item.nodeid, journal))
    placement = item.stash[_GPU].before()
    if placement.verdict == "contradicted":
        raise Misplaced(str(placement))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Demand, when the body of a test ends, that it was seen on its devices."""
    __tracebackhide__ = True
    gpu = item.stash.get(_GPU, None)
    if gpu is None:
        return (yield)
    try:
        result = yield
    except NativeKernelMissing as missing:
        gpu.observe()
        raise NotRun(str(missing)) from missing
    except (Exception, Failed) as error:
        error.add_note(str(gpu.observe()))
        raise
    last = gpu.observe()
    if last.verdict != "proven":
        raise Misplaced(str(last))
    _demand_solitude(gpu)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Look at the devices once more when every other fixture is gone, and give them back."""
    __tracebackhide__ = True
    loan = item.stash.get(_LOAN, None)
    if loan is None:
        return (yield)
    gpu = item.stash.get(_GPU, None)
    del item.stash[_LOAN]
    with loan:
        if gpu is None:
            return (yield)
        del item.stash[_GPU]
        known = gpu.disturbance()
        try:
            result = yield
        finally:
            last = gpu.after()
        if last.verdict == "contradicted":
            raise Misplaced(str(last))
        if gpu.disturbance() != known:
            _demand_solitude(gpu)
    return result


def _demand_solitude(gpu: Gpu) -> None:
    __tracebackhide__ = True
    strangers = gpu.disturbance()
    if gpu.must_be_alone and strangers:
        raise Misplaced(f"the timing is void, others computed on the device: {strangers}")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let no xfail mark hide that a test ran elsewhere, or not at all."""
    report = yield
    error = call.excinfo.value if call.excinfo else None
    if isinstance(error, (Misplaced, Missing)) and report.outcome == "skipped":
        report.outcome = "failed"
        report.__dict__.pop("wasxfail", None)
        report.longrepr = str(error)
    return report


# Options ---------------------------------------------------------------------------------------


def _wishes(config: pytest.Config) -> Wishes:
    inventory, base = _option(config, "inventory")
    wait, _ = _option(config, "gpu_wait")
    hooked = config.hook.pytest_meshnet_present(config=config)
    try:
        wait_s = float(wait) if wait else WAIT_S
    except ValueError:
        raise pytest.UsageError(f"--meshnet-gpu-wait is {wait!r}: expected seconds") from None
    return Wishes(
        _option(config, "gpu")[0],
        Path(os.path.normpath(base / Path(inventory).expanduser())) if inventory else None,
        (*(_option(config, "present")[0] or ()), *(one for told in hooked for one in told)),
        wait_s,
    )


def _option(config: pytest.Config, name: str) -> tuple[Any, Path]:
    """Return (value or None, folder that the value is relative to): command line before ini.

    Loaded alone, without the plugin that registers the options, every value is None.
    """
    given = config.getoption(f"meshnet_{name}", None)
    if given is not None:
        return given, config.invocation_params.dir
    base = config.inipath.parent if config.inipath else config.rootpath
    try:
        return config.getini(f"meshnet_{name}") or None, base
    except ValueError:
        return None, base


def _register_marks(config: pytest.Config, table: Mapping[str, Lane]) -> None:
    """Register the marks that nobody registered before: a user's lanes, or all when alone."""
    known = {re.split(r"\W", line, maxsplit=1)[0] for line in config.getini("markers")}
    for name, lane in table.items():
        if name not in known:
            config.addinivalue_line("markers", lanes.line(lane))
    if lanes.UMBRELLA not in known:
        config.addinivalue_line("markers", lanes.UMBRELLA_LINE)
