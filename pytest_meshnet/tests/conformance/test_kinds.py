"""The tests of the suite hold on every kind of Shard, not only on the one they were written on."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from pytest_meshnet.layout import folder
from pytest_meshnet.tests.conformance.kinds import KINDS, VARIABLE

GROUPS = ("open", "prefill", "decode", "bundle", "tail")


@pytest.mark.parametrize("kind", KINDS)
def test_sessions_with_one_shard_hold_on_every_kind_of_shard(kind: str) -> None:
    # A child of an xdist worker is none itself.
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    modules = [path for group in GROUPS for path in folder("conformance").glob(f"test_{group}*.py")]
    child = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("-p", "pytest_meshnet.tests.conformance.kinds"),
            *("--meshnet-target", "reference", "--meshnet-transport", "in-process"),
            *map(str, sorted(modules)),
        ],
        env={**inherited, VARIABLE: kind},
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert child.returncode == 0, child.stdout[-4000:] + child.stderr[-1000:]
    assert re.search(r"\b[1-9]\d\d passed", child.stdout), child.stdout[-1000:]
