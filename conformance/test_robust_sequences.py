"""Any sequence of messages, legal and illegal, over several streams, against a plain model."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings

from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.scripts.playing import Values, play
from pytest_meshnet.runtime.scripts.script import Script, Step, to_json
from pytest_meshnet.runtime.scripts.sequences import scripts
from pytest_meshnet.runtime.shard import ShardUnderTest

EXAMPLES = 60

# What chance seldom puts in a row: state, its release, state again, and then something corrupt.
AFTER_A_RELEASE: Script = (
    Step("open", epoch=2),
    Step("fresh", tokens=2),
    Step("release"),
    Step("fresh", tokens=2),
    Step("decode", flaw="checksum"),
    Step("decode"),
)


@pytest.mark.requirement("ROBUST-04")
def test_any_sequence_of_messages_leaves_the_state_that_the_model_has(
    shard: ShardUnderTest, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The shortest script that fails is printed, and kept for `pytest-meshnet replay`."""
    values = Values(shard)

    @settings(max_examples=EXAMPLES)
    @given(script=scripts())
    @example(script=AFTER_A_RELEASE)
    def any_sequence(script: Script) -> None:
        try:
            play(script, shard, values)
        except Nonconformance as finding:
            kept.write_text(to_json(script) + "\n")
            finding.hint = finding.hint.replace("FILE", str(kept))
            raise

    kept = tmp_path_factory.mktemp("sequences") / "script.json"
    any_sequence()
