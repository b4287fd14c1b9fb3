"""Each code, driven through the whole runner by a switch of the simulated rig."""

import json
import random

import pytest

from pytest_meshnet.campaign.judging.codes import Code
from pytest_meshnet.tests.campaign.running import call, campaign, canonical_manifest

ARMS = {
    Code.B3_RESOLUTION_UNEXPECTED: ("B1", "B2", "B3"),
    Code.EXPERT_QUANT_MISMATCH: ("B1", "B5"),
    Code.HELD_CONSTANT_MISMATCH: ("B1", "B5"),
}
ALSO = {
    # Without the route there is neither a configuration nor a prefill.
    Code.INSTRUMENTATION_UNAVAILABLE: {Code.PREFILL_UNAVAILABLE},
    # A server that never served was never asked anything.
    Code.SERVER_FAILED: {Code.GENERATION_FAILED},
}
INCOMPLETE = {Code.GENERATION_FAILED, Code.SERVER_FAILED}


@pytest.mark.parametrize("code", list(Code))
def test_a_code_is_found_in_run_json_summary_and_exit_code(tmp_path, code):
    left = campaign(tmp_path, "--simulate", str(code), arms=ARMS.get(code, ("B1",)))
    assert set(left.run["codes"]) == {str(one) for one in {code} | ALSO.get(code, set())}
    found = {one["code"] for one in left.run["campaign_invalidations"]}
    assert str(code) in found
    assert f"`{code}`" in left.summary
    assert str(code) in left.output
    assert left.exit_code == (3 if code in INCOMPLETE else 1)
    assert left.run["validity"] == "NON_CANONICAL"
    headline = "INCOMPLETE RUN" if code in INCOMPLETE else "NON-CANONICAL DEVELOPER RUN"
    assert left.run["headline"] == headline
    assert left.summary.startswith(f"# {headline}\n")
    verified = call("verify", left.bundle)
    assert verified.exit_code == (3 if code in INCOMPLETE else 1), verified.output


@pytest.mark.parametrize("seed", range(5))
def test_no_set_of_switches_ends_valid_or_with_exit_code_0(tmp_path, seed):
    """Random sets of two to seven switches; what one hides, another still shows."""
    chance = random.Random(seed)
    chosen = chance.sample(list(Code), chance.randint(2, 7))
    switches = [word for code in chosen for word in ("--simulate", str(code))]
    left = campaign(tmp_path, *switches)
    assert left.run["codes"]
    assert left.run["validity"] == "NON_CANONICAL"
    assert left.exit_code in (1, 3)
    assert call("verify", left.bundle).exit_code == left.exit_code
    assert call("campaign", "judge", left.folder).exit_code == left.exit_code


def test_a_whole_canonical_attempt_with_anything_against_it_is_invalid(tmp_path):
    """All 240 requests are made, and two codes stand against all that they show."""
    words = ["--simulated", "--manifest", canonical_manifest(tmp_path), "--out", tmp_path / "runs"]
    switches = ["--simulate", "gpu.unproven", "--simulate", "prefill.shared_batch"]
    done = call("campaign", "run", *words, *switches)
    folder = tmp_path / "runs" / "session-1"
    run = json.loads((folder / "run.json").read_text())
    assert done.exit_code == 1, done.output
    assert (run["headline"], run["validity"]) == ("INVALID CANONICAL ATTEMPT", "INVALID")
    assert run["codes"] == {"prefill.shared_batch": 200, "gpu.unproven": 5}
    (bundle,) = (path for path in (folder / "evidence").iterdir() if path.is_dir())
    assert call("verify", bundle).exit_code == 1


def test_an_unknown_switch_is_refused_before_anything_is_made(tmp_path):
    done = call("campaign", "run", "--simulated", "--simulate", "gpu.gone", "--out", tmp_path / "o")
    assert done.exit_code == 2
    assert "'gpu.gone' is no switch" in done.stderr
    assert not (tmp_path / "o").exists()


def test_a_switch_without_a_simulated_runtime_is_refused(tmp_path):
    done = call("campaign", "run", "--simulate", "gpu.mismatch", "--out", tmp_path / "o")
    assert done.exit_code == 2
    assert "add --simulated" in done.stderr
