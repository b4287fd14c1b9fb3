"""A target that is described as a whole route, without any Shard of its own to examine."""

import re

import pytest

from pytest_meshnet.layout import folder

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
