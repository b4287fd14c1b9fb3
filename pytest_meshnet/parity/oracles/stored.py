"""A stored oracle: what the whole model gave once, bound to everything that decides its numbers.

For runtimes whose oracle ran elsewhere. The record names artifact, template, adapter, dtypes, RoPE,
engine and patches; whoever uses it says what his are, and any difference refuses it. Scores are
kept as float32, in base64, little-endian.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from pytest_meshnet.runtime.errors import Refusal
from pytest_meshnet.runtime.generation import Generation, Generator

SCHEMA = 1

DENSE_FALLBACK = "dense-fallback"
"""What an engine says that computed sparse attention densely: its record is no oracle."""


@dataclass(frozen=True, slots=True)
class Binding:
    """What the numbers of an oracle depend on; every text is compared as it is.

    `attention` is how the engine computed attention, such as "sparse" or "dense-fallback";
    `patch_hash` the SHA-256 of local changes to the engine, "none" for none.
    """

    artifact_digest: str
    template: str
    adapter: str
    compute_dtype: str
    activation_dtype: str
    kv_dtype: str
    rope: str
    engine: str
    engine_version: str
    patch_hash: str
    attention: str

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Binding:
        """Read a binding. Raises Refusal for a field that is missing, empty or unknown."""
        names = [field.name for field in fields(cls)]
        missing = [name for name in names if not isinstance(document.get(name), str)]
        missing += [name for name in names if document.get(name) == ""]
        unknown = sorted(document.keys() - set(names))
        if missing or unknown:
            raise Refusal(
                f"the binding of a stored oracle lacks {missing} and has the unknown {unknown}: "
                f"expected the texts {names}"
            )
        return cls(**document)

    def check(self, wanted: Binding) -> None:
        """Raise Refusal unless this record is bound to what is `wanted`, and is an oracle."""
        if self.attention == DENSE_FALLBACK:
            raise Refusal(
                "the stored oracle ran a dense fallback: that is another computation, and no "
                "oracle. Run the engine with its sparse attention"
            )
        ours, theirs = asdict(self), asdict(wanted)
        wrong = [f"{name} {ours[name]!r}, expected {theirs[name]!r}" for name in ours
                 if ours[name] != theirs[name]]  # fmt: skip
        if wrong:
            raise Refusal(f"the stored oracle is bound to another run: {'; '.join(wrong)}")


class StoredOracle:
    """Generations read from a record; asks nobody."""

    def __init__(self, binding: Binding, generations: Sequence[Generation]) -> None:
        self.binding = binding
        self._by_prompt = {one.prompt: one for one in generations}

    @classmethod
    def read(cls, path: Path, wanted: Binding | None) -> StoredOracle:
        """Read a record. Raises Refusal for one that is broken or not bound to `wanted`."""
        if wanted is None:
            raise Refusal(
                f"{path} is used without saying what it must be bound to: give oracle.binding"
            )
        try:
            document = json.loads(path.read_bytes())
            schema, told = document["schema"], document["binding"]
            generations = [_generation(one) for one in document["generations"]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Refusal(f"{path} is no stored oracle ({error!r}): store it again") from None
        if schema != SCHEMA:
            raise Refusal(f"{path} has schema {schema!r}, expected {SCHEMA}: store it again")
        found = cls(Binding.read(told), generations)
        found.binding.check(wanted)
        return found

    def generate(
        self, prompt: Sequence[int], count: int, *, chunk_tokens: int | None = None
    ) -> Generation:
        """Return the first `count` stored tokens. Raises Refusal for what was never stored."""
        del chunk_tokens
        kept = self._by_prompt.get(tuple(prompt))
        if kept is None or len(kept.tokens) < count:
            has = 0 if kept is None else len(kept.tokens)
            raise Refusal(
                f"the stored oracle has {has} tokens after this prompt of {len(prompt)}, {count} "
                "are asked for: store it again with this corpus"
            )
        return kept.first(count)

    def generate_together(self, prompts: Sequence[Sequence[int]], count: int) -> list[Generation]:
        """Return what was stored for each prompt."""
        return [self.generate(prompt, count) for prompt in prompts]


def store(
    path: Path, binding: Binding, oracle: Generator, corpus: Mapping[str, Sequence[int]], count: int
) -> None:
    """Ask an oracle for `count` tokens after each prompt and keep them, bound, in a file.

    Raises Refusal for a binding that says the engine fell back to dense attention.
    """
    binding.check(binding)
    kept = [_document(oracle.generate(ids, count)) for ids in corpus.values()]
    document = {"schema": SCHEMA, "binding": asdict(binding), "generations": kept}
    path.write_text(json.dumps(document, indent=1) + "\n")


def _document(one: Generation) -> dict[str, Any]:
    return {
        "prompt": list(one.prompt),
        "tokens": list(one.tokens),
        "scale": one.scale,
        "vocabulary": one.scores.shape[1],
        "scores": base64.b64encode(one.scores.astype("<f4").tobytes()).decode(),
    }


def _generation(document: Mapping[str, Any]) -> Generation:
    import numpy as np

    shape = (len(document["tokens"]), document["vocabulary"])
    data = base64.b64decode(document["scores"], validate=True)
    if document["scale"] not in ("logits", "log-probabilities"):
        raise ValueError(f"scale {document['scale']!r}")
    return Generation(
        prompt=tuple(map(int, document["prompt"])),
        tokens=tuple(map(int, document["tokens"])),
        scores=np.frombuffer(data, dtype="<f4").reshape(shape).astype(np.float32),
        scale=document["scale"],
    )
