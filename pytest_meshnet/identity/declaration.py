"""The admission side of an identity: what a Shard declares, derived again from its axes alone.

Written independently of `node` on purpose and sharing no code with it (not even the JSON encoder):
whoever admits a Shard trusts no digest that the Shard computed. Only the text and the published
vectors are common, and a property test holds the two equal.
"""

import hashlib
import string
from collections.abc import Mapping, Set
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

# The canonical form sorts keys; these tuples are sorted already and the derivation keeps them so.
_ARTIFACT_BODY: Final = ("architecture", "architecture_digest", "layer_count", "source_digest")
AXES: Final = (
    "activation_dtype",
    "architecture_adapter",
    "backend_id",
    "boundary_schema_version",
    "compute_dtype",
    "kv_dtype",
    "kv_layout",
    "protocol_schema_version",
    "runtime_version",
    "tokenizer_revision",
    "weight_quantization",
)
_NUMBERED: Final = ("boundary_schema_version", "protocol_schema_version")
LABEL_NAMES: Final = ("catalogue_version", "recipe_id", "recipe_version")
_UINT32: Final = (1 << 32) - 1
_HEX: Final = frozenset(string.digits + "abcdef")
_ESCAPES: Final = {
    '"': '\\"',
    "\\": "\\\\",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
}


