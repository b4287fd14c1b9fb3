"""Both statements of a sealed run."""

from __future__ import annotations

from pathlib import Path

from pytest_meshnet.tests.evidence import making
from pytest_meshnet.tests.evidence.attacks.honest import optional


def test_the_standard_statement_sorts_tests_by_what_they_mean(tmp_path: Path):
    path = making.make(
        tmp_path,
        calls={making.RUNTIME_TEST: making.FAILING, optional(): making.FAILING},
        skipped=[making.test_id("OPEN-01")],
        exit_status=1,
    )
    found = making.predicate(path, "statement")
    assert found["result"] == "FAILED"
    assert set(found["failedTests"]) == {making.RUNTIME_TEST, making.test_id("OPEN-01")}
    assert found["warnedTests"] == [optional()]
    assert len(found["passedTests"]) == len(making.planned()) - 3
    names = [one["name"] for one in found["configuration"]]
    assert names == ["run", "pytest-meshnet", "requirements.toml"]
    assert found["configuration"][0]["uri"] == f"urn:pytest-meshnet:run:{path.name}"


def test_the_standard_statement_of_a_certificate_is_passed(tmp_path: Path):
    found = making.predicate(making.make(tmp_path), "statement")
    assert (found["result"], found["failedTests"], found["warnedTests"]) == ("PASSED", [], [])


def test_the_run_statement_says_what_the_standard_one_cannot(tmp_path: Path):
    path = making.make(tmp_path, calls={making.RUNTIME_TEST: making.FAILING}, exit_status=1)
    run = making.predicate(path, "run")
    tests = {one["test"]: one for one in run["tests"]}
    assert tests[making.RUNTIME_TEST] == {
        "test": making.RUNTIME_TEST,
        "status": "failed",
        "reason": "expected: 1",
        "requirements": ["DECODE-01"],
        "testee": False,
        "attempts": 1,
        "processes": ["main"],
        "duration_ns": "3000",
    }
    assert run["verdict"]["word"] == "NOT CONFORMANT"
    assert run["verdict"]["requirements"]["DECODE-01"] == "failed"
    assert run["facts"] == [
        {
            "name": "launch",
            "value": True,
            "source": "descriptor",
            "standing": "configured",
            "judged": True,
        }
    ]
