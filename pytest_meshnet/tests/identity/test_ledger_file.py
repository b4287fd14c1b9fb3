"""The ledger on disk: nothing acknowledged is lost, nothing is invented, nothing is guessed."""

import fcntl
import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pytest_meshnet.identity import ledger_file
from pytest_meshnet.identity.canonical import digest
from pytest_meshnet.identity.certification import CertificationRefused, Registration, Standing
from pytest_meshnet.identity.ledger_file import LedgerDamaged, LedgerFile, LedgerWriteFailed
from pytest_meshnet.tests.identity.ledger_storm import entry
from pytest_meshnet.tests.identity.test_certification import DECLARED, evidence


def filled(path: Path, count: int) -> LedgerFile:
    ledger = LedgerFile(path)
    for number in range(count):
        ledger.register(entry(0, number))
    return ledger


def names(ledger: LedgerFile) -> list[str]:
    known = {entry(0, number).recipe_digest: str(number) for number in range(8)}
    return [known[item.recipe_digest] for item in ledger.read().registrations()]


def test_an_absent_file_is_an_empty_ledger_and_reading_does_not_make_one(tmp_path):
    ledger = LedgerFile(tmp_path / "ledger")
    assert ledger.read().standing(*DECLARED.fingerprint) is Standing.UNKNOWN
    assert not ledger.path.exists()


def test_a_standing_outlives_the_process_that_wrote_it(tmp_path):
    path = tmp_path / "ledger"
    LedgerFile(path).register(DECLARED)
    LedgerFile(path).certify(evidence())
    book = LedgerFile(path).read()
    assert book.standing(*DECLARED.fingerprint) is Standing.CERTIFIED
    assert book.bundles(*DECLARED.fingerprint) == (evidence().bundle,)


def test_the_same_entry_twice_is_one_line(tmp_path):
    ledger = LedgerFile(tmp_path / "ledger")
    for _ in range(2):
        ledger.register(DECLARED)
        ledger.certify(evidence())
    assert len(ledger.path.read_bytes().splitlines()) == 2


def test_a_refused_entry_leaves_the_file_as_it_was(tmp_path):
    ledger = filled(tmp_path / "ledger", 2)
    before = ledger.path.read_bytes()
    with pytest.raises(CertificationRefused):
        ledger.certify(evidence())
    assert ledger.path.read_bytes() == before


def test_a_tail_torn_at_any_byte_is_dropped_and_the_next_entry_goes_in_its_place(tmp_path):
    whole = filled(tmp_path / "whole", 3).path.read_bytes()
    second = whole.rstrip(b"\n").rfind(b"\n") + 1
    for cut in range(second, len(whole)):
        path = tmp_path / f"cut-{cut}"
        path.write_bytes(whole[:cut])
        assert names(LedgerFile(path)) == ["0", "1"]
    torn = LedgerFile(tmp_path / "torn")
    torn.path.write_bytes(whole[:-5] + b"\0" * 4096)
    torn.register(entry(0, 4))
    assert names(torn) == ["0", "1", "4"]
    assert torn.path.read_bytes().startswith(whole[:second])
    assert torn.path.read_bytes().endswith(b"}\n")


def rewrite(line: bytes, **changes: object) -> bytes:
    record = {**json.loads(line), **changes}
    del record["sum"]
    record["sum"] = digest(record)
    return json.dumps(record).encode()


def without_line(lines: list[bytes]) -> list[bytes]:
    return [lines[0], lines[2]]


def swapped(lines: list[bytes]) -> list[bytes]:
    return [lines[1], lines[0], lines[2]]


def one_byte(lines: list[bytes]) -> list[bytes]:
    return [lines[0], lines[1].replace(b"example", b"exbmple"), lines[2]]


def last_byte(lines: list[bytes]) -> list[bytes]:
    """Damage in a committed last line is damage: somebody was promised that entry."""
    return [lines[0], lines[1], lines[2].replace(b"example", b"exbmple")]


