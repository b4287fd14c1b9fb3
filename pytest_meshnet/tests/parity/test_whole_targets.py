"""A target that is described as a whole route, without any Shard of its own to examine."""

import re

import pytest

from pytest_meshnet.layout import folder
from pytest_meshnet.tests.parity.llama_stub import Handler
from pytest_meshnet.tests.serving import serving

ROUTE = """
schema = 1
name = "routes-only"
vendor = "me"
version = "1"
profiles = ["parity"]

[model]
layers = 4
hidden_size = 16
vocab_size = 256
"""


@pytest.fixture
def target(tmp_path):
    small = (folder("fixtures") / "targets" / "reference-small.toml").read_text()
    route = re.sub(r"(?m)^cuts = .*$", "cuts = [[2]]", small[small.index("[route]") :])
    path = tmp_path / "target.toml"
    path.write_text(ROUTE + route.replace("../parity/", f"{folder('fixtures')}/parity/"))
    return path


def test_the_tests_of_parity_run_on_it(pytester, target):
    test = "acceptance/parity/test_lanes.py::test_chunks_alike_give_the_oracles_bits"
    found = pytester.runpytest_subprocess(
        "--noconftest", "--meshnet-suite=acceptance/parity", f"--meshnet-target={target}", test
    )
    assert found.ret == 0, found.outlines
    found.stdout.fnmatch_lines(["*PARITY*1 passed*"])


@pytest.mark.parametrize("near_lossless", [True, False])
def test_another_engine_is_judged_only_on_near_lossless_weights(
    pytester, target, tmp_path, near_lossless
):
    """The engine counts upwards, which is no model's greedy text."""
    lane = "test_lanes.py::test_every_cut_gives_the_oracles_first_32_greedy_tokens_and_its_logits"
    route = r"(?m)^(start|cuts|controls|control_arguments|calibration) = .*$"
    text = re.sub(route, "", target.read_text())
    with serving(type("OwnHandler", (Handler,), {"asked": []})) as url:
        text = text.replace("[route]", f'[route]\nllama_server = {{ url = "{url}" }}')
        told = f"near_lossless = {str(near_lossless).lower()}"
        target.write_text(text.replace("[oracle]", f"[oracle]\n{told}"))
        found = pytester.runpytest_subprocess(
            "--noconftest", "--meshnet-suite=acceptance/parity",
            f"--meshnet-target={target}", f"--meshnet-out={tmp_path / 'out'}",
            f"acceptance/parity/{lane}", "acceptance/parity/test_sweeps.py",
        )  # fmt: skip
    found.stdout.fnmatch_lines(
        ["*greedy agreement*", "*4 failed*"]
        if near_lossless
        else ["*oracle.near_lossless is false*", "*4 not-run in*"]
    )
    (report,) = (tmp_path / "out").glob("*/report.html")
    assert "The cross engine" in report.read_text(), "figures are shown in either case"
