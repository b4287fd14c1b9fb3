"""Verifying files: every outcome its own code, nothing read below a forbidden prefix."""

import errno
import hashlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import tracemalloc
from pathlib import Path

import pytest

from pytest_meshnet.target.artifact import verification as module
from pytest_meshnet.target.artifact.verification import (
    CHUNK_BYTES,
    Code,
    Expected,
    Verdict,
    verify_files,
)
from pytest_meshnet.target.documents import LockedTarget
from pytest_meshnet.target.fields import TargetRefused
from pytest_meshnet.tests.target.pinned_files import flipped, six, written


def one(expected: Expected, *forbidden: str) -> Verdict:
    (verdict,) = verify_files([expected], forbidden_prefixes=forbidden).verdicts
    return verdict


def test_files_that_are_the_pinned_ones_are_verified_in_the_order_given(tmp_path):
    files = six(tmp_path)
    result = verify_files(files, forbidden_prefixes=())
    assert result.verified
    assert [v.path for v in result.verdicts] == [e.path for e in files]
    assert [v.sha256 for v in result.verdicts] == [e.sha256 for e in files]
    assert not any(v.resumed for v in result.verdicts)


def longer(expected: Expected) -> Expected:
    expected.path.write_bytes(expected.path.read_bytes() + b"x")
    return expected


def shorter(expected: Expected) -> Expected:
    expected.path.write_bytes(expected.path.read_bytes()[:-1])
    return expected


def emptied(expected: Expected) -> Expected:
    expected.path.write_bytes(b"")
    return expected


def removed(expected: Expected) -> Expected:
    expected.path.unlink()
    return expected


def folder(expected: Expected) -> Expected:
    removed(expected).path.mkdir()
    return expected


def pipe(expected: Expected) -> Expected:
    os.mkfifo(removed(expected).path)
    return expected


def loop(expected: Expected) -> Expected:
    removed(expected).path.symlink_to(expected.path)
    return expected


def dangling(expected: Expected) -> Expected:
    removed(expected).path.symlink_to(expected.path.parent / "nowhere")
    return expected


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (flipped, Code.WRONG_DIGEST),
        (longer, Code.WRONG_SIZE),
        (shorter, Code.WRONG_SIZE),
        (emptied, Code.EMPTY),
        (removed, Code.MISSING),
        (dangling, Code.MISSING),
        (folder, Code.NOT_A_FILE),
        (pipe, Code.NOT_A_FILE),
        (loop, Code.UNREADABLE),
    ],
)
def test_a_file_that_is_not_the_pinned_one_has_its_own_code_and_spoils_no_other(
    tmp_path, damage, code
):
    files = six(tmp_path)
    damage(files[2])
    result = verify_files(files, forbidden_prefixes=())
    assert not result.verified
    codes = [verdict.code for verdict in result.verdicts]
    assert codes[2] is code, result.verdicts[2].message
    assert codes[:2] + codes[3:] == [Code.VERIFIED] * 5
    assert str(files[2].path) in result.verdicts[2].message
    assert result.content_digest() is None


