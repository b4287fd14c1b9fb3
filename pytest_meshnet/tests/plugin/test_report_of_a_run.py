"""The reports of a whole run: what the runtime room writes is what the page takes apart."""

import pytest

from pytest_meshnet import layout
from pytest_meshnet.cli import main
from pytest_meshnet.evidence.report import results
from pytest_meshnet.evidence.verify import verify
from pytest_meshnet.evidence.verify.finding import Result
from pytest_meshnet.evidence.verify.question import Question
from pytest_meshnet.tests.evidence.report.structure import words

FAILING = """
@requirement("WIRE-01")
def test_wire(): pass

@requirement("DECODE-01")
def test_good(): pass

@requirement("DECODE-02")
def test_bad(): raise Nonconformance("four rows", "three rows", "count them")
"""


@pytest.fixture
def bundle(suite, monkeypatch):
    suite.module(FAILING)
    suite.run("--meshnet-out", "out")
    monkeypatch.setattr(layout, "folder", suite.home.joinpath)
    (found,) = (path for path in (suite.project / "out").iterdir() if path.is_dir())
    return found


def test_a_run_writes_its_reports_and_says_where(suite):
    suite.module(FAILING)
    result = suite.run("--meshnet-out", "out")
    result.stdout.fnmatch_lines(["read it in: */report.html"])


def test_expected_actual_and_hint_of_a_test_stand_apart_on_the_page(bundle):
    text = words((bundle / "report.html").read_text())
    assert "Expected four rows Actual three rows Try count them" in text
    assert "<failure" in (bundle / "junit.xml").read_text()
    assert "actual:   three rows" in (bundle / "report.md").read_text()


def test_what_the_runtime_says_of_itself_is_shown_as_told(bundle):
    text = words((bundle / "report.html").read_text())
    assert "backend fake numpy told by the runtime" in text


def test_the_reports_of_a_run_are_sealed_with_it(bundle):
    assert verify(bundle, Question()).result is Result.VALID_FAIL
    with (bundle / "report.html").open("a") as page:
        page.write(" ")
    assert verify(bundle, Question()).result is Result.INVALID


def test_a_run_whose_report_cannot_be_made_is_sealed_without_it(suite, monkeypatch):
    monkeypatch.setattr(results, "told", lambda phase: {}["no"])
    suite.module(FAILING)
    result = suite.run("--meshnet-out", "out")
    result.stdout.fnmatch_lines(["no report: KeyError: 'no'"])
    (bundle,) = (path for path in (suite.project / "out").iterdir() if path.is_dir())
    assert not (bundle / "report.html").exists()
    monkeypatch.setattr(layout, "folder", suite.home.joinpath)
    assert verify(bundle, Question()).result is Result.VALID_FAIL


def test_the_commands_read_a_bundle(bundle, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert _exit(["report", str(bundle), "--html", str(page)]) == 0
    assert "NOT CONFORMANT" in words(page.read_text())
    assert _exit(["compare", str(bundle), str(bundle), "--allow", "device"]) == 0
    assert "no status changed" in capsys.readouterr().out
    assert _exit(["compare", str(bundle), str(tmp_path)]) == 2


def _exit(arguments):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return ended.value.code
