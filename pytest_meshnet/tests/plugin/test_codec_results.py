"""A requirement is a self-check of the suite and, on a codec testee, a result of the runtime."""

import json

import pytest

from pytest_meshnet import layout
from pytest_meshnet.evidence.verify import run_verify

BOTH = """
@requirement("WIRE-01")
def test_ours(): pass

@requirement("WIRE-01")
def test_theirs(codec_testee): {body}

@requirement("DECODE-01", "DECODE-02")
def test_wire(target): pass
"""
BAD = 'raise Nonconformance("four", "three")'
THERE, ABSENT = ({"codec_testee": [value, "descriptor"]} for value in (True, False))


def test_a_failure_on_the_testee_is_the_runtimes_and_the_self_check_stays_passed(suite):
    suite.target(facts=THERE)
    suite.module(BOTH.format(body=BAD))
    result = suite.certify()
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [
            "*failed WIRE-01*",
            "test:      conformance/test_sample.py::test_theirs",
            "self-checks of the suite:",
            "  WIRE     1 passed",
            "on the runtime's own codec:",
            "  WIRE     1 failed (WIRE-01)",
            "NOT CONFORMANT: 2 passed, 1 failed; 1 against it",
        ]
    )


def test_a_testee_that_passes_is_told_apart_from_the_self_check(suite):
    suite.target(facts=THERE)
    suite.module(BOTH.format(body="pass"))
    result = suite.certify()
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["self-checks of the suite:", "on the runtime's own codec:", "  WIRE     1 passed"]
    )


def test_without_a_testee_its_tests_do_not_apply_and_stand_against_nothing(suite):
    suite.target(facts=ABSENT)
    suite.module(BOTH.format(body="1 / 0"))
    result = suite.certify()
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["not-applicable: needs codec-testee*: WIRE-01", "CERTIFIED: 2 passed, 1 not-applicable"]
    )
    result.stdout.no_fnmatch_line("on the runtime's own codec:")


def test_a_self_check_that_fails_still_breaks_the_suite(suite):
    suite.target(facts=THERE)
    suite.module(BOTH.format(body="pass").replace("test_ours(): pass", f"test_ours(): {BAD}"))
    assert suite.certify().ret == 3


def test_what_is_unsupported_is_not_run_and_stands_against_a_certificate(suite):
    suite.target(facts=THERE)
    suite.module(BOTH.format(body='raise NotProvoked("no zstd")'))
    result = suite.certify()
    assert result.ret == 3
    result.stdout.fnmatch_lines(["not-run: not provoked: no zstd: WIRE-01", "INCOMPLETE: *"])


@pytest.mark.parametrize("processes", [(), ("-n", "2")], ids=["one", "two"])
def test_whom_a_test_examined_is_in_the_evidence_and_verified(suite, monkeypatch, processes):
    suite.target(facts=THERE)
    suite.module(BOTH.format(body=BAD))
    run = suite.run_apart if processes else suite.run
    result = run("--meshnet-out", "out", *processes)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*failed WIRE-01*", "  WIRE     1 failed (WIRE-01)"])
    (bundle,) = (path for path in (suite.project / "out").iterdir() if path.is_dir())
    monkeypatch.setattr(layout, "folder", suite.home.joinpath)
    text, _ = run_verify(bundle, as_json=True)
    assert json.loads(text)["result"] == "VALID-FAIL"
    journals = (bundle / "journal").glob("*.jsonl")
    lines = [json.loads(line) for path in journals for line in path.read_text().splitlines()]
    told = [one["body"]["tests"] for one in lines if one["type"] == "collected"]
    assert told
    for tests in told:
        assert {one["test"].partition("::")[2]: one["testee"] for one in tests} == {
            "test_ours": False,
            "test_theirs": True,
            "test_wire": False,
        }


def test_the_report_shows_the_runtimes_codec_among_its_requirements(suite, monkeypatch):
    suite.target(facts=THERE)
    suite.module(BOTH.format(body=BAD))
    suite.run("--meshnet-out", "out")
    (bundle,) = (path for path in (suite.project / "out").iterdir() if path.is_dir())
    markdown = (bundle / "report.md").read_text()
    requirements = markdown.partition("## Requirements")[2].partition("\n## ")[0]
    assert "WIRE, on the runtime's own codec | ❌ 1 failed |" in requirements
    own = markdown.partition("## Self-checks")[2].partition("\n## ")[0]
    assert "| WIRE | ✅ 1 passed |" in own
    page = (bundle / "report.html").read_text()
    for anchor in ("WIRE-01", "WIRE-01-codec"):
        assert page.count(f' id="{anchor}"') == 1
    assert 'href="#WIRE-01-codec"' in page
