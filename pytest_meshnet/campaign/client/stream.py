"""One streamed completion with the time of every event that carries generated content.

Times are `time.perf_counter` in seconds, taken when the line of an event was read. A chunk with
only a role, or with nothing generated, is no token and moves no clock.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse
from typing import Any

from pytest_meshnet.campaign.client.http import connect
from pytest_meshnet.campaign.documents import loads

ROUTE = "/v1/chat/completions"
_END = "[DONE]"
_SHOWN = 300


class GenerationFailed(Exception):
    """A completion did not come whole; the message says how far it came and what was wrong."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A completion that came to its end. `stamps` are those of events with generated content."""

    sent_at: float
    ended_at: float
    stamps: tuple[float, ...]
    text: str
    usage: Mapping[str, Any]
    response_id: str | None
    timings: Mapping[str, Any] | None


@dataclass(slots=True)
class _Growing:
    stamps: list[float] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    usage: Mapping[str, Any] | None = None
    response_id: str | None = None
    timings: Mapping[str, Any] | None = None


def generate(origin: str, body: Mapping[str, Any], timeout: float) -> Reply:
    """Send a streamed request and read it to its end; `timeout` bounds each wait, in seconds.

    Raises GenerationFailed for an answer that is no stream, an error in it, an end without
    `[DONE]`, and a stream without usage.
    """
    connection = connect(origin, timeout)
    data = json.dumps(body).encode()
    grown = _Growing()
    sent_at = time.perf_counter()
    try:
        connection.request("POST", ROUTE, data, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            said = answer.read(_SHOWN).decode(errors="replace")
            raise GenerationFailed(f"POST {ROUTE} answered {answer.status}: {said}")
        _read(answer, grown)
    except (OSError, HTTPException) as error:
        what = error or type(error).__name__
        raise GenerationFailed(f"after {len(grown.stamps)} events: {what}") from None
    finally:
        connection.close()
    ended_at = time.perf_counter()
    if grown.usage is None:
        raise GenerationFailed("the stream ended without usage: tokens cannot be counted")
    return Reply(
        sent_at,
        ended_at,
        tuple(grown.stamps),
        "".join(grown.pieces),
        grown.usage,
        grown.response_id,
        grown.timings,
    )


def _read(answer: HTTPResponse, grown: _Growing) -> None:
    for now, line in _data_lines(answer):
        if line == _END:
            return
        try:
            event = loads(line)
        except ValueError as error:
            raise GenerationFailed(f"event {len(grown.stamps)} is no JSON: {error}") from None
        _take(event, now, grown)
    raise GenerationFailed(f"the stream ended after {len(grown.stamps)} events without {_END}")


def _data_lines(answer: HTTPResponse) -> Iterator[tuple[float, str]]:
    """Yield the data of each event with the time at which its line was read."""
    while raw := answer.readline():
        now = time.perf_counter()
        line = raw.decode(errors="replace").strip()
        if line.startswith("data:"):
            yield now, line.removeprefix("data:").strip()


def _take(event: Any, now: float, grown: _Growing) -> None:
    if not isinstance(event, dict) or event.get("error") is not None:
        raise GenerationFailed(f"after {len(grown.stamps)} events: {event!r:.300}")
    grown.response_id = grown.response_id or event.get("id")
    grown.usage = event.get("usage") or grown.usage
    grown.timings = event.get("timings") or grown.timings
    for choice in event.get("choices") or ():
        delta = choice.get("delta") or {}
        piece = (delta.get("reasoning_content") or "") + (delta.get("content") or "")
        if piece:
            grown.stamps.append(now)
            grown.pieces.append(piece)