class DeclarationRefused(ValueError):
    """A declaration that admission cannot accept; `code` is stable and equals the node's."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class ClaimRefused(DeclarationRefused):
    """The declared fingerprint is not the one that the declared axes give."""

    def __init__(self, message: str) -> None:
        super().__init__("fingerprint-claim", message)


@dataclass(frozen=True, slots=True)
class Declaration:
    """One admitted reading of an identity document. Digests are derived here, never copied.

    `shard` is end-exclusive. `axes` and `labels` are read-only mappings.
    """

    artifact_id: str
    revision: str
    architecture: str
    architecture_digest: str
    layer_count: int
    source_digest: str
    content_digest: str
    shard: tuple[int, int]
    axes: Mapping[str, str | int]
    labels: Mapping[str, str]
    artifact_digest: str
    recipe_digest: str

    @property
    def fingerprint(self) -> tuple[str, str]:
        """The pair (artifact digest, recipe digest) that certification is about."""
        return self.artifact_digest, self.recipe_digest


def read_declaration(document: object) -> Declaration:
    """Re-derive everything that admission relies on from one identity document.

    Raises DeclarationRefused with the reason, or ClaimRefused when the document claims a
    fingerprint that its axes do not give.
    """
    top = _object(document, "identity")
    needed = {"schema_version", "artifact", "recipe", "shard_start", "shard_end"}
    _only(top, "identity", needed, optional={"fingerprint"})
    if type(top["schema_version"]) is not int or top["schema_version"] != 1:
        raise DeclarationRefused(
            "schema-version",
            f"declared schema_version {top['schema_version']!r} is not 1: send that version",
        )
    artifact, source, split = _read_artifact(top["artifact"])
    recipe = _read_recipe(top["recipe"])
    axes = {name: recipe[name] for name in AXES}
    labels = {name: str(recipe[name]) for name in LABEL_NAMES}
    shard = _read_shard(top, artifact["layer_count"], split)
    body = {**{name: artifact[name] for name in _ARTIFACT_BODY[:3]}, "source_digest": source}
    declaration = Declaration(
        artifact_id=artifact["artifact_id"],
        revision=artifact["revision"],
        architecture=artifact["architecture"],
        architecture_digest=artifact["architecture_digest"],
        layer_count=artifact["layer_count"],
        source_digest=source,
        content_digest=artifact["content_digest"],
        shard=shard,
        axes=MappingProxyType(axes),
        labels=MappingProxyType(labels),
        artifact_digest=_derive("meshnet.model-artifact.v1", _ARTIFACT_BODY, body),
        recipe_digest=_derive("meshnet.runtime-recipe.v1", AXES, axes),
    )
    if top.get("fingerprint") is not None:
        _check_claim(top["fingerprint"], declaration)
    return declaration


def _derive(domain: str, names: tuple[str, ...], values: Mapping[str, str | int]) -> str:
    parts = []
    for name in names:
        value = values[name]
        parts.append(f'"{name}":' + (str(value) if isinstance(value, int) else _quote(value)))
    text = '{"body":{' + ",".join(parts) + '},"domain":"' + domain + '"}'
    return hashlib.sha256(text.encode()).hexdigest()


def _quote(text: str) -> str:
    out = []
    for character in text:
        if character in _ESCAPES:
            out.append(_ESCAPES[character])
        elif ord(character) < 0x20:
            out.append(f"\\u{ord(character):04x}")
        else:
            out.append(character)
    return '"' + "".join(out) + '"'


def _read_artifact(value: object) -> tuple[dict[str, Any], str, tuple[int, int] | None]:
    names = {"artifact_id", "revision", "content_digest", "architecture", "architecture_digest"}
    artifact = _object(value, "artifact")
    _only(artifact, "artifact", names | {"layer_count", "derived_from"})
    for name in ("artifact_id", "architecture"):
        _text(artifact[name], f"artifact.{name}")
    _pinned(artifact["revision"], "artifact.revision")
    for name in ("content_digest", "architecture_digest"):
        _hex64(artifact[name], f"artifact.{name}")
    layers = _count(artifact["layer_count"], "artifact.layer_count", at_least=1)
    if artifact["derived_from"] is None:
        return artifact, artifact["content_digest"], None
    split = _object(artifact["derived_from"], "derived_from")
    _only(split, "derived_from", {"source_artifact_digest", "shard_start", "shard_end"})
    source = _hex64(split["source_artifact_digest"], "derived_from.source_artifact_digest")
    start = _count(split["shard_start"], "derived_from.shard_start", at_least=0)
    end = _count(split["shard_end"], "derived_from.shard_end", at_least=0)
    if end <= start:
        raise DeclarationRefused(
            "split-empty", f"the declared split [{start}, {end}) covers nothing: name its layers"
        )
    if source == artifact["content_digest"]:
        raise DeclarationRefused(
            "split-of-itself", "the declared split is its own source: name the whole artifact"
        )
    if end > layers:
        raise DeclarationRefused(
            "split-exceeds-model",
            f"the declared split ends at {end} of {layers} layers: correct one of them",
        )
    return artifact, source, (start, end)


def _read_recipe(value: object) -> dict[str, Any]:
    recipe = _object(value, "recipe")
    _only(recipe, "recipe", {*AXES, *LABEL_NAMES})
    for name in (*AXES, *LABEL_NAMES):
        if name in _NUMBERED:
            _count(recipe[name], f"recipe.{name}", at_least=1)
        elif name == "tokenizer_revision":
            _pinned(recipe[name], "recipe.tokenizer_revision")
        else:
            _text(recipe[name], f"recipe.{name}")
    return recipe


def _read_shard(
    top: Mapping[str, Any], layers: int, split: tuple[int, int] | None
) -> tuple[int, int]:
    start = _count(top["shard_start"], "shard_start", at_least=0)
    end = _count(top["shard_end"], "shard_end", at_least=0)
    if end <= start:
        raise DeclarationRefused(
            "shard-empty", f"the declared Shard [{start}, {end}) is empty: the end is exclusive"
        )
    if end > layers:
        raise DeclarationRefused(
            "shard-exceeds-model",
            f"the declared Shard ends at {end} of {layers} layers: correct one of them",
        )
    if split is not None and (start < split[0] or end > split[1]):
        raise DeclarationRefused(
            "split-misses-shard",
            f"the declared Shard [{start}, {end}) leaves its split [{split[0]}, {split[1]}): "
            "advertise only what the split holds",
        )
    return start, end


def _check_claim(value: object, declaration: Declaration) -> None:
    claim = _object(value, "fingerprint")
    derived = {
        "model_artifact_digest": declaration.artifact_digest,
        "runtime_recipe_digest": declaration.recipe_digest,
        **declaration.labels,
    }
    _only(claim, "fingerprint", set(derived))
    for name in derived:
        _text(claim[name], f"fingerprint.{name}")
    _hex64(claim["model_artifact_digest"], "fingerprint.model_artifact_digest")
    _hex64(claim["runtime_recipe_digest"], "fingerprint.runtime_recipe_digest")
    for name, expected in derived.items():
        if claim[name] != expected:
            raise ClaimRefused(
                f"the claimed {name} is {claim[name]!r}, derived from the axes it is "
                f"{expected!r}: the node runs something else than it declares"
            )


def _object(value: object, where: str) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise DeclarationRefused("wrong-type", f"declared {where} is no object: send an object")


def _only(
    found: Mapping[str, Any],
    where: str,
    needed: set[str],
    optional: Set[str] = frozenset(),
) -> None:
    absent = sorted(needed - found.keys())
    if absent:
        raise DeclarationRefused(
            "missing-field", f"declared {where} lacks {', '.join(absent)}: send every field"
        )
    extra = [str(name) for name in found if name not in needed | optional]
    if extra:
        raise DeclarationRefused(
            "unknown-field", f"declared {where} has {', '.join(extra)}, unknown here: leave it out"
        )


def _text(value: object, where: str) -> str:
    if type(value) is not str:
        raise DeclarationRefused("wrong-type", f"declared {where} is no string: send a string")
    if value.strip() != value or value == "":
        raise DeclarationRefused(
            "blank-text", f"declared {where} is {value!r}: send it without surrounding blanks"
        )
    if any(0xD800 <= ord(character) <= 0xDFFF for character in value):
        raise DeclarationRefused("not-utf8", f"declared {where} has a lone surrogate: remove it")
    return value


def _pinned(value: object, where: str) -> None:
    text = _text(value, where).casefold()
    if text in ("main", "master", "head", "latest", "dev", "trunk") or text[:5] == "refs/":
        raise DeclarationRefused(
            "moving-reference", f"declared {where} is {value!r}, which moves: send a commit"
        )


def _hex64(value: object, where: str) -> str:
    text = _text(value, where)
    if len(text) != 64 or not _HEX.issuperset(text):
        raise DeclarationRefused(
            "digest-format", f"declared {where} is {text!r}: send 64 lowercase hex digits"
        )
    return text


def _count(value: object, where: str, *, at_least: int) -> int:
    if type(value) is not int:
        raise DeclarationRefused("wrong-type", f"declared {where} is no integer: send an integer")
    if value < at_least or value > _UINT32:
        raise DeclarationRefused(
            "out-of-range", f"declared {where} is not in {at_least}..{_UINT32}: correct it"
        )
    return value
