"""Prefill attribution on a simulated FreeToken: a ring of records, matched by request id."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pytest_meshnet.campaign.attribution.attributed import PROMPT, SUFFIX, Attribution
from pytest_meshnet.campaign.attribution.source import FreeToken
from pytest_meshnet.campaign.client.http import connect
from pytest_meshnet.campaign.client.stream import ROUTE, Reply, generate
from pytest_meshnet.campaign.plan.arms import ARMS, SERVER_ENVIRONMENT, Runtime, ServeSettings
from pytest_meshnet.campaign.runner.server import Server
from pytest_meshnet.campaign.simulated.rig import RUNTIME
from pytest_meshnet.runtime.ports import free_port

LIMIT_S = 60.0
GPU = "GPU-3060a1f0-7c21-4d5e-9b10-0c8f5e2d6a71"


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A serving process of the arm B1."""
    runtime, port = Runtime(RUNTIME, "/model", ServeSettings()), free_port()
    log: Path = tmp_path_factory.mktemp("simulated") / "server.log"
    command = runtime.serve(ARMS["B1"], GPU, port)
    with Server(command, SERVER_ENVIRONMENT, port, log) as server:
        server.wait_until_serving(LIMIT_S)
        yield server.origin


def body(prompt: str, tokens: int = 4) -> dict[str, Any]:
    messages = [{"role": "user", "content": prompt}]
    return {"messages": messages, "max_tokens": tokens, "stream": True}


def ask(origin: str, asked: dict[str, Any]) -> tuple[Reply, Attribution]:
    source = FreeToken(origin)
    mark = source.before()
    reply = generate(origin, asked, LIMIT_S)
    return reply, source.after(reply, mark)


def words(count: int, first: str) -> str:
    return " ".join([first, *["word"] * (count - 1)])


def test_a_warm_repeat_is_uncached_suffix_work(origin: str) -> None:
    """The same prompt twice on one server."""
    asked = body(words(100, "repeat"))
    (_, cold), (_, warm) = ask(origin, asked), ask(origin, asked)
    assert (cold.new_tokens, cold.cached_tokens, cold.label) == (100, 0, PROMPT), f"got {cold}"
    assert warm.label == SUFFIX, f"expected {SUFFIX}, got {warm}"
    assert (warm.new_tokens or 0) + (warm.cached_tokens or 0) == 100, f"got {warm}"


def test_requests_in_flight_together_get_their_own_records(origin: str) -> None:
    """Every request has another length, and others' newer records lie in the same ring."""
    lengths = list(range(50, 66))
    with ThreadPoolExecutor(4) as pool:
        prompts = [words(count, f"flight-{count}") for count in lengths]
        answers = list(pool.map(lambda prompt: ask(origin, body(prompt)), prompts))
    found = [one.new_tokens for _, one in answers]
    assert found == lengths, f"expected {lengths}, got {found}"
    assert {one.route for _, one in answers} == {"uid"}, "expected every match by request id"


def test_a_prompt_in_several_chunks_is_one_record(origin: str) -> None:
    """Twenty thousand tokens are prefilled in three chunks, and summed by the server."""
    _, found = ask(origin, body(words(20_000, "chunks")))
    assert (found.record or {}).get("chunks") == 3, f"expected three chunks, got {found.record}"
    assert found.new_tokens == 20_000, f"expected the whole prompt, got {found.new_tokens}"


def test_an_abandoned_request_leaves_the_next_one_its_own_record(origin: str) -> None:
    """A client goes away in mid-stream; its record is newer than the floor and nobody's."""
    connection = connect(origin, LIMIT_S)
    data = json.dumps(body(words(70, "gone"), tokens=5000))
    connection.request("POST", ROUTE, data, {"Content-Type": "application/json"})
    assert connection.getresponse().readline(), "expected the first line of the stream"
    connection.close()
    _, found = ask(origin, body(words(30, "next")))
    assert found.new_tokens == 30, f"expected 30 tokens of its own, got {found}"
