"""Identity documents for the tests: the published one, variations of it, and random ones."""

import copy
import json
import random
from typing import Any

from hypothesis import strategies as st

from pytest_meshnet import layout
from pytest_meshnet.identity.declaration import Declaration, read_declaration
from pytest_meshnet.identity.node import Identity

STRING_AXES = (
    "weight_quantization",
    "activation_dtype",
    "compute_dtype",
    "kv_dtype",
    "kv_layout",
    "tokenizer_revision",
    "architecture_adapter",
    "backend_id",
    "runtime_version",
)
INTEGER_AXES = ("boundary_schema_version", "protocol_schema_version")
LABELS = ("recipe_id", "recipe_version", "catalogue_version")


def vector() -> dict[str, Any]:
    """Return a fresh copy of the one published vector."""
    text = (layout.folder("goldens") / "fingerprint-vectors.json").read_text(encoding="utf-8")
    return json.loads(text)["vectors"][0]


def document(*path_and_value: Any, **top: Any) -> dict[str, Any]:
    """Return the published identity without its claim, changed at one path or at top-level keys."""
    found = vector()["identity"]
    del found["fingerprint"]
    found.update(top)
    if path_and_value:
        *path, last, value = path_and_value
        place = found
        for key in path:
            place = place[key]
        place[last] = value
    return found


def edited_claim(name: str, value: Any) -> dict[str, Any]:
    """Return the published identity with one field of its claim replaced."""
    found: dict[str, Any] = vector()["identity"]
    found["fingerprint"][name] = value
    return found


def split_document(source: str = "c" * 64, start: Any = 0, end: Any = 4) -> dict[str, Any]:
    """Return the published identity as a split `[start, end)` of the artifact `source`."""
    split = {"source_artifact_digest": source, "shard_start": start, "shard_end": end}
    return document("artifact", "derived_from", split)


def without(found: dict[str, Any], *path: str) -> dict[str, Any]:
    """Return a copy of `found` that lacks the key at `path`."""
    found = copy.deepcopy(found)
    place = found
    for key in path[:-1]:
        place = place[key]
    del place[path[-1]]
    return found


def claimed(found: dict[str, Any]) -> dict[str, Any]:
    """Return the document with the fingerprint that the node derives for it."""
    return Identity.from_dict(found).claiming().to_dict()


def declaration(start: int = 0, end: int = 8, **recipe: Any) -> Declaration:
    """Return an admitted Shard `[start, end)` of the published model, axes changed as named."""
    found = document(shard_start=start, shard_end=end)
    found["recipe"].update(recipe)
    return read_declaration(found)


hex_digests = st.text("0123456789abcdef", min_size=64, max_size=64)
words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12).filter(
    lambda text: text == text.strip()
)
pinned = words.filter(
    lambda text: (
        text.casefold() not in {"main", "master", "head", "latest", "dev", "trunk"}
        and not text.casefold().startswith("refs/")
    )
)
wire_integers = st.integers(1, 2**32 - 1)


ODD_CHARACTERS = 'aZ09/_-@."\\\b\f\n\r\t\0\x1f\x7fü中\u2028\ufeff😀'


def random_identity(chance: random.Random) -> dict[str, Any]:
    """Return a legal identity document, whole or split, its texts full of what JSON escapes."""

    def word() -> str:
        return "w" + "".join(chance.choices(ODD_CHARACTERS, k=chance.randint(0, 9))) + "w"

    def digest() -> str:
        return f"{chance.getrandbits(256):064x}"

    layers = chance.randint(1, 200)
    start = chance.randrange(layers)
    end = chance.randint(start + 1, layers)
    bounds = chance.randint(0, start), chance.randint(end, layers)
    split = {"source_artifact_digest": digest(), "shard_start": bounds[0], "shard_end": bounds[1]}
    recipe: dict[str, Any] = {name: word() for name in (*STRING_AXES, *LABELS)}
    recipe.update({name: chance.randint(1, 2**32 - 1) for name in INTEGER_AXES})
    return {
        "schema_version": 1,
        "artifact": {
            "artifact_id": word(),
            "revision": word(),
            "content_digest": digest(),
            "architecture": word(),
            "architecture_digest": digest(),
            "layer_count": layers,
            "derived_from": chance.choice([None, split]),
        },
        "recipe": recipe,
        "shard_start": start,
        "shard_end": end,
    }


@st.composite
def identities(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a legal identity document, whole or split, without a claim."""
    layers = draw(st.integers(1, 200))
    start = draw(st.integers(0, layers - 1))
    end = draw(st.integers(start + 1, layers))
    content, source = draw(st.lists(hex_digests, min_size=2, max_size=2, unique=True))
    split = None
    if draw(st.booleans()):
        split = {
            "source_artifact_digest": source,
            "shard_start": draw(st.integers(0, start)),
            "shard_end": draw(st.integers(end, layers)),
        }
    recipe: dict[str, Any] = {name: draw(words) for name in (*STRING_AXES, *LABELS)}
    recipe["tokenizer_revision"] = draw(pinned)
    recipe.update({name: draw(wire_integers) for name in INTEGER_AXES})
    return {
        "schema_version": 1,
        "artifact": {
            "artifact_id": draw(words),
            "revision": draw(pinned),
            "content_digest": content,
            "architecture": draw(words),
            "architecture_digest": draw(hex_digests),
            "layer_count": layers,
            "derived_from": split,
        },
        "recipe": recipe,
        "shard_start": start,
        "shard_end": end,
    }
