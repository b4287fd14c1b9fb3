"""The prerequisite: what its command wrote, where, and whether this run measured it."""

import hashlib
import json
import os
import shlex
import sys

import pytest

from pytest_meshnet.campaign.runner.bandwidth import measure, skipped

UUID = "GPU-1"


def command(text):
    return [sys.executable, "-c", text]


def writes(path, text="{}", more=""):
    told = f"open({str(path)!r}, 'w').write({text!r}); {more}\nprint('FTBENCH_OUT {path}')"
    return command(told)


def run(tmp_path, words, limit=20.0):
    return measure(words, UUID, tmp_path / "log", limit)


def test_the_profile_is_the_one_that_the_command_names(tmp_path):
    told = json.dumps({"gpu": {"uuid": UUID}})
    found = run(tmp_path, writes(tmp_path / "p.json", told))
    assert (found.returncode, found.problem) == (0, None)
    assert found.contents == {"gpu": {"uuid": UUID}}
    assert found.sha256 == hashlib.sha256(told.encode()).hexdigest()
    assert found.path == str(tmp_path / "p.json")
    assert found.started_at < found.finished_at
    assert shlex.split(shlex.join(found.command)) == list(found.command)


def test_without_a_name_the_profile_of_the_gpu_is_read(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    place = tmp_path / ".cache" / "freetoken" / "benchbw"
    place.mkdir(parents=True)
    found = run(tmp_path, command(f"open({str(place / 'GPU-1.json')!r}, 'w').write('[]')"))
    assert (found.path, found.contents) == (str(place / "GPU-1.json"), [])


def test_a_profile_from_before_the_run_was_not_measured_by_it(tmp_path):
    old = tmp_path / "p.json"
    old.write_text("{}")
    os.utime(old, (1, 1))
    found = run(tmp_path, command(f"print('FTBENCH_OUT {old}')"))
    assert found.contents is None
    assert "before the command ran" in found.problem


@pytest.mark.parametrize("text", ["{", "nothing", '{"a": 1, "a": 2}', '{"a": Infinity}'])
def test_a_profile_that_is_no_honest_json_is_unreadable(tmp_path, text):
    found = run(tmp_path, writes(tmp_path / "p.json", text))
    assert found.contents is None
    assert "is no JSON" in found.problem


def test_a_command_that_fails_keeps_its_code_its_output_and_its_last_line(tmp_path):
    found = run(tmp_path, command("import sys; print('first', flush=True); sys.exit('no device')"))
    assert (found.returncode, found.problem, found.contents) == (1, "no device", None)
    assert (tmp_path / "log").read_text() == "first\nno device\n"


def test_a_command_that_does_not_exist_or_does_not_end_has_no_code(tmp_path):
    absent = run(tmp_path, [str(tmp_path / "absent")])
    endless = run(tmp_path, command("import threading; threading.Event().wait()"), limit=0.5)
    assert (absent.returncode, endless.returncode) == (None, None)
    assert "timed out" in endless.problem


def test_a_prerequisite_that_was_not_wanted_says_nothing():
    assert skipped().skipped is True
    assert skipped().returncode is None
