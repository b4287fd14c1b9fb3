"""The node's side of an identity: what a Shard says it is, and the fingerprint it derives.

Nothing here is shared with `declaration`, the admission side. Both follow the same text, and tests
hold them equal, so that a mistake of one cannot hide in the other.
"""

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self

from pytest_meshnet.identity.canonical import digest
from pytest_meshnet.identity.node_fields import (
    FingerprintClaimError,
    IdentityError,
    keys,
    require_digest,
    require_fixed,
    require_integer,
    require_text,
)

if TYPE_CHECKING:
    from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb

SCHEMA_VERSION = 1
ARTIFACT_DOMAIN = "meshnet.model-artifact.v1"
RECIPE_DOMAIN = "meshnet.runtime-recipe.v1"
LABELS = ("recipe_id", "recipe_version", "catalogue_version")


@dataclass(frozen=True, slots=True)
class Split:
    """Which layers `[shard_start, shard_end)` of which whole artifact a split artifact holds."""

    source_artifact_digest: str
    shard_start: int
    shard_end: int

    def __post_init__(self) -> None:
        require_digest("derived_from.source_artifact_digest", self.source_artifact_digest)
        require_integer("derived_from.shard_start", self.shard_start, minimum=0)
        require_integer("derived_from.shard_end", self.shard_end, minimum=0)
        if self.shard_start >= self.shard_end:
            raise IdentityError(
                "split-empty",
                f"derived_from covers [{self.shard_start}, {self.shard_end}), which is no layer: "
                "name the layers the split holds",
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the three keys of `derived_from`."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, slots=True)
class Artifact:
    """Exact weights and configuration of one model, whole or split by layers."""

    artifact_id: str
    revision: str
    content_digest: str
    architecture: str
    architecture_digest: str
    layer_count: int
    derived_from: Split | None

    def __post_init__(self) -> None:
        require_text("artifact.artifact_id", self.artifact_id)
        require_fixed("artifact.revision", self.revision)
        require_digest("artifact.content_digest", self.content_digest)
        require_text("artifact.architecture", self.architecture)
        require_digest("artifact.architecture_digest", self.architecture_digest)
        require_integer("artifact.layer_count", self.layer_count, minimum=1)
        if self.derived_from is not None:
            self._check_split(self.derived_from)

    @property
    def source_digest(self) -> str:
        """The digest of the whole artifact, so that a split matches what it was cut from."""
        split = self.derived_from
        return self.content_digest if split is None else split.source_artifact_digest

    def to_dict(self) -> dict[str, Any]:
        """Return the seven keys of `artifact`, `derived_from` explicitly null for a whole one."""
        document = {field.name: getattr(self, field.name) for field in fields(self)}
        split = self.derived_from
        document["derived_from"] = None if split is None else split.to_dict()
        return document

    def digest(self) -> str:
        """Return the artifact digest: of source, architecture and layer count, never of paths."""
        body = {
            "source_digest": self.source_digest,
            "architecture": self.architecture,
            "architecture_digest": self.architecture_digest,
            "layer_count": self.layer_count,
        }
        return digest({"domain": ARTIFACT_DOMAIN, "body": body})

    def _check_split(self, split: Split) -> None:
        if split.source_artifact_digest == self.content_digest:
            raise IdentityError(
                "split-of-itself",
                "derived_from names this very artifact as its source: name the whole artifact, "
                "or null when this is the whole",
            )
        if split.shard_end > self.layer_count:
            raise IdentityError(
                "split-exceeds-model",
                f"derived_from ends at layer {split.shard_end}, but the model has "
                f"{self.layer_count}: correct one of them",
            )


@dataclass(frozen=True, slots=True)
class Recipe:
    """Exact numerical runtime. The eleven axes are digested; the three labels are for people."""

    weight_quantization: str
    activation_dtype: str
    compute_dtype: str
    kv_dtype: str
    kv_layout: str
    tokenizer_revision: str
    architecture_adapter: str
    backend_id: str
    runtime_version: str
    boundary_schema_version: int
    protocol_schema_version: int
    recipe_id: str
    recipe_version: str
    catalogue_version: str

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name.endswith("_schema_version"):
                require_integer(f"recipe.{field.name}", value, minimum=1)
            elif field.name == "tokenizer_revision":
                require_fixed("recipe.tokenizer_revision", value)
            else:
                require_text(f"recipe.{field.name}", value)

    def to_dict(self) -> dict[str, Any]:
        """Return the eleven axes and the three labels."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def axes(self) -> dict[str, Any]:
        """Return only what is digested."""
        return {name: value for name, value in self.to_dict().items() if name not in LABELS}

    def digest(self) -> str:
        """Return the recipe digest, over the eleven axes."""
        return digest({"domain": RECIPE_DOMAIN, "body": self.axes()})


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What two Shards compare: two digests, and three labels that are for people."""

    model_artifact_digest: str
    runtime_recipe_digest: str
    recipe_id: str
    recipe_version: str
    catalogue_version: str

    def __post_init__(self) -> None:
        require_digest("fingerprint.model_artifact_digest", self.model_artifact_digest)
        require_digest("fingerprint.runtime_recipe_digest", self.runtime_recipe_digest)
        for label in LABELS:
            require_text(f"fingerprint.{label}", getattr(self, label))

    def to_dict(self) -> dict[str, Any]:
        """Return the five keys of `fingerprint`."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def to_proto(self) -> "pb.Fingerprint":
        """Return the wire message `meshnet.shard.v1.Fingerprint`, for display and handshakes.

        The digests inside come from the canonical JSON, never from protobuf bytes, which no
        standard makes canonical.
        """
        from pytest_meshnet.protocol.generated import shard_runtime_pb2

        return shard_runtime_pb2.Fingerprint(**self.to_dict())


@dataclass(frozen=True, slots=True)
class Identity:
    """One Shard: its artifact, its recipe and its layers `[shard_start, shard_end)`.

    `claim` is the fingerprint the document itself carries, if any. Construction raises
    IdentityError (FingerprintClaimError for a claim the content does not give).
    """

    artifact: Artifact
    recipe: Recipe
    shard_start: int
    shard_end: int
    claim: Fingerprint | None = None

    def __post_init__(self) -> None:
        require_integer("shard_start", self.shard_start, minimum=0)
        require_integer("shard_end", self.shard_end, minimum=0)
        self._check_range()
        if self.claim is not None:
            self._check_claim(self.claim)

    @classmethod
    def from_dict(cls, document: object) -> Self:
        """Parse an identity document, schema_version 1.

        Raises IdentityError with the reason; unknown and missing keys are refused alike.
        """
        top = keys(
            "identity",
            document,
            ("schema_version", "artifact", "recipe", "shard_start", "shard_end"),
            optional=("fingerprint",),
        )
        version = top["schema_version"]
        if isinstance(version, bool) or version != SCHEMA_VERSION or not isinstance(version, int):
            raise IdentityError(
                "schema-version",
                f"schema_version is {version!r}, expected the integer {SCHEMA_VERSION}: "
                "write a document of that version",
            )
        artifact = keys("artifact", top["artifact"], tuple(f.name for f in fields(Artifact)))
        split = artifact.pop("derived_from")
        if split is not None:
            split = Split(**keys("derived_from", split, tuple(f.name for f in fields(Split))))
        claim = top.get("fingerprint")
        if claim is not None:
            names = tuple(f.name for f in fields(Fingerprint))
            claim = Fingerprint(**keys("fingerprint", claim, names))
        return cls(
            artifact=Artifact(**artifact, derived_from=split),
            recipe=Recipe(**keys("recipe", top["recipe"], tuple(f.name for f in fields(Recipe)))),
            shard_start=top["shard_start"],
            shard_end=top["shard_end"],
            claim=claim,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the document; `fingerprint` is in it only when this identity carries a claim."""
        document: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "artifact": self.artifact.to_dict(),
            "recipe": self.recipe.to_dict(),
            "shard_start": self.shard_start,
            "shard_end": self.shard_end,
        }
        if self.claim is not None:
            document["fingerprint"] = self.claim.to_dict()
        return document

    def fingerprint(self) -> Fingerprint:
        """Derive the fingerprint from artifact and recipe; the shard range is no part of it."""
        labels = {label: getattr(self.recipe, label) for label in LABELS}
        return Fingerprint(self.artifact.digest(), self.recipe.digest(), **labels)

    def claiming(self) -> Self:
        """Return the same identity with its derived fingerprint written into the document."""
        return replace(self, claim=self.fingerprint())

    def to_proto(self) -> "tuple[pb.Fingerprint, pb.ShardRange]":
        """Return the wire pair every open and envelope carries; the effective start is the start.

        The wire has no message for a whole identity: admission reads the document.
        """
        from pytest_meshnet.protocol.generated import shard_runtime_pb2

        shard = shard_runtime_pb2.ShardRange(
            start_layer=self.shard_start,
            end_layer=self.shard_end,
            effective_start_layer=self.shard_start,
        )
        return self.fingerprint().to_proto(), shard

    def _check_range(self) -> None:
        if self.shard_start >= self.shard_end:
            raise IdentityError(
                "shard-empty",
                f"the Shard [{self.shard_start}, {self.shard_end}) holds no layer: "
                "shard_end is exclusive and must be greater than shard_start",
            )
        if self.shard_end > self.artifact.layer_count:
            raise IdentityError(
                "shard-exceeds-model",
                f"the Shard ends at layer {self.shard_end}, but the model has "
                f"{self.artifact.layer_count}: correct one of them",
            )
        split = self.artifact.derived_from
        if split is not None and not (
            split.shard_start <= self.shard_start and self.shard_end <= split.shard_end
        ):
            raise IdentityError(
                "split-misses-shard",
                f"the Shard [{self.shard_start}, {self.shard_end}) is not inside its split "
                f"[{split.shard_start}, {split.shard_end}): advertise only what the split holds",
            )

    def _check_claim(self, claim: Fingerprint) -> None:
        derived = self.fingerprint().to_dict()
        for name, claimed in claim.to_dict().items():
            if claimed != derived[name]:
                raise FingerprintClaimError(
                    f"fingerprint.{name} claims {claimed!r}, the document gives "
                    f"{derived[name]!r}: derive it again, or correct the axis that differs"
                )
