"""The reports that lie in a bundle, and the other forms: JUnit, Markdown, the matrix."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pytest_meshnet.evidence import metrics
from pytest_meshnet.evidence.documents import DERIVED
from pytest_meshnet.evidence.metrics import Metric
from pytest_meshnet.evidence.report import derive, run_report
from pytest_meshnet.evidence.report.matrix import matrix
from pytest_meshnet.evidence.report.measured import Measured
from pytest_meshnet.evidence.report.page import page_of_bundle
from pytest_meshnet.evidence.report.sections import Attached, Bar, Bars, SectionError, Table
from pytest_meshnet.evidence.signing.keys import SigningKey
from pytest_meshnet.evidence.signing.trust import write_trust_file
from pytest_meshnet.evidence.strict import StrictError
from pytest_meshnet.evidence.verify.finding import Result
from pytest_meshnet.ledger.status import Status
from pytest_meshnet.tests.evidence import making
from pytest_meshnet.tests.evidence.report import samples, structure


def test_every_report_is_sealed_and_a_changed_one_is_noticed(tmp_path: Path, key: SigningKey):
    path = samples.make(tmp_path, key)
    assert making.predicate(path, "seal")["files"].keys() >= DERIVED
    assert making.trusting_report(path, key).result is Result.VALID_PASS
    (path / "report.md").write_text("CERTIFIED")
    assert making.outcome(making.trusting_report(path, key)) == (Result.INVALID, {"digest-differs"})


def test_no_verifier_reads_a_report(tmp_path: Path, key: SigningKey):
    path = samples.mixed(tmp_path, key)
    for name in DERIVED:
        (path / name).write_text("CERTIFIED")
    making.Forger(path, key).reseal()
    report = making.trusting_report(path, key)
    assert report.result is Result.VALID_FAIL
    assert page_of_bundle(report).headline.word == "NOT CONFORMANT"


@pytest.mark.parametrize("name", sorted(DERIVED))
def test_the_report_of_a_bundle_says_what_the_report_in_it_says(
    tmp_path: Path, key: SigningKey, name: str
):
    path = samples.mixed(tmp_path / "out", key)
    kind = {"report.html": "html", "report.md": "md", "junit.xml": "junit"}[name]
    written = tmp_path / name
    assert run_report([path], **{kind: written}, providers=(Measured(),)) == (
        f"wrote {written}\n",
        0,
    )
    before = (path / name).read_text().splitlines()
    after = written.read_text().splitlines()
    differing = [one for one in before if one not in after]
    # Only that it was not verified is said no more.
    assert all("verif" in one.lower() or "Signed" in one for one in differing), differing
    assert len(differing) <= 2


def test_junit_names_requirements_and_shows_green_only_what_passed(tmp_path: Path, key: SigningKey):
    root = ElementTree.parse(samples.mixed(tmp_path, key) / "junit.xml").getroot()
    (suite,) = root
    cases = {one.get("name"): one for one in suite.iter("testcase")}
    planned = making.planned()
    assert len(cases) == len(planned)
    counts = {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": str(len(planned)), "failures": "2", "errors": "1", "skipped": "1"}
    failed = cases["test_decode_02"]
    assert failed.get("classname") == "conformance.test_decode"
    assert failed.get("time") == "1.500"
    properties = [(one.get("name"), one.get("value")) for one in failed.iter("property")]
    assert properties == [("requirement", "DECODE-02"), ("status", "failed")]
    assert "actual: it was applied" in (failed.findtext("failure") or "")
    (not_run,) = (one for one in cases["test_open_03"] if one.tag == "error")
    assert not_run.get("type") == "not-run"
    (listed,) = (one for one in cases["test_prefill_02"] if one.tag == "skipped")
    assert listed.get("message") == "known-failure: issue 12"
    (run,) = (one.get("value") for one in suite.iter("property") if one.get("name") == "verdict")
    assert run == "NOT CONFORMANT"


def test_a_bundle_that_cannot_be_judged_is_an_error_in_junit(tmp_path: Path, key: SigningKey):
    path = samples.make(tmp_path / "out", key)
    (path / "stranger").touch()
    assert run_report([path], junit=tmp_path / "junit.xml")[1] == 0
    (suite,) = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert (suite.get("tests"), suite.get("errors")) == ("1", "1")


def test_a_refused_run_is_an_error_in_junit(tmp_path: Path, key: SigningKey):
    writer = making.begin(tmp_path, key)
    writer.recorder.refusal("nothing answers")
    writer.seal(2, derive)
    (suite,) = ElementTree.parse(writer.path / "junit.xml").getroot()
    assert (suite.get("tests"), suite.get("errors")) == ("1", "1")
    (error,) = suite.iter("error")
    assert error.get("message") == "refused: nothing answers"


def test_a_run_in_which_all_passed_until_it_was_cut_short_is_an_error_in_junit(
    tmp_path: Path, key: SigningKey
):
    path = making.make(tmp_path / "out", key, seal=False)
    assert making.trusting_report(path, key).result is Result.INCOMPLETE
    assert error_of(path, tmp_path) == "The run was cut short and never sealed."


def test_a_signer_that_the_trust_file_does_not_know_is_an_error_in_junit(
    tmp_path: Path, key: SigningKey
):
    path = samples.make(tmp_path / "out", key)
    write_trust_file(tmp_path / "trust.toml", SigningKey.make_ephemeral().public, "Ada")
    told = error_of(path, tmp_path, tmp_path / "trust.toml")
    assert "nobody you trust says so" in told


def error_of(path: Path, folder: Path, trust: Path | None = None) -> str:
    """The message of the only error of a run's JUnit."""
    assert run_report([path], junit=folder / "junit.xml", trust=trust)[1] == 0
    (suite,) = ElementTree.parse(folder / "junit.xml").getroot()
    assert suite.get("errors") == "1"
    (error,) = suite.iter("error")
    return error.get("message") or ""


