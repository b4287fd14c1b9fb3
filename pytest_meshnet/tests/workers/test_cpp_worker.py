"""The C++ worker is certified as it is, and with each of its faults it is found out.

It shares no code with this package, so that client, machine and suite cannot agree in an error.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from pytest_meshnet import layout
from pytest_meshnet.authoring.exchange.canonical import exchanges
from pytest_meshnet.authoring.exchange.notation import parse
from pytest_meshnet.authoring.exchange.playing import play
from pytest_meshnet.runtime.descriptor import load
from pytest_meshnet.runtime.shard import ShardUnderTest
from pytest_meshnet.runtime.target import Target
from pytest_meshnet.tests.authoring.test_semantics import sequences

FOLDER = layout.folder("fixtures") / "workers" / "cpp"
FAULTS = tomllib.loads((FOLDER / "faults.toml").read_text())["faults"]
TOOLS = ("bash", "cmake", "flock", "g++", "grpc_cpp_plugin", "pkg-config", "protoc")

pytestmark = pytest.mark.timeout(600)


def environment(**more):
    """That of a run of its own: nothing of the pytest that runs this test."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return own | more


def run(command, folder, **more):
    """A finished process with its output as text; stderr goes into stdout."""
    return subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=environment(**more),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
        check=False,
    )


@pytest.fixture(scope="session")
def program():
    """The worker, built where it is missing; two test processes build it once."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"the C++ worker cannot be built here and is not examined: no {missing[0]}")
    built = run(["bash", FOLDER / "build.sh"], FOLDER)
    assert built.returncode == 0, built.stdout
    return Path(built.stdout.splitlines()[-1]) / "meshnet-cpp-worker"


def test_the_worker_is_certified_for_every_profile_it_claims(program, tmp_path):
    certify = [
        sys.executable,
        "-m",
        "pytest_meshnet",
        "certify",
        "--target",
        FOLDER / "target.toml",
    ]
    result = run(certify, tmp_path)
    assert result.returncode == 0, result.stdout[-6000:]
    assert "profiles core, flow, kv, lifecycle," in result.stdout
    assert "on the runtime's own codec:\n" in result.stdout
    assert "CERTIFIED: " in result.stdout


def test_the_table_of_faults_holds_every_fault_and_no_other(program, tmp_path):
    assert run([program, "--list-faults"], tmp_path).stdout.split() == list(FAULTS)


def test_an_unknown_fault_is_refused_before_anything_is_served(program, tmp_path):
    result = run([program, "--listen", "127.0.0.1:0", "--fault", "no-such-fault"], tmp_path)
    assert result.returncode == 2
    assert "no fault 'no-such-fault'" in result.stdout


@pytest.fixture(scope="session")
def tests_of(tmp_path_factory):
    """The tests that speak for each requirement, as a command line takes them."""
    command = [sys.executable, "-m", "pytest_meshnet", "ledger", "--format", "json"]
    ledger = json.loads(run(command, tmp_path_factory.mktemp("ledger")).stdout)
    above = layout.folder("conformance").parent
    return {one["id"]: [above / test for test in one["tests"]] for one in ledger["requirements"]}


def faulty_target(name, folder):
    """A descriptor of the worker with this fault, and with little patience for missing answers."""
    fault = f'environment = {{ MESHNET_CPP_FAULT = "{name}" }}'
    text = (FOLDER / "target.toml").read_text().replace("{folder}", str(FOLDER))
    text = text.replace("stall_hook = true", f"stall_hook = true\n{fault}")
    # The end of the reduced limits, and of the codec.
    text = text.replace("[model]", f"{fault}\n\n[model]")
    text = text.replace("[time]", f"{fault}\n\n[time]\nanswer = 3")
    path = folder / "target.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(("name", "requirement"), FAULTS.items(), ids=FAULTS)
def test_a_fault_fails_the_requirement_that_it_breaks(
    name, requirement, program, tmp_path, tests_of
):
    result = run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-x"]
        + ["--meshnet-suite", "conformance", "--meshnet-target", faulty_target(name, tmp_path)]
        + tests_of[requirement],
        tmp_path,
    )
    failed = re.findall(r"^FAILED (.*?) \S*conformance/", result.stdout, re.MULTILINE)
    assert requirement in " ".join(failed), result.stdout[-6000:]
    assert result.returncode == 1


def test_the_worker_answers_every_written_exchange_and_every_sequence_of_the_guide(program):
    descriptor = load(str(FOLDER / "target.toml"))
    target = Target(descriptor, descriptor.shards[0])
    target.connect()
    try:
        scripts = dict(exchanges()) | {name: parse(text) for name, text in sequences().items()}
        for name, script in scripts.items():
            play(script, ShardUnderTest(target, re.sub(r"\W", "-", name), 1))
    finally:
        target.close()