def blank(lines: list[bytes]) -> list[bytes]:
    return [lines[0], b"", lines[1]]


def resealed(lines: list[bytes]) -> list[bytes]:
    body = {**json.loads(lines[1])["body"], "recipe_id": "forged"}
    return [lines[0], rewrite(lines[1], body=body), lines[2]]


def renumbered(lines: list[bytes]) -> list[bytes]:
    return [*lines[:2], rewrite(lines[2], seq=7)]


def boolean_number(lines: list[bytes]) -> list[bytes]:
    return [rewrite(lines[0], seq=False)]


def bodiless(lines: list[bytes]) -> list[bytes]:
    return [*lines[:2], rewrite(lines[2], body=5)]


def with_another_key(lines: list[bytes]) -> list[bytes]:
    return [*lines[:2], rewrite(lines[2], note="x")]


def no_object(lines: list[bytes]) -> list[bytes]:
    return [*lines, b"[]"]


def forged_certificate(lines: list[bytes]) -> list[bytes]:
    """A well-chained promotion without a distributed forward behind it."""
    from hashlib import sha256

    body = {**json.loads(lines[0])["body"], "type": "certified"}
    for key in ("layer_count", "recipe_id", "recipe_version", "catalogue_version"):
        del body[key]
    body |= {"stages": [["a", 0, 8]], "token_count": 1, "synthetic": False, "bundle": "e" * 64}
    line = rewrite(lines[1], body=body, prev=sha256(lines[0]).hexdigest())
    return [lines[0], line]


@pytest.mark.parametrize(
    "attack",
    [
        without_line,
        swapped,
        one_byte,
        last_byte,
        blank,
        resealed,
        renumbered,
        boolean_number,
        bodiless,
        with_another_key,
        no_object,
        forged_certificate,
    ],
)
def test_a_committed_line_that_is_not_what_was_written_refuses_the_file(tmp_path, attack):
    ledger = filled(tmp_path / "ledger", 3)
    lines = attack(ledger.path.read_bytes().splitlines())
    ledger.path.write_bytes(b"".join(line + b"\n" for line in lines))
    before = ledger.path.read_bytes()
    with pytest.raises(LedgerDamaged, match="restore"):
        ledger.read()
    with pytest.raises(LedgerDamaged):
        ledger.register(entry(0, 5))
    assert ledger.path.read_bytes() == before


@pytest.mark.parametrize("kind", ["short", "full", "fsync"])
def test_an_entry_the_disk_did_not_take_is_not_acknowledged_and_not_kept(
    tmp_path, monkeypatch, kind
):
    ledger = filled(tmp_path / "ledger", 2)

    def short(descriptor: int, data: bytes, offset: int) -> int:
        return pwrite(descriptor, data[:7], offset)

    def fail(*_: object) -> int:
        raise OSError(28, "No space left on device")

    pwrite = os.pwrite
    with monkeypatch.context() as patch:
        patch.setattr(
            *{
                "short": (ledger_file.os, "pwrite", short),
                "full": (ledger_file.os, "pwrite", fail),
                "fsync": (ledger_file.os, "fsync", fail),
            }[kind]
        )
        with pytest.raises(LedgerWriteFailed, match="free the disk"):
            ledger.register(entry(0, 2))
    assert names(ledger) == ["0", "1"]
    ledger.register(entry(0, 3))
    assert names(ledger) == ["0", "1", "3"]


def test_an_entry_is_acknowledged_only_after_its_fsync(tmp_path, monkeypatch):
    ledger = filled(tmp_path / "ledger", 1)
    done: list[str] = []
    pwrite, fsync = os.pwrite, os.fsync
    monkeypatch.setattr(
        ledger_file.os, "pwrite", lambda *call: (done.append("write"), pwrite(*call))[1]
    )
    monkeypatch.setattr(ledger_file.os, "fsync", lambda fd: (done.append("fsync"), fsync(fd))[1])
    ledger.register(entry(0, 1))
    assert done == ["write", "fsync"]
    ledger.register(entry(0, 1))  # whoever wrote it may have died before its own fsync
    assert done == ["write", "fsync", "fsync"]


