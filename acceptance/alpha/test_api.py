"""What a real llama.cpp server answers and renders, as parts of an acceptance record."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from pytest_meshnet.alpha.collectors import api
from pytest_meshnet.alpha.collectors.claims import RecordBuilder, claim
from pytest_meshnet.alpha.judge import MET, NOT_MET, Line, judge
from pytest_meshnet.runtime.ports import free_port
from pytest_meshnet.target.documents import LockedTarget

from ..llama_server import serving

LIMIT_S = 100.0
TOKENS = 6
MESSAGES = [{"role": "user", "content": "Name one fruit that grows on a tree."}]
RESPONSE = "target_run.require_openai_compatible_response_fields"
MARKER = "semantic_correctness.require_rendered_reasoning_effort_marker"


@pytest.fixture(scope="module")
def origin() -> Iterator[str]:
    with serving() as found:
        yield found


@pytest.fixture(scope="module")
def answer(origin: str) -> api.Answer:
    """A short answer that is cut off at its length."""
    asked = {"messages": MESSAGES, "max_tokens": TOKENS, "temperature": 0, "cache_prompt": False}
    return api.chat(f"{origin}/v1", asked, LIMIT_S)


def _lines(made: RecordBuilder) -> dict[str, Line]:
    return {line.id: line for line in judge(LockedTarget.load(), made.record).lines}


def _counted(origin: str, text: str) -> int:
    """How many tokens the server itself makes of a text."""
    body = json.dumps({"content": text, "add_special": False, "parse_special": True}).encode()
    asked = urllib.request.Request(
        f"{origin}/tokenize", body, headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(asked, timeout=LIMIT_S) as found:
        return len(json.load(found)["tokens"])


def _record(answer: api.Answer, **changed: Any) -> RecordBuilder:
    made = RecordBuilder(synthetic=False)
    found = {
        "prompt_tokens": answer.usage["prompt_tokens"],
        "output_tokens": answer.usage["completion_tokens"],
        "finish_reason": "length",
    } | changed
    made.fill("target_run", {name: claim(value, "the client") for name, value in found.items()})
    made.fill("target_run/response", answer.response)
    return made


def test_a_real_completion_has_the_fields_that_the_contract_names(answer: api.Answer) -> None:
    """Raw, whole and cut off where it was asked to be; the judge finds its fields consistent."""
    assert answer.text, f"expected a text, got {answer.raw!r}"
    assert tuple(answer.response) == api.FIELDS, f"expected all fields, got {answer.response}"
    assert answer.response["finish_reason"]["value"] == "length", f"got {answer.response}"
    assert answer.usage["completion_tokens"] == TOKENS, f"expected {TOKENS}, got {answer.usage}"
    assert json.loads(answer.raw)["choices"][0]["message"]["content"] == answer.text
    line = _lines(_record(answer))[RESPONSE]
    assert (line.status, line.source) == (MET, "measured"), f"expected it met, got {line}"


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"output_tokens": TOKENS + 1}, "contradictory"),
        ({"prompt_tokens": 4096}, "contradictory"),
        ({"finish_reason": "stop"}, "differs"),
    ],
    ids=["output", "prompt", "reason"],
)
def test_a_record_that_says_something_else_than_the_server_is_not_met(
    answer: api.Answer, changed: dict[str, Any], code: str
) -> None:
    """The client's own counts are held against what the server told."""
    line = _lines(_record(answer, **changed))[RESPONSE]
    codes = [found for found, _ in line.reasons]
    assert codes == [f"{RESPONSE}.{code}"], f"expected {code}, got {line}"


def test_the_rendered_template_is_the_prompt_that_was_counted(
    origin: str, answer: api.Answer
) -> None:
    """It has as many tokens as usage says, and without the marker of the target it is not met."""
    text = api.rendered(f"{origin}/v1", MESSAGES, LIMIT_S)
    assert MESSAGES[0]["content"] in text, f"expected the message, got {text!r}"
    counted, told = _counted(origin, text), answer.usage["prompt_tokens"]
    assert counted == told, f"expected the {told} tokens of the prompt, the template has {counted}"
    made = RecordBuilder(synthetic=False)
    made.fill("semantic_correctness", {"rendered_template": claim(text, "the server")})
    line = _lines(made)[MARKER]
    assert line.status == NOT_MET, f"SmolLM2 has no reasoning effort, yet {line}"


def test_a_server_that_is_not_there_is_said_so() -> None:
    """Neither an answer nor a template is made up."""
    nobody = f"http://127.0.0.1:{free_port()}/v1"
    with pytest.raises(api.ApiFailed, match="completions does not answer"):
        api.chat(nobody, {"messages": MESSAGES}, LIMIT_S)
    with pytest.raises(api.ApiFailed, match="apply-template does not answer"):
        api.rendered(nobody, MESSAGES, LIMIT_S)
