"""Whether Shards may form one Inference Route: every reason against it, none hidden by another."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from pytest_meshnet.identity.certification import Standing
from pytest_meshnet.identity.coverage import coverage_gap, execution_gap
from pytest_meshnet.identity.declaration import AXES, Declaration


class Kind(StrEnum):
    """The stable kinds of reasons."""

    ARTIFACT = "artifact"
    TOKENIZER = "tokenizer"
    ARCHITECTURE = "architecture"
    RANGE = "range"
    BOUNDARY_SCHEMA = "boundary-schema"
    ACTIVATION_RECIPE = "activation-recipe"
    CACHE_LAYOUT = "cache-layout"
    FINGERPRINT = "fingerprint"
    UNCERTIFIED = "uncertified"


KIND_OF_AXIS = {
    "tokenizer_revision": Kind.TOKENIZER,
    "architecture_adapter": Kind.ARCHITECTURE,
    "boundary_schema_version": Kind.BOUNDARY_SCHEMA,
    "protocol_schema_version": Kind.BOUNDARY_SCHEMA,
    "weight_quantization": Kind.ACTIVATION_RECIPE,
    "activation_dtype": Kind.ACTIVATION_RECIPE,
    "compute_dtype": Kind.ACTIVATION_RECIPE,
    "backend_id": Kind.ACTIVATION_RECIPE,
    "runtime_version": Kind.ACTIVATION_RECIPE,
    "kv_dtype": Kind.CACHE_LAYOUT,
    "kv_layout": Kind.CACHE_LAYOUT,
}
_KIND_OF_FIELD = {
    "source_digest": Kind.ARTIFACT,
    "layer_count": Kind.ARTIFACT,
    "architecture": Kind.ARCHITECTURE,
    "architecture_digest": Kind.ARCHITECTURE,
}


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason against a route: its kind, the axis that differs, and both values in words."""

    kind: Kind
    axis: str
    message: str


class Standings(Protocol):
    """What a route needs of the certification ledger (`LedgerFile.read()` gives one)."""

    def standing(self, artifact_digest: str, recipe_digest: str) -> Standing:
        """Return whether that fingerprint is unknown, dark or certified."""


def compare(
    route: Declaration,
    candidate: Declaration,
    ledger: Standings | None = None,
    *,
    for_certification: bool = False,
) -> tuple[Reason, ...]:
    """Return every reason why `candidate` cannot join the route that `route` belongs to.

    Digests decide, labels are for people: two Shards that differ only in recipe id, recipe version
    or catalogue version compute the same and get no reason. Whether the candidate is certified is
    only asked when a `ledger` is given; `admit_route` always gives it.
    """
    reasons = [
        _differs(kind, name, getattr(route, name), getattr(candidate, name))
        for name, kind in _KIND_OF_FIELD.items()
        if getattr(route, name) != getattr(candidate, name)
    ]
    reasons += [
        _differs(KIND_OF_AXIS[name], name, route.axes[name], candidate.axes[name])
        for name in AXES
        if route.axes[name] != candidate.axes[name]
    ]
    if candidate.shard[1] > route.layer_count:
        reasons.append(
            Reason(
                Kind.RANGE,
                "shard_end",
                f"the candidate ends at layer {candidate.shard[1]}, the route's model has "
                f"{route.layer_count}: it serves another model",
            )
        )
    if route.fingerprint != candidate.fingerprint:
        reasons.append(
            _differs(Kind.FINGERPRINT, "fingerprint", route.fingerprint, candidate.fingerprint)
        )
    if ledger is not None:
        reasons += uncertified(candidate, ledger, for_certification=for_certification)
    return tuple(reasons)


def admit_route(
    identities: Sequence[Declaration], ledger: Standings, for_certification: bool
) -> tuple[Reason, ...]:
    """Return every reason why these Shards, in this order, are no Inference Route; empty admits.

    Each Shard is compared with the head of the list. `for_certification` opens the route to dark
    recipes, and to nothing else. Overlapping ranges are legal; an empty route is a reason.
    """
    if not identities:
        return (Reason(Kind.RANGE, "route", "the route holds no Shard: name at least one"),)
    head = identities[0]
    reasons: list[Reason] = []
    for position, candidate in enumerate(identities):
        reasons += [
            Reason(reason.kind, reason.axis, f"Shard {position}: {reason.message}")
            for reason in compare(head, candidate, ledger, for_certification=for_certification)
        ]
    ranges = [identity.shard for identity in identities]
    gap = coverage_gap(ranges, head.layer_count) or execution_gap(ranges, head.layer_count)
    if gap is not None:
        reasons.append(Reason(Kind.RANGE, "route", f"{gap}: complete or reorder the route"))
    return tuple(reasons)


def uncertified(
    candidate: Declaration, ledger: Standings, *, for_certification: bool
) -> tuple[Reason, ...]:
    """Return the reason why `ledger` does not let this recipe be routed, or nothing."""
    standing = ledger.standing(*candidate.fingerprint)
    if standing is Standing.CERTIFIED or (for_certification and standing is Standing.DARK):
        return ()
    advice = {
        Standing.UNKNOWN: "register it first",
        Standing.DARK: "only a certification run may route it",
    }[standing]
    recipe = f"{candidate.labels['recipe_id']} {candidate.labels['recipe_version']}"
    return (
        Reason(
            Kind.UNCERTIFIED,
            "fingerprint",
            f"recipe {recipe} ({candidate.recipe_digest[:12]}) is {standing}, not certified: "
            f"{advice}",
        ),
    )


def _differs(kind: Kind, axis: str, expected: object, found: object) -> Reason:
    return Reason(
        kind,
        axis,
        f"{axis} is {found!r}, the route has {expected!r}: make both nodes run the same",
    )
