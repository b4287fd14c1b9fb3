"""The commands that prepare a model for parity, and the corpora that ship."""

import json
from dataclasses import asdict

import numpy as np
import pytest
from click.testing import CliRunner

from pytest_meshnet.cli import main
from pytest_meshnet.layout import folder
from pytest_meshnet.parity.calibration import Calibration
from pytest_meshnet.parity.corpus import corpus_digest, drawn_corpus, read_corpus
from pytest_meshnet.parity.oracles.stored import StoredOracle
from pytest_meshnet.reference.models import built_in
from pytest_meshnet.runtime.descriptor import load
from pytest_meshnet.runtime.errors import Nonconformance, NotProvoked, Refusal, TargetLost
from pytest_meshnet.runtime.route_session import RouteLost
from pytest_meshnet.suite.parity import open_bench
from pytest_meshnet.tests.parity.test_stored import BINDING

FIXTURES = folder("fixtures")


def invoked(*words):
    return CliRunner().invoke(main, ["parity", *map(str, words)])


@pytest.mark.parametrize("bound", [(), ("--bound", "5")])
def test_calibrating_keeps_figures_or_says_that_no_bound_separates(tmp_path, bound):
    path = tmp_path / "small.json"
    found = invoked("calibrate", "--small", "--out", path, *bound)
    if bound:
        assert (found.exit_code, path.exists()) == (1, False)
        assert "no bound" in found.stderr
        return
    assert found.exit_code == 0, found.output
    kept = Calibration.read(path)
    assert kept.bound == pytest.approx(
        Calibration.read(FIXTURES / "parity" / "tiny-llama-small.json").bound, rel=0.2
    )
    assert len(kept.controls) == 6


def bound_target(path, **changes):
    text = (FIXTURES / "targets" / "reference-small.toml").read_text()
    text = text.replace("../parity/", f"{FIXTURES}/parity/") + "\n[oracle.binding]\n"
    lines = [f"{name} = {json.dumps(value)}" for name, value in (asdict(BINDING) | changes).items()]
    path.write_text(text + "\n".join(lines))
    return path


def test_an_oracle_is_stored_for_its_corpus(tmp_path):
    target = bound_target(tmp_path / "target.toml")
    found = invoked("store", "--target", target, "--out", tmp_path / "oracle.json")
    assert found.exit_code == 0, found.output
    kept = StoredOracle.read(tmp_path / "oracle.json", BINDING)
    corpus = read_corpus(FIXTURES / "parity" / "tiny-llama-small-corpus.json")
    assert all(len(kept.generate(ids, 32).tokens) == 32 for ids in corpus.values())


def test_a_dense_fallback_is_not_stored(tmp_path):
    target = bound_target(tmp_path / "target.toml", attention="dense-fallback")
    found = invoked("store", "--target", target, "--out", tmp_path / "oracle.json")
    assert (found.exit_code, (tmp_path / "oracle.json").exists()) == (2, False)
    assert "dense fallback" in found.stderr


def test_a_target_without_a_binding_has_nothing_to_store_under(tmp_path):
    found = invoked("store", "--target", "reference", "--out", tmp_path / "oracle.json")
    assert found.exit_code == 2
    assert "oracle.binding" in found.stderr


@pytest.mark.parametrize(
    "error",
    [
        NotProvoked("no narrow boundary"),
        TargetLost("it was killed"),
        RouteLost("again and again"),
        Nonconformance("logits", "nothing"),
        PermissionError(13, "Permission denied", "/out.json"),
        Refusal("no such model"),
    ],
    ids=lambda one: type(one).__name__,
)
@pytest.mark.parametrize("command", ["calibrate", "store"])
def test_what_goes_wrong_is_one_line_and_exit_code_2(tmp_path, monkeypatch, command, error):
    def fails(*_):
        raise error

    monkeypatch.setattr("pytest_meshnet.parity.calibrating.measure", fails)
    monkeypatch.setattr("pytest_meshnet.parity.oracles.stored.store", fails)
    target = bound_target(tmp_path / "target.toml")
    found = invoked(command, "--target", target, "--out", tmp_path / "out.json")
    assert (found.exit_code, found.stdout) == (2, "")
    assert found.stderr.startswith("refused: ")
    assert found.stderr.count("\n") == 1
    assert not (tmp_path / "out.json").exists()


