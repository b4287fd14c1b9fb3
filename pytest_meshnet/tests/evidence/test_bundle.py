"""Writing a bundle, from the start to the seal."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pytest_meshnet.evidence import host
from pytest_meshnet.evidence.bundle import BundleError, BundleWriter
from pytest_meshnet.evidence.documents import Named
from pytest_meshnet.evidence.journal import Collection, CollectionError, Plugin
from pytest_meshnet.evidence.recorder import Recorder
from pytest_meshnet.evidence.signing.keys import SigningKey
from pytest_meshnet.tests.evidence import making


def test_importing_the_room_imports_nothing_heavy():
    code = (
        "import sys, pytest_meshnet.evidence.bundle, pytest_meshnet.evidence.verify.text;"
        "print(sorted({'cryptography', 'numpy', 'grpc', 'google', 'pytest'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_signed_document_is_an_in_toto_statement_about_the_descriptor(tmp_path: Path):
    path = making.make(tmp_path)
    kinds = {
        "start": "urn:pytest-meshnet:evidence:start/v1",
        "plan": "urn:pytest-meshnet:evidence:plan/v1",
        "statement": "https://in-toto.io/attestation/test-result/v0.1",
        "run": "urn:pytest-meshnet:evidence:run/v1",
        "seal": "urn:pytest-meshnet:evidence:seal/v1",
    }
    for kind, predicate_type in kinds.items():
        found = making.statement(path, kind)
        assert found["_type"] == "https://in-toto.io/Statement/v1"
        assert found["predicateType"] == predicate_type
        assert found["subject"] == [
            {"name": "reference", "digest": {"sha256": making.TARGET.digest}}
        ]


def test_the_start_says_what_was_going_to_run(tmp_path: Path, key: SigningKey):
    writer = making.begin(
        tmp_path,
        key,
        challenge="c-1",
        policy_digest="ab" * 32,
        expected_failures="# none\n",
        plugins=(Plugin("pytest-timeout", "2.3"),),
        options={"seed": "7", "target": "/home/ada/t.toml"},
        gpu_inventory="collected by nvml",
        gpus=({"uuid": "GPU-1", "memory_bytes": None},),
        artifacts=(Named("model.gguf", "cd" * 32),),
    )
    writer.recorder.close()
    start = making.predicate(writer.path, "start")
    assert (
        start
        | {
            "run_id": writer.path.name,
            "challenge": "c-1",
            "counter": 1,
            "previous_seal": "",
            "suite": {"version": host.suite_version(), "digest": making.SUITE},
            "ledger": {"version": making.LEDGER.version, "digest": making.LEDGER.digest},
            "target": {"name": "reference", "digest": making.TARGET.digest},
            "profiles": ["core-wire"],
            "policy_digest": "ab" * 32,
            "expected_failures": "# none\n",
            "plugins": [{"name": "pytest-timeout", "version": "2.3"}],
            "certificate": True,
            "options": {"seed": "7", "target": "~/t.toml"},
            "environment": {"LANG": "C", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            "gpu_inventory": "collected by nvml",
            "gpus": [{"uuid": "GPU-1", "memory_bytes": None}],
            "artifacts": [{"name": "model.gguf", "digest": "cd" * 32}],
        }
        == start
    )
    assert start["signer"]["keyid"] == key.public.keyid
    assert start["signer"]["raw_sha256"] == key.public.raw_sha256
    assert start["signer"]["ephemeral"] is False
    assert start["host"] == host.host_facts()
    assert start["boot_id"] == host.boot_id()
    assert int(start["t_wall"]) > int(start["t_mono"])


def test_a_real_run_takes_clock_environment_and_suite_from_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    about = making.About(making.TARGET, (making.PROFILE,), making.LEDGER, certificate=False)
    before = time.time_ns()
    writer = BundleWriter.create(tmp_path, about, SigningKey.make_ephemeral())
    writer.recorder.close()
    start = making.predicate(writer.path, "start")
    assert before <= int(start["t_wall"]) <= time.time_ns()
    assert start["environment"]["CUDA_VISIBLE_DEVICES"] == "7"
    assert len(start["suite"]["digest"]) == 64
    assert start["suite"]["digest"] != making.SUITE


def test_a_gpu_inventory_that_nobody_collected_says_so(tmp_path: Path):
    path = making.make(tmp_path)
    assert making.predicate(path, "start")["gpu_inventory"] == "not collected"


def test_an_ephemeral_key_is_flagged(tmp_path: Path):
    assert making.predicate(making.make(tmp_path), "start")["signer"]["ephemeral"] is True


def test_the_ledger_travels_in_the_bundle(tmp_path: Path):
    path = making.make(tmp_path)
    copy = (path / "artifacts" / "sha256" / making.LEDGER.digest).read_bytes()
    assert hashlib.sha256(copy).hexdigest() == making.LEDGER.digest


def test_the_start_is_signed_before_anything_is_planned(tmp_path: Path):
    writer = making.begin(tmp_path)
    assert (writer.path / "start.dsse.json").exists()
    assert not (writer.path / "plan.dsse.json").exists()
    assert not writer.planned
    writer.recorder.close()


def test_the_plan_is_bound_to_the_start_and_names_requirements(tmp_path: Path):
    path = making.make(tmp_path)
    plan = making.predicate(path, "plan")
    start = (path / "start.dsse.json").read_bytes()
    assert plan["start_sha256"] == hashlib.sha256(start).hexdigest()
    assert {"test": making.RUNTIME_TEST, "requirements": ["DECODE-01"], "testee": False} in plan[
        "collection"
    ]["tests"]


def test_the_plan_tells_no_home_directory(tmp_path: Path):
    writer = making.begin(tmp_path)
    writer.plan(Collection(errors=(CollectionError("m.py", "in /home/ada/m.py"),)))
    writer.recorder.close()
    errors = making.predicate(writer.path, "plan")["collection"]["errors"]
    assert errors == [{"id": "m.py", "message": "in ~/m.py"}]


def test_the_verdict_before_the_plan_is_incomplete(tmp_path: Path):
    writer = making.begin(tmp_path)
    assert writer.summary().verdict.exit_code == 3
    writer.recorder.close()


def test_everything_is_on_the_disk_at_plan_and_seal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    writer = making.begin(tmp_path)
    root = str(writer.path)
    synced.clear()
    writer.plan(Collection())
    assert {f"{root}/journal/main.jsonl", root} <= set(synced)
    worker = Recorder.join(writer.ticket(), "gw0")
    digest = worker.attach(None, "x", b"x", "text/plain")
    worker.close()
    synced.clear()
    writer.seal(0)
    names = ("journal/main.jsonl", "journal/gw0.jsonl", f"artifacts/sha256/{digest}")
    assert {root, *(f"{root}/{name}" for name in names)} <= set(synced)


def test_a_run_has_one_plan(tmp_path: Path):
    writer = making.begin(tmp_path)
    writer.plan(Collection())
    with pytest.raises(BundleError, match="signed already"):
        writer.plan(Collection())
    writer.recorder.close()


def test_the_plan_can_be_taken_from_an_xdist_worker(tmp_path: Path):
    writer = making.begin(tmp_path)
    collection = Collection(making.planned())
    with pytest.raises(BundleError, match="gw0 did not record"):
        writer.plan_from("gw0")
    worker = Recorder.join(writer.ticket(), "gw0")
    worker.collected(collection)
    writer.plan_from("gw0")
    assert len(making.predicate(writer.path, "plan")["collection"]["tests"]) == len(
        collection.tests
    )
    worker.close()
    writer.recorder.close()


def test_the_seal_lists_every_other_file_and_every_chain(tmp_path: Path):
    path = making.make(tmp_path)
    seal = making.predicate(path, "seal")
    files = {
        one.relative_to(path).as_posix(): hashlib.sha256(one.read_bytes()).hexdigest()
        for one in path.rglob("*")
        if one.is_file() and one.name != "seal.dsse.json"
    }
    lines = (path / "journal" / "main.jsonl").read_bytes().splitlines()
    assert seal["files"] == files
    assert seal["journals"] == {
        "main": {
            "records": len(lines),
            "head": hashlib.sha256(lines[-1]).hexdigest(),
            "torn": False,
        }
    }
    assert seal["counts"]["passed"] == len(making.planned())
    assert (seal["verdict"], seal["exit_status"]) == ("CERTIFIED", 0)


def test_a_report_is_sealed_with_the_rest(tmp_path: Path):
    path = making.make(tmp_path, extra=lambda writer: writer.add_derived("report.md", b"# r"))
    digest = hashlib.sha256(b"# r").hexdigest()
    assert making.predicate(path, "seal")["files"]["report.md"] == digest


@pytest.mark.parametrize("name", ["other.txt", "../report.md", "start.dsse.json"])
def test_only_reports_can_be_added(tmp_path: Path, name: str):
    writer = making.begin(tmp_path)
    with pytest.raises(BundleError, match="no report"):
        writer.add_derived(name, b"")
    writer.recorder.close()


def test_no_file_of_a_bundle_is_overwritten(tmp_path: Path):
    writer = making.begin(tmp_path)
    writer.add_derived("report.md", b"1")
    with pytest.raises(BundleError, match="never overwritten"):
        writer.add_derived("report.md", b"2")
    assert (writer.path / "report.md").read_bytes() == b"1"
    writer.recorder.close()


def test_the_verdict_can_be_asked_for_before_the_seal(tmp_path: Path):
    writer = making.begin(tmp_path)
    writer.recorder.collected(Collection(making.planned()))
    writer.plan(Collection(making.planned()))
    for one in making.planned():
        making.record(writer.recorder, one.test)
    assert writer.summary().verdict.word == "CERTIFIED"
    assert writer.seal(0).verdict == writer.summary().verdict


def test_a_run_that_ends_before_its_plan_is_sealed_as_refused(tmp_path: Path):
    writer = making.begin(tmp_path)
    writer.recorder.refusal("cannot connect")
    summary = writer.seal(2)
    assert summary.verdict.word == "REFUSED"
    assert making.predicate(writer.path, "plan")["collection"]["tests"] == []


def test_a_journal_that_another_process_still_writes_leaves_the_run_unsealed(tmp_path: Path):
    writer = making.begin(tmp_path)
    worker = Recorder.join(writer.ticket(), "gw0")
    with pytest.raises(BundleError, match=r"still writes gw0\.jsonl"):
        writer.seal(0)
    assert not (writer.path / "seal.dsse.json").exists()
    worker.close()


def test_a_broken_journal_leaves_the_run_unsealed(tmp_path: Path):
    writer = making.begin(tmp_path)
    (writer.path / "journal" / "gw0.jsonl").write_text("{}\n")
    with pytest.raises(BundleError, match="the journal gw0 is broken: line 1"):
        writer.seal(0)
    assert not (writer.path / "seal.dsse.json").exists()


def test_a_torn_journal_of_a_dead_worker_is_sealed_as_torn(tmp_path: Path):
    writer = making.begin(tmp_path)
    (writer.path / "journal" / "gw0.jsonl").write_text('{"seq"')
    writer.seal(3)
    assert making.predicate(writer.path, "seal")["journals"]["gw0"]["torn"] is True


def test_what_a_dead_worker_left_half_stored_is_cleared_before_the_seal(tmp_path: Path):
    writer = making.begin(tmp_path)
    left = writer.path / "artifacts" / "sha256" / f".{'ab' * 32}.77.partial"
    left.write_bytes(b"half")
    writer.seal(0)
    assert not left.exists()
    assert not [
        name for name in making.predicate(writer.path, "seal")["files"] if "partial" in name
    ]


def test_a_full_disk_at_the_end_leaves_the_run_unsealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    writer = making.begin(tmp_path)
    real = os.rename

    def full(source: Any, target: Any) -> None:
        if str(target).endswith("seal.dsse.json"):
            raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(BundleError, match=r"stays unsealed.*No space left"):
        writer.seal(0)


def test_an_output_folder_that_cannot_be_made_is_refused_in_one_line(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BundleError, match="choose a writable --out") as refused:
        making.begin(tmp_path / "file")
    assert "\n" not in str(refused.value)


def test_a_ledger_that_changed_since_it_was_loaded_is_refused(tmp_path: Path):
    changed = tmp_path / "requirements.toml"
    changed.write_text("schema = 1")
    with pytest.raises(BundleError, match="changed since it was loaded"):
        BundleWriter.create(
            tmp_path,
            making.About(making.TARGET, (making.PROFILE,), making.LEDGER, certificate=True),
            SigningKey.make_ephemeral(),
            ledger_file=changed,
        )
