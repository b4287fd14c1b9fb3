"""CORRECTNESS_REFERENCE: nothing left to chance, whole outputs, and two sessions that agree."""

import hashlib
import json

import pytest

from pytest_meshnet.tests.campaign.running import call


def reference(out, session=1, slots="900", nvfp4="triton", *options):
    words = ["--simulated", "--dev-smoke", "--out", out, "--session", session]
    return call("campaign", "reference", *words, "--slots", slots, "--nvfp4", nvfp4, *options)


def folder(out, session):
    return out / "references" / f"session-{session}"


def read(out, session=1):
    return json.loads((folder(out, session) / "reference.json").read_text())


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """The references of two sessions."""
    out = tmp_path_factory.mktemp("references")
    for session in (1, 2):
        done = reference(out, session)
        assert done.exit_code == 0, done.output
    return out


def test_a_reference_keeps_the_whole_output_of_every_class(two):
    told = read(two)
    assert [one["class_id"] for one in told["outputs"]] == ["W1", "W2", "W3", "W4"]
    for one in told["outputs"]:
        assert len(one["output"].split()) == one["completion_tokens"]
        assert one["output_sha256"] == hashlib.sha256(one["output"].encode()).hexdigest()
    command = told["server"]["command"]
    assert command[command.index("--moe-cpu-layers") :][:6] == [
        *("--moe-cpu-layers", "0", "--moe-cache-size", "900", "--nvfp4-backend", "triton")
    ]


def test_two_greedy_sessions_are_self_consistent(two):
    """The smoke manifest samples at temperature 1; the reference's requests say 0."""
    done = call("campaign", "compare-references", folder(two, 1), folder(two, 2))
    assert (done.exit_code, done.output) == (0, "self-consistent\n")


def test_one_session_shows_nothing_about_itself(two):
    done = call("campaign", "compare-references", folder(two, 1), folder(two, 1))
    assert done.exit_code == 2
    assert "two sessions" in done.stderr


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (lambda told: told["outputs"][2].update(output_sha256="0" * 64), 1, "differ: W3"),
        (lambda told: told["provenance"].update(model_revision="0" * 40), 2, "model_revision is"),
        (lambda told: told["outputs"].pop(), 2, "the classes are"),
        (lambda told: told.update(against=["another GPU"]), 2, "another GPU"),
        (lambda told: told.update(schema="other"), 2, "is no reference"),
    ],
)
def test_another_output_is_named_and_another_run_is_refused(two, tmp_path, change, code, message):
    told = read(two, 2)
    change(told)
    (tmp_path / "reference.json").write_text(json.dumps(told))
    done = call("campaign", "compare-references", folder(two, 1), tmp_path)
    assert done.exit_code == code
    assert message in done.output


@pytest.mark.parametrize(
    ("slots", "nvfp4", "message"),
    [
        ("auto", "triton", "the cache size of the reference is 'auto'"),
        ("993", "marlin", "at most 992"),
        ("900", "auto", "name one"),
    ],
)
def test_a_reference_that_leaves_something_open_is_refused(tmp_path, slots, nvfp4, message):
    done = reference(tmp_path, 1, slots, nvfp4)
    assert done.exit_code == 2
    assert message in done.stderr
    assert not (tmp_path / "references").exists()


@pytest.mark.parametrize(
    ("switch", "code", "message"),
    [
        ("gpu.mismatch", 1, "the reference's is GPU-3060"),
        ("runtime.config_missing", 1, "no resolved configuration"),
        ("execution.generation_failed", 1, "W2: POST"),
        ("execution.server_failed", 3, "before it served, the server ended with 1"),
    ],
)
def test_a_server_that_is_not_what_it_was_told_to_be_breaks_the_reference(
    tmp_path, switch, code, message
):
    done = reference(tmp_path, 1, "900", "triton", "--simulate", switch)
    assert done.exit_code == code, done.output
    assert message in done.output
