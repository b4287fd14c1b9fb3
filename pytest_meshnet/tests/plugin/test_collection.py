"""A suite is collected alike wherever it lies and whatever a stranger's project says."""

import subprocess
import sys

import pytest

GOOD = """
@requirement("DECODE-01")
@pytest.mark.parametrize("size", [1, 2])
def test_good(size):
    pass
"""
IDS = ["conformance/test_sample.py::test_good[1]", "conformance/test_sample.py::test_good[2]"]


def collected(result):
    return [line for line in result.stdout.lines if "::" in line]


@pytest.fixture
def suite(suite):
    suite.module(GOOD)
    return suite


def test_ids_are_relative_to_the_suite_and_not_to_the_project(suite):
    assert collected(suite.run("--collect-only", "-q")) == IDS


def test_the_suite_takes_the_place_of_the_projects_own_tests(suite):
    (suite.project / "test_own.py").write_text("def test_own(): pass")
    suite.ini("testpaths = .")
    assert collected(suite.run("--collect-only", "-q")) == IDS


@pytest.mark.parametrize(
    "ini",
    [
        "python_files = check_*",
        "python_functions = check_*",
        "python_classes = Check*",
        "norecursedirs = *",
        "addopts = --import-mode=importlib",
        "collect_imported_tests = false",
        "addopts = --keep-duplicates",
    ],
)
def test_the_ini_of_a_stranger_hides_nothing(suite, ini):
    suite.ini(ini)
    suite.module("def check_not_a_test(): pass\n" + GOOD)
    assert collected(suite.run("--collect-only", "-q")) == IDS


def test_helpers_that_a_stranger_would_call_tests_are_none(suite):
    suite.ini("python_functions = *\npython_files = *")
    suite.module("def helper(): pass\n" + GOOD, name="helper_module")
    suite.module("def helper(): raise ValueError\n" + GOOD)
    result = suite.run()
    result.assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("args", "count"),
    [
        (["{home}/conformance"], 2),
        (["{home}"], 2),
        (["{home}/conformance/test_sample.py"], 2),
        (["{home}/conformance/test_sample.py::test_good[2]"], 1),
        (["conformance/test_sample.py::test_good[2]"], 1),
        (["conformance/test_sample.py", "--pyargs"], 2),
        (["--keep-duplicates", "{home}/conformance"], 2),
    ],
)
def test_a_test_that_is_named_twice_is_collected_once(suite, args, count):
    args = [one.format(home=suite.home) for one in args]
    assert collected(suite.run("--collect-only", "-q", *args)) == IDS[-count:]


def test_arguments_of_the_project_come_before_the_suite(suite):
    own = suite.project / "test_own.py"
    own.write_text("def test_own(): pass")
    result = suite.run("--collect-only", "-q", own)
    assert collected(result) == ["test_own.py::test_own", *IDS]


def test_a_folder_of_the_suite_in_testpaths_is_a_suite_without_any_option(suite):
    suite.ini(f"testpaths = {suite.home}/conformance")
    result = suite.run("-v", suite=None)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*test_good?1? PASSED DECODE-01*", "*= meshnet =*"])
    assert collected(suite.run("--collect-only", "-q")) == IDS


def test_a_suite_is_recognised_through_a_link(suite):
    (suite.project / "linked").symlink_to(suite.home)
    result = suite.run("-v", "linked/conformance", suite=None)
    result.stdout.fnmatch_lines(["*test_good?1? PASSED DECODE-01*"])


def test_a_strangers_folder_of_the_same_name_stays_the_strangers(suite):
    theirs = suite.project / "conformance"
    theirs.mkdir()
    (theirs / "test_theirs.py").write_text("def test_unmarked(): pass")
    result = suite.run("--collect-only", "-q", suite=None)
    assert collected(result) == ["conformance/test_theirs.py::test_unmarked"]
    assert "meshnet" not in result.stdout.str().replace("meshnet-", "")


def test_both_suites_can_be_asked_for(suite):
    suite.module("def test_accepted(): pass", suite="acceptance", name="test_other")
    result = suite.run("--collect-only", "-q", "--meshnet-suite", "acceptance")
    assert collected(result) == [*IDS, "acceptance/test_other.py::test_accepted"]


def test_options_of_the_environment_change_no_id(suite, monkeypatch):
    monkeypatch.setenv("PYTEST_ADDOPTS", "--strict-config --import-mode=append")
    assert collected(suite.run("--collect-only", "-q")) == IDS


def test_a_suite_inside_a_virtual_environment_of_the_project_is_found(suite):
    (suite.home / "pyvenv.cfg").touch()
    suite.project = suite.pytester.path
    assert collected(suite.run("--collect-only", "-q")) == IDS


def test_the_project_may_be_above_or_beside_the_suite(suite):
    suite.project = suite.home
    assert collected(suite.run("--collect-only", "-q", "--rootdir", suite.home.parent)) == IDS


def test_workers_of_xdist_collect_the_same(suite):
    suite.ini("python_files = check_*")
    result = suite.run_apart("-n", "2", "-v")
    result.assert_outcomes(passed=2)
    assert all(f"PASSED DECODE-01 {one}" in result.stdout.str() for one in IDS) or all(
        one in result.stdout.str() for one in IDS
    )


def test_groups_of_xdist_change_no_id(suite):
    suite.module('@pytest.mark.xdist_group("one")\n' + GOOD.lstrip())
    result = suite.run_apart("-n", "2", "--dist", "loadgroup", "--meshnet-out", "out")
    result.assert_outcomes(passed=2)
    plan = next(suite.project.glob("out/*/journal/main.jsonl")).parent / "gw0.jsonl"
    assert "test_good[1]" in plan.read_text()
    assert "@one" not in plan.read_text()


def test_a_module_that_cannot_be_imported_is_an_error_of_the_run(suite):
    suite.module("import no_such_module", name="test_broken")
    result = suite.run("--continue-on-collection-errors")
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["* engine-error *"])


def test_the_id_of_a_test_is_enough_to_run_it_from_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    one = "conformance/test_open_first.py::test_any_content_before_open_ends_the_stream"
    line = [sys.executable, "-m", "pytest", "--collect-only", "-q", "--meshnet-suite"]
    for asked in (one, "conformance/test_open_first.py", "acceptance/parity/test_lanes.py"):
        suite = asked.partition("/")[0]
        told = subprocess.run(
            [*line, suite, asked], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert told.returncode == 0, told.stdout + told.stderr
        found = [name for name in told.stdout.splitlines() if "::" in name]
        assert found
        assert all(name.startswith(asked) for name in found)
