"""llama.cpp: the server tells its own times in the response, as `timings`.

`prompt_ms` is the server's time for `prompt_n` computed tokens; `cache_n` came from the cache of
the slot. Its own `predicted_per_second` is (predicted_n - 1) / predicted_ms: the first token
belongs to the prompt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_meshnet.campaign.attribution.attributed import Attribution, Names, measured

_NAMES = Names("prompt_ms", "prompt_n", "cache_n")


def attribute(timings: Any) -> Attribution:
    """Read the `timings` of one response; they are the request's own by where they stand."""
    if not isinstance(timings, Mapping):
        reason = f"the response holds no timings but {timings!r:.60}"
        return Attribution("unavailable", reason, "response", None)
    return measured(timings, _NAMES, "response")


def decode_rate(timings: Mapping[str, Any]) -> float | None:
    """Return the server's own decode rate in tokens a second, recomputed from its figures."""
    tokens, milliseconds = timings.get("predicted_n"), timings.get("predicted_ms")
    if type(tokens) is not int or type(milliseconds) not in (int, float) or not milliseconds:
        return None
    return (tokens - 1) / (float(milliseconds) / 1000)
