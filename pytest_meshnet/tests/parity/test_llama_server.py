"""The client of llama.cpp's server, against a server that answers as its API is documented."""

from pathlib import Path

import numpy as np
import pytest

from pytest_meshnet.parity.oracles.llama_server import LlamaServer, model_file
from pytest_meshnet.runtime.errors import Nonconformance, Refusal
from pytest_meshnet.runtime.route_spec import EngineSpec
from pytest_meshnet.tests.parity.llama_stub import Handler
from pytest_meshnet.tests.serving import serving


@pytest.fixture
def handler():
    return type("OwnHandler", (Handler,), {"asked": []})


@pytest.fixture
def url(handler):
    with serving(handler) as address:
        yield address


def reached(url):
    return LlamaServer.reach(EngineSpec(url=url), Path(), 8, 30)


def test_token_ids_go_in_and_greedy_tokens_come_out(handler, url):
    made = reached(url).generate([5, 6], 3)
    assert made.tokens == (2, 3, 4)
    (asked,) = handler.asked
    assert asked["prompt"] == [5, 6]
    assert (asked["temperature"], asked["n_predict"], asked["cache_prompt"]) == (0.0, 3, False)


def test_an_answer_that_ends_is_continued_and_no_token_is_banned(handler, url):
    handler.most = 2
    made = reached(url).generate([5, 6], 5)
    assert made.tokens == (2, 3, 4, 5, 6)
    assert [one["prompt"] for one in handler.asked] == [
        [5, 6], [5, 6, 2, 3], [5, 6, 2, 3, 4, 5],
    ]  # fmt: skip
    assert not any("ignore_eos" in one for one in handler.asked)


def test_what_is_not_told_is_unknown(url):
    made = reached(url).generate([5], 1)
    assert made.scale == "log-probabilities"
    assert made.scores[0, [0, 1]].tolist() == [-3.0, -0.25]
    assert np.isnan(made.scores[0, 2:]).all()


def test_its_timings_are_its_work(url):
    (work,) = reached(url).generate([5], 1).work
    assert (work.end_layer, work.execution_nanos, work.least_nanos) == (30, 10_000_000, 2_000_000)


def test_prompts_run_at_once_and_keep_their_order(handler, url):
    made = reached(url).generate_together([[1], [2], [3], [4]], 2)
    assert [one.prompt for one in made] == [(1,), (2,), (3,), (4,)]
    assert len(handler.asked) == 4


def test_a_token_without_probabilities_is_a_finding(handler, url):
    handler.most = 0
    with pytest.raises(Nonconformance, match="3 tokens with log-probabilities"):
        reached(url).generate([5], 3)


def test_a_model_that_is_no_file_is_refused(tmp_path):
    with pytest.raises(Refusal, match="there is no model"):
        model_file("missing.gguf", tmp_path)


def test_a_binary_that_is_not_there_is_refused(tmp_path):
    spec = EngineSpec(command=(str(tmp_path / "llama-server"), "--port", "{port}"))
    with pytest.raises(Refusal, match="cannot be started"):
        LlamaServer.reach(spec, tmp_path, 8, 30)


def test_a_binary_that_ends_at_once_is_refused(tmp_path):
    with pytest.raises(Refusal, match="ended with 1 at its start"):
        LlamaServer.reach(EngineSpec(command=("false",)), tmp_path, 8, 30)