def test_the_name_of_a_new_file_is_on_disk_before_its_first_entry(tmp_path, monkeypatch):
    synced = []
    fsync = os.fsync
    monkeypatch.setattr(
        ledger_file.os,
        "fsync",
        lambda fd: (synced.append(stat.S_ISDIR(os.fstat(fd).st_mode)), fsync(fd))[1],
    )
    filled(tmp_path / "ledger", 2)
    assert synced == [True, False, False]


def test_readers_share_the_lock_and_writers_hold_it_alone(tmp_path, monkeypatch):
    ledger = filled(tmp_path / "ledger", 1)
    modes = []
    flock = ledger_file.fcntl.flock
    monkeypatch.setattr(
        ledger_file.fcntl, "flock", lambda fd, mode: (modes.append(mode), flock(fd, mode))[1]
    )
    ledger.read()
    ledger.register(entry(0, 1))
    assert modes == [fcntl.LOCK_SH, fcntl.LOCK_EX]


def test_no_descriptor_is_left_open(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    ledger = filled(tmp_path / "ledger", 3)
    ledger.read()
    with pytest.raises(CertificationRefused):
        ledger.certify(evidence())
    ledger.path.write_bytes(b"damage\n")
    with pytest.raises(LedgerDamaged):
        ledger.read()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_replaced_while_a_writer_waits_gets_the_entry(tmp_path, monkeypatch):
    ledger = filled(tmp_path / "ledger", 1)
    copy = tmp_path / "copy"
    copy.write_bytes(ledger.path.read_bytes())
    flock = ledger_file.fcntl.flock

    def replaced(descriptor: int, mode: int) -> None:
        if copy.exists():
            copy.rename(ledger.path)
        flock(descriptor, mode)

    monkeypatch.setattr(ledger_file.fcntl, "flock", replaced)
    ledger.register(entry(0, 1))
    assert names(ledger) == ["0", "1"]


def test_threads_and_processes_writing_at_once_lose_nothing(tmp_path):
    path = tmp_path / "ledger"
    code = (
        "import sys; from pathlib import Path;"
        "from pytest_meshnet.tests.identity.ledger_storm import entry, LedgerFile;"
        "[LedgerFile(Path(sys.argv[1])).register(entry(int(sys.argv[2]), n)) for n in range(20)]"
    )
    others = [
        subprocess.Popen([sys.executable, "-c", code, str(path), str(number)])
        for number in (1, 2, 3)
    ]
    ledger = LedgerFile(path)
    threads = [
        threading.Thread(target=lambda w=w: [ledger.register(entry(w, n)) for n in range(20)])
        for w in (4, 5, 6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [other.wait(timeout=60) for other in others] == [0, 0, 0]
    found = {item.recipe_digest for item in ledger.read().registrations()}
    assert found == {entry(w, n).recipe_digest for w in range(1, 7) for n in range(20)}


def test_two_hundred_kills_lose_no_acknowledged_entry_and_invent_none(tmp_path):
    """Writers are killed by SIGKILL at random moments, some while another waits for the lock."""
    path = tmp_path / "ledger"
    storm = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest_meshnet.tests.identity.ledger_storm",
            path,
            "200",
            "5",
            "80",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert storm.returncode == 0, storm.stderr
    told = json.loads(storm.stdout)
    assert len(told["done"]) == 200, "the machine is too slow for 200 kills in 80 s"
    assert told["inside"] >= 50, "too few kills hit a writer at work to show anything"

    found = dict.fromkeys(LedgerFile(path).read().registrations())
    legal: dict[Registration, bool] = {}
    for writer, asked in told["asked"].items():
        for number in range(asked):
            acknowledged = number < told["done"][writer]
            legal[Registration.of(entry(int(writer), number))] = acknowledged
    assert {item for item, acknowledged in legal.items() if acknowledged} <= found.keys()
    assert found.keys() <= legal.keys()