def test_no_descriptor_is_left_open(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    for damage in (flipped, emptied, folder, pipe):
        damage(six(tmp_path / damage.__name__)[0])
        verify_files(
            [Expected(tmp_path / damage.__name__ / "0.gguf", None, "0" * 64)],
            forbidden_prefixes=(),
        )
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_right_size_with_a_wrong_digest_says_so(tmp_path):
    verdict = one(flipped(written(tmp_path / "a", b"abc" * 99)))
    assert verdict.code is Code.WRONG_DIGEST
    assert "right size" in verdict.message
    assert verdict.sha256 == hashlib.sha256((tmp_path / "a").read_bytes()).hexdigest()


def test_a_file_that_the_system_does_not_give_is_unreadable(tmp_path, monkeypatch):
    def denied(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    expected = written(tmp_path / "a", b"abc")
    monkeypatch.setattr(module.os, "open", denied)
    verdict = one(expected)
    assert verdict.code is Code.UNREADABLE
    assert "Permission denied" in verdict.message


def test_a_file_that_changes_while_it_is_read_is_not_verified(tmp_path):
    expected = written(tmp_path / "a", b"a" * (2 * CHUNK_BYTES))

    def change(_path: str, _count: int) -> None:
        with expected.path.open("r+b") as stream:
            stream.seek(2 * CHUNK_BYTES - 1)
            stream.write(b"a")
        os.utime(expected.path, ns=(1, 1))

    result = verify_files([expected], forbidden_prefixes=(), progress=change)
    assert result.verdicts[0].code is Code.CHANGED_WHILE_READING


@pytest.mark.parametrize("kind", ["plain", "file-link", "folder-link", "dots", "prefix-is-a-link"])
def test_storage_below_a_forbidden_prefix_is_refused_after_resolving_links(tmp_path, kind):
    real = written(tmp_path / "home" / "me" / "m.gguf", b"weights")
    prefix = tmp_path / "home"
    path = real.path
    if kind == "file-link":
        path = tmp_path / "mnt" / "m.gguf"
        path.parent.mkdir()
        path.symlink_to(real.path)
    elif kind == "folder-link":
        (tmp_path / "mnt").symlink_to(prefix)
        path = tmp_path / "mnt" / "me" / "m.gguf"
    elif kind == "dots":
        (tmp_path / "mnt").mkdir()
        path = tmp_path / "mnt" / ".." / "home" / "me" / "m.gguf"
    elif kind == "prefix-is-a-link":
        prefix = tmp_path / "users"
        prefix.symlink_to(tmp_path / "home")
    verdict = one(Expected(path, real.size_bytes, real.sha256), str(prefix))
    assert verdict.code is Code.FORBIDDEN_STORAGE
    assert verdict.sha256 is None


def test_a_link_out_of_a_forbidden_prefix_is_forbidden_by_its_name(tmp_path):
    real = written(tmp_path / "mnt" / "m.gguf", b"weights")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "m.gguf").symlink_to(real.path)
    expected = Expected(tmp_path / "home" / "m.gguf", real.size_bytes, real.sha256)
    assert one(expected, str(tmp_path / "home")).code is Code.FORBIDDEN_STORAGE


def test_a_folder_that_only_begins_like_the_prefix_is_allowed(tmp_path):
    expected = written(tmp_path / "homestead" / "m.gguf", b"weights")
    assert one(expected, str(tmp_path / "home")).code is Code.VERIFIED


def test_the_target_forbids_home():
    assert LockedTarget.load().manifest.storage.forbidden_path_prefixes == ("/home",)


def test_progress_adds_up_to_every_byte_of_every_file(tmp_path):
    files = six(tmp_path)
    told: dict[str, int] = {}
    lock = threading.Lock()

    def count(path: str, size: int) -> None:
        with lock:
            told[path] = told.get(path, 0) + size

    verify_files(files, forbidden_prefixes=(), progress=count)
    assert told == {str(e.path): e.size_bytes for e in files}


@pytest.mark.parametrize("workers", [1, 2, 6, None])
def test_files_are_hashed_by_as_many_threads_as_asked(tmp_path, workers):
    files = six(tmp_path)
    expected = min(6, os.cpu_count() or 1) if workers is None else workers
    gathered = threading.Barrier(expected)
    threads = set()

    def meet(_path: str, _count: int) -> None:
        if threading.get_ident() not in threads:
            threads.add(threading.get_ident())
            gathered.wait(timeout=30)  # only as many threads as asked let this through

    result = verify_files(files, forbidden_prefixes=(), workers=workers, progress=meet)
    assert result.verified
    assert len(threads) == expected


def test_memory_stays_bounded_however_large_a_file_is(tmp_path):
    path = tmp_path / "hole"
    with path.open("wb") as stream:
        stream.truncate(64 * 2**20)
    with path.open("rb") as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
    tracemalloc.start()
    try:
        assert one(Expected(path, 64 * 2**20, sha256)).code is Code.VERIFIED
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * CHUNK_BYTES


@pytest.mark.parametrize(
    ("files", "workers", "code"),
    [
        ([], None, "nothing-to-verify"),
        ([Expected(Path("a"), 1, "0" * 64)] * 2, None, "file-twice"),
        ([Expected(Path("a"), 1, "0" * 64)], 0, "workers"),
    ],
)
def test_a_verification_of_nothing_is_refused_and_never_a_pass(files, workers, code):
    with pytest.raises(TargetRefused) as refused:
        verify_files(files, forbidden_prefixes=(), workers=workers)
    assert refused.value.code == code


# faults.md 31: the content's digest ignores names, places and times, and sees one flipped byte.
def test_the_digest_of_the_content_is_of_the_content_alone(tmp_path):
    first = six(tmp_path / "one")
    second = six(tmp_path / "two")
    renamed = [
        Expected(e.path.rename(e.path.with_suffix(".x")), e.size_bytes, e.sha256) for e in second
    ]
    for expected in renamed:
        os.utime(expected.path, (1, 1))
    digests = [
        verify_files(files, forbidden_prefixes=()).content_digest() for files in (first, renamed)
    ]
    assert digests[0] == digests[1] is not None
    flipped(renamed[3])
    changed = Expected(
        renamed[3].path,
        renamed[3].size_bytes,
        hashlib.sha256(renamed[3].path.read_bytes()).hexdigest(),
    )
    other = verify_files([*renamed[:3], changed, *renamed[4:]], forbidden_prefixes=())
    assert other.content_digest() not in (None, digests[0])


def test_an_interrupt_does_not_wait_for_the_rest_to_be_hashed(tmp_path):
    """Two holes of 512 GiB take minutes to hash; the interrupt ends it at the next chunk."""
    paths = [tmp_path / "one", tmp_path / "two"]
    for path in paths:
        with path.open("wb") as stream:
            stream.truncate(2**39)
    code = textwrap.dedent(
        """
        import signal, sys
        from pathlib import Path
        from pytest_meshnet.target.artifact.verification import Expected, verify_files

        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored below nohup

        def told(path, count):
            sys.stdout.write("reads\\n")
            sys.stdout.flush()

        files = [Expected(Path(p), None, "0" * 64) for p in sys.argv[1:]]
        verify_files(files, forbidden_prefixes=(), workers=1, progress=told)
        """
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, paths)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "reads\n"
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=30)
    assert child.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in errors
