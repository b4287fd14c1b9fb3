"""The prompts of a parity run: a file kept with the model, or drawn from its vocabulary."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from pytest_meshnet.runtime.errors import Refusal

Corpus = Mapping[str, tuple[int, ...]]

LEAST_PROMPTS = 3
LEAST_LONGEST = 8
"""What a corpus has at least: prompts, and tokens of the longest, so that chunks of 7 cut it."""

_DRAWN_LENGTHS = (9, 17, 33, 5, 24)
"""Tokens of the drawn prompts: below and above chunks of 7, none a multiple of it."""


def read_corpus(path: Path) -> Corpus:
    """Read prompts, `{"prompts": [{"name": ..., "ids": [...]}]}`. Raises Refusal."""
    try:
        prompts = json.loads(path.read_bytes())["prompts"]
        found = {one["name"]: tuple(map(int, one["ids"])) for one in prompts}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Refusal(
            f"{path} is no corpus ({error!r}): expected prompts with name and ids"
        ) from None
    if len(found) < len(prompts) or not all(found.values()):
        raise Refusal(f"{path} has two prompts of one name, or an empty one: correct it")
    if lack := too_small(found.values()):
        raise Refusal(f"{path} has {lack}")
    return found


def too_small(prompts: Collection[Sequence[int]]) -> str:
    """Say what prompts lack to be examined; empty when they suffice."""
    longest = max(map(len, prompts), default=0)
    if len(prompts) >= LEAST_PROMPTS and longest >= LEAST_LONGEST:
        return ""
    return (
        f"{len(prompts)} prompt(s) of at most {longest} tokens: at least {LEAST_PROMPTS} are "
        f"needed, and one of {LEAST_LONGEST} tokens or more"
    )


def drawn_corpus(vocabulary: int, seed: int) -> Corpus:
    """Draw five prompts of token ids below `vocabulary`: a pure function of both arguments."""
    source = random.Random(f"{seed}/{vocabulary}")
    return {
        f"drawn-{number}": tuple(source.randrange(vocabulary) for _ in range(length))
        for number, length in enumerate(_DRAWN_LENGTHS)
    }


def corpus_digest(corpus: Corpus) -> str:
    """SHA-256 (hex) over names and ids, for records that are bound to a corpus."""
    text = json.dumps([[name, list(ids)] for name, ids in sorted(corpus.items())])
    return hashlib.sha256(text.encode()).hexdigest()
