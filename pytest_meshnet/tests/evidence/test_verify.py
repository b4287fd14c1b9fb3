"""Offline verification: what it accepts, what it refuses, and how it says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_meshnet import layout
from pytest_meshnet.evidence import documents
from pytest_meshnet.evidence.bundle import BundleWriter
from pytest_meshnet.evidence.journal import Collection, system_clock
from pytest_meshnet.evidence.recorder import Recorder
from pytest_meshnet.evidence.signing.keys import SigningKey
from pytest_meshnet.evidence.verify import CHECKS, Question, verify
from pytest_meshnet.evidence.verify.finding import Finding, Result, Severity, conclude
from pytest_meshnet.evidence.verify.policy import Policy
from pytest_meshnet.tests.evidence import making
from pytest_meshnet.tests.evidence.attacks import ATTACKS
from pytest_meshnet.tests.evidence.attacks.base import Attack, Corpus, shift, times
from pytest_meshnet.tests.evidence.attacks.on_records import unplan_everywhere
from pytest_meshnet.tests.evidence.making import RUNTIME_TEST, outcome, trusting_report


def test_a_good_bundle_of_a_trusted_signer_is_a_valid_pass(tmp_path: Path, key: SigningKey):
    assert outcome(trusting_report(making.make(tmp_path, key), key)) == (Result.VALID_PASS, set())


def test_a_good_bundle_of_an_ephemeral_key_is_untrusted(tmp_path: Path):
    report = verify(making.make(tmp_path), Question())
    assert outcome(report) == (Result.UNTRUSTED, {"signer-ephemeral"})


def test_a_failing_bundle_is_valid_and_fails(tmp_path: Path, key: SigningKey):
    path = making.make(tmp_path, key, calls={RUNTIME_TEST: making.FAILING}, exit_status=1)
    assert outcome(trusting_report(path, key)) == (Result.VALID_FAIL, {"not-conformant"})


def test_a_failing_bundle_of_an_unknown_signer_still_fails(tmp_path: Path, key: SigningKey):
    path = making.make(tmp_path, key, calls={RUNTIME_TEST: making.FAILING}, exit_status=1)
    report = verify(path, Question())
    assert outcome(report) == (Result.VALID_FAIL, {"not-conformant", "signer-unknown"})


def test_a_refused_run_is_incomplete(tmp_path: Path, key: SigningKey):
    writer = making.begin(tmp_path, key)
    writer.recorder.refusal("cannot connect")
    writer.seal(2)
    assert outcome(trusting_report(writer.path, key)) == (Result.INCOMPLETE, {"verdict-incomplete"})


def test_a_sealed_run_that_executed_nothing_is_incomplete(tmp_path: Path, key: SigningKey):
    writer = making.begin(tmp_path, key)
    writer.seal(0)
    assert outcome(trusting_report(writer.path, key)) == (Result.INCOMPLETE, {"verdict-incomplete"})


def test_a_run_over_several_processes_is_verified_as_one(tmp_path: Path, key: SigningKey):
    writer = making.begin(tmp_path, key, clock=system_clock)
    collection = Collection(making.planned())
    workers = [Recorder.join(writer.ticket(), f"gw{number}") for number in range(2)]
    for worker in workers:
        worker.collected(collection)
    writer.plan_from("gw0")
    for number, one in enumerate(collection.tests):
        making.record(workers[number % 2], one.test)
    for worker in workers:
        worker.finish(0)
    assert writer.seal(0).verdict.word == "CERTIFIED"
    assert outcome(trusting_report(writer.path, key)) == (Result.VALID_PASS, set())


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """The honest runs, to be copied and never touched."""
    return Corpus.make(tmp_path_factory.mktemp("corpus"))


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda one: one.name)
def test_every_attack_ends_with_its_result_and_needs_its_check(corpus: Corpus, attack: Attack):
    assert corpus.complaint(attack) == ""
    if attack.check:
        rest = {name: check for name, check in CHECKS.items() if name != attack.check}
        blind = corpus.verify(attack, rest)
        assert blind.result.exit_code != attack.exit_code, blind.findings


def test_a_hardware_test_with_a_proven_device_passes(tmp_path: Path, key: SigningKey):
    lanes = {RUNTIME_TEST: "rtx3060"}

    def extra(writer: BundleWriter) -> None:
        asked_for = {"name": "RTX"}
        writer.recorder.device(RUNTIME_TEST, asked_for, {"uuid": "GPU-1", "name": "RTX"})

    path = making.make(
        tmp_path,
        key,
        collection=Collection(making.planned(), hardware=lanes),
        extra=extra,
        gpus=({"uuid": "GPU-1", "name": "RTX"},),
    )
    assert outcome(trusting_report(path, key)) == (Result.VALID_PASS, set())


def test_a_prompt_of_which_only_the_digest_is_kept_is_not_missed(tmp_path: Path, key: SigningKey):
    def extra(writer: BundleWriter) -> None:
        writer.recorder.attach(RUNTIME_TEST, "prompt", b"private", "text/plain", store=False)

    report = trusting_report(making.make(tmp_path, key, extra=extra), key)
    assert outcome(report) == (Result.VALID_PASS, set())


def test_a_run_after_one_that_was_never_sealed_is_sound(tmp_path: Path, key: SigningKey):
    making.cut_short(tmp_path, key)
    report = trusting_report(making.make(tmp_path, key), key)
    assert outcome(report) == (Result.VALID_PASS, {"not-first-run"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"certificate": False}, "certificate: says False, the journals give True"),
        ({"profiles": ["core"]}, "profiles[0]: says 'core', the journals give 'core-wire'"),
        ({"refusals": ["x"]}, "refusals: 1 entries, the journals give 0"),
        ({"more": 1}, "more: says 1, the journals give None"),
    ],
)
def test_a_statement_that_disagrees_is_told_with_the_place(
    tmp_path: Path, key: SigningKey, change: dict[str, Any], message: str
):
    path = making.make(tmp_path, key)
    forger = making.Forger(path, key)
    forger.document("run", lambda run: run.update(change))
    forger.reseal()
    (found,) = trusting_report(path, key).findings
    assert found.message == f"run.dsse.json, {message}"


def test_every_check_that_attacks_can_reach_is_needed_by_one():
    only_tell = {"anchors"}
    assert {one.check for one in ATTACKS} - {""} == CHECKS.keys() - only_tell


def test_an_insider_who_hides_a_failure_leaves_no_certificate(tmp_path: Path, key: SigningKey):
    path = making.make(tmp_path, key, calls={RUNTIME_TEST: making.FAILING}, exit_status=1)
    forger = making.Forger(path, key)
    unplan_everywhere(forger)
    forger.reseal()
    forger.rejudge()
    forger.reseal()
    report = trusting_report(path, key)
    assert report.result is Result.INCOMPLETE
    assert "DECODE-01: no test yet" in report.findings[0].message


@pytest.mark.parametrize(
    "name",
    ["start.dsse.json", "plan.dsse.json", "statement.dsse.json", "run.dsse.json", "seal.dsse.json"],
)
def test_a_file_of_another_bundle_by_the_same_signer_is_noticed(
    tmp_path: Path, key: SigningKey, name: str
):
    one, other = making.make(tmp_path, key), making.make(tmp_path, key)
    (one / name).write_bytes((other / name).read_bytes())
    assert trusting_report(one, key).result is Result.INVALID


def test_a_journal_of_another_bundle_is_noticed(tmp_path: Path, key: SigningKey):
    one, other = making.make(tmp_path, key), making.make(tmp_path, key)
    name = "journal/main.jsonl"
    (one / name).write_bytes((other / name).read_bytes())
    assert {"digest-differs", "run-differs"} <= trusting_report(one, key).codes


def test_every_byte_of_the_seal_counts(tmp_path: Path, key: SigningKey):
    path = making.make(tmp_path, key)
    seal = path / "seal.dsse.json"
    good = seal.read_bytes()
    for place in range(0, len(good), 97):
        bad = bytearray(good)
        bad[place] ^= 0x01
        seal.write_bytes(bytes(bad))
        assert trusting_report(path, key).result is Result.INVALID, f"byte {place}"


@pytest.mark.parametrize(
    ("given", "result"),
    [("c-1", Result.VALID_PASS), (None, Result.VALID_PASS), ("c-2", Result.INVALID)],
)
def test_an_old_bundle_does_not_answer_a_new_challenge(
    tmp_path: Path, key: SigningKey, given: str | None, result: Result
):
    report = trusting_report(making.make(tmp_path, key, challenge="c-1"), key, challenge=given)
    assert report.result is result
    assert report.codes == (set() if result is Result.VALID_PASS else {"challenge-differs"})


def test_an_empty_challenge_answers_none(tmp_path: Path, key: SigningKey):
    report = trusting_report(making.make(tmp_path, key), key, challenge="c-1")
    assert report.codes == {"challenge-differs"}


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        ({"revoked": True}, "signer-revoked"),
        ({"scope": ("vendor-*",)}, "signer-scope"),
        ({"valid_from": 2**62}, "signer-window"),
        ({"valid_until": 1}, "signer-window"),
    ],
)
def test_a_key_that_does_not_count_leaves_the_run_untrusted(
    tmp_path: Path, key: SigningKey, entry: dict[str, Any], code: str
):
    path = making.make(tmp_path, key)
    report = verify(path, Question(making.trusting(key, **entry)))
    assert outcome(report) == (Result.UNTRUSTED, {code})


def test_an_ephemeral_key_that_somebody_lists_is_trusted(tmp_path: Path):
    key = SigningKey.make_ephemeral()
    assert trusting_report(making.make(tmp_path, key), key).result is Result.VALID_PASS


def other_ledger(tmp_path: Path, key: SigningKey) -> tuple[Path, str]:
    """Make a bundle by a ledger of another version, which travels in it."""
    text = (layout.folder("conformance") / "requirements.toml").read_text()
    other = tmp_path / "requirements.toml"
    other.write_text(text + "# another version\n")
    ledger = making.Ledger.load(other)
    path = making.make(tmp_path / "out", key, ledger=ledger, ledger_file=other)
    return path, ledger.digest


def test_a_ledger_of_another_version_is_judged_by_only_when_the_policy_accepts_it(
    tmp_path: Path, key: SigningKey
):
    path, digest = other_ledger(tmp_path, key)
    assert outcome(trusting_report(path, key)) == (Result.INCOMPLETE, {"ledger-unknown"})
    accepting = Policy(ledgers=(digest,))
    assert outcome(trusting_report(path, key, policy=accepting)) == (Result.VALID_PASS, set())


def test_a_copy_of_a_ledger_that_is_not_the_accepted_one_is_not_judged_by(
    tmp_path: Path, key: SigningKey
):
    path, digest = other_ledger(tmp_path, key)
    (path / "artifacts" / "sha256" / digest).write_bytes(b"schema = 1")
    report = trusting_report(path, key, policy=Policy(ledgers=(digest,)))
    assert report.result is Result.INVALID
    assert "ledger-unknown" in report.codes


def test_anchors_by_others_may_be_added_after_the_seal(tmp_path: Path, key: SigningKey):
    path = making.make(tmp_path, key)
    (path / "anchors").mkdir()
    (path / "anchors" / "timestamp.tsr").write_bytes(b"x")
    assert outcome(trusting_report(path, key)) == (Result.VALID_PASS, {"anchor-unbound"})


def test_a_later_run_by_the_same_key_is_noted(tmp_path: Path, key: SigningKey):
    making.make(tmp_path, key)
    report = trusting_report(making.make(tmp_path, key), key)
    assert outcome(report) == (Result.VALID_PASS, {"not-first-run"})


def test_a_clock_set_forward_is_noted(tmp_path: Path, key: SigningKey):
    path = making.make(tmp_path, key)
    forger = making.Forger(path, key)
    forger.journal(times(shift("t_wall", 61)))
    forger.reseal()
    assert outcome(trusting_report(path, key)) == (Result.VALID_PASS, {"clock-jumped"})


@pytest.mark.parametrize(
    ("limit", "code"),
    [
        ("DOCUMENT_LIMIT", "too-large"),
        ("FILE_LIMIT", "too-large"),
        ("COUNT_LIMIT", "too-many-files"),
    ],
)
def test_a_bundle_beyond_the_limits_is_invalid(
    tmp_path: Path,
    key: SigningKey,
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
    code: str,
):
    path = making.make(tmp_path, key)
    monkeypatch.setattr(documents, limit, 3)
    report = trusting_report(path, key)
    assert report.result is Result.INVALID
    assert code in report.codes


def note(severity: Severity) -> Finding:
    return Finding("x", severity, "m")


@pytest.mark.parametrize(
    ("severities", "judged", "result"),
    [
        ([], True, Result.VALID_PASS),
        ([Severity.NOTE], True, Result.VALID_PASS),
        ([Severity.UNTRUSTED], True, Result.UNTRUSTED),
        ([Severity.FAIL, Severity.UNTRUSTED], True, Result.VALID_FAIL),
        ([Severity.FAIL, Severity.INCOMPLETE], True, Result.INCOMPLETE),
        (list(Severity), True, Result.INVALID),
        ([], False, Result.INCOMPLETE),
        ([Severity.UNTRUSTED], False, Result.INCOMPLETE),
        ([Severity.INVALID], False, Result.INVALID),
    ],
)
def test_the_worst_finding_decides_and_nothing_unjudged_passes(
    severities: list[Severity], judged: bool, result: Result
):
    assert conclude(map(note, severities), judged=judged) is result


def test_the_exit_codes_are_the_published_ones():
    assert {str(one): one.exit_code for one in Result} == {
        "VALID-PASS": 0,
        "VALID-FAIL": 1,
        "INVALID": 2,
        "INCOMPLETE": 3,
        "UNTRUSTED": 4,
    }


def test_without_any_check_an_unsealed_bundle_still_does_not_pass(tmp_path: Path, key: SigningKey):
    assert verify(making.cut_short(tmp_path, key), Question(), {}).result is Result.INCOMPLETE
