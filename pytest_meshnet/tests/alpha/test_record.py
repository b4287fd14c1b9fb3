"""A record is judged whole or refused with its own code; its form is printed open."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pytest_meshnet.alpha.commands import alpha
from pytest_meshnet.alpha.judge import NO_EVIDENCE, NoCriterion, every_criterion, judge
from pytest_meshnet.alpha.record import RecordRefused, check, load, template
from pytest_meshnet.evidence.signing.dsse import Envelope
from pytest_meshnet.evidence.signing.keys import keygen
from pytest_meshnet.target import documents
from pytest_meshnet.target.documents import LockedTarget

from .complete import FILES, claim, complete


@pytest.fixture
def locked() -> LockedTarget:
    return LockedTarget.load()


@pytest.fixture
def record(locked: LockedTarget) -> dict[str, Any]:
    made = complete(locked)
    made["synthetic"] = False
    return made


@pytest.fixture
def folder(tmp_path: Path, record: dict[str, Any]) -> Path:
    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "record.json").write_text(json.dumps(record))
    return tmp_path


def run(folder: Path, *args: str) -> Result:
    return CliRunner().invoke(alpha, ["judge", str(folder / "record.json"), *args])


def test_a_whole_record_is_read_and_judged_alpha(folder: Path) -> None:
    answer = run(folder)
    assert answer.exit_code == 0, answer.output
    assert answer.output.startswith("alpha: 71 of 71 criteria are met")
    assert "says nothing about any other hardware" in answer.output


def test_a_stop_names_its_bottleneck_and_the_next_action(
    folder: Path, record: dict[str, Any]
) -> None:
    for one in record["performance"]["decode"]:
        one |= {"tokens_per_second": claim(0.4), "seconds": claim(1280.0)}
    record["performance"]["stages"][2]["compute"] = claim(1.6)
    (folder / "record.json").write_text(json.dumps(record))
    answer = run(folder)
    assert answer.exit_code == 1
    assert answer.output.startswith("stop: 69 of 71")
    assert "bottleneck:  performance.min_median_decode_tokens_per_second: " in answer.output
    assert "the slowest stage is cyd" in answer.output
    assert "next action: shorten the stage that takes most of a decode step" in answer.output


def test_a_measured_failure_is_named_before_what_nobody_measured(
    locked: LockedTarget, record: dict[str, Any]
) -> None:
    record["identity_and_fit"]["target"]["quantization"] = None
    record["reliability"]["worker_loss"]["kv_migrations"] = claim(1)
    verdict = judge(locked, record)
    assert verdict.bottleneck.startswith("reliability.forbid_silent_kv_migration: ")
    first = next(line for line in verdict.lines if line.id == "target.quantization")
    assert (first.status, first.source) == (NO_EVIDENCE, "")


def _add(record: dict[str, Any]) -> None:
    record["extra"] = 1


def _newer(record: dict[str, Any]) -> None:
    record["schema"] = "meshnet.alpha-record/2"


def _no_source(record: dict[str, Any]) -> None:
    del record["performance"]["warmups"]["source"]


def _other_source(record: dict[str, Any]) -> None:
    record["performance"]["warmups"]["source"] = "guessed"


def _no_nodes(record: dict[str, Any]) -> None:
    record["identity_and_fit"]["nodes"] = []


@pytest.mark.parametrize("spoil", [_add, _newer, _no_source, _other_source, _no_nodes])
def test_what_is_no_record_is_refused(record: dict[str, Any], spoil: Any) -> None:
    spoil(record)
    with pytest.raises(RecordRefused) as refused:
        check(record)
    assert refused.value.code == "schema"


def test_telemetry_of_a_stranger_is_refused(record: dict[str, Any]) -> None:
    record["performance"]["stages"][0]["host"] = "mallory"
    with pytest.raises(RecordRefused, match="'mallory' has telemetry") as refused:
        check(record)
    assert refused.value.code == "host-unknown"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"schema": 1, "schema": 2}', "duplicate-key"),
        ('{"schema": NaN}', "non-finite"),
        ("{", "not-json"),
    ],
)
def test_json_that_can_be_read_in_two_ways_is_refused(folder: Path, text: str, code: str) -> None:
    (folder / "record.json").write_text(text)
    answer = run(folder, "--json")
    assert answer.exit_code == 2
    assert json.loads(answer.stdout)["refused"]["code"] == code


def test_an_attachment_that_is_not_what_the_record_says_is_refused(folder: Path) -> None:
    (folder / "coding-output.txt").write_bytes(b"another output")
    with pytest.raises(RecordRefused) as refused:
        load(folder / "record.json")
    assert refused.value.code == "attachment-differs"
    (folder / "coding-output.txt").unlink()
    with pytest.raises(RecordRefused) as refused:
        load(folder / "record.json")
    assert refused.value.code == "attachment-missing"


def test_an_attachment_listed_twice_is_refused(folder: Path, record: dict[str, Any]) -> None:
    record["attachments"] *= 2
    (folder / "record.json").write_text(json.dumps(record))
    with pytest.raises(RecordRefused) as refused:
        load(folder / "record.json")
    assert refused.value.code == "attachment-twice"


def _keys() -> list[tuple[str, str]]:
    return [(one.section, one.key) for one in every_criterion(LockedTarget.load().contract)]


@pytest.mark.parametrize(("section", "key"), _keys())
def test_a_changed_threshold_makes_the_judge_refuse(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, section: str, key: str
) -> None:
    home = documents.layout.folder("fixtures") / "target"
    changed = tmp_path / "target"
    changed.mkdir()
    for name in documents.FILES.values():
        (changed / name).write_bytes((home / name).read_bytes())
    contract = json.loads((changed / "alpha-contract.json").read_text())
    found = contract[section][key]
    contract[section][key] = (
        not found
        if isinstance(found, bool)
        else found + 1
        if isinstance(found, (int, float))
        else [*found, "more"]
        if isinstance(found, list)
        else f"{found}x"
    )
    (changed / "alpha-contract.json").write_text(json.dumps(contract))
    monkeypatch.setattr(documents.layout, "folder", lambda _: tmp_path)
    answer = run(folder)
    assert answer.exit_code == 2
    assert answer.stderr.startswith("refused (")


def test_a_key_that_nothing_can_judge_is_an_error_and_no_pass(
    locked: LockedTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pytest_meshnet.alpha import judge as module

    known = dict(module.criteria())
    del known["storage", "mounted_storage_only"]
    monkeypatch.setattr(module, "criteria", lambda: known)
    with pytest.raises(NoCriterion, match=r"storage\.mounted_storage_only"):
        judge(locked, complete(locked))


def test_the_form_is_a_record_in_which_nothing_is_met_by_silence(locked: LockedTarget) -> None:
    blank = template()
    check(blank)
    verdict = judge(locked, blank)
    assert (verdict.word, verdict.met) == ("stop", 0)
    alone = "identity_and_fit.arithmetic_minimum_requires_measured_placement_evidence"
    assert {line.id for line in verdict.lines if line.status != NO_EVIDENCE} == {alone}


def test_a_signed_verdict_speaks_of_this_record_and_checks_with_the_key(
    folder: Path, tmp_path: Path
) -> None:
    public = keygen(tmp_path / "key.pem")
    out = tmp_path / "verdict.dsse.json"
    assert run(folder, "--sign", str(out), "--key", str(tmp_path / "key.pem")).exit_code == 0
    envelope = Envelope.from_bytes(out.read_bytes())
    assert envelope.signed_by(public)
    told = json.loads(envelope.payload)
    assert told["predicate"]["word"] == "alpha"
    assert len(told["predicate"]["lines"]) == 71
    assert run(folder, "--key", str(tmp_path / "key.pem")).exit_code == 2


def test_the_page_shows_every_criterion_and_escapes_what_the_record_says(
    folder: Path, record: dict[str, Any]
) -> None:
    record["labels"]["topology"] = claim("<script>alert(1)</script>")
    (folder / "record.json").write_text(json.dumps(record))
    assert run(folder, "--html", str(folder / "page.html")).exit_code == 0
    page = (folder / "page.html").read_text()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    assert page.count("<tr id=") == 71


def test_what_only_the_runtime_can_know_it_may_report_and_nothing_may_be_configured(
    locked: LockedTarget, record: dict[str, Any]
) -> None:
    counters = record["semantic_correctness"]["graph"]
    counters["moe_routed_tokens"]["source"] = "reported"
    verdict = judge(locked, record)
    assert verdict.word == "alpha"
    found = {line.id: line.source for line in verdict.lines}
    assert found["semantic_correctness.require_active_moe_routing"] == "reported"
    counters["moe_routed_tokens"]["source"] = "configured"
    assert judge(locked, record).word == "stop"
    counters["moe_routed_tokens"]["source"] = "measured"
    record["performance"]["ttft_seconds"]["source"] = "reported"
    assert judge(locked, record).word == "stop"
