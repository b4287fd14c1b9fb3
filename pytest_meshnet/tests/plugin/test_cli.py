"""The `pytest-meshnet` command, above all the process that `certify` starts."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from pytest_meshnet import cli, layout
from pytest_meshnet.ledger.requirements import Ledger
from pytest_meshnet.ledger.status import PlannedTest
from pytest_meshnet.suite import certify, ledger_text
from pytest_meshnet.suite.certify import Order, arguments, environment


def call(*args):
    return CliRunner().invoke(cli.main, [str(one) for one in args])


# certify: what is started


def test_a_certificate_run_has_its_own_configuration_and_names_its_plugins():
    told = arguments(Order("reference"))
    folder = layout.folder("conformance")
    assert told[:4] == ["-c", f"{folder}/certify.ini", f"--rootdir={folder.parent}", "--noconftest"]
    plugins = [told[n + 1] for n, word in enumerate(told) if word == "-p"]
    assert plugins == ["meshnet", "timeout", "xdist", "hypothesispytest"]
    assert told[-4:] == [
        "--meshnet-suite=conformance",
        "--meshnet-suite=acceptance/parity",
        "--meshnet-certificate",
        "--meshnet-target=reference",
    ]


def test_every_wish_becomes_an_option():
    order = Order(
        target="mine.toml",
        profiles=("core", "kv"),
        shard="head",
        expect=Path("known.toml"),
        write_expect=Path("new.toml"),
        out=Path("out"),
        key=Path("key.pem"),
        challenge="say this",
        policy=Path("policy.toml"),
        seed=7,
        processes=2,
    )
    told = arguments(order)
    assert told[told.index("--meshnet-certificate") + 1 :] == [
        "--meshnet-target=mine.toml",
        "--meshnet-shard=head",
        "--meshnet-expect=known.toml",
        "--meshnet-write-expect=new.toml",
        "--meshnet-out=out",
        "--meshnet-signing-key=key.pem",
        "--meshnet-challenge=say this",
        "--meshnet-policy=policy.toml",
        "--meshnet-seed=7",
        "--meshnet-profile=core",
        "--meshnet-profile=kv",
        "-n2",
    ]


def test_the_command_line_of_certify_is_read_into_an_order(tmp_path, monkeypatch):
    heard = []
    monkeypatch.setattr(certify, "certify", lambda order: heard.append(order) or 0)
    known, key, policy = (tmp_path / name for name in ("known.toml", "key.pem", "policy.toml"))
    for path in (known, key, policy):
        path.touch()
    line = ["--target", "reference:odd", "--shard", "head", "--profile", "core", "--profile", "kv",
            "--expect", known, "--out", "out", "--key", key, "--challenge", "c", "--policy",
            policy, "--seed", 7, "-n", 2, "--write-expect", "new.toml"]  # fmt: skip
    assert call("certify", *line).exit_code == 0
    assert call("certify").exit_code == 0
    told = Order(
        "reference:odd",
        ("core", "kv"),
        "head",
        known,
        Path("out"),
        key,
        "c",
        policy,
        7,
        2,
        Path("new.toml"),
    )
    assert heard == [told, Order("reference")]


@pytest.mark.parametrize(
    "line", [["--expect", "no.toml"], ["--key", "no.pem"], ["-n", "0"], ["--seed", "x"], ["extra"]]
)
def test_unusable_arguments_end_with_two(line):
    assert call("certify", *line).exit_code == 2


def test_nothing_of_a_strangers_pytest_reaches_the_run():
    current = {"PYTEST_ADDOPTS": "-x", "PYTEST_PLUGINS": "evil", "HOME": "/home/ada"}
    assert environment(current) == {
        "HOME": "/home/ada",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "HYPOTHESIS_NO_PLUGINS": "1",
    }


@pytest.mark.parametrize(
    ("ending", "code"),
    [("sys.exit(0)", 0), ("sys.exit(1)", 1), ("sys.exit(2)", 2), ("sys.exit(3)", 3),
     ("sys.exit(4)", 2), ("sys.exit(5)", 3), ("sys.exit(77)", 3),
     ("os.kill(os.getpid(), 9)", 3)],
)  # fmt: skip
def test_the_exit_code_is_one_of_four(monkeypatch, ending, code):
    monkeypatch.setattr(
        certify, "_python", lambda _: [sys.executable, "-c", f"import os, sys; {ending}"]
    )
    assert certify.certify(Order("reference")) == code


# certify: from end to end, on a suite of the test's own

GOOD = """
@requirement("WIRE-01")
def test_wire(): pass