@pytest.mark.parametrize("model", ["tiny-llama", "tiny-llama-small"])
def test_no_prompt_of_a_seeded_models_corpus_has_a_near_tie(model):
    oracle = built_in(model).whole()
    for name, ids in read_corpus(FIXTURES / "parity" / f"{model}-corpus.json").items():
        best = np.sort(oracle.generate(ids, 32).scores, axis=1)
        assert (best[:, -1] - best[:, -2]).min() >= 0.06, name


@pytest.mark.parametrize("model", ["tiny-llama", "tiny-llama-small", "smollm2"])
def test_kept_figures_belong_to_the_corpus_beside_them(model):
    kept = Calibration.read(FIXTURES / "parity" / f"{model}.json")
    prompts = read_corpus(FIXTURES / "parity" / f"{model}-corpus.json")
    assert kept.about.corpus == corpus_digest(prompts)


@pytest.mark.parametrize(
    ("text", "other", "line"),
    [
        ("tiny-llama-small-corpus.json", "tiny-llama-corpus.json", "prompts "),
        ('model = "tiny-llama-small"', 'model = "tiny-llama"', "weights "),
        ('"bfloat16"]', '"float16"]', "boundary bfloat16, expected float16"),
    ],
)
def test_a_bench_is_not_opened_with_the_figures_of_another_run(tmp_path, text, other, line):
    path = bound_target(tmp_path / "target.toml")
    before, _, route = path.read_text().rpartition("[route]")
    assert text in route
    path.write_text(f"{before}[route]{route.partition('[oracle.binding]')[0].replace(text, other)}")
    with pytest.raises(Refusal, match="parity calibrate") as refused:
        open_bench(load(str(path)), 1)
    assert line in refused.value.message


def test_a_drawn_corpus_is_a_function_of_seed_and_vocabulary():
    assert drawn_corpus(100, 1) == drawn_corpus(100, 1)
    assert drawn_corpus(100, 1) != drawn_corpus(100, 2)
    assert all(0 <= one < 7 for ids in drawn_corpus(7, 3).values() for one in ids)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is no corpus"),
        ("[]", "is no corpus"),
        ('{"prompts": []}', "0 prompt"),
        ('{"prompts": [{"ids": [1]}]}', "is no corpus"),
    ],
)
def test_what_is_no_corpus_is_refused(tmp_path, text, why):
    (tmp_path / "corpus.json").write_text(text)
    with pytest.raises(Refusal, match=why):
        read_corpus(tmp_path / "corpus.json")


LONG = list(range(8))


@pytest.mark.parametrize(
    ("prompts", "why"),
    [
        ([("a", LONG), ("b", [])], "or an empty one"),
        ([("a", LONG), ("b", [1]), ("c", [2]), ("c", [3])], "two prompts of one name"),
        ([("a", LONG), ("b", [1])], "2 prompt.s. of at most 8 tokens: at least 3 are needed"),
        ([("a", LONG[:7]), ("b", [1]), ("c", [2])], "3 prompt.s. of at most 7 tokens"),
    ],
)
def test_a_corpus_that_is_too_small_or_would_shrink_is_refused(tmp_path, prompts, why):
    document = {"prompts": [{"name": name, "ids": ids} for name, ids in prompts]}
    (tmp_path / "corpus.json").write_text(json.dumps(document))
    with pytest.raises(Refusal, match=why):
        read_corpus(tmp_path / "corpus.json")
