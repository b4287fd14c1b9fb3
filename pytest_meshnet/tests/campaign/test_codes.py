"""Each code, driven through the whole runner by a switch of the simulated rig."""

import pytest

from pytest_meshnet.campaign.judging.codes import Code
from pytest_meshnet.tests.campaign.running import call, campaign

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


def test_several_switches_are_several_reasons(tmp_path):
    chosen = (Code.PREFILL_SHARED_BATCH, Code.GPU_MISMATCH, Code.BENCH_BW_SKIPPED)
    switches = [word for code in chosen for word in ("--simulate", str(code))]
    left = campaign(tmp_path, *switches)
    assert set(left.run["codes"]) == {str(code) for code in chosen}
    assert left.exit_code == 1


def test_an_unknown_switch_is_refused_before_anything_is_made(tmp_path):
    done = call("campaign", "run", "--simulated", "--simulate", "gpu.gone", "--out", tmp_path / "o")
    assert done.exit_code == 2
    assert "'gpu.gone' is no switch" in done.stderr
    assert not (tmp_path / "o").exists()


def test_a_switch_without_a_simulated_runtime_is_refused(tmp_path):
    done = call("campaign", "run", "--simulate", "gpu.mismatch", "--out", tmp_path / "o")
    assert done.exit_code == 2
    assert "add --simulated" in done.stderr
