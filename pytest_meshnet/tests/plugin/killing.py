"""Trials of SIGKILL: a run is killed at a random moment, and nothing acknowledged may be lost.

`python -m pytest_meshnet.tests.plugin.killing [TRIALS]` runs many and prints what they came to.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from pytest_meshnet import layout
from pytest_meshnet.evidence.verify import run_verify

TESTS = 12
RECORDS_OF_A_TEST = 5
"""An attempt, three phases and an attachment."""

LEDGER = """
schema = 1
ledger_version = "9.9.9"

[needs]

[[requirement]]
id = "DECODE-01"
level = "MUST"
profile = "core"
subject = "runtime"
title = "Title."
statement = "Statement."
"""
MODULE = f"""
import pytest

@pytest.mark.requirement("DECODE-01")
@pytest.mark.parametrize("n", range({TESTS}))
def test_a(n, attachments):
    attachments.text("notes", f"number {{n}}")
"""
PLUGINS = ("meshnet", "timeout", "xdist", "pytest_meshnet.tests.plugin.fake_home",
           "pytest_meshnet.tests.plugin.acknowledging")  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """What a trial does: `moment` is the record of the victim, or of all, after which it dies."""

    workers: int
    victim: str
    moment: int

    @classmethod
    def of(cls, seed: int) -> Plan:
        """Draw a plan; every second one is a run over two workers, every fourth kills one."""
        draw = random.Random(seed)
        workers = 2 * (seed % 2)
        if seed % 4 == 3:
            # However the tests are shared, each worker gets two of them at once.
            return cls(workers, draw.choice(["gw0", "gw1"]), draw.randrange(1, 12))
        return cls(workers, "main", draw.randrange(1, TESTS * RECORDS_OF_A_TEST))


@dataclass(frozen=True)
class Ended:
    """What was left: the exit code of verify, records acknowledged, and those of them lost."""

    exit_code: int
    acknowledged: int
    lost: tuple[str, ...]


def trial(plan: Plan, folder: Path) -> Ended:
    """Kill one process of a run in a folder and look at what is left.

    On a busy machine the victim may have ended before it was killed; then an earlier moment is
    tried, in a run of its own.
    """
    while True:
        made = folder / f"moment-{plan.moment}"
        ended, bundle = _one(plan, made)
        if not _had_ended(plan, bundle) or plan.moment == 1:
            return ended
        plan = replace(plan, moment=max(1, plan.moment // 2))


def _had_ended(plan: Plan, bundle: Path) -> bool:
    """Say whether the victim had written all that it ever writes."""
    if plan.victim == "main":
        return (bundle / "seal.dsse.json").exists()
    lines = (bundle / "journal" / f"{plan.victim}.jsonl").read_bytes().splitlines()
    return b'"type":"finish"' in lines[-1]


def _one(plan: Plan, folder: Path) -> tuple[Ended, Path]:
    home, pipe = folder / "home", folder / "pipe"
    for name in ("conformance", "acceptance", "fixtures", "goldens"):
        (home / name).mkdir(parents=True)
    (home / "conformance" / "requirements.toml").write_text(LEDGER)
    (home / "conformance" / "test_sample.py").write_text(MODULE)
    (home / "target.json").write_text('{"profiles": ["core"], "facts": {}}')
    os.mkfifo(pipe)
    run = _start(plan, folder, home, pipe)
    with run:
        try:
            told = list(_kill_at(plan, run, pipe))
        finally:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
    (bundle,) = (one for one in (folder / "out").iterdir() if one.is_dir())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "folder", home.joinpath)
        _, code = run_verify(bundle)
    return Ended(code, len(told), tuple(_lost(told, bundle / "journal"))), bundle


def _start(plan: Plan, folder: Path, home: Path, pipe: Path) -> subprocess.Popen[bytes]:
    named = [part for name in PLUGINS for part in ("-p", name)]
    command = [sys.executable, "-m", "pytest", *named, "--meshnet-suite=conformance",
               "--meshnet-out=out", *([f"-n{plan.workers}"] if plan.workers else [])]  # fmt: skip
    told = {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "MESHNET_FAKE_HOME": str(home),
        "MESHNET_ACKNOWLEDGED": str(pipe),
    }
    quiet = subprocess.DEVNULL
    return subprocess.Popen(
        command,
        cwd=folder,
        env=os.environ | told,
        stdin=quiet,
        stdout=quiet,
        stderr=quiet,
        start_new_session=True,  # a group of its own, so that nothing outlives the trial
    )


Acknowledged = tuple[str, int, str]


def _kill_at(plan: Plan, run: subprocess.Popen[bytes], pipe: Path) -> Iterator[Acknowledged]:
    """Yield every acknowledged record until all processes are gone; kill at the moment."""
    seen = 0
    with pipe.open() as lines:
        for line in lines:
            process, pid, seq, head = line.split()
            seen += plan.victim in ("main", process)
            if seen == plan.moment:
                os.kill(run.pid if plan.victim == "main" else int(pid), signal.SIGKILL)
                seen += 1
            yield process, int(seq), head


def _lost(told: list[Acknowledged], folder: Path) -> Iterator[str]:
    lines = {one.stem: one.read_bytes().split(b"\n")[:-1] for one in folder.iterdir()}
    for process, seq, head in told:
        written = lines[process]
        if seq >= len(written) or hashlib.sha256(written[seq]).hexdigest() != head:
            yield f"record {seq} of {process}"


def main() -> int:
    """Run the trials and print what they came to; return 1 when one went wrong."""
    trials = int(sys.argv[1]) if sys.argv[1:] else 100
    came_to: Counter[str] = Counter()
    for seed in range(trials):
        plan = Plan.of(seed)
        with tempfile.TemporaryDirectory() as folder:
            ended = trial(plan, Path(folder))
        good = ended.exit_code == 3 and not ended.lost
        came_to["incomplete, nothing lost" if good else f"WRONG: {seed} {plan} {ended}"] += 1
        came_to["records acknowledged"] += ended.acknowledged
        sys.stdout.write(f"{seed} {plan} {ended}\n")
        sys.stdout.flush()
    for what, count in came_to.items():
        sys.stdout.write(f"{what}: {count}\n")
    return 0 if came_to["incomplete, nothing lost"] == trials else 1


if __name__ == "__main__":
    sys.exit(main())
