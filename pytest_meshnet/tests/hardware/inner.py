"""A pytest run inside a test, on a simulated machine."""

import json
from pathlib import Path

from pytest_meshnet.hardware import fixtures
from pytest_meshnet.tests.hardware import simulated_runtime
from pytest_meshnet.tests.hardware.fakes import inventory_file

PLUGIN = ("-p", "pytest_meshnet.plugin", "-p", "pytest_meshnet.hardware.fixtures")
MACHINE = ("--meshnet-inventory", "machine.json")
QUIET = (
    "-p",
    "no:cacheprovider",
    "--strict-markers",
    "-W",
    "ignore::pytest.PytestAssertRewriteWarning",
)

_IMPORTED = (fixtures,)
"""What pytester would otherwise import again for every run."""

CONFTEST = """
import json, os, subprocess, sys
from pathlib import Path
import pytest

HERE = Path(__file__).parent
os.environ["TZ"] = "UTC"


def pytest_meshnet_placement(item, placement):
    told = {{"test": item.nodeid, "worker": os.environ.get("PYTEST_XDIST_WORKER", "")}}
    with open(HERE / "journal.jsonl", "a") as journal:
        journal.write(json.dumps(told | placement.document()) + "\\n")


@pytest.fixture
def runtime():
    started = []

    def start(gpu, how="honest"):
        command = [sys.executable, {runtime!r}, str(HERE / "processes"), how]
        child = subprocess.Popen(
            command, env=gpu.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(child)
        assert child.stdout.readline() == "ready\\n"
        gpu.watch(child.pid)
        return child

    yield start
    for child in started:
        child.communicate()


@pytest.fixture
def here(gpu):
    '''Puts this very process on its devices, as if it computed there.'''
    place = HERE / "processes" / str(os.getpid())
    place.parent.mkdir(exist_ok=True)
    place.write_text("\\n".join(one.uuid for one in gpu.devices))
    gpu.watch(os.getpid())
    yield
    place.unlink()
"""


def prepare(pytester, name, conftest="", **changes):
    """Write the inventory `name` and a conftest into the folder of an inner run."""
    told = json.loads(inventory_file(name).read_text()) | {"processes": "processes"} | changes
    Path(pytester.path, "machine.json").write_text(json.dumps(told))
    runtime = str(Path(simulated_runtime.__file__))
    pytester.makeconftest(CONFTEST.format(runtime=runtime) + conftest)


def run(pytester, *arguments, inventory=True, subprocess=False):
    """Run pytest inside; on the machine of `prepare`, or on this very one without `inventory`."""
    given = MACHINE if inventory else ()
    if "-n" in arguments:
        given = (*given, "-p", "xdist.plugin")
    start = pytester.runpytest_subprocess if subprocess else pytester.runpytest_inprocess
    return start(*PLUGIN, *QUIET, *given, *arguments)


def journal(pytester):
    """Return the placements that the inner run told of, in order."""
    path = Path(pytester.path, "journal.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
