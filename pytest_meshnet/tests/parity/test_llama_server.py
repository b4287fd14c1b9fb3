"""The client of llama.cpp's server, against a server that answers as its API is documented."""

import re
import socket
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from pytest_meshnet.parity.oracles.llama_server import LlamaServer, model_file
from pytest_meshnet.runtime.errors import Nonconformance, Refusal, TargetLost
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
    with pytest.raises(Nonconformance, match="1 to 3 tokens with log-probabilities"):
        reached(url).generate([5], 3)


def test_a_model_that_is_no_file_is_refused(tmp_path):
    with pytest.raises(Refusal, match="there is no model"):
        model_file("missing.gguf", tmp_path)


@pytest.mark.parametrize(
    "answer",
    [b"", b"no JSON", b"[]", b"{}", b'{"completion_probabilities": 3}', b'"text"', b"null",
     b'{"completion_probabilities": [{"id": 1}]}',
     b'{"completion_probabilities": [{"id": "1", "top_logprobs": []}]}',
     b'{"completion_probabilities": [{"id": -1, "top_logprobs": []}]}',
     b'{"completion_probabilities": [{"id": 8, "top_logprobs": []}]}',
     b'{"completion_probabilities": [{"id": 1, "top_logprobs": [{"id": 1, "logprob": "x"}]}]}',
     b'{"completion_probabilities": [{"id": 1, "top_logprobs": [{"id": 1, "logprob": NaN}]}]}',
     b'{"completion_probabilities": [{"id": 1, "top_logprobs": [{"id": 9, "logprob": -1}]}]}',
     b'{"completion_probabilities": [{"id": 1, "top_logprobs": []}], "timings": 3}',
     b'{"completion_probabilities": [{"id": 1, "top_logprobs": []}], "timings": {"prompt_ms": []}}',
     b'{"completion_probabilities": [{"id": 1, "top_logprobs": []}], "timings": '
     b'{"prompt_ms": 1e999}}'],
)  # fmt: skip
def test_a_malformed_answer_is_a_finding(handler, url, answer):
    handler.answer = lambda self, _document: self.send(answer)
    with pytest.raises(Nonconformance, match="completion_probabilities"):
        reached(url).generate([5], 1)


def test_more_tokens_than_were_asked_for_are_a_finding(handler, url):
    honest = handler.completion
    handler.completion = lambda self, body: honest(self, body | {"n_predict": 3})
    with pytest.raises(Nonconformance, match="1 to 2 tokens"):
        reached(url).generate([5], 2)


def test_a_server_that_goes_away_is_lost(handler, url):
    handler.do_POST = lambda self: self.connection.shutdown(socket.SHUT_RDWR)
    with pytest.raises(TargetLost, match="went away"):
        reached(url).generate([5], 1)


SERVER = (
    "import sys, http.server as h, subprocess\n"
    "child = subprocess.Popen(['sleep', '600'])\n"
    "print('child', child.pid, flush=True)\n"
    "class H(h.BaseHTTPRequestHandler):\n"
    "    seen = 0\n"
    "    def do_GET(self):\n"
    "        H.seen += 1\n"
    "        self.send_response(503 if H.seen < 3 else 200)\n"
    "        self.end_headers()\n"
    "h.HTTPServer(('127.0.0.1', int(sys.argv[1])), H).serve_forever()\n"
)


def test_a_started_server_is_waited_for_and_ends_with_its_children(tmp_path):
    spec = EngineSpec(command=(sys.executable, "-c", SERVER, "{port}"))
    server = LlamaServer.reach(spec, tmp_path, 8, 30)
    log = server._binary.log()
    child = int(re.search(r"child (\d+)", log).group(1))
    assert log.count("GET /health") == 3, "it is asked with a pause between"
    server.close()
    assert_gone(child)


def assert_gone(pid):
    for _ in range(50):
        state = Path(f"/proc/{pid}/stat")
        if not state.exists() or state.read_text().split()[2] == "Z":
            return
        threading.Event().wait(0.1)
    pytest.fail(f"process {pid} outlived its server")


def test_a_binary_that_is_not_there_is_refused(tmp_path):
    spec = EngineSpec(command=(str(tmp_path / "llama-server"), "--port", "{port}"))
    with pytest.raises(Refusal, match=r"ended with 127(.|\n)*llama-server: No such file"):
        LlamaServer.reach(spec, tmp_path, 8, 30)


def test_a_binary_that_ends_at_once_is_refused_with_its_last_lines(tmp_path):
    spec = EngineSpec(command=(sys.executable, "-c", "import sys; sys.exit('no such model')"))
    with pytest.raises(
        Refusal, match=r"ended with 1 at its start; its last lines:\n  \| no such model"
    ):
        LlamaServer.reach(spec, tmp_path, 8, 30)