def test_markdown_puts_the_verdict_first_and_names_each_failure(tmp_path: Path, key: SigningKey):
    page = (samples.mixed(tmp_path, key) / "report.md").read_text()
    assert page.startswith("# ❌ NOT CONFORMANT: `reference`")
    for line in (
        "- ❌ failed `DECODE-02: Wrong length is a miss` (`1 test`)",
        "-> decode work='w2' step=2 position=1",
        "<- ack work='w2' step=2 past_len=2   <== here it broke",
        "| DECODE | ❌ 2 failed, ✅ 7 passed | 3.00 s |",
        "| `decode` | `14.91 tokens/s` |",
        "## Self-checks of the suite, not the runtime's merit",
    ):
        assert line in page


def test_the_matrix_has_runtimes_by_groups_and_leaves_self_checks_out(
    tmp_path: Path, key: SigningKey
):
    good = samples.make(tmp_path / "a", key)
    bad = samples.mixed(tmp_path / "b", key)
    broken = samples.make(tmp_path / "c", key)
    (broken / "stranger").touch()
    pages = [page_of_bundle(making.trusting_report(one, key)) for one in (good, bad, broken)]
    made = matrix(pages)
    rows = {row.group: row.cells for row in made.rows}
    assert list(rows) == ["OPEN", "PREFILL", "DECODE"]
    passed, failed, unknown = rows["DECODE"]
    assert passed is not None
    assert failed is not None
    assert (passed.status, passed.passed, passed.claimed) == (Status.PASSED, 9, 9)
    assert (failed.status, failed.passed, failed.claimed) == (Status.FAILED, 7, 9)
    assert unknown is None
    assert {one.id for one in made.fallen} == {"OPEN-03", "PREFILL-02", "DECODE-02", "DECODE-03"}
    assert run_report([good, bad, broken], html=tmp_path / "matrix.html")[1] == 0
    words = structure.words((tmp_path / "matrix.html").read_text())
    assert "DECODE passed 9 of 9 failed 7 of 9 not judged" in words
    assert "INVALID: contradicts itself" in words
    assert run_report([good, bad, broken])[0].startswith("# Compatibility matrix")


def test_what_cannot_be_read_or_written_is_one_line_and_exit_2(tmp_path: Path, key: SigningKey):
    path = samples.make(tmp_path / "out", key)
    for answer in (
        run_report([tmp_path / "nothing"]),
        run_report([path], html=tmp_path / "no" / "folder.html"),
        run_report([path], trust=tmp_path / "nothing.toml"),
        run_report([path, path], junit=tmp_path / "junit.xml"),
    ):
        assert answer[1] == 2
        assert answer[0].count("\n") == 1


def test_an_attachment_that_is_not_what_it_says_is_named_and_not_shown(
    tmp_path: Path, key: SigningKey
):
    def extra(writer):
        writer.recorder.attach("t", "speed", b"{}", metrics.MEDIA_TYPE)

    path = samples.make(tmp_path, key, extra=extra)
    words = structure.words((path / "report.html").read_text())
    assert "cannot be shown: speed of t" in words
    with pytest.raises(SectionError, match="speed of the whole run"):
        list(Measured().sections([Attached(None, "speed", b"[")]))


def test_metrics_are_charted_by_unit_and_tabled_when_one_is_negative():
    told = (Metric("a", "1", "s", "lower"), Metric("b", "4", "s", "lower"))
    drift = (Metric("drift", "-0.5", "%", "lower"),)
    (section,) = Measured().sections([Attached("t", "x", metrics.encode((*told, *drift)))])
    chart, table = section.blocks
    assert isinstance(chart, Bars)
    assert [(one.label, chart.share(one)) for one in chart.bars] == [("a", 25.0), ("b", 100.0)]
    assert isinstance(table, Table)
    assert table.rows == (("drift", "-0.5"),)
    assert Bars("", (Bar("x", 0.0, "0"),)).share(Bar("x", 0.0, "0")) == 0.0


@pytest.mark.parametrize(
    ("schema", "value", "code"),
    [(2, "1", "metric-schema"), (1, "x", "metric-value"), (1, "NaN", "metric-value")],
)
def test_metrics_that_are_no_numbers_are_refused(schema: int, value: str, code: str):
    metric = {"name": "a", "value": value, "unit": "s", "better": "lower"}
    with pytest.raises(StrictError) as caught:
        metrics.decode(json.dumps({"schema": schema, "metrics": [metric]}).encode())
    assert caught.value.code == code


def test_metrics_come_back_as_they_were():
    told = (Metric("decode", "14.91", "tokens/s", "higher"),)
    assert metrics.decode(metrics.encode(told)) == told
