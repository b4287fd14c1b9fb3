"""Both sides of the identity document: the vectors, every refusal, and their agreement."""

import ast
import hashlib
import inspect
import itertools
import random
import string
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_meshnet import layout
from pytest_meshnet.identity import canonical, declaration, node, node_fields
from pytest_meshnet.identity.declaration import ClaimRefused, DeclarationRefused, read_declaration
from pytest_meshnet.identity.node import FingerprintClaimError, Identity, IdentityError
from pytest_meshnet.tests.identity import samples

VECTORS_SHA256 = "31fd3b738e89a33e9e1257bf46d08f1cb9097b59b8ba5f1b7c3ede6068a16b16"


def derive(side: str, document: Any) -> tuple[str, str]:
    """Derive both digests with one side; refusals of either side come out as (code, message)."""
    if side == "node":
        found = Identity.from_dict(document).fingerprint()
        return found.model_artifact_digest, found.runtime_recipe_digest
    return read_declaration(document).fingerprint


def verdict(side: str, document: Any) -> tuple[str, str] | str:
    """Return the digests, or the refusal's code."""
    try:
        return derive(side, document)
    except (IdentityError, DeclarationRefused) as refused:
        return refused.code


sides = pytest.mark.parametrize("side", ["node", "admission"])


def test_the_vectors_are_the_published_file():
    data = (layout.folder("goldens") / "fingerprint-vectors.json").read_bytes()
    assert hashlib.sha256(data).hexdigest() == VECTORS_SHA256


@sides
def test_both_sides_give_the_published_digests(side):
    found = samples.vector()
    expected = found["fingerprint"]
    assert derive(side, found["identity"]) == (
        expected["model_artifact_digest"],
        expected["runtime_recipe_digest"],
    )


def test_the_node_writes_the_published_document_and_fingerprint():
    found = samples.vector()
    identity = Identity.from_dict(found["identity"])
    assert identity.to_dict() == found["identity"]
    assert identity.fingerprint().to_dict() == found["fingerprint"]
    assert Identity.from_dict(samples.document()).claiming().to_dict() == found["identity"]


def one_unit_away(value: str | int) -> str | int:
    if isinstance(value, int):
        return value + 1
    last = value[-1]
    return value[:-1] + ("0" if last != "0" else "1")


DIGESTED = [("artifact", n) for n in ("architecture", "architecture_digest", "layer_count")] + [
    ("recipe", n) for n in (*samples.STRING_AXES, *samples.INTEGER_AXES)
]


@sides
@pytest.mark.parametrize("path", [*DIGESTED, ("artifact", "content_digest")])
def test_one_unit_in_any_digested_input_changes_exactly_its_digest(side, path):
    before = derive(side, samples.document())
    value = samples.document()[path[0]][path[1]]
    after = derive(side, samples.document(*path, one_unit_away(value)))
    changed = [old != new for old, new in zip(before, after, strict=True)]
    assert changed == [path[0] == "artifact", path[0] == "recipe"]


@sides
@pytest.mark.parametrize(
    "path",
    [("artifact", "artifact_id"), ("artifact", "revision"), ("shard_end",)]
    + [("recipe", label) for label in samples.LABELS],
)
def test_names_labels_and_ranges_are_no_part_of_a_digest(side, path):
    value: Any = samples.document()
    for key in path:
        value = value[key]
    changed = samples.document(*path, one_unit_away(value))
    assert derive(side, changed) == derive(side, samples.document())


@sides
def test_a_split_has_the_artifact_digest_of_its_source(side):
    source = samples.document()["artifact"]["content_digest"]
    split = samples.split_document(source=source)
    split["artifact"]["content_digest"] = "d" * 64
    assert derive(side, split) == derive(side, samples.document())


MOVING = ["main", "Master", "HEAD", "latest", "DEV", "trunk", "refs/heads/x", "Refs/tags/v1"]
TEXTS = [
    ("artifact", "artifact_id"),
    ("artifact", "revision"),
    ("artifact", "architecture"),
    *(("recipe", name) for name in (*samples.STRING_AXES, *samples.LABELS)),
]
INTEGERS = [
    ("artifact", "layer_count"),
    ("shard_start",),
    ("shard_end",),
    *(("recipe", name) for name in samples.INTEGER_AXES),
]
DIGESTS = [("artifact", "content_digest"), ("artifact", "architecture_digest")]
NOT_HEX = ["a" * 63, "a" * 65, "A" * 64, "g" * 64, "sha256:" + "a" * 57, "é" * 64, "a" * 63 + "\n"]

