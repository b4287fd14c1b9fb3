"""Which recipes are certified: the entries, the evidence they need, and the state they add up to.

Nothing here touches a file; `ledger_file` makes the entries last.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from pytest_meshnet.identity.canonical import Refused
from pytest_meshnet.identity.coverage import coverage_gap, execution_gap, idle_ranges
from pytest_meshnet.identity.declaration import Declaration

_DIGEST = re.compile(r"[0-9a-f]{64}")


class CertificationRefused(Refused):
    """An entry that the ledger does not accept; `code` is stable."""


class Standing(StrEnum):
    """What the ledger knows of a fingerprint."""

    UNKNOWN = "unknown"
    DARK = "dark"
    CERTIFIED = "certified"


@dataclass(frozen=True, slots=True)
class Registration:
    """A recipe made visible. Until evidence comes it is dark: routable only to certify it."""

    artifact_digest: str
    recipe_digest: str
    layer_count: int
    recipe_id: str
    recipe_version: str
    catalogue_version: str

    def __post_init__(self) -> None:
        _require_digest("artifact_digest", self.artifact_digest)
        _require_digest("recipe_digest", self.recipe_digest)
        _require_count("layer_count", self.layer_count)
        for name in ("recipe_id", "recipe_version", "catalogue_version"):
            _require_text(name, getattr(self, name))

    @classmethod
    def of(cls, declaration: Declaration) -> Self:
        """Return the registration of what a Shard declares, from derived digests only."""
        return cls(
            artifact_digest=declaration.artifact_digest,
            recipe_digest=declaration.recipe_digest,
            layer_count=declaration.layer_count,
            recipe_id=declaration.labels["recipe_id"],
            recipe_version=declaration.labels["recipe_version"],
            catalogue_version=declaration.labels["catalogue_version"],
        )


@dataclass(frozen=True, slots=True)
class Stage:
    """One node's part in a forward: its layers `[start_layer, end_layer)`, in route order."""

    node: str
    start_layer: int
    end_layer: int

    def __post_init__(self) -> None:
        _require_text("node", self.node)


@dataclass(frozen=True, slots=True)
class ForwardEvidence:
    """A real distributed forward, as a sealed evidence bundle recorded it.

    `bundle` is the SHA-256 of that bundle's seal. Construction only types the fields; whether the
    forward certifies anything is `refusal`'s answer, which needs what was registered.
    """

    artifact_digest: str
    recipe_digest: str
    stages: tuple[Stage, ...]
    token_count: int
    synthetic: bool
    bundle: str

    def __post_init__(self) -> None:
        _require_digest("artifact_digest", self.artifact_digest)
        _require_digest("recipe_digest", self.recipe_digest)
        _require_digest("bundle", self.bundle)

    def refusal(self, registration: Registration) -> CertificationRefused | None:
        """Return why this forward does not certify `registration`, or None when it does."""
        expected = (registration.artifact_digest, registration.recipe_digest)
        if (self.artifact_digest, self.recipe_digest) != expected:
            return CertificationRefused(
                "fingerprint-mismatch",
                f"the evidence is about {self.artifact_digest[:12]}/{self.recipe_digest[:12]}, "
                f"the recipe is {expected[0][:12]}/{expected[1][:12]}: run that recipe",
            )
        if self.synthetic is not False:
            return CertificationRefused(
                "synthetic",
                f"synthetic is {self.synthetic!r}, expected false: only a real forward certifies",
            )
        if isinstance(self.token_count, bool) or not isinstance(self.token_count, int):
            return CertificationRefused(
                "no-token", "token_count is no integer: record the tokens that came out"
            )
        if self.token_count < 1:
            return CertificationRefused(
                "no-token", f"token_count is {self.token_count}, expected at least 1: generate one"
            )
        return self._route_refusal(registration.layer_count)

    def _route_refusal(self, layer_count: int) -> CertificationRefused | None:
        names = [stage.node.casefold() for stage in self.stages]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            return CertificationRefused(
                "node-twice", f"node {twice[0]!r} serves two stages: use distinct machines"
            )
        if len(names) < 2:
            return CertificationRefused(
                "not-distributed", f"{len(names)} node took part, expected at least 2: distribute"
            )
        ranges = [(stage.start_layer, stage.end_layer) for stage in self.stages]
        gap = coverage_gap(ranges, layer_count)
        if gap is not None:
            return CertificationRefused("coverage", f"{gap}: certify a complete route")
        disorder = execution_gap(ranges, layer_count)
        if disorder is not None:
            return CertificationRefused("order", disorder)
        idle = idle_ranges(ranges)
        if idle:
            return CertificationRefused(
                "idle-node",
                f"node {self.stages[idle[0]].node!r} adds no layer to those before it: "
                "a forward is distributed only over nodes that compute",
            )
        return None


