"""What is known of the prefill of one request, and how it came to be known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Route = Literal["uid", "sequence", "response"]
"""By request id, by being the single fresh record, or told in the response itself."""

OK = "ok"

PROMPT = "prompt throughput"
SUFFIX = "uncached-suffix work"
UNLABELLED = "cached tokens unknown: no prompt throughput"


@dataclass(frozen=True, slots=True)
class Attribution:
    """The server's measure of one prompt, or the code and the reason why there is none.

    `code` is `ok` or the last part of a prefill code. `gpu_ms` is the server's time of the
    prefill in milliseconds, summed over its chunks; `new_tokens` were computed in it. Both are
    None unless the code is `ok`; `record` is what the server told, whatever came of it.
    """

    code: str
    reason: str | None
    route: Route
    request_uid: int | None
    gpu_ms: float | None = None
    new_tokens: int | None = None
    cached_tokens: int | None = None
    record: Mapping[str, Any] | None = None

    @property
    def tokens_per_s(self) -> float | None:
        """The rate of the prefill itself: computed tokens over the server's own time."""
        if self.gpu_ms is None or self.new_tokens is None:
            return None
        return self.new_tokens / (self.gpu_ms / 1000)

    @property
    def label(self) -> str | None:
        """What the rate is a rate of; None where there is none."""
        if self.tokens_per_s is None:
            return None
        if self.cached_tokens is None:
            return UNLABELLED
        return SUFFIX if self.cached_tokens > 0 else PROMPT

    def document(self) -> dict[str, Any] | None:
        """Return the prefill for a repetition's record, None where nothing was attributed."""
        if self.code != OK:
            return None
        return {
            **(self.record or {}),
            "gpu_ms": self.gpu_ms,
            "new_tokens": self.new_tokens,
            "cached_tokens": self.cached_tokens,
            "prefill_tok_s": self.tokens_per_s,
            "label": self.label,
        }

    def status(self) -> dict[str, Any]:
        """Return how the attribution went, for a repetition's record."""
        return {
            "ok": self.code == OK,
            "code": self.code,
            "reason": self.reason,
            "attribution": self.route,
            "request_uid": self.request_uid,
        }


@dataclass(frozen=True, slots=True)
class Names:
    """What a server calls the three figures of a record."""

    milliseconds: str
    new_tokens: str
    cached_tokens: str


def measured(
    record: Mapping[str, Any], names: Names, route: Route, uid: int | None = None
) -> Attribution:
    """Return the attribution of a record that belongs to the request: usable figures or not."""
    milliseconds, new = record.get(names.milliseconds), record.get(names.new_tokens)
    old = record.get(names.cached_tokens)
    usable = _positive(milliseconds)
    if usable is None or type(new) is not int or new <= 0:
        return Attribution(
            "unusable_timing",
            f"{new!r} new tokens in {milliseconds!r} ms: expected both above 0",
            route,
            uid,
            record=record,
        )
    return Attribution(
        OK,
        None,
        route,
        uid,
        usable,
        new,
        old if type(old) is int and old >= 0 else None,
        record,
    )


def _positive(value: Any) -> float | None:
    usable = type(value) in (int, float) and math.isfinite(value) and value > 0
    return float(value) if usable else None