@requirement("DECODE-01", "DECODE-02")
def test_decode(): {body}
"""


@pytest.fixture
def certified(suite):
    """Start `certify` in its own process, in a project that is full of traps."""
    (suite.home / "conformance" / "certify.ini").write_text("[pytest]\naddopts = --strict-config\n")
    suite.ini("python_files = check_*\naddopts = -k nothing\n")
    (suite.project / "conftest.py").write_text("raise OSError('a conftest was loaded')")
    (suite.project / "xdist.py").write_text("raise OSError('the current folder was imported')")
    site = suite.home / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import pytest_meshnet.tests.plugin.fake_home\n")
    command = [sys.executable, "-P", "-m", "pytest_meshnet", "certify"]
    settings = {
        "MESHNET_FAKE_HOME": str(suite.home),
        # An empty entry would mean the current folder.
        "PYTHONPATH": os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")])),
        "PYTEST_ADDOPTS": "-x -k nothing",
        "PYTEST_PLUGINS": "no_such_plugin",
    }

    def start(*args):
        return subprocess.Popen(
            [*command, *args],
            cwd=suite.project,
            env=os.environ | settings,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    return start


@pytest.mark.parametrize("processes", ["1", "2"])
def test_certify_certifies_in_the_middle_of_traps(suite, certified, processes):
    suite.module(GOOD.format(body="pass"))
    child = certified("-n", processes)
    text, _ = child.communicate()
    assert child.returncode == 0, text
    assert "CERTIFIED: 2 passed" in text
    assert "verify it with: pytest-meshnet verify" in text


def test_certify_tells_a_broken_runtime_from_a_bad_wish(suite, certified):
    suite.module(GOOD.format(body="raise Nonconformance('a', 'b')"))
    broken = certified()
    text, _ = broken.communicate()
    assert (broken.returncode, "NOT CONFORMANT" in text) == (1, True)
    wish = certified("--profile", "fast")
    text, _ = wish.communicate()
    assert (wish.returncode, "unknown profile 'fast'" in text) == (2, True)


def test_a_target_that_cannot_be_stopped_ends_with_three_and_never_with_one(suite, certified):
    suite.target(disconnect_error="it hangs")
    suite.module(GOOD.format(body="pass"))
    child = certified()
    text, _ = child.communicate()
    assert (child.returncode, "it hangs" in text) == (3, True)


@pytest.mark.timeout(60)
def test_the_run_dies_with_certify(suite, certified):
    pipe = suite.home / "pipe"
    os.mkfifo(pipe)
    # The end of the pipe closes with the process that holds it, and with nothing else.
    body = f"""
    with open({str(pipe)!r}, 'w') as up:
        print(os.getpid(), file=up, flush=True)
        threading.Event().wait()"""
    suite.module("import os, threading\n" + GOOD.format(body=body))
    child = certified()
    with pipe.open() as held:
        process = int(held.readline())
        child.send_signal(signal.SIGKILL)
        try:
            assert held.read() == ""
        finally:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
    child.communicate()
    assert child.returncode == -signal.SIGKILL


# The other commands


def test_keygen_makes_a_key_once(tmp_path):
    path = tmp_path / "key.pem"
    assert call("keygen", path).exit_code == 0
    assert path.stat().st_mode & 0o777 == 0o600
    assert call("keygen", path).exit_code == 2


def test_verify_answers_for_something_that_is_no_bundle(tmp_path):
    ended = call("verify", tmp_path / "nothing")
    assert ended.exit_code == 2
    assert "cannot be read as a bundle" in ended.output
    assert json.loads(call("verify", tmp_path / "nothing", "--json").output)["exit_code"] == 2


def test_goldens_are_compared_or_written(monkeypatch):
    from pytest_meshnet.protocol import goldens

    monkeypatch.setattr(goldens, "check", list)
    assert call("goldens", "--check").exit_code == 0
    monkeypatch.setattr(goldens, "check", lambda: ["a.binpb: other bytes"])
    ended = call("goldens", "--check")
    assert (ended.exit_code, ended.output) == (1, "a.binpb: other bytes\n")
    monkeypatch.setattr(goldens, "write", lambda: ["a.binpb"])
    assert call("goldens", "--write").output == "wrote a.binpb\n"
    assert call("goldens").exit_code == 2


@pytest.mark.parametrize("name", cli.ELSEWHERE)
def test_commands_of_other_rooms_are_offered_and_found(name):
    assert f"  {name} " in call("--help").output
    assert f"main {name}" in call(name, "--help").output


@pytest.fixture
def covered(monkeypatch):
    """A ledger in which OPEN-01 has a test and a mutant, and nothing else has any."""
    planned = [PlannedTest("conformance/test_open.py::test_first", ("OPEN-01",))]
    monkeypatch.setattr(certify, "planned_tests", lambda: planned)
    monkeypatch.setattr(ledger_text, "mutants_by_requirement", lambda: {"greedy": ["OPEN-01"]})


def test_the_ledger_is_printed_with_tests_and_mutants(covered):
    table = call("ledger").output.splitlines()
    assert len(table) == 2 + len(Ledger.load().requirements)
    assert any(
        line.split()[:6] == ["OPEN-01", "MUST", "core", "runtime", "1", "1"] for line in table
    )
    assert "| OPEN-01 | MUST | core | **Open first.** " in call("ledger", "--format", "md").output
    document = json.loads(call("ledger", "--format", "json").output)
    (first,) = (one for one in document["requirements"] if one["id"] == "OPEN-01")
    assert (first["tests"], first["mutants"]) == (
        ["conformance/test_open.py::test_first"],
        ["greedy"],
    )
    assert document["sha256"] == Ledger.load().digest


def test_the_check_of_the_ledger_ends_with_one_when_a_must_lacks_something(covered):
    ended = call("ledger", "--check", "--profile", "core-wire")
    assert ended.exit_code == 1
    assert "OPEN-02: no test, no mutant" in ended.output
    assert "OPEN-01: " not in ended.output
    assert "IDEM" not in ended.output
    assert call("ledger", "--profile", "core-wire").exit_code == 0
    assert call("ledger", "--profile", "fast").exit_code == 2


def test_the_tests_of_the_real_suite_are_found():
    command = [sys.executable, "-P", "-m", "pytest_meshnet", "ledger", "--format", "json"]
    told = os.environ | {"PYTEST_ADDOPTS": "-k nothing", "PYTEST_PLUGINS": "no_such_plugin"}
    ended = subprocess.run(command, env=told, capture_output=True, text=True, check=True)
    found = {one["id"]: one for one in json.loads(ended.stdout)["requirements"]}
    assert len(found) == len(Ledger.load().requirements)
    assert all(one.startswith("conformance/test_") for one in found["WIRE-01"]["tests"])
    assert found["WIRE-01"]["tests"]
