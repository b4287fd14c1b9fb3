"""What an OpenAI-compatible endpoint answers, kept raw."""

from __future__ import annotations

import json
import urllib.error
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
    body = json.dumps(request).encode()
    asked = urllib.request.Request(
        f"{base.rstrip('/')}/chat/completions",
        data=body,
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(asked, timeout=timeout) as answer:
            raw: bytes = answer.read()
        document = json.loads(raw)
        choice = document["choices"][0]
        text = choice["message"]["content"]
    except urllib.error.URLError as error:
        raise ApiFailed(f"{base} does not answer a chat completion: {error}") from error
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise ApiFailed(f"{base} answered no chat completion ({error!r})") from error
    found = {
        "model": document.get("model"),
        "finish_reason": choice.get("finish_reason"),
        "usage": document.get("usage"),
    }
    known = {name: value for name, value in found.items() if value is not None}
    return Answer(text, claims(base, known), raw)


def rendered(base: str, messages: list[dict[str, str]], timeout: float) -> str:
    """The prompt as the server renders it (llama-server's POST /apply-template). Raises ApiFailed.

    What a request asks for proves nothing: only the rendered text shows what the model saw.
    """
    asked = urllib.request.Request(
        f"{base.rstrip('/').removesuffix('/v1')}/apply-template",
        data=json.dumps({"messages": messages}).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(asked, timeout=timeout) as answer:
            return str(json.load(answer)["prompt"])
    except urllib.error.URLError as error:
        raise ApiFailed(f"{base} renders no template: {error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ApiFailed(f"{base} answered no rendered template ({error!r})") from error
