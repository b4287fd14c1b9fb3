"""The canonical campaign on the rig: one RTX 3060, a real FreeToken, hours of a machine.

Its options come from a variable, as one line of a shell:

    export MESHNET_CAMPAIGN_OPTIONS="--manifest M --model DIR --revision HEX --key PEM"
    pytest -m rtx3060 acceptance/campaign --meshnet-present real_runtime:freetoken
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_meshnet.campaign.judging.canonical import MODEL
from pytest_meshnet.campaign.runner.folder import RUN
from pytest_meshnet.hardware.placement.gpu import Gpu
from pytest_meshnet.runtime.errors import Refusal

OPTIONS = "MESHNET_CAMPAIGN_OPTIONS"
LOOK_S = 60.0
"""How long the run is left alone between two looks at where its servers compute."""

DAY_S = 24 * 3600


@pytest.mark.rtx3060
@pytest.mark.real_runtime("freetoken")
@pytest.mark.timeout(DAY_S)
def test_the_campaign_of_this_rig_is_complete_and_valid(
    gpu: Gpu, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Five arms, four classes, twelve requests a block; exit code 0 and nothing less."""
    if OPTIONS not in os.environ:
        raise Refusal(f"{OPTIONS} is not set: give it the options of `pytest-meshnet campaign run`")
    gpu.must_be_alone = True
    told = _run(gpu, shlex.split(os.environ[OPTIONS]), tmp_path / "runs")
    record_property("campaign", json.dumps({"headline": told["headline"], "codes": told["codes"]}))
    assert told["headline"] == "VALID CANONICAL CAMPAIGN", (
        f"expected a valid canonical campaign, got {told['headline']}: {told['codes']}"
    )
    placement = gpu.observe()
    assert placement.verdict != "contradicted", f"the servers ran elsewhere: {placement}"


def _run(gpu: Gpu, options: list[str], out: Path) -> dict[str, object]:
    command = [sys.executable, "-m", "pytest_meshnet", "campaign", "run", "--repository", MODEL]
    command += [*options, "--gpu", str(gpu.device.uuid), "--out", str(out)]
    with subprocess.Popen(command, env=gpu.environment) as process:
        gpu.watch(process.pid)
        while process.poll() is None:
            try:
                process.wait(LOOK_S)
            except subprocess.TimeoutExpired:
                gpu.observe()
    found = sorted(out.glob(f"*/{RUN}"))
    assert found, f"expected a run in {out}, the command ended with {process.returncode}"
    document: dict[str, object] = json.loads(found[-1].read_text(encoding="utf-8"))
    return document
