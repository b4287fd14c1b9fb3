"""What a process writes while tests run."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from pytest_meshnet.evidence.journal import Collection, CollectionError, Replay
from pytest_meshnet.evidence.recorder import Recorder, replace_with, store_artifact
from pytest_meshnet.ledger.applicability import Fact, FactError
from pytest_meshnet.ledger.status import PhaseRecord, PlannedTest

HOME = {"HOME": "/home/ada"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "journal").mkdir()
    (tmp_path / "artifacts" / "sha256").mkdir(parents=True)
    return tmp_path


@pytest.fixture
def recorder(root: Path) -> Recorder:
    return Recorder(root, "gw0", "run-1", environment=HOME)


def read(root: Path, process: str = "gw0") -> list[tuple[str, Any]]:
    with (root / "journal" / f"{process}.jsonl").open("rb") as stream:
        return [(one.type, one.body) for one in Replay(stream)]


def test_a_journal_begins_with_who_writes_it(root: Path, recorder: Recorder):
    assert read(root) == [("open", {"process": "gw0", "run_id": "run-1", "pid": os.getpid()})]


def test_an_xdist_worker_joins_by_the_ticket(root: Path):
    Recorder.join({"root": str(root), "run_id": "run-2"}, "gw1").close()
    assert read(root, "gw1")[0][1]["run_id"] == "run-2"


@pytest.mark.parametrize("name", ["", "gw", "../main", "worker-1"])
def test_a_process_with_a_name_that_no_bundle_holds_is_refused(root: Path, name: str):
    with pytest.raises(ValueError, match="expected main, gw0"):
        Recorder(root, name, "run-1")


def test_attempts_are_numbered_by_test(root: Path, recorder: Recorder):
    assert [recorder.attempt("a"), recorder.attempt("b"), recorder.attempt("a")] == [1, 1, 2]
    assert [body["attempt"] for kind, body in read(root) if kind == "attempt"] == [1, 1, 2]


def test_a_phase_is_recorded_whole_and_redacted(root: Path, recorder: Recorder):
    phase = PhaseRecord(
        "t", 1, "call", "failed", "nonconformance", "/home/ada/r", "/home/ada/m", "/home/ada/x", 7
    )
    recorder.phase(phase)
    assert read(root)[1] == (
        "phase",
        {
            "test": "t",
            "attempt": 1,
            "when": "call",
            "outcome": "failed",
            "kind": "nonconformance",
            "reason": "~/r",
            "message": "~/m",
            "wasxfail": "~/x",
            "duration_ns": "7",
        },
    )


def test_every_other_text_is_redacted_too(root: Path, recorder: Recorder):
    recorder.worker_lost("gw1", "t", "/home/ada/a")
    recorder.target_lost("/home/ada/b")
    recorder.refusal("/home/ada/c")
    recorder.warning(None, "/home/ada/d")
    recorder.claims({"path": Fact("/home/ada/e", "capability")})
    recorder.attach("t", "/home/ada/f", b"", "text/plain")
    recorder.attach_text("t", "log", "/home/ada/g\n")
    written = (root / "journal" / "gw0.jsonl").read_text()
    stored = b"".join(one.read_bytes() for one in (root / "artifacts" / "sha256").iterdir())
    assert "/home/" not in written
    assert stored == b"~/g\n"


def test_facts_and_claims_keep_their_source(root: Path, recorder: Recorder):
    recorder.facts({"layers": Fact(8, "capability")})
    recorder.claims({"backend": Fact("numpy", "capability")})
    assert read(root)[1:] == [
        ("facts", {"facts": {"layers": {"value": 8, "source": "capability"}}}),
        ("claims", {"claims": {"backend": {"value": "numpy", "source": "capability"}}}),
    ]


def test_a_fact_that_no_need_knows_is_refused_where_it_is_told(recorder: Recorder):
    with pytest.raises(FactError, match="unknown fact 'laiers'"):
        recorder.facts({"laiers": Fact(8, "capability")})


def test_a_collection_is_recorded_with_requirements_and_errors(root: Path, recorder: Recorder):
    tests = (PlannedTest("t", ("WIRE-01",)),)
    errors = (CollectionError("m.py", "in /home/ada/m.py"),)
    recorder.collected(Collection(tests, tests, errors, {"t": "rtx3060"}))
    one = [{"test": "t", "requirements": ["WIRE-01"], "testee": False}]
    assert read(root)[1] == (
        "collected",
        {
            "tests": one,
            "deselected": one,
            "errors": [{"id": "m.py", "message": "in ~/m.py"}],
            "hardware": {"t": "rtx3060"},
        },
    )


def test_what_was_collected_is_on_the_disk_before_the_plan_is_signed(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
):
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    recorder.collected(Collection())
    assert len(synced) == 1


def test_an_attachment_is_stored_once_by_its_content(root: Path, recorder: Recorder):
    digest = recorder.attach("a", "frames", b"data", "application/octet-stream")
    assert recorder.attach("b", "same", b"data", "application/octet-stream") == digest
    assert digest == hashlib.sha256(b"data").hexdigest()
    stored = list((root / "artifacts" / "sha256").iterdir())
    assert [(one.name, one.read_bytes()) for one in stored] == [(digest, b"data")]
    assert [body["name"] for kind, body in read(root) if kind == "attachment"] == ["frames", "same"]


def test_a_prompt_that_may_not_be_published_leaves_digest_and_length(
    root: Path, recorder: Recorder
):
    recorder.attach("t", "prompt", b"private", "text/plain", store=False)
    body = read(root)[1][1]
    assert (body["sha256"], body["size"], body["stored"]) == (
        hashlib.sha256(b"private").hexdigest(),
        7,
        False,
    )
    assert not list((root / "artifacts" / "sha256").iterdir())


def test_a_long_log_is_redacted_and_not_cut(root: Path, recorder: Recorder):
    digest = recorder.attach_text(None, "log", "at /home/ada/x\n" * 10_000)
    assert (root / "artifacts" / "sha256" / digest).read_bytes() == b"at ~/x\n" * 10_000


def test_a_private_key_in_a_log_is_taken_out_over_its_lines(root: Path, recorder: Recorder):
    pem = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIA\n-----END PRIVATE KEY-----\n"
    digest = recorder.attach_text(None, "log", f"a\n{pem}b\n")
    assert b"MC4C" not in (root / "artifacts" / "sha256" / digest).read_bytes()


def test_a_device_is_recorded_as_asked_for_and_as_seen(root: Path, recorder: Recorder):
    recorder.device("t", {"name": "A"}, {"name": "B", "uuid": "GPU-1", "memory_bytes": None})
    assert read(root)[1][1] == {
        "test": "t",
        "requested": {"name": "A"},
        "observed": {"name": "B", "uuid": "GPU-1", "memory_bytes": None},
    }


def test_finish_is_the_last_record_and_closes(root: Path, recorder: Recorder):
    recorder.finish(3)
    assert read(root)[-1] == ("finish", {"exit_status": 3})
    with pytest.raises(OSError, match="closed"):
        recorder.warning(None, "late")


def test_a_recorder_can_be_synced_and_closed_without_a_last_record(
    root: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
):
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    recorder.sync()
    assert len(synced) == 1
    recorder.close()
    assert len(read(root)) == 1
    with pytest.raises(OSError, match="closed"):
        recorder.warning(None, "late")


def test_a_file_appears_whole_or_not_at_all(root: Path, monkeypatch: pytest.MonkeyPatch):
    seen: list[list[str]] = []
    real = os.rename

    def looking(source: Any, target: Any) -> None:
        seen.append(sorted(one.name for one in root.iterdir() if one.is_file()))
        real(source, target)

    monkeypatch.setattr(os, "rename", looking)
    replace_with(root / "a.json", b"data", ".a.json.partial")
    assert seen == [[".a.json.partial"]]
    assert (root / "a.json").read_bytes() == b"data"


def test_a_failed_write_leaves_no_partial_file(root: Path, monkeypatch: pytest.MonkeyPatch):
    def failing(source: Any, target: Any) -> None:
        raise OSError("full")

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(OSError, match="full"):
        store_artifact(root, "ab" * 32, b"data")
    assert not list((root / "artifacts" / "sha256").iterdir())


def _write_until_killed(root: str, ready: Any) -> None:
    recorder = Recorder(Path(root), "gw0", "run-1")
    number = 0
    while True:
        recorder.warning(None, str(number))
        ready.send(number)
        number += 1


def test_no_acknowledged_record_is_lost_when_the_process_is_killed(root: Path):
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    writer = context.Process(target=_write_until_killed, args=(str(root), theirs))
    writer.start()
    theirs.close()
    acknowledged = -1
    while acknowledged < 200:
        acknowledged = ours.recv()
    assert writer.pid is not None
    os.kill(writer.pid, signal.SIGKILL)
    while True:
        try:
            acknowledged = ours.recv()
        except EOFError:
            break
    writer.join()
    data = (root / "journal" / "gw0.jsonl").read_bytes()
    kept = [json.loads(line)["body"].get("message") for line in data.splitlines()]
    assert kept[1 : acknowledged + 2] == [str(number) for number in range(acknowledged + 1)]