SPLIT = ("start", "end")
SPLIT_KEYS = {"source_artifact_digest": "c" * 64, "shard_start": 0, "shard_end": 4}

REFUSED = [
    *(("schema-version", samples.document(schema_version=v)) for v in (0, 2, True, "1", 1.0, None)),
    *(("wrong-type", v) for v in (None, [], "identity", 3)),
    *(("wrong-type", samples.document(artifact=v)) for v in (None, [])),
    *(("wrong-type", samples.document(recipe=v)) for v in (None, "x")),
    *(("wrong-type", samples.document(*p, v)) for p in TEXTS for v in (None, 3, True, ["x"])),
    *(("blank-text", samples.document(*p, v)) for p in TEXTS for v in ("", " ", "x ", "\tx")),
    *(("not-utf8", samples.document(*p, "x\ud800")) for p in TEXTS),
    *(("wrong-type", samples.document(*p, v)) for p in INTEGERS for v in (True, "1", 1.0, None)),
    *(("out-of-range", samples.document(*p, v)) for p in INTEGERS for v in (-1, 2**32)),
    *(("out-of-range", samples.document("recipe", n, 0)) for n in samples.INTEGER_AXES),
    ("out-of-range", samples.document("artifact", "layer_count", 0)),
    ("out-of-range", samples.document("artifact", "layer_count", 10**5000)),
    *(("wrong-type", samples.document(*p, 7)) for p in DIGESTS),
    *(
        ("blank-text" if v.strip() != v else "digest-format", samples.document(*p, v))
        for p in DIGESTS
        for v in NOT_HEX
    ),
    *(("moving-reference", samples.document("artifact", "revision", v)) for v in MOVING),
    *(("moving-reference", samples.document("recipe", "tokenizer_revision", v)) for v in MOVING),
    *(
        ("missing-field", samples.without(samples.document(), *p))
        for p in [*TEXTS, *INTEGERS, *DIGESTS, ("artifact", "derived_from"), ("recipe",)]
    ),
    ("unknown-field", samples.document(comment="x")),
    ("unknown-field", samples.document("artifact", "path", "/x")),
    ("unknown-field", samples.document("recipe", "seed", 1)),
    ("unknown-field", samples.document("recipe", 5, 1)),
    ("shard-empty", samples.document(shard_start=4, shard_end=4)),
    ("shard-empty", samples.document(shard_start=5, shard_end=4)),
    ("shard-exceeds-model", samples.document(shard_end=9)),
    ("split-of-itself", samples.split_document(source="a" * 64)),
    ("split-empty", samples.split_document(start=4, end=4)),
    ("split-exceeds-model", samples.split_document(end=9)),
    ("split-misses-shard", samples.split_document(end=3)),
    ("split-misses-shard", samples.split_document(start=1)),
    ("digest-format", samples.split_document(source="C" * 64)),
    ("wrong-type", samples.document("artifact", "derived_from", "whole")),
    (
        "missing-field",
        samples.without(samples.split_document(), "artifact", "derived_from", "shard_end"),
    ),
    *(("wrong-type", samples.split_document(**{n: v})) for n in SPLIT for v in (True, "1", None)),
    *(("out-of-range", samples.split_document(**{n: v})) for n in SPLIT for v in (-1, 2**32)),
    ("unknown-field", samples.document("artifact", "derived_from", {**SPLIT_KEYS, "note": 1})),
    *(
        ("digest-format", samples.edited_claim(name, value))
        for name in ("model_artifact_digest", "runtime_recipe_digest")
        for value in ("A" * 64, "0" * 63)
    ),
    *(("blank-text", samples.edited_claim(name, " ")) for name in samples.LABELS),
    *(("wrong-type", samples.edited_claim(name, 1)) for name in samples.LABELS),
    ("unknown-field", samples.edited_claim("note", "x")),
    ("wrong-type", samples.document(fingerprint=[])),
    (
        "missing-field",
        samples.without(samples.vector()["identity"], "fingerprint", "recipe_id"),
    ),
]


