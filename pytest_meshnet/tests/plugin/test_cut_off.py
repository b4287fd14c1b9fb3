"""Runs that are cut off: killed, hung, without disk, with a broken plugin. No record is lost."""

import errno
import os
import resource
import subprocess
import sys

import pytest

from pytest_meshnet.evidence import journal
from pytest_meshnet.evidence.signing.keys import keygen
from pytest_meshnet.tests.plugin.killing import Plan, trial
from pytest_meshnet.tests.plugin.test_evidence_of_a_run import (
    MIXED,
    bundle_of,
    records,
    start_of,
    verified,
)

__all__ = ["verified"]

PASSING = MIXED.replace('raise Nonconformance("four", "three")', "pass")


@pytest.mark.parametrize("seed", range(4))
def test_a_killed_run_is_incomplete_and_loses_nothing_acknowledged(tmp_path, seed):
    ended = trial(Plan.of(seed), tmp_path)
    assert ended.exit_code == 3
    assert ended.lost == ()
    assert ended.acknowledged > 0


def test_a_process_that_leaves_in_mid_test_is_incomplete(suite, verified):
    leaving = '@requirement("DECODE-01")\ndef test_z():\n    import os\n    os._exit(0)\n'
    suite.module(PASSING + leaving)
    suite.run_apart("--meshnet-out", "out")
    document, code = verified(bundle_of(suite))
    assert (document["sealed"], code) == (False, 3)
    assert document["so_far"]["in_flight"] == ["conformance/test_sample.py::test_z"]


@pytest.mark.parametrize("method", ["signal", "thread"])
def test_a_timeout_is_in_the_evidence_also_when_it_ends_the_process(suite, verified, method):
    hung = f"""
    import signal

    @requirement("DECODE-01")
    @pytest.mark.timeout(0.5, method="{method}")
    def test_hung(): signal.pause()
    """
    suite.module(hung, name="test_hung")
    suite.module(PASSING)
    suite.run_apart("--meshnet-out", "out")
    document, code = verified(bundle_of(suite))
    if method == "signal":
        assert (document["sealed"], code) == (True, 1)
        assert "Timeout" in str(document["verdict"]["blocking"])
    else:
        assert (document["sealed"], code) == (False, 3)
        assert document["so_far"]["in_flight"] == ["conformance/test_hung.py::test_hung"]


DISK = 24 * 1024


def limit_files():
    """Let no file grow beyond DISK: the write that would is cut, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (DISK, DISK))


def command(*args):
    plugin = "pytest_meshnet.tests.plugin.fake_home"
    return [sys.executable, "-m", "pytest", "-p", plugin, "-p", "no:randomly",
            "-p", "no:cacheprovider", "--meshnet-suite=conformance", "--meshnet-out=out",
            *args]  # fmt: skip


def told(suite):
    return os.environ | {"MESHNET_FAKE_HOME": str(suite.home)}


@pytest.mark.parametrize("args", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_a_full_disk_ends_the_run_with_three_and_leaves_whole_records(suite, verified, args):
    suite.module(
        """
        @requirement("DECODE-01")
        @pytest.mark.parametrize("n", range(60))
        def test_a(n): raise Nonconformance("x" * 500, "y" * 500)
        """
    )
    ended = subprocess.run(
        command(*args),
        cwd=suite.project,
        env=told(suite),
        capture_output=True,
        text=True,
        preexec_fn=limit_files,
    )
    document, code = verified(bundle_of(suite))
    assert code == 3, document
    assert document["sealed"] is False
    assert not [one for check in document["checks"] for one in check["findings"]
                if one["severity"] == "invalid"]  # fmt: skip
    written = bundle_of(suite) / "journal" / ("gw0.jsonl" if args else "main.jsonl")
    assert DISK - 4096 < written.stat().st_size <= DISK
    assert written.read_bytes().endswith(b"\n")
    assert ended.returncode == 3, ended.stdout + ended.stderr


@pytest.mark.parametrize("kind", ["file", "closed"])
def test_a_folder_that_cannot_be_written_is_refused_before_anything_runs(suite, monkeypatch, kind):
    suite.module(PASSING)
    if kind == "file":
        (suite.project / "out").write_text("")
    else:  # root may write everywhere, so the system's answer is put in its mouth
        real = os.mkdir

        def refusing(path, *args, **kwargs):
            if os.fspath(path).endswith("out"):
                raise PermissionError(errno.EACCES, "Permission denied", os.fspath(path))
            real(path, *args, **kwargs)

        monkeypatch.setattr(os, "mkdir", refusing)
    result = suite.run("--meshnet-out", "out")
    result.stderr.fnmatch_lines(["*refused: no bundle in *out: *; choose a writable --out*"])
    assert (result.ret, suite.calls) == (2, [])


def test_two_runs_at_once_into_one_folder_are_two_sound_bundles_in_one_chain(suite, verified):
    suite.module(PASSING)
    key = suite.project / "key.pem"
    keygen(key)
    signed = command(f"--meshnet-signing-key={key}")
    both = [
        subprocess.Popen(signed, cwd=suite.project, env=told(suite), stdout=subprocess.DEVNULL)
        for _ in range(2)
    ]
    assert [one.wait(60) for one in both] == [0, 0]
    bundles = [path for path in (suite.project / "out").iterdir() if path.is_dir()]
    assert [verified(one)[1] for one in bundles] == [4, 4]
    counters = sorted(start_of(one)["counter"] for one in bundles)
    assert counters == [1, 2]


HOOKS = {
    "pytest_runtest_setup": "item",
    "pytest_runtest_call": "item",
    "pytest_runtest_teardown": "item",
    "pytest_runtest_logreport": "report",
    "pytest_runtest_makereport": "item",
    "pytest_sessionfinish": "session",
    "pytest_collection_finish": "session",
}


@pytest.mark.parametrize("hook", HOOKS)
def test_a_plugin_that_raises_in_a_hook_never_makes_a_run_pass(suite, verified, hook):
    suite.module(PASSING)
    suite.stranger(f"def {hook}({HOOKS[hook]}): raise OSError('the plugin broke')")
    result = suite.run_apart("--meshnet-out", "out", "-p", "stranger")
    assert result.ret != 0
    _, code = verified(bundle_of(suite))
    if hook == "pytest_sessionfinish":
        # The run was over; whether its end is sealed depends on whose hook came first.
        assert code in (3, 4)
    else:
        assert code in (1, 3)


def test_a_journal_that_cannot_be_written_stops_the_run_at_that_record(suite, monkeypatch):
    real = journal.Journal.append
    written = []

    def full(self, kind, body):
        if kind == "phase" and len(written) == 3:
            raise journal.JournalError(errno.ENOSPC, "No space left on device")
        written.extend([kind] if kind == "phase" else [])
        real(self, kind, body)

    monkeypatch.setattr(journal.Journal, "append", full)
    suite.module(PASSING)
    result = suite.run("--meshnet-out", "out")
    assert result.ret not in (0, 1)
    assert len(records(bundle_of(suite), "phase")) == 3
