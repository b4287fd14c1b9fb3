"""The published statistics of 96 records of a real RTX 3060, to the last digit."""

import json

import pytest
from click.testing import CliRunner

from pytest_meshnet import cli
from pytest_meshnet.tests.campaign.samples import real_records


def published(told):
    """Every number and word of a document by its path."""
    if isinstance(told, dict):
        return {
            f"{key}/{path}": value
            for key, inner in told.items()
            for path, value in published(inner).items()
        }
    if isinstance(told, list):
        return published(dict(enumerate(told)))
    return {"": told}


@pytest.fixture(scope="module")
def answer():
    session = real_records() / "session-1"
    arms = ["--baseline", session / "baseline_b1", "--candidate", session / "candidate_v2"]
    done = CliRunner().invoke(cli.main, ["campaign", "analyse", *map(str, arms), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_every_published_number_comes_out_bit_for_bit(answer):
    expected = json.loads((real_records() / "published-session-1.json").read_text())
    found = {key: answer[key] for key in expected}
    assert published(found) == published(expected)
    assert found == expected


@pytest.mark.parametrize(
    ("code", "arms", "classes"),
    [
        ("inflated-first-repetition", {"baseline_b1", "candidate_v2"}, {"W1", "W2", "W3", "W4"}),
        ("last-gap-shortening", {"candidate_v2"}, {"W1", "W2", "W3", "W4"}),
        ("long-stalls", {"candidate_v2"}, {"W1", "W2", "W3", "W4"}),
        ("cached-suffix-prefill", {"baseline_b1", "candidate_v2"}, {"W1", "W3", "W4"}),
        ("drift", {"candidate_v2"}, {"W1", "W2"}),
        ("vram-steps", {"baseline_b1", "candidate_v2"}, {None}),
        ("kv-counters-unused", {"baseline_b1", "candidate_v2"}, {None}),
    ],
)
def test_the_records_get_the_advisories_that_they_deserve(answer, code, arms, classes):
    found = [one for one in answer["advisories"] if one["code"] == code]
    assert {one["arm_id"] for one in found} == arms
    assert {one["class_id"] for one in found} == classes
