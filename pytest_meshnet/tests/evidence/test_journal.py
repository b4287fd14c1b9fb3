"""The journal: a chain that only grows, and a reader that forgives nothing but a torn end."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import json
import os
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_meshnet.evidence import journal
from pytest_meshnet.evidence.journal import (
    GENESIS,
    Journal,
    JournalError,
    JournalFault,
    Record,
    Replay,
)
from pytest_meshnet.tests.evidence.making import ticking

OPEN = {"process": "main", "run_id": "r", "pid": 1}
PHASE: dict[str, Any] = {
    "test": "t",
    "attempt": 1,
    "when": "call",
    "outcome": "passed",
    "kind": "",
    "reason": "",
    "message": "",
    "wasxfail": None,
    "duration_ns": "5",
}


def written(path: Path, *bodies: tuple[str, dict[str, Any]]) -> bytes:
    file = path / "j.jsonl"
    one = Journal(file, ticking())
    for kind, body in (("open", OPEN), *bodies):
        one.append(kind, body)
    one.close()
    return file.read_bytes()


def read(data: bytes) -> tuple[list[Record], Replay]:
    replay = Replay(io.BytesIO(data))
    return list(replay), replay


def fault(data: bytes) -> JournalFault:
    with pytest.raises(JournalFault) as refused:
        read(data)
    return refused.value


def edited(data: bytes, line: int, change: Callable[[dict[str, Any]], Any]) -> bytes:
    """Change one record and leave every other byte alone."""
    lines = data.splitlines()
    record = json.loads(lines[line])
    change(record)
    lines[line] = json.dumps(record, separators=(",", ":")).encode()
    return b"".join(one + b"\n" for one in lines)


def test_records_come_back_in_order_with_their_times(tmp_path: Path):
    records, replay = read(written(tmp_path, ("phase", PHASE), ("finish", {"exit_status": 0})))
    assert [(one.line, one.type) for one in records] == [(1, "open"), (2, "phase"), (3, "finish")]
    assert [one.t_mono for one in records] == [1_000_001_000, 1_000_002_000, 1_000_003_000]
    assert records[1].body == PHASE
    assert (replay.records, replay.torn) == (3, False)


def test_each_line_names_the_digest_of_the_line_before(tmp_path: Path):
    lines = written(tmp_path, ("phase", PHASE), ("phase", PHASE)).splitlines()
    expected = [GENESIS, *(hashlib.sha256(one).hexdigest() for one in lines[:-1])]
    assert [json.loads(one)["prev"] for one in lines] == expected
    assert [json.loads(one)["seq"] for one in lines] == [0, 1, 2]


def test_the_head_is_the_digest_of_the_last_line(tmp_path: Path):
    data = written(tmp_path, ("phase", PHASE))
    assert read(data)[1].head == hashlib.sha256(data.splitlines()[-1]).hexdigest()


def test_a_record_is_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    one = Journal(tmp_path / "j.jsonl", ticking())
    writes: list[bytes] = []
    real = os.write

    def counting(descriptor: int, data: bytes) -> int:
        writes.append(data)
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", counting)
    one.append("open", OPEN)
    one.append("phase", PHASE | {"message": "x" * 100_000})
    monkeypatch.undo()
    one.close()
    assert [data.count(b"\n") for data in writes] == [1, 1]


def test_a_record_is_on_its_way_before_append_returns(tmp_path: Path):
    one = Journal(tmp_path / "j.jsonl", ticking())
    one.append("open", OPEN)
    assert read((tmp_path / "j.jsonl").read_bytes())[1].records == 1
    one.close()


def test_an_existing_journal_is_never_continued(tmp_path: Path):
    written(tmp_path)
    with pytest.raises(FileExistsError):
        Journal(tmp_path / "j.jsonl")


def test_records_of_many_threads_make_one_chain(tmp_path: Path):
    one = Journal(tmp_path / "j.jsonl")
    one.append("open", OPEN)
    writers = [
        threading.Thread(target=lambda: [one.append("phase", PHASE) for _ in range(50)])
        for _ in range(8)
    ]
    for thread in writers:
        thread.start()
    for thread in writers:
        thread.join()
    one.close()
    assert read((tmp_path / "j.jsonl").read_bytes())[1].records == 401


def test_a_float_never_enters_a_journal(tmp_path: Path):
    one = Journal(tmp_path / "j.jsonl")
    with pytest.raises(ValueError, match="float"):
        one.append("warning", {"test": None, "message": 0.5})
    one.close()


def test_nothing_is_appended_after_close(tmp_path: Path):
    one = Journal(tmp_path / "j.jsonl")
    one.close()
    one.close()
    with pytest.raises(JournalError, match="closed"):
        one.append("open", OPEN)


def test_close_gives_the_file_free_even_when_a_child_holds_it(tmp_path: Path):
    one = Journal(tmp_path / "j.jsonl")
    held = os.dup(one._fd)
    with (tmp_path / "j.jsonl").open("rb") as reader:
        with pytest.raises(BlockingIOError):
            fcntl.flock(reader, fcntl.LOCK_EX | fcntl.LOCK_NB)
        one.close()
        fcntl.flock(reader, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(held)


def test_close_leaves_no_open_file(tmp_path: Path):
    one = Journal(tmp_path / "j.jsonl")
    one.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(one._fd)


def test_a_forked_child_cannot_append(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    one = Journal(tmp_path / "j.jsonl")
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(JournalError, match="fork"):
        one.append("open", OPEN)
    monkeypatch.undo()
    one.close()


def test_a_short_write_is_taken_back_and_ends_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    one = Journal(tmp_path / "j.jsonl", ticking())
    one.append("open", OPEN)
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:10]))
    with pytest.raises(JournalError, match="disk is full"):
        one.append("phase", PHASE)
    monkeypatch.undo()
    with pytest.raises(JournalError, match="disk is full"):
        one.append("phase", PHASE)
    one.close()
    _, replay = read((tmp_path / "j.jsonl").read_bytes())
    assert (replay.records, replay.torn) == (1, False)


def test_a_failed_write_ends_the_journal_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    one = Journal(tmp_path / "j.jsonl")

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(JournalError, match="free space"):
        one.append("open", OPEN)
    monkeypatch.undo()
    with pytest.raises(JournalError, match="earlier write failed"):
        one.append("open", OPEN)
    one.close()


def test_sync_reaches_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    one = Journal(tmp_path / "j.jsonl")
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    one.sync()
    assert len(synced) == 1
    one.close()
    assert len(synced) == 2


@pytest.mark.parametrize("kept", [1, 5, 40])
def test_a_torn_last_line_is_legal_and_is_no_record(tmp_path: Path, kept: int):
    data = written(tmp_path, ("phase", PHASE))
    whole = data.splitlines(keepends=True)
    _, replay = read(whole[0] + whole[1][:kept])
    assert (replay.records, replay.torn) == (1, True)
    assert replay.head == hashlib.sha256(whole[0][:-1]).hexdigest()


def test_a_last_line_that_lacks_only_its_line_feed_is_torn(tmp_path: Path):
    _, replay = read(written(tmp_path)[:-1])
    assert (replay.records, replay.torn) == (0, True)


def test_an_empty_journal_has_no_records():
    assert read(b"")[1].records == 0


@pytest.mark.parametrize(
    ("line", "change", "code"),
    [
        (1, lambda r: r.update(prev=GENESIS), "journal-chain"),
        (0, lambda r: r.update(prev="1" * 64), "journal-chain"),
        (1, lambda r: r.update(seq=2), "journal-seq"),
        (0, lambda r: r.update(seq=False), "journal-seq"),
        (1, lambda r: r.update(type="rumour"), "journal-type"),
        (1, lambda r: r.update(type=["phase"]), "journal-type"),
        (1, lambda r: r.update(extra=1), "journal-record"),
        (1, lambda r: r.pop("t_wall"), "journal-record"),
        (1, lambda r: r.update(t_mono=5), "journal-record"),
        (1, lambda r: r.update(t_wall="-5"), "journal-record"),
        (1, lambda r: r.update(t_wall="\uff15"), "journal-record"),
        (1, lambda r: r.update(t_wall="1" * 21), "journal-record"),
        (1, lambda r: r.update(body=[]), "journal-record"),
        (1, lambda r: r["body"].update(critical=1), "journal-record"),
        (1, lambda r: r["body"].pop("kind"), "journal-record"),
        (1, lambda r: r["body"].update(attempt=True), "journal-record"),
        (1, lambda r: r["body"].update(outcome="xpassed"), "journal-record"),
        (1, lambda r: r["body"].update(outcome=[]), "journal-record"),
        (1, lambda r: r["body"].update(duration_ns="1.5"), "journal-record"),
        (0, lambda r: r.update(type="phase", body=PHASE), "journal-order"),
    ],
)
def test_any_other_fault_is_an_error_with_line_and_code(
    tmp_path: Path, line: int, change: Callable[[dict[str, Any]], Any], code: str
):
    found = fault(edited(written(tmp_path, ("phase", PHASE)), line, change))
    assert (found.code, found.line) == (code, line + 1)


def test_a_second_open_record_is_refused(tmp_path: Path):
    assert fault(written(tmp_path, ("open", OPEN))).code == "journal-order"


def test_a_record_after_finish_is_refused(tmp_path: Path):
    data = written(tmp_path, ("finish", {"exit_status": 0}), ("phase", PHASE))
    assert fault(data).code == "journal-order"


def test_a_dropped_record_breaks_the_chain(tmp_path: Path):
    lines = written(tmp_path, ("phase", PHASE), ("phase", PHASE)).splitlines(keepends=True)
    assert fault(lines[0] + lines[2]).code == "journal-chain"


def test_a_duplicate_key_is_refused_with_its_line(tmp_path: Path):
    data = written(tmp_path).replace(b'"seq":0', b'"seq":0,"seq":0')
    assert (fault(data).code, fault(data).line) == ("json-duplicate-key", 1)


@pytest.mark.parametrize("line", [b"[]", b'"x"', b"1"])
def test_a_line_that_is_no_object_is_refused(line: bytes):
    assert fault(line + b"\n").code == "journal-record"


def test_an_empty_line_in_the_middle_is_refused(tmp_path: Path):
    assert fault(written(tmp_path) + b"\n").code == "json-malformed"


def test_a_line_beyond_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(journal, "LINE_LIMIT", 100)
    assert fault(b"x" * 200).code == "journal-line"


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("facts", {"facts": {"launch": {"value": True, "source": "rumour"}}}),
        ("claims", {"claims": {"x": {"value": [], "source": "observed"}}}),
        ("collected", {"tests": [{"test": "t"}], "deselected": [], "errors": [], "hardware": {}}),
        ("device", {"test": None, "requested": {}, "observed": {"uuid": ["a"]}}),
    ],
)
def test_nested_bodies_are_checked_too(tmp_path: Path, kind: str, body: dict[str, Any]):
    assert fault(written(tmp_path, (kind, body))).code in ("field-type", "field-missing")


def test_an_append_costs_at_most_100_microseconds_in_the_median(tmp_path: Path):
    one = Journal(tmp_path / "j.jsonl")
    one.append("open", OPEN)
    costs = []
    for _ in range(500):
        begin = time.perf_counter_ns()
        one.append("phase", PHASE)
        costs.append(time.perf_counter_ns() - begin)
    one.close()
    assert statistics.median(costs) <= 100_000
