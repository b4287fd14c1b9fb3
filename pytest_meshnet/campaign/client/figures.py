"""The figures of one reply, in the units and under the names of a repetition's record."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from pytest_meshnet.campaign.client.stream import GenerationFailed, Reply


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the value at index round(share * (n - 1)) of an ascending series."""
    return ordered[round(share * (len(ordered) - 1))]


def figures(reply: Reply, requested_tokens: int) -> dict[str, Any]:
    """Return what one reply shows.

    The decode rate is (completion_tokens - 1) / (t_last - t_first) over events that carry
    generated content; tokens are counted by the server. Raises GenerationFailed when there is no
    window to speak of.
    """
    stamps = reply.stamps
    completion, prompt = _count(reply, "completion_tokens"), _count(reply, "prompt_tokens")
    window = stamps[-1] - stamps[0] if stamps else 0.0
    if window <= 0 or completion < 2:
        raise GenerationFailed(
            f"{len(stamps)} events and {completion} tokens: a decode rate needs at least two"
        )
    gaps = [(later - one) * 1000 for one, later in pairwise(stamps)]
    ordered = sorted(gaps)
    steps = completion - 1
    return {
        "ttft_ms": (stamps[0] - reply.sent_at) * 1000,
        "wall_total_ms": (reply.ended_at - reply.sent_at) * 1000,
        "decode_window_s": window,
        "decode_steps": steps,
        "decode_tok_s": steps / window,
        "ms_per_token_mean": window / steps * 1000,
        "inter_token_ms": gaps,
        "inter_token_ms_p50": quantile(ordered, 0.50),
        "inter_token_ms_p95": quantile(ordered, 0.95),
        "inter_token_ms_max": ordered[-1],
        "token_events": len(stamps),
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "requested_max_tokens": requested_tokens,
        "completion_matches_request": completion == requested_tokens,
        "output_sha256": hashlib.sha256(reply.text.encode()).hexdigest(),
        "output_chars": len(reply.text),
        "response_id": reply.response_id,
    }


def _count(reply: Reply, name: str) -> int:
    value = reply.usage.get(name)
    if type(value) is not int:
        raise GenerationFailed(f"usage.{name} is {value!r}: expected a whole number")
    return value
