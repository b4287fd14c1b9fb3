"""Prefill attribution on a real llama.cpp server: its own time goes to the right request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pytest_meshnet.campaign.attribution.attributed import PROMPT, SUFFIX, Attribution
from pytest_meshnet.campaign.attribution.llama_cpp import decode_rate
from pytest_meshnet.campaign.attribution.source import LlamaCpp
from pytest_meshnet.campaign.client.figures import figures
from pytest_meshnet.campaign.client.http import connect
from pytest_meshnet.campaign.client.stream import ROUTE, Reply, generate

from ..llama_server import BATCH, PARALLEL, serving

LIMIT_S = 100.0
"""How long one wait for the server may take."""


@pytest.fixture(scope="module")
def origin() -> Iterator[str]:
    with serving() as found:
        yield found


def body(prompt: str, tokens: int = 2, *, cached: bool = False) -> dict[str, Any]:
    return {
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0,
        "cache_prompt": cached,
    }


def ask(origin: str, asked: dict[str, Any]) -> tuple[Reply, Attribution]:
    source = LlamaCpp()
    mark = source.before()
    reply = generate(origin, asked, LIMIT_S)
    return reply, source.after(reply, mark)


def check_own(reply: Reply, found: Attribution) -> None:
    """The attributed tokens are those of this very prompt, and the time fits before its TTFT."""
    assert found.code == "ok", f"expected an attribution, got {found.code}: {found.reason}"
    assert found.gpu_ms is not None, "expected a time with the code ok"
    whole = (found.new_tokens or 0) + (found.cached_tokens or 0)
    prompt = reply.usage["prompt_tokens"]
    assert whole == prompt, f"expected the {prompt} tokens of the prompt, got {whole}"
    ttft = (reply.stamps[0] - reply.sent_at) * 1000
    assert 0 < found.gpu_ms <= ttft, f"expected a time within the TTFT {ttft}, got {found.gpu_ms}"


def test_a_cold_prompt_is_prompt_throughput_and_a_warm_repeat_is_not(origin: str) -> None:
    """The same words twice on one server: the second computes a small suffix."""
    prompt = "Name one fruit that grows on a tree in a cold country."
    # Told not to look into the cache: the words of the template are those of every prompt.
    cold_reply, cold = ask(origin, body(prompt))
    warm_reply, warm = ask(origin, body(prompt, cached=True))
    check_own(cold_reply, cold)
    check_own(warm_reply, warm)
    assert (cold.cached_tokens, cold.label) == (0, PROMPT), f"expected a cold prompt: {cold}"
    assert (warm.cached_tokens or 0) > 0, f"expected cached tokens, got {warm.cached_tokens}"
    assert warm.label == SUFFIX, f"expected {SUFFIX}, got {warm.label}"
    assert (warm.new_tokens or 0) < (cold.new_tokens or 0), f"expected a suffix, got {warm}"


def test_four_in_flight_get_their_own_times(origin: str) -> None:
    """Prompts of four lengths at once: a figure that went astray has another length."""
    prompts = [" ".join(["word"] * count) + " end" for count in (8, 24, 40, 56)]
    with ThreadPoolExecutor(PARALLEL) as pool:
        answers = list(pool.map(lambda prompt: ask(origin, body(prompt)), prompts))
    for reply, found in answers:
        check_own(reply, found)
    counts = [found.new_tokens for _, found in answers]
    assert counts == sorted(set(counts), key=lambda one: one or 0), f"expected a rise: {counts}"
    ids = {reply.response_id for reply, _ in answers}
    assert len(ids) == len(prompts), f"expected four responses, got {ids}"


def test_a_prompt_in_several_chunks_is_measured_as_a_whole(origin: str) -> None:
    """Three batches and a rest: neither the last chunk nor the first stands for the prompt."""
    reply, found = ask(origin, body(" ".join(f"item {number}" for number in range(60))))
    check_own(reply, found)
    assert (found.new_tokens or 0) > 2 * BATCH, f"expected three chunks, got {found.new_tokens}"
    assert found.cached_tokens == 0, f"expected a cold prompt, got {found.cached_tokens}"


def test_a_request_after_a_disconnect_gets_nothing_of_the_abandoned_one(origin: str) -> None:
    """A client leaves in the middle of its stream; the next one asks something shorter."""
    connection = connect(origin, LIMIT_S)
    long = body("Tell a very long story about a lighthouse. " * 4, tokens=200)
    connection.request("POST", ROUTE, json.dumps(long), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    assert answer.readline().startswith(b"data:"), "expected the first event of the stream"
    connection.close()
    reply, found = ask(origin, body("Say yes."))
    check_own(reply, found)


def test_the_servers_decode_rate_leaves_the_first_token_out(origin: str) -> None:
    """predicted_per_second is (predicted_n - 1) / predicted_ms, which the client's rate is too."""
    reply, _ = ask(origin, body("Count from one to ten.", tokens=12))
    timings = dict(reply.timings or {})
    rate = decode_rate(timings)
    assert rate == pytest.approx(timings["predicted_per_second"], rel=1e-9), f"got {timings}"
    told = figures(reply, 12)
    assert told["completion_tokens"] == timings["predicted_n"], f"got {told} and {timings}"
    assert told["decode_steps"] == timings["predicted_n"] - 1, f"got {told} and {timings}"
