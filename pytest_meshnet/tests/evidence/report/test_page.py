"""What the page of a run says, and that it says no more than the verification."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from pathlib import Path

import pytest

from pytest_meshnet.evidence.report import ReportError, derive, run_report
from pytest_meshnet.evidence.report.html import page_html
from pytest_meshnet.evidence.signing.keys import SigningKey
from pytest_meshnet.evidence.signing.trust import write_trust_file
from pytest_meshnet.evidence.verify import verify
from pytest_meshnet.evidence.verify.question import Question
from pytest_meshnet.ledger.applicability import Fact
from pytest_meshnet.ledger.status import Status
from pytest_meshnet.tests.evidence import making
from pytest_meshnet.tests.evidence.report import samples, structure
from pytest_meshnet.tests.evidence.report.samples import page_of, text_of


def test_the_page_leads_with_the_verdict_and_the_signer(tmp_path: Path, key: SigningKey):
    text = text_of(samples.mixed(tmp_path, key))
    order = (
        "reference NOT CONFORMANT",
        "requirements claimed: 2 failed, 1 not-run, 1 known-failure",
        "Signed by",
        key.public.keyid,
        "Tests 2 failed, 1 not-run, 1 known-failure,",
        "core-wire",
        "What stands against it",
        "Requirements What the runtime claimed",
        "Devices Where each",
        "Claimed and proven Only what",
        "Where the time went",
        "Self-checks of the suite What the suite",
        "can sign a run that never took place",
    )
    places = [text.find(one) for one in order]
    assert -1 not in places, dict(zip(order, places, strict=True))
    assert places == sorted(places)


def test_statuses_are_counted_by_requirement_and_self_checks_stand_apart(
    tmp_path: Path, key: SigningKey
):
    page = page_of(samples.mixed(tmp_path, key), key)
    assert page.results is not None
    runtime = [one.id for group in page.results.runtime for one in group.entries]
    suite = [one.id for group in page.results.suite for one in group.entries]
    claimed = making.LEDGER.profile(making.PROFILE)
    assert runtime == [one.id for one in claimed if one.subject != "suite"]
    assert suite == [one.id for one in claimed if one.subject == "suite"]
    assert suite
    assert page.results.counts == {
        Status.FAILED: 2,
        Status.NOT_RUN: 1,
        Status.KNOWN_FAILURE: 1,
        Status.PASSED: len(runtime) - 4,
    }
    assert [(one.status, one.label.partition(":")[0]) for one in page.against] == [
        (Status.FAILED, "DECODE-02"),
        (Status.FAILED, "DECODE-03"),
        (Status.NOT_RUN, "OPEN-03"),
        (Status.KNOWN_FAILURE, "PREFILL-02"),
    ]


def test_the_page_of_a_passing_run_says_what_it_rests_on(tmp_path: Path, key: SigningKey):
    path = samples.make(tmp_path, key)
    page = page_of(path, key)
    assert (page.headline.word, page.headline.tone) == ("CERTIFIED", "good")
    assert page.against == ()
    theirs = [r for r in making.LEDGER.profile(making.PROFILE) if r.subject != "suite"]
    assert [(b.profile, b.passed, b.total) for b in page.badges] == [
        (making.PROFILE, len(theirs), len(theirs))
    ]
    assert "What stands against it" not in text_of(path)


def test_a_broken_suite_decides_nothing(tmp_path: Path, key: SigningKey):
    path = samples.make(tmp_path, key, calls={making.RUNTIME_TEST: samples.BROKEN}, exit_status=3)
    page = page_of(path, key)
    assert (page.headline.word, page.headline.tone) == ("INCOMPLETE", "warn")
    assert "the suite itself broke in 1 places, so nothing is decided" in page.headline.sentence
    assert [(one.status, one.label) for one in page.against] == [
        (Status.ENGINE_ERROR, f"DECODE-01: {making.LEDGER.get('DECODE-01').title}")
    ]


def test_an_ordinary_run_is_never_shown_as_certified(tmp_path: Path, key: SigningKey):
    path = samples.make(tmp_path, key, certificate=False)
    page = page_of(path, key)
    assert page.headline.word == "PASSED"
    assert "never a certificate" in page.headline.sentence
    assert b"CERTIFIED" not in (path / "report.html").read_bytes()


def test_an_endpoint_is_labelled_in_the_headline(tmp_path: Path, key: SigningKey):
    page = page_of(samples.make(tmp_path, key, launch=False), key)
    assert page.headline.word == "CERTIFIED"
    assert page.headline.sentence.endswith("Endpoint only: nobody saw the runtime start.")


def test_a_refusal_leads_with_its_reason(tmp_path: Path, key: SigningKey):
    writer = making.begin(tmp_path, key)
    writer.recorder.facts({"launch": Fact(False, "descriptor")})
    writer.recorder.refusal("nothing answers at 127.0.0.1:1")
    writer.seal(2, derive)
    text = text_of(writer.path)
    assert "REFUSED refused: nothing answers at 127.0.0.1:1" in text
    assert "endpoint only" in text


def test_an_invalid_bundle_shows_none_of_its_results(tmp_path: Path, key: SigningKey):
    path = samples.make(tmp_path, key)
    (path / "stranger").touch()
    page = page_of(path, key)
    assert (page.headline.word, page.headline.tone, page.results) == ("INVALID", "bad", None)
    text = structure.words(page_html(page).decode())
    assert "unexpected-name" in text
    assert "believe nothing in it" in text
    assert "What to do: copy the bundle again" in text
    assert "CERTIFIED" not in text


def test_a_run_that_was_cut_short_is_incomplete_whatever_it_had_passed(
    tmp_path: Path, key: SigningKey
):
    page = page_of(making.cut_short(tmp_path, key), key)
    assert (page.headline.word, page.headline.tone) == ("INCOMPLETE", "warn")
    assert "never sealed" in page.headline.sentence


def test_what_the_verification_finds_goes_before_what_the_run_came_to(
    tmp_path: Path, key: SigningKey
):
    def extra(writer):
        writer.recorder.device("t", {}, {"uuid": "GPU-1", "provider": "file"})

    page = page_of(samples.make(tmp_path, key, extra=extra), key)
    assert (page.headline.word, page.headline.tone) == ("VALID-FAIL", "bad")
    assert page.headline.sentence.startswith("The run came to CERTIFIED")


def test_a_failure_in_a_run_that_proves_nothing_is_incomplete(
    tmp_path: Path, key: SigningKey, monkeypatch: pytest.MonkeyPatch
):
    path = samples.make(
        tmp_path,
        key,
        calls={making.RUNTIME_TEST: making.FAILING},
        extra=lambda _: monkeypatch.setattr(making, "SUITE", "cd" * 32),
        exit_status=1,
    )
    page = page_of(path, key)
    assert (page.headline.word, page.headline.tone) == ("INCOMPLETE", "warn")
    assert page.headline.sentence.startswith("The run came to NOT CONFORMANT; its verification")


def test_a_signer_that_a_trust_file_does_not_know_is_the_headline(tmp_path: Path, key: SigningKey):
    path = samples.make(tmp_path / "out", key)
    write_trust_file(tmp_path / "trust.toml", SigningKey.make_ephemeral().public, "Ada")
    asked = {"html": tmp_path / "page.html", "md": tmp_path / "page.md"}
    run_report([path], trust=tmp_path / "trust.toml", **asked)
    words = structure.words(asked["html"].read_text())
    assert "UNTRUSTED The run came to CERTIFIED; its verification: sound and passed, but" in words
    assert 'class="verdict warn"' in asked["html"].read_text()
    assert asked["md"].read_text().startswith("# ⚠️ UNTRUSTED")
    run_report([path], html=asked["html"])
    assert 'class="verdict good"' in asked["html"].read_text()


def test_the_signer_is_named_only_by_a_trust_file(tmp_path: Path, key: SigningKey):
    path = samples.make(tmp_path / "out", key)
    write_trust_file(tmp_path / "trust.toml", key.public, "Ada")
    with_name = run_report([path], trust=tmp_path / "trust.toml")[0]
    without = run_report([path])[0]
    assert "Signed by `Ada`" in with_name
    assert "VALID-PASS" in with_name
    assert "a key without a name here" in without
    assert "UNTRUSTED" in without


def test_the_verification_tells_nothing_that_the_headline_says(tmp_path: Path, key: SigningKey):
    calls = {making.RUNTIME_TEST: making.FAILING}
    page = page_of(samples.make(tmp_path, key, calls=calls, exit_status=1), key)
    assert page.checked is not None
    assert page.checked.findings == ()
    assert page.checked.passed == page.checked.checks - 1


def test_the_page_allows_itself_its_own_style_and_script_and_nothing_else(
    tmp_path: Path, key: SigningKey
):
    page = (samples.mixed(tmp_path, key) / "report.html").read_text()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    policy = policy.replace("&#39;", "'")
    assert policy.startswith("default-src 'none'; ")
    assert policy.endswith("; base-uri 'none'; form-action 'none'")
    for tag in ("style", "script"):
        (content,) = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert not re.search(r'(?:src|href)="(?!#)', page), "nothing is loaded"
    assert " style=" not in page
    assert " on" not in re.sub(
        r">[^<]*<", "><", page.partition("<body>")[2].partition("<script>")[0]
    )


def test_a_long_list_against_a_run_is_folded_and_missing_tests_are_one_line(
    tmp_path: Path, key: SigningKey
):
    calls = {one.test: making.FAILING for one in making.planned()[:60]}
    path = samples.make(
        tmp_path,
        key,
        calls=calls,
        collection=making.Collection(making.planned()[:-2]),
        exit_status=3,
    )
    page = page_of(path, key)
    last = page.against[-1]
    left = ", ".join(one.requirements[0] for one in making.planned()[-2:])
    assert (last.label, last.detail) == (f"no test yet: {left}", "2 MUST")
    assert last.status is Status.NOT_RUN
    assert all(one.status for one in page.against), "no missing test is told a second time"
    listed = (path / "report.md").read_text().partition("## What stands")[2].partition("##")[0]
    assert listed.count("\n- ") == 11
    text = text_of(path)
    assert f"{len(page.against) - 20} more" in text
    assert text.count("2 MUST") == 1
    assert f"- and {len(page.against) - 10} more" in (path / "report.md").read_text()


def test_remarks_of_one_kind_are_cut(tmp_path: Path, key: SigningKey):
    planned = making.planned()
    path = samples.make(
        tmp_path,
        key,
        collection=making.Collection(planned[:-25], deselected=planned[-25:]),
        certificate=False,
        exit_status=3,
    )
    remarks = [text for kind, text in page_of(path, key).remarks if kind == "deselected"]
    assert remarks[0] == planned[-25].test
    assert remarks[20:] == ["and 5 more, in the bundle's records"]


def test_a_mistake_in_a_section_costs_the_page_and_not_the_seal(tmp_path: Path, key: SigningKey):
    class Broken:
        media_type = "text/plain; charset=utf-8"

        def sections(self, attachments):
            return {}["missing"]

    raised = []

    def attempt(run):
        with pytest.raises(ReportError, match="KeyError: 'missing'") as caught:
            derive(run, (Broken(),))
        raised.append(caught)
        return {}

    def extra(writer):
        writer.recorder.attach_text(None, "log", "x")

    path = making.make(tmp_path, key, derive=attempt, extra=extra)
    assert raised
    assert verify(path, Question()).material.sealed
