"""Reading what a llama-server answers to /completion, with every key and type looked at."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.generation import ShardWork

_HINT = "does the server know n_probs, as llama.cpp's documents it?"
_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Told:
    """One token, and the log-probabilities of the best ones in its place."""

    token: int
    best: tuple[tuple[int, float], ...]


def read_answer(data: bytes, most: int, vocabulary: int) -> tuple[list[Told], list[int]]:
    """Read 1 to `most` tokens, and how many nanoseconds prompt and answer took.

    Raises Nonconformance for anything else.
    """
    try:
        document = json.loads(data)
        told = [_token(one, vocabulary) for one in document["completion_probabilities"]]
        timings = document.get("timings", {})
        nanos = [
            int(_number(timings.get(name, 0.0)) * 1e6) for name in ("prompt_ms", "predicted_ms")
        ]
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        shown = data[:_SHOWN].decode(errors="replace")
        raise Nonconformance(
            "an answer with completion_probabilities", f"{error!r} in {shown}", _HINT
        ) from None
    if not 1 <= len(told) <= most:
        raise Nonconformance(f"1 to {most} tokens with log-probabilities", str(len(told)), _HINT)
    return told, nanos


def work_of(nanos: Sequence[int], layers: int) -> ShardWork:
    """What the server says that prompts and answers took, as the work of one Shard."""
    return ShardWork(0, layers, len(nanos), sum(nanos), min(nanos), 0)


def _token(one: Any, vocabulary: int) -> Told:
    best = tuple(
        (_id(top["id"], vocabulary), _number(top["logprob"])) for top in one["top_logprobs"]
    )
    return Told(_id(one["id"], vocabulary), best)


def _id(value: Any, vocabulary: int) -> int:
    if type(value) is not int or not 0 <= value < vocabulary:
        raise ValueError(f"{value!r} is no token id below {vocabulary}")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or isnan(value):
        raise ValueError(f"{value!r} is no number")
    return float(value)
