"""What an OpenAI-compatible endpoint answers, kept raw."""

from __future__ import annotations

import http.client
import json
import urllib.request
from dataclasses import dataclass
from typing import Any

from pytest_meshnet.alpha.collectors.claims import Claims, claims

FIELDS = ("model", "finish_reason", "usage")


class ApiFailed(RuntimeError):
    """The endpoint did not answer a request as an OpenAI-compatible one does."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One chat completion: its text, the claims of its fields, and the raw response."""

    text: str
    response: Claims
    raw: bytes

    @property
    def usage(self) -> Any:
        """What the response says of tokens, None when it says nothing."""
        return self.response["usage"]["value"] if "usage" in self.response else None


def chat(base: str, request: dict[str, Any], timeout: float) -> Answer:
    """POST a chat completion to `base` (".../v1") and read its fields; `timeout` is in seconds.

    A field that the response lacks is left out of the claims. Raises ApiFailed.
    """
    raw = _post(f"{base.rstrip('/')}/chat/completions", request, timeout)
    try:
        document = json.loads(raw)
        choice = document["choices"][0]
        text = choice["message"]["content"]
        usage = document.get("usage")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise ApiFailed(f"{base} answered no chat completion ({error!r})") from error
    if not isinstance(text, str):
        raise ApiFailed(f"{base} answered {text!r} and no text")
    found = {
        "model": document.get("model"),
        "finish_reason": choice.get("finish_reason"),
        "usage": usage,
    }
    known = {name: value for name, value in found.items() if value is not None}
    return Answer(text, claims(base, known), raw)


def rendered(base: str, messages: list[dict[str, str]], timeout: float) -> str:
    """The prompt as the server renders it (llama-server's POST /apply-template). Raises ApiFailed.

    What a request asks for proves nothing: only the rendered text shows what the model saw.
    """
    raw = _post(
        f"{base.rstrip('/').removesuffix('/v1')}/apply-template", {"messages": messages}, timeout
    )
    try:
        text = json.loads(raw)["prompt"]
    except (ValueError, KeyError, TypeError) as error:
        raise ApiFailed(f"{base} answered no rendered template ({error!r})") from error
    if not isinstance(text, str):
        raise ApiFailed(f"{base} rendered {text!r} and no text")
    return text


def _post(url: str, body: dict[str, Any], timeout: float) -> bytes:
    """The bytes of an answer. Raises ApiFailed when none comes, or not all of it in time."""
    headers = {"Content-Type": "application/json"}
    asked = urllib.request.Request(url, data=json.dumps(body).encode(), headers=headers)
    try:
        with urllib.request.urlopen(asked, timeout=timeout) as answer:
            raw: bytes = answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise ApiFailed(f"{url} does not answer: {error}") from error
    return raw
