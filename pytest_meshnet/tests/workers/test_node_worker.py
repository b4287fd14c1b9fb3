"""The example worker in another language certifies, and fails where a fault is planted in it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytest_meshnet.layout import folder
from pytest_meshnet.runtime.launch import free_port

NODE = folder("fixtures") / "workers" / "node"
MISSING = [tool for tool in ("node", "npm") if shutil.which(tool) is None]

pytestmark = [
    pytest.mark.skipif(
        bool(MISSING), reason=f"NOT EXAMINED: the Node.js worker, for there is no {MISSING} here"
    ),
    pytest.mark.timeout(400),
]


@pytest.fixture(scope="module", autouse=True)
def _registry() -> None:
    """Without a registry nothing can be installed, which is no fault of the worker."""
    asked = ["npm", "view", "@grpc/grpc-js", "version", "--fetch-retries=0"]
    try:
        answer = subprocess.run(asked, capture_output=True, text=True, timeout=60)
        why = answer.stderr.strip()[:200] if answer.returncode else ""
    except subprocess.TimeoutExpired:
        why = "no answer within 60 s"
    if why:
        pytest.skip(f"NOT EXAMINED: the Node.js worker, for npm reaches no registry: {why}")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache for what the start command installs."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "pytest-meshnet"


def _pytest_meshnet(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest_meshnet", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=350)


def test_it_is_certified_and_installs_nothing_beside_its_source(
    cache: Path, tmp_path: Path
) -> None:
    target, out = NODE / "target.toml", tmp_path / "evidence"
    done = _pytest_meshnet("certify", "--target", str(target), "--out", str(out))
    assert done.returncode == 0, done.stdout[-3000:]
    assert "profiles core-wire," in done.stdout
    assert "\nCERTIFIED: " in done.stdout
    assert not (NODE / "node_modules").exists()
    (ready,) = cache.iterdir()
    assert (ready / "node_modules").is_dir()


def test_a_fault_planted_in_it_is_found(tmp_path: Path) -> None:
    """A step that expects too little is taken, in the place of a CACHE_MISS."""
    planted = tmp_path / "node"
    shutil.copytree(NODE, planted)
    text = (planted / "session.mjs").read_text()
    assert "+expected === held" in text
    (planted / "session.mjs").write_text(text.replace("+expected === held", "+expected <= held"))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:randomly"]
    target = ["--meshnet-target", str(planted / "target.toml")]
    done = subprocess.run(
        [*command, "--meshnet-suite", "conformance", *target, "conformance/test_decode.py"],
        cwd=folder("conformance").parent,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=350,
    )
    failed = {line.split()[1] for line in done.stdout.splitlines() if line.startswith("FAILED ")}
    assert done.returncode == 1, done.stdout[-3000:]
    assert "DECODE-02" in failed


def test_two_starts_at_once_install_one_whole_folder(cache: Path) -> None:
    """Each becomes a worker that serves until it is ended."""
    command = ["bash", str(NODE / "start.sh"), sys.executable]
    started = [
        subprocess.Popen([*command, f"127.0.0.1:{free_port()}"], stderr=subprocess.DEVNULL)
        for _ in range(2)
    ]
    try:
        for one in started:
            _wait_until_node_runs(one)
        (ready,) = cache.iterdir()
        assert (ready / "node_modules").is_dir()
        assert [one.poll() for one in started] == [None, None]
    finally:
        for one in started:
            one.terminate()
            one.wait(10)


def _wait_until_node_runs(started: subprocess.Popen[bytes]) -> None:
    """Wait until the shell has become node."""
    until = time.monotonic() + 200
    while b"worker.mjs" not in Path(f"/proc/{started.pid}/cmdline").read_bytes():
        assert started.poll() is None, "the start command ended"
        assert time.monotonic() < until, "the start command did not become node"
        with contextlib.suppress(subprocess.TimeoutExpired):
            started.wait(0.1)


def test_every_file_of_it_has_at_most_eighty_lines() -> None:
    lines = {path.name: len(path.read_text().splitlines()) for path in NODE.glob("*.mjs")}
    assert lines
    assert {name: count for name, count in lines.items() if count > 80} == {}


def test_a_start_without_node_says_what_to_install(tmp_path: Path) -> None:
    for tool in ("bash", "dirname"):
        (tmp_path / tool).symlink_to(shutil.which(tool) or tool)
    command = [str(tmp_path / "bash"), str(NODE / "start.sh"), sys.executable, "127.0.0.1:1"]
    done = subprocess.run(
        command, env={"PATH": str(tmp_path)}, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 1
    assert done.stderr == "no node here: install Node.js 20 or newer\n"
