"""What `verify` prints, for people and for programs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_meshnet.evidence.bundle import BundleWriter
from pytest_meshnet.evidence.documents import Named
from pytest_meshnet.evidence.signing.keys import SigningKey
from pytest_meshnet.evidence.signing.trust import Trust, write_trust_file
from pytest_meshnet.evidence.verify import CHECKS, Question, run_verify
from pytest_meshnet.ledger.applicability import Fact
from pytest_meshnet.tests.evidence import making
from pytest_meshnet.tests.evidence.making import RUNTIME_TEST


def test_the_command_reads_trust_and_policy_files(tmp_path: Path, key: SigningKey):
    path = making.make(tmp_path / "out", key)
    write_trust_file(tmp_path / "trust.toml", key.public, "Ada")
    (tmp_path / "policy.toml").write_text('schema = 1\nprofiles = ["core-wire"]\n')
    text, code = run_verify(path, tmp_path / "trust.toml", tmp_path / "policy.toml")
    assert code == 0
    assert "signer     Ada" in text
    assert run_verify(path)[1] == 4


def test_the_text_leads_with_the_verdict_and_ends_with_what_no_signature_shows(
    tmp_path: Path, key: SigningKey
):
    path = making.make(tmp_path, key, calls={RUNTIME_TEST: making.FAILING}, exit_status=1)
    text, code = run_verify(path)
    lines = text.splitlines()
    assert code == 1
    assert lines[0].startswith("VALID-FAIL  (exit 1)")
    places = [
        next(number for number, line in enumerate(lines) if line.startswith(start))
        for start in (
            "signer",
            "run ",
            "verdict",
            "Claimed, not proven",
            "Checks:",
            "What a signature cannot show",
        )
    ]
    assert places == sorted(places)
    assert key.public.keyid in text
    assert key.public.raw_sha256 in text
    assert f"failed {RUNTIME_TEST}: expected: 1" in text
    assert "fail: NOT CONFORMANT" in text
    assert "      do: see the failed tests with `pytest-meshnet report`" in lines
    assert "      check: verdict, reason code not-conformant" in lines
    assert "can sign a run that never took place" in lines[places[-1] + 1]


def test_claimed_and_proven_facts_are_told_apart(tmp_path: Path, key: SigningKey):
    def extra(writer: BundleWriter) -> None:
        writer.recorder.facts({"layers": Fact(8, "capability"), "grants": Fact(True, "observed")})
        writer.recorder.claims({"backend": Fact("numpy", "capability")})
        writer.recorder.device("t", {}, {"uuid": "GPU-1", "provider": "nvml"})
        writer.recorder.device(None, {}, {"uuid": "GPU-2", "provider": "file"})

    artifacts = (Named("model.gguf", "ab"),)
    made = making.make(tmp_path, key, extra=extra, artifacts=artifacts, gpus=({"uuid": "GPU-1"},))
    text = run_verify(made)[0]
    text = "\n".join(" ".join(line.split()) for line in text.splitlines())
    for line in (
        "backend numpy (told by the runtime)",
        "grants True (proven: measured in this run)",
        "launch True (configured)",
        "artifact model.gguf ab (configured)",
        "device of t GPU-1 (proven: measured in this run)",
        "device of the run GPU-2 (simulated: proves nothing)",
    ):
        assert line in text
    proven, _, claimed = text.partition("Proven")[2].partition("Claimed, not proven")
    assert [line.split()[0] for line in proven.split("\n") if line] == ["grants", "device"]
    assert "device of the run" in claimed


def test_every_finding_says_what_to_do(tmp_path: Path, key: SigningKey):
    making.make(tmp_path, key)
    text = run_verify(making.make(tmp_path, key))[0]
    assert text.count("      do: ") == text.count("reason code ") == 2
    assert "note: run 2 by this key" in text
    assert "      do: ask to see those runs too" in text


def test_a_finding_that_changes_nothing_asks_for_nothing(tmp_path: Path, key: SigningKey):
    path = making.make(tmp_path / "out", key, policy_digest="ab" * 32)
    (tmp_path / "policy.toml").write_text("schema = 1\n")
    text = run_verify(path, policy=tmp_path / "policy.toml")[0]
    note = text.partition("note: the run was made under another policy")[2]
    assert note.splitlines()[1] == "      do: nothing; it changes no result"


def test_of_an_invalid_bundle_no_result_and_no_claim_is_repeated(tmp_path: Path, key: SigningKey):
    path = making.make(tmp_path, key)
    (path / "stranger").touch()
    text = run_verify(path)[0]
    assert text.startswith("INVALID")
    assert "CERTIFIED" not in text
    assert "Claimed" not in text
    assert "unexpected-name" in text


def test_an_endpoint_that_nobody_saw_start_is_labelled(tmp_path: Path, key: SigningKey):
    writer = making.begin(tmp_path, key)
    writer.recorder.facts({"launch": Fact(False, "descriptor")})
    writer.seal(3)
    assert "certificate run, endpoint only" in run_verify(writer.path)[0]


def test_the_json_names_every_check_with_its_reason_codes(tmp_path: Path, key: SigningKey):
    path = making.make(tmp_path, key)
    (path / "x").touch()
    told = json.loads(run_verify(path, as_json=True)[0])
    assert (told["result"], told["exit_code"], told["run_id"]) == ("INVALID", 2, path.name)
    assert [one["name"] for one in told["checks"]] == list(CHECKS)
    assert all(one["title"] for one in told["checks"])
    by_name = {one["name"]: one for one in told["checks"]}
    assert by_name["files"] == {
        "name": "files",
        "title": by_name["files"]["title"],
        "ok": True,
        "findings": [],
    }
    (found,) = by_name["layout"]["findings"]
    assert (found["code"], found["severity"], by_name["layout"]["ok"]) == (
        "unexpected-name",
        "invalid",
        False,
    )
    assert found["hint"]
    assert told["signer"]["keyid"] == key.public.keyid
    assert told["verdict"]["word"] == "CERTIFIED"
    assert told["limits"]


def test_a_hostile_bundle_cannot_steer_the_terminal(tmp_path: Path, key: SigningKey):
    target = replace(making.TARGET, name="evil\x1b[2J\u202egod")
    path = making.make(tmp_path, key, target=target)
    (path / "\x1b]0;title\x07").touch()
    text = run_verify(path)[0]
    assert "evil\\x1b[2J\\u202egod" in text
    assert all(one.isprintable() for line in text.splitlines() for one in line)


def test_many_findings_of_one_kind_are_cut_in_the_text_and_whole_in_the_json(
    tmp_path: Path, key: SigningKey
):
    path = making.make(tmp_path, key)
    for number in range(25):
        (path / f"x{number}").touch()
    text = run_verify(path)[0]
    assert text.count("unexpected-name") == 20
    assert "5 more like these [layout]" in text
    told = json.loads(run_verify(path, as_json=True)[0])
    assert len(told["checks"][0]["findings"]) == 25


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("broken", ["bundle", "file", "trust", "policy"])
def test_what_cannot_be_read_is_one_line_and_exit_2(
    tmp_path: Path, key: SigningKey, broken: str, as_json: bool
):
    path = making.make(tmp_path / "out", key)
    bad = tmp_path / "bad"
    if broken != "bundle":
        bad.write_text("nonsense")
    text, code = run_verify(
        bad if broken in ("bundle", "file") else path,
        bad if broken == "trust" else None,
        bad if broken == "policy" else None,
        as_json=as_json,
    )
    assert code == 2
    assert str(bad) in text
    assert json.loads(text)["result"] == "INVALID" if as_json else text.count("\n") == 1


def test_trust_is_empty_without_a_file():
    assert Question().trust == Trust({})
