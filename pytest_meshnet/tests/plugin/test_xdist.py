"""Under xdist the controller knows what its workers knew, and says the same."""

import re

import pytest

TWO = """
@requirement("DECODE-01")
@pytest.mark.parametrize("n", range(4))
def test_good(n): pass

@requirement("KV-02")
def test_kv(): pass

@requirement("DECODE-02")
def test_bad(): raise Nonconformance("four", "three", "count again")
"""


def statuses(result):
    """The words of `-v`, sorted: xdist puts them before the id."""
    lines = [line for line in result.stdout.lines if line.startswith("[gw")]
    return sorted(
        re.sub(r"^\[gw\d\] \[ *\d+%\] ", "", line).strip() for line in lines if "%" in line
    )


def test_statuses_and_findings_travel_to_the_controller(suite):
    suite.target(frames="-> open\n<- accepted")
    suite.module(TWO)
    result = suite.run_apart("-n", "2", "-v")
    good = [f"PASSED DECODE-01 conformance/test_sample.py::test_good[{n}]" for n in range(4)]
    assert statuses(result) == [
        "FAILED DECODE-02 conformance/test_sample.py::test_bad",
        "NOT-CLAIMED KV-02 conformance/test_sample.py::test_kv",
        *good,
    ]
    result.stdout.fnmatch_lines(
        [
            "*failed DECODE-02*",
            "expected:  four",
            "actual:    three",
            "frames:    -> open",
            "           <- accepted",
            "try:       count again",
            "  DECODE   1 passed, 1 failed, 1 not-run (DECODE-02)",
            "4 passed, 1 failed, 1 not-claimed; no certificate*",
        ]
    )
    assert result.ret == 1


def test_each_worker_reaches_and_leaves_a_target_of_its_own(suite):
    suite.module(TWO)
    suite.run_apart("-n", "2")
    processes = {line.split()[1] for line in suite.calls}
    assert len(processes) == 2
    assert sorted(line.split()[0] for line in suite.calls) == ["connect"] * 2 + ["disconnect"] * 2


def test_a_suite_in_testpaths_is_recognised_by_a_controller_that_collects_nothing(suite):
    suite.ini(f"testpaths = {suite.home}/conformance")
    suite.module(TWO)
    result = suite.run_apart("-n", "2", suite=None)
    result.stdout.fnmatch_lines(["*failed DECODE-02*", "*4 passed, 1 failed, 1 not-claimed; *"])


def test_a_refusal_in_a_worker_ends_the_run_with_two(suite):
    suite.target(refusal="nothing listens\nlast line")
    suite.module(TWO)
    result = suite.run_apart("-n", "2")
    result.stdout.fnmatch_lines(["REFUSED: nothing listens", "*last line"])
    assert result.ret == 2


def test_a_target_lost_in_a_worker_ends_the_run_with_three(suite):
    suite.module('@requirement("DECODE-01")\ndef test_a(): raise TargetLost("killed")')
    result = suite.run_apart("-n", "1")
    result.stdout.fnmatch_lines(["not-run: killed: DECODE-01"])
    assert result.ret == 3


def test_a_crash_after_the_last_test_of_a_worker_ends_the_run_with_three(suite):
    suite.target(crash="its process ended with 7")
    suite.module(TWO)
    result = suite.run_apart("-n", "1")
    result.stdout.fnmatch_lines(["lost: the runtime crashed after the last test: *with 7"])
    assert result.ret == 3


def test_a_crashed_worker_leaves_its_test_not_run_and_the_rest_runs(suite):
    suite.module('import os\n@requirement("DECODE-02")\ndef test_a(): os._exit(1)\n' + TWO)
    result = suite.run_apart("-n", "1")
    result.stdout.fnmatch_lines(["not-run: worker 'gw0' crashed*: DECODE-02", "*4 passed*"])
    assert result.ret == 1


@pytest.mark.parametrize("args", [(), ("-n", "2")])
def test_an_expected_failure_list_is_checked_once_for_all_workers(suite, args):
    suite.module(TWO)
    expected = suite.project / "expected.toml"
    expected.write_text(
        '[[failure]]\ntest = "conformance/no.py::no"\nreason = "r"\nmessage = "m"\n'
    )
    result = suite.run_apart("--meshnet-expect", expected, *args)
    assert "unknown tests conformance/no.py::no" in result.stdout.str() + result.stderr.str()
    assert result.ret == 2
