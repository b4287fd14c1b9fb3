"""`replay`: a sequence that a run found and kept, and the exchange of a requirement."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from pytest_meshnet import cli
from pytest_meshnet.runtime.scripts.script import Step, from_json, to_json
from pytest_meshnet.runtime.trace import HERE
from pytest_meshnet.tests.authoring.bent import bent_runtime, descriptor_at

FORGETFUL = "reference:duplicate-after-a-miss-drops-the-state"


def replay(*args: object) -> tuple[int, str]:
    result = CliRunner().invoke(cli.main, ["replay", *map(str, args)])
    return result.exit_code, result.output


def in_process(what: object, target: str = "reference") -> tuple[int, str]:
    return replay(what, "--target", target, "--transport", "in-process")


def run(target: str, test: str, *args: str) -> str:
    """What a run of one test prints that must fail on a relative of the reference, in process."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:randomly", "-q"),
            *("--meshnet-suite=conformance", "--meshnet-transport=in-process", *args),
            *(f"--meshnet-target={target}", test),
        ],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sequence that a run of the suite found on a mutant, where its report says it is."""
    basetemp = tmp_path_factory.mktemp("run") / "tmp"
    shown = run(FORGETFUL, "conformance/test_robust_sequences.py", f"--basetemp={basetemp}")
    named = re.search(r"try: +pytest-meshnet replay (/\S+) --target", shown)
    assert named, shown
    return Path(named[1])


def test_a_failing_test_shows_the_statement_and_marks_the_frame_that_breaks_it() -> None:
    test = (
        "conformance/test_decode.py::test_a_wrong_length_is_a_cache_miss_that_tells_the_right_one"
    )
    shown = run("reference:answers-one-too-high", test)
    before, *reports = shown.partition("= meshnet =")[0].split(" failed DECODE-02 ")
    assert reports, before
    for report in reports:
        assert "DECODE-02: Wrong length is a miss: expected_past_len one too low or one" in report
        marked = [line for line in report.splitlines() if line.endswith(HERE)]
        assert len(marked) == 1
        assert "<- ack work=" in marked[0]


def test_a_sequence_that_a_run_kept_fails_again_on_the_mutant(kept: Path) -> None:
    code, shown = in_process(kept, FORGETFUL)
    assert code == 1
    assert "finding\nexpected: step" in shown
    assert "\nframes:\n" in shown
    assert len(from_json(kept.read_text())) <= 8, "it is the shortest that hypothesis found"


def test_the_same_sequence_passes_on_the_reference(kept: Path) -> None:
    code, shown = in_process(kept)
    assert code == 0, shown
    steps = len(from_json(kept.read_text()))
    assert shown.endswith(f"of {steps} steps played, every answer is allowed\n")


@pytest.mark.parametrize("steps", [(), (Step("repeat", 0), Step("drop", 1))], ids=len)
def test_a_sequence_of_which_no_step_was_sent_shows_nothing(
    tmp_path: Path, steps: tuple[Step, ...]
) -> None:
    path = tmp_path / "script.json"
    path.write_text(to_json(steps))
    code, shown = in_process(path)
    assert code == 3, shown
    assert shown.endswith(f"not-run: none of {len(steps)} steps has a meaning on this Shard\n")


def test_a_file_that_holds_no_script_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text(json.dumps({"format": "other"}))
    code, shown = in_process(path)
    assert code == 2
    assert shown.startswith(f"refused: {path} holds no script: no object with format")


def test_the_exchange_of_a_requirement_is_played_line_by_line() -> None:
    code, shown = in_process("DECODE-02")
    assert code == 0
    assert shown.startswith("DECODE-02 Wrong length is a miss: expected_past_len one too low")
    assert "  -> decode work=w2 step=2 position=3\n" in shown
    assert "certified" not in shown.lower()
    assert shown.endswith("pytest-meshnet explain DECODE-02 lists them\n")


def test_a_broken_requirement_is_shown_with_statement_expectation_and_frames() -> None:
    code, shown = in_process("DECODE-02", "reference:answers-one-too-high")
    assert code == 1
    assert "finding: DECODE-02 is broken" in shown
    assert "expected: <- status CACHE_MISS work=w3" in shown
    assert "actual:   ack work='w3' step=3 past_len=6" in shown
    assert "-> decode work='w3' step=3 position=5 expects=5" in shown


def test_a_requirement_that_cannot_apply_is_not_played() -> None:
    code, shown = in_process("KV-01", "reference:one-session")
    assert code == 3
    assert "not-applicable: the Shard lacks what it needs: sessions>=2" in shown


def test_an_exchange_that_does_not_fit_is_not_played() -> None:
    code, shown = in_process("DECODE-02", "reference:one-token-chunks")
    assert code == 3
    assert "not-run: it sends 4 tokens in a chunk, the Shard allows 1" in shown


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["DECODE-99"], "there is no file 'DECODE-99', and no such requirement: unknown"),
        (["CODEC-01"], "no single exchange shows CODEC-01: run its tests"),
        (["DECODE-02", "--target", "reference:nobody"], "no mutant or variant 'nobody'"),
        (["DECODE-02", "--target", "none.toml"], "no target descriptor at 'none.toml'"),
        (
            ["DECODE-02", "--target", "none.toml", "--transport", "in-process"],
            "none.toml cannot run in process",
        ),
    ],
)
def test_what_cannot_be_replayed_is_refused(args: list[str], said: str) -> None:
    code, shown = replay(*args)
    assert code == 2
    assert shown.startswith(f"refused: {said}")


def test_an_exchange_is_played_over_grpc_on_a_described_runtime(tmp_path: Path) -> None:
    with bent_runtime() as address:
        path = descriptor_at(tmp_path, f'endpoint = "{address}"')
        code, shown = replay("IDEM-01", "--target", path)
    assert code == 0, shown
