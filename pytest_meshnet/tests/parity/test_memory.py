"""Memory of Shards is judged by what their layers weigh: one that loads all of them is found."""

import re

import pytest

from pytest_meshnet.layout import folder
from pytest_meshnet.parity.memory import LEAST_NOISE, Resident, Weighed
from pytest_meshnet.reference.models import BUILT_IN, built_in
from pytest_meshnet.runtime.errors import NotProvoked

MIB = 2**20
WEIGHTS = 3_540_096
"""Weights of a layer of SmolLM2."""


def resident(*mib):
    one, other, middle, large = (value * MIB for value in mib)
    return Resident((one, other), middle, large, layers=8)


@pytest.mark.parametrize(
    "found",
    [resident(358, 359, 412, 466), resident(338, 337, 341, 346)],
    ids=["float32", "two bits and a half"],
)
def test_growth_by_the_layers_that_were_added_is_right(found):
    assert found.findings(WEIGHTS) == []


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (resident(900, 900, 900, 900), "8 layers more take 0 bytes, at least 7080192 due"),
        (resident(900, 904, 905, 907), "8 layers more take 5242880 bytes"),
        (resident(900, 900, 898, 880), "8 layers more take -20971520 bytes"),
        (resident(358, 358, 466, 466), "half of 8 layers takes 0.00 of what all of them take"),
        (resident(358, 358, 358, 466), "half of 8 layers takes 1.00"),
    ],
    ids=["all everywhere", "a little", "shrinking", "as much as ten", "as little as two"],
)
def test_other_growth_is_a_finding(found, text):
    (line,) = found.findings(WEIGHTS)
    assert text in line


@pytest.mark.parametrize(
    ("found", "weights"),
    [(resident(900, 900, 900, 900), LEAST_NOISE // 2), (resident(900, 907, 900, 900), WEIGHTS)],
    ids=["light layers", "a loud machine"],
)
def test_layers_that_weigh_less_than_the_noise_are_not_judged(found, weights):
    with pytest.raises(NotProvoked, match="processes of the same layers differ by"):
        found.findings(weights)


SHARD = '"{python}", "-m", "pytest_meshnet", "serve"'
EVERYTHING = '"{python}", "-m", "pytest_meshnet.tests.parity.loads_everything", "serve"'


@pytest.mark.timeout(600)
def test_shards_that_load_every_layer_fail(pytester, tmp_path):
    # Not imported: pytester forgets what is imported here, and torch cannot be loaded twice.
    if missing := BUILT_IN["smollm2"].missing():
        pytest.skip(f"not run: {missing}")
    text = (folder("fixtures") / "targets" / "parity-smollm2.toml").read_text()
    assert SHARD in text
    path = tmp_path / "target.toml"
    text = re.sub(r"\.\./parity/", f"{folder('fixtures')}/parity/", text.replace(SHARD, EVERYTHING))
    path.write_text(text)
    found = pytester.runpytest_subprocess(
        "--noconftest", f"--meshnet-target={path}", str(folder("acceptance") / "memory")
    )
    assert found.ret == 1, found.outlines
    found.stdout.fnmatch_lines(["*expected: memory that grows with the layers of a Shard*"])


def test_the_whole_model_in_transformers_tells_what_a_layer_weighs():
    pytest.importorskip("torch", reason="not run: pip install 'pytest-meshnet[torch]'")
    pytest.importorskip("transformers", reason="not run: pip install 'pytest-meshnet[torch]'")
    from pytest_meshnet.parity.oracles.whole_transformers import TransformersOracle

    oracle = TransformersOracle(built_in("glm-dsa-tiny").whole())
    assert isinstance(oracle, Weighed)
    assert oracle.layer_weights() > 0
