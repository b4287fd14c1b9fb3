"""The prompts of a parity run: a file kept with the model, or drawn from its vocabulary."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping
from pathlib import Path

from pytest_meshnet.runtime.errors import Refusal

Corpus = Mapping[str, tuple[int, ...]]

_DRAWN_LENGTHS = (9, 17, 33, 5, 24)
"""Tokens of the drawn prompts: below and above chunks of 7, none a multiple of it."""


def read_corpus(path: Path) -> Corpus:
    """Read prompts, `{"prompts": [{"name": ..., "ids": [...]}]}`. Raises Refusal."""
    try:
        document = json.loads(path.read_bytes())
        found = {one["name"]: tuple(map(int, one["ids"])) for one in document["prompts"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Refusal(
            f"{path} is no corpus ({error!r}): expected prompts with name and ids"
        ) from None
    if not found or not all(found.values()):
        raise Refusal(f"{path} has no prompt, or an empty one: give each at least one token id")
    return found


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