Entry = Registration | ForwardEvidence
Key = tuple[str, str]


class Book:
    """Everything the entries so far add up to. Only `add` changes it, and only by legal entries."""

    def __init__(self) -> None:
        self._registrations: dict[Key, Registration] = {}
        self._certificates: dict[Key, list[ForwardEvidence]] = {}

    def standing(self, artifact_digest: str, recipe_digest: str) -> Standing:
        """Return whether the fingerprint is unknown, dark or certified."""
        key = (artifact_digest, recipe_digest)
        if key not in self._registrations:
            return Standing.UNKNOWN
        return Standing.CERTIFIED if key in self._certificates else Standing.DARK

    def registrations(self) -> tuple[Registration, ...]:
        """Return every registered recipe, oldest first: dark ones are visible too."""
        return tuple(self._registrations.values())

    def bundles(self, artifact_digest: str, recipe_digest: str) -> tuple[str, ...]:
        """Return the seals of the bundles that certified the fingerprint, oldest first."""
        evidence = self._certificates.get((artifact_digest, recipe_digest), ())
        return tuple(item.bundle for item in evidence)

    def holds(self, entry: Entry) -> bool:
        """Return whether `entry` would change nothing. Labels are for people: the first stay."""
        key = (entry.artifact_digest, entry.recipe_digest)
        if isinstance(entry, Registration):
            known = self._registrations.get(key)
            return known is not None and known.layer_count == entry.layer_count
        return entry in self._certificates.get(key, ())

    def add(self, entry: Entry) -> None:
        """Take `entry` in.

        Raises CertificationRefused, and changes nothing, for a fingerprint registered with another
        layer count, evidence about an unknown fingerprint, or evidence that does not certify.
        """
        key = (entry.artifact_digest, entry.recipe_digest)
        known = self._registrations.get(key)
        if isinstance(entry, Registration):
            if known is not None and known.layer_count != entry.layer_count:
                raise CertificationRefused(
                    "registered-otherwise",
                    f"{entry.artifact_digest[:12]} is registered with {known.layer_count} layers, "
                    f"not {entry.layer_count}: one of the two is not this artifact",
                )
            self._registrations.setdefault(key, entry)
            return
        if known is None:
            raise CertificationRefused(
                "unknown-fingerprint",
                f"{entry.artifact_digest[:12]}/{entry.recipe_digest[:12]} is not registered: "
                "register the recipe before certifying it",
            )
        refusal = entry.refusal(known)
        if refusal is not None:
            raise refusal
        self._certificates.setdefault(key, []).append(entry)


def to_record(entry: Entry) -> dict[str, Any]:
    """Return the JSON body of an entry, as the ledger file stores it."""
    if isinstance(entry, Registration):
        names: Iterable[str] = Registration.__slots__
        return {"type": "registered", **{name: getattr(entry, name) for name in names}}
    return {
        "type": "certified",
        "artifact_digest": entry.artifact_digest,
        "recipe_digest": entry.recipe_digest,
        "stages": [[stage.node, stage.start_layer, stage.end_layer] for stage in entry.stages],
        "token_count": entry.token_count,
        "synthetic": entry.synthetic,
        "bundle": entry.bundle,
    }


def from_record(record: Mapping[str, Any]) -> Entry:
    """Return the entry of a stored body. Raises CertificationRefused when it is none."""
    body = dict(record)
    kind = body.pop("type", None)
    try:
        if kind == "registered":
            return Registration(**body)
        if kind == "certified":
            body["stages"] = tuple(Stage(*stage) for stage in body["stages"])
            return ForwardEvidence(**body)
    except (TypeError, KeyError) as error:
        raise CertificationRefused(
            "entry-fields", f"a {kind} entry is malformed: {error}"
        ) from error
    raise CertificationRefused(
        "entry-type", f"{kind!r} is no entry of this ledger: use the version that wrote it"
    )


def _require_digest(name: str, value: object) -> None:
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise CertificationRefused(
            "digest-format", f"{name} is {value!r}, expected 64 lowercase hex digits: recompute it"
        )


def _require_count(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise CertificationRefused(
            "wrong-type", f"{name} is {value!r}, expected an integer of at least 1: correct it"
        )


def _require_text(name: str, value: object) -> None:
    if not isinstance(value, str) or not value or value != value.strip():
        raise CertificationRefused(
            "wrong-type", f"{name} is {value!r}, expected text without blanks around it: write it"
        )
