"""The reference, certified from the command line by the suite that ships, and judged offline.

The counts of statuses are held in full: a test of the suite that fails, passes against its
expectation, or does not run at all shows in them and in the exit code.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXPECTED = """\
[[failure]]
test = "conformance/test_bundle.py::{test}"
reason = "it is expected here to fail, and does not"
message = "refused"
"""


def pytest_meshnet(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest_meshnet", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=350)


def verdict(done: subprocess.CompletedProcess[str], word: str) -> str:
    """What stands behind the word that ends a certificate run."""
    found = re.search(rf"^{word}: (.*)$", done.stdout, re.MULTILINE)
    assert found, done.stdout[-3000:] + done.stderr[-1000:]
    return found[1]


def bundle_in(out: Path) -> Path:
    (start,) = out.glob("*/start.dsse.json")
    return start.parent


@pytest.mark.timeout(400)
def test_the_reference_is_certified_for_the_core_of_the_wire(tmp_path: Path) -> None:
    key, out = tmp_path / "key.pem", tmp_path / "evidence"
    made = pytest_meshnet("keygen", key)
    assert made.returncode == 0, made.stderr
    wanted = ("--target", "reference", "--profile", "core-wire")
    done = pytest_meshnet("certify", *wanted, "--key", key, "--out", out, "-n", "2")
    assert done.returncode == 0, done.stdout[-3000:]
    assert re.fullmatch(r"\d{4} passed, \d+ not-claimed", verdict(done, "CERTIFIED"))
    unknown = pytest_meshnet("verify", bundle_in(out))
    assert (unknown.returncode, unknown.stdout.split()[0]) == (4, "UNTRUSTED")
    trusted = pytest_meshnet("verify", bundle_in(out), "--trust", f"{key}.trust.toml")
    assert (trusted.returncode, trusted.stdout.split()[0]) == (0, "VALID-PASS")


@pytest.mark.timeout(400)
def test_a_test_that_passes_against_its_expectation_is_a_failure(tmp_path: Path) -> None:
    expected, out = tmp_path / "expected.toml", tmp_path / "evidence"
    name = "test_a_bundle_is_refused_and_deduplicated_as_the_compact_form_is"
    expected.write_text(EXPECTED.format(test=name))
    wanted = ("--target", "reference", "--profile", "bundle", "--expect", expected)
    done = pytest_meshnet("certify", *wanted, "--out", out, "-n", "2")
    assert done.returncode == 1, done.stdout[-3000:]
    counts = r"\d+ passed, 1 failed, \d+ not-claimed; 1 against it"
    assert re.fullmatch(counts, verdict(done, "NOT CONFORMANT"))
    assert "expected to fail, passed: remove the entry" in done.stdout
