"""Going on where a verification ended: nothing trusted that may have changed since."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from pytest_meshnet.target.artifact import resume
from pytest_meshnet.target.artifact.resume import ResumeLog, Stamp
from pytest_meshnet.target.artifact.verification import Code, Expected, verify_files
from pytest_meshnet.target.fields import TargetRefused
from pytest_meshnet.tests.target.pinned_files import flipped, six, written


def resumed(files: list[Expected], log: Path) -> list[bool]:
    with ResumeLog(log, settle_nanos=0) as known:
        result = verify_files(files, forbidden_prefixes=(), resume=known)
    assert result.verified
    return [verdict.resumed for verdict in result.verdicts]


def test_a_second_run_hashes_only_what_is_new_or_changed(tmp_path):
    files, log = six(tmp_path), tmp_path / "log"
    assert resumed(files[:4], log) == [False] * 4
    assert resumed(files, log) == [True] * 4 + [False] * 2
    assert resumed(files, log) == [True] * 6
    data = files[1].path.read_bytes()
    files[1].path.write_bytes(data)
    assert resumed(files, log) == [True, False, True, True, True, True]


def test_a_remembered_digest_is_still_compared_and_a_bad_file_stays_bad(tmp_path):
    expected = flipped(written(tmp_path / "a", b"abc" * 99))
    for again in (False, True):
        with ResumeLog(tmp_path / "log", settle_nanos=0) as log:
            (verdict,) = verify_files([expected], forbidden_prefixes=(), resume=log).verdicts
        assert (verdict.code, verdict.resumed) == (Code.WRONG_DIGEST, again)


def test_a_file_changed_back_in_time_and_size_is_hashed_again(tmp_path):
    """mtime and size can be forged, ctime and with it the stamp cannot."""
    expected = written(tmp_path / "a", b"abc" * 99)
    before = expected.path.stat()
    resumed([expected], tmp_path / "log")
    flipped(expected)
    os.utime(expected.path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with ResumeLog(tmp_path / "log", settle_nanos=0) as log:
        assert verify_files([expected], forbidden_prefixes=(), resume=log).verdicts[0].code is (
            Code.WRONG_DIGEST
        )


def test_a_file_changed_a_moment_ago_is_not_remembered(tmp_path):
    expected = written(tmp_path / "a", b"abc")
    for _ in range(2):
        with ResumeLog(tmp_path / "log") as log:
            result = verify_files([expected], forbidden_prefixes=(), resume=log)
        assert not result.verdicts[0].resumed


def test_a_forbidden_file_is_not_accepted_from_the_log(tmp_path):
    expected = written(tmp_path / "home" / "a", b"abc")
    resumed([expected], tmp_path / "log")
    with ResumeLog(tmp_path / "log", settle_nanos=0) as log:
        result = verify_files([expected], forbidden_prefixes=[str(tmp_path / "home")], resume=log)
    assert result.verdicts[0].code is Code.FORBIDDEN_STORAGE


def test_a_torn_log_keeps_its_whole_lines_and_a_damaged_one_is_refused(tmp_path):
    files, log = six(tmp_path), tmp_path / "log"
    resumed(files[:2], log)
    data = log.read_bytes()
    log.write_bytes(data[:-9])
    assert sorted(resumed(files[:2], log)) == [False, True]
    assert log.read_bytes().count(b"\n") == 2
    stamp = b'"device": 1, "inode": 1, "size": 1, "mtime_ns": 1, "ctime_ns": 1}'
    for line in (
        b"{}",
        b"[]",
        b"not JSON",
        b'{"path": 5, "sha256": "a", ' + stamp,
        b'{"path": "a", "sha256": 5, ' + stamp,
        b'{"path": "a", "sha256": "a", "extra": 1, ' + stamp,
    ):
        log.write_bytes(line + b"\n" + data)
        with pytest.raises(TargetRefused) as refused:
            ResumeLog(log)
        assert refused.value.code == "resume-log"


def test_a_torn_tail_longer_than_the_next_line_is_cut_off(tmp_path):
    files, log = six(tmp_path), tmp_path / "log"
    log.write_bytes(b"x" * 4096)
    resumed(files[:1], log)
    assert log.read_bytes().endswith(b"}\n")


def test_a_finished_file_is_on_disk_before_the_next_is_told(tmp_path, monkeypatch):
    done = []
    fsync = os.fsync
    monkeypatch.setattr(resume.os, "fsync", lambda fd: (done.append(fd), fsync(fd))[1])
    resumed(six(tmp_path)[:3], tmp_path / "log")
    assert len(done) == 3


def test_a_log_is_used_by_one_verification_at_a_time(tmp_path):
    with ResumeLog(tmp_path / "log"):
        with pytest.raises(TargetRefused) as refused:
            ResumeLog(tmp_path / "log")
        assert refused.value.code == "resume-log-busy"
    with ResumeLog(tmp_path / "log") as log:
        assert log.get(tmp_path, Stamp(1, 2, 3, 4, 5)) is None


def test_a_verification_that_was_killed_goes_on_from_its_finished_files(tmp_path):
    """The child hangs in the third file for good; it is killed by its own id."""
    files, log = six(tmp_path), tmp_path / "log"
    code = textwrap.dedent(
        """
        import sys, threading
        from pathlib import Path
        from pytest_meshnet.target.artifact.resume import ResumeLog
        from pytest_meshnet.target.artifact.verification import Expected, verify_files

        def hang(path, count):
            if path.endswith("2.gguf"):
                sys.stdout.write("hangs\\n")
                sys.stdout.flush()
                threading.Event().wait()

        files = [Expected(Path(p), None, "0" * 64) for p in sys.argv[2:]]
        with ResumeLog(Path(sys.argv[1]), settle_nanos=0) as log:
            verify_files(files, forbidden_prefixes=(), workers=1, resume=log, progress=hang)
        """
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(log), *(str(e.path) for e in files)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    with child.stdout:
        assert child.stdout.readline() == "hangs\n"
        os.kill(child.pid, signal.SIGKILL)
        child.wait(timeout=30)
    assert resumed(files, log) == [True, True, False, False, False, False]
