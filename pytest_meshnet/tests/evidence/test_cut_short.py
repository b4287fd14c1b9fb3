"""Runs that did not reach their end: never a pass, and what they recorded is shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_meshnet.evidence.signing.keys import SigningKey
from pytest_meshnet.evidence.verify import Question, run_verify, verify
from pytest_meshnet.evidence.verify.finding import Result
from pytest_meshnet.tests.evidence import making
from pytest_meshnet.tests.evidence.making import outcome, trusting_report


def test_an_unsealed_run_is_incomplete_and_shows_what_was_recorded(tmp_path: Path, key: SigningKey):
    path = making.cut_short(tmp_path, key)
    assert outcome(trusting_report(path, key)) == (Result.INCOMPLETE, {"unsealed"})
    text, code = run_verify(path)
    third, total = making.planned()[2].test, len(making.planned())
    assert code == 3
    assert f"recorded   passed 2; in flight 1; not begun {total - 3}" in text
    assert f"in flight: {third}" in text
    told = json.loads(run_verify(path, as_json=True)[0])
    assert told["so_far"] == {
        "counts": {"passed": 2},
        "in_flight": [third],
        "not_begun": total - 3,
    }
    assert told["verdict"] is None


def test_an_unsealed_run_with_a_torn_line_is_incomplete(tmp_path: Path, key: SigningKey):
    path = making.cut_short(tmp_path, key)
    with (path / "journal" / "main.jsonl").open("ab") as stream:
        stream.write(b'{"seq":9,"prev"')
    assert outcome(trusting_report(path, key)) == (Result.INCOMPLETE, {"unsealed", "journal-torn"})


def test_a_run_killed_during_collection_is_incomplete(tmp_path: Path, key: SigningKey):
    writer = making.begin(tmp_path, key)
    writer.recorder.close()
    assert outcome(trusting_report(writer.path, key)) == (Result.INCOMPLETE, {"unsealed"})


def test_a_run_killed_while_it_wrote_its_seal_is_incomplete(tmp_path: Path, key: SigningKey):
    path = making.make(tmp_path, key)
    (path / "seal.dsse.json").rename(path / ".seal.dsse.json.partial")
    assert outcome(trusting_report(path, key)) == (Result.INCOMPLETE, {"unsealed"})


def test_a_worker_killed_before_its_first_record_leaves_a_sound_bundle(
    tmp_path: Path, key: SigningKey
):
    path = making.make(
        tmp_path, key, extra=lambda writer: (writer.path / "journal" / "gw0.jsonl").touch()
    )
    assert outcome(trusting_report(path, key)) == (Result.VALID_PASS, set())


def test_a_run_killed_before_its_start_is_incomplete(tmp_path: Path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".start.dsse.json.partial").write_text("{")
    assert outcome(verify(tmp_path / "run", Question())) == (Result.INCOMPLETE, {"start-missing"})


@pytest.mark.parametrize("name", ["x", "x.partial", ".x", "journal/other.jsonl"])
def test_an_unsealed_run_with_a_foreign_file_is_invalid(tmp_path: Path, key: SigningKey, name: str):
    path = making.cut_short(tmp_path, key)
    (path / name).touch()
    report = trusting_report(path, key)
    assert outcome(report) == (Result.INVALID, {"unexpected-name", "unsealed"})


def test_an_edited_unsealed_run_is_invalid(tmp_path: Path, key: SigningKey):
    path = making.cut_short(tmp_path, key)
    journal = path / "journal" / "main.jsonl"
    journal.write_bytes(journal.read_bytes().replace(b'"passed"', b'"failed"', 1))
    assert trusting_report(path, key).result is Result.INVALID