@sides
@pytest.mark.parametrize(("code", "document"), REFUSED)
def test_what_cannot_identify_a_shard_is_refused_with_its_reason(side, code, document):
    assert verdict(side, document) == code


@sides
def test_refusals_of_different_kinds_have_different_messages(side):
    messages: dict[str, str] = {}
    for code, document in REFUSED:
        with pytest.raises((IdentityError, DeclarationRefused)) as refused:
            derive(side, document)
        message = refused.value.message
        assert ": " in message, f"{message!r} does not say what to do"
        assert messages.setdefault(message, code) == code


@sides
@pytest.mark.parametrize("name", sorted(samples.vector()["fingerprint"]))
def test_a_claim_that_the_document_does_not_give_has_its_own_error_naming_both(side, name):
    document = samples.vector()["identity"]
    true = document["fingerprint"][name]
    document["fingerprint"][name] = one_unit_away(true)
    with pytest.raises((FingerprintClaimError, ClaimRefused)) as refused:
        derive(side, document)
    assert refused.value.code == "fingerprint-claim"
    assert true in refused.value.message
    assert str(one_unit_away(true)) in refused.value.message


def test_the_two_sides_share_no_code():
    def origins(module: Any) -> set[str]:
        found = set()
        for item in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(item, ast.ImportFrom):
                found.add(item.module or "")
            elif isinstance(item, ast.Import):
                found.update(alias.name for alias in item.names)
        return {name for name in found if name.startswith("pytest_meshnet")}

    mine = origins(node) | origins(node_fields) | {node.__name__, node_fields.__name__}
    assert origins(declaration) == set()
    assert declaration.__name__ not in mine | origins(canonical)


def require_agreement(document: dict[str, Any]) -> None:
    found = derive("node", document)
    assert found == derive("admission", document)
    assert read_declaration(samples.claimed(document)).fingerprint == found
    assert Identity.from_dict(document).to_dict() == document


@given(samples.identities())
@settings(deadline=None, max_examples=300)
def test_the_two_sides_agree_on_every_legal_identity(document):
    require_agreement(document)


@given(st.integers(0, 2**32))
@settings(deadline=None, max_examples=100)
def test_the_two_sides_agree_on_thousands_of_random_identities(seed):
    chance = random.Random(seed)
    for _ in range(50):
        require_agreement(samples.random_identity(chance))


MESS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2**33),
    st.floats(allow_nan=True),
    st.text(max_size=6),
    st.text(string.hexdigits, min_size=64, max_size=64),
    st.sampled_from([*MOVING, " main", "refs", "refs/"]),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


@given(samples.identities(), st.data())
@settings(deadline=None, max_examples=500)
def test_the_two_sides_agree_on_every_broken_identity(document, data):
    if data.draw(st.booleans(), label="claimed"):
        document = samples.claimed(document)
    place: Any = document
    while True:
        key = data.draw(st.sampled_from(sorted(place)))
        if not isinstance(place[key], dict) or data.draw(st.booleans()):
            break
        place = place[key]
    if data.draw(st.booleans(), label="removed"):
        del place[key]
    else:
        place[key] = data.draw(MESS)
    assert verdict("node", document) == verdict("admission", document)


@given(st.lists(samples.identities(), min_size=2, max_size=2))
@settings(deadline=None, max_examples=100)
def test_different_axes_never_share_a_digest(documents):
    left, right = (Identity.from_dict(document) for document in documents)
    assert (left.recipe.axes() == right.recipe.axes()) == (
        left.recipe.digest() == right.recipe.digest()
    )


def test_an_identity_cannot_be_changed_after_its_checks():
    identity = Identity.from_dict(samples.document())
    for part, name in itertools.product((identity, identity.recipe), ("shard_end", "kv_dtype")):
        with pytest.raises((AttributeError, TypeError)):
            setattr(part, name, 1)
    with pytest.raises(TypeError):
        read_declaration(samples.document()).axes["kv_dtype"] = "f16"


# faults.md 107: the wire message carries the digests; it is never what is digested.
def test_the_wire_pair_carries_digests_labels_and_the_range():
    found = samples.vector()
    fingerprint, shard = Identity.from_dict(found["identity"]).to_proto()
    assert {name: getattr(fingerprint, name) for name in found["fingerprint"]} == found[
        "fingerprint"
    ]
    assert (shard.start_layer, shard.end_layer, shard.effective_start_layer) == (0, 4, 0)
