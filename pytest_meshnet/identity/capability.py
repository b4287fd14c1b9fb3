"""Whether a node's capability report admits it to the Shard it was assigned: one state, one reason.

The report is the node's own statement of what it validated. Its Shard is written end-inclusive (as
people count layers), the identity inside it end-exclusive; both must mean the same layers. A report
that disagrees with its own identity is a recipe mismatch; an identity that disagrees with the route
is a model, Shard or fingerprint mismatch, and so is a claim that its own axes do not give.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pytest_meshnet.identity.declaration import (
    AXES,
    ClaimRefused,
    Declaration,
    DeclarationRefused,
    read_declaration,
)
from pytest_meshnet.identity.route import Standings, uncertified

_LABELS = ("recipe_id", "recipe_version", "catalogue_version")
_TEXTS = ("artifact_id", *_LABELS, "backend_id", "weight_quantization", "detail")
_NUMBERS = ("schema_version", "shard_start", "shard_end", "validated_at_unix_nanos")
_INT64_END = 2**63
_KEYS = frozenset({*_TEXTS, *_NUMBERS, "validated", "identity"})


class State(StrEnum):
    """Where a report stands; every one but `admitted` keeps the node out."""

    ADMITTED = "admitted"
    MISSING = "missing"
    MALFORMED = "malformed"
    FAILED = "failed"
    EXPIRED = "expired"
    MODEL_MISMATCH = "model-mismatch"
    SHARD_MISMATCH = "shard-mismatch"
    RECIPE_MISMATCH = "recipe-mismatch"
    CATALOGUE_INCOMPATIBLE = "catalogue-incompatible"
    FINGERPRINT_MISMATCH = "fingerprint-mismatch"
    UNCERTIFIED = "uncertified"


class LegacyPolicy(StrEnum):
    """What happens to a report from before identities. There is no default: somebody decides."""

    REFUSE = "refuse"
    ADMIT_UNPROVEN = "admit-unproven"


@dataclass(frozen=True, slots=True)
class Assignment:
    """What the node is expected to be: a Shard of the route that `route` belongs to.

    `shard` is end-exclusive; `catalogue_versions` are those this side understands; `max_age_nanos`
    bounds the age of the proof in nanoseconds.
    """

    route: Declaration
    shard: tuple[int, int]
    catalogue_versions: frozenset[str]
    max_age_nanos: int
    legacy: LegacyPolicy
    for_certification: bool


@dataclass(frozen=True, slots=True)
class Admission:
    """The verdict on one report. `declaration` is None unless admitted with a derived identity."""

    state: State
    message: str
    declaration: Declaration | None = None


class _Stop(Exception):
    def __init__(self, state: State, message: str) -> None:
        super().__init__(message)
        self.state = state
        self.message = message


def admit_capability(
    report: object, assignment: Assignment, ledger: Standings, *, now_unix_nanos: int
) -> Admission:
    """Judge a report (a JSON object, or None when there is none); never raises for what it holds.

    A report that cannot be read or contradicts itself is judged first, then the checks run in the
    order of `State`: exactly one state comes out. Keys of a report: schema_version 1, artifact_id,
    recipe_id, recipe_version, catalogue_version, backend_id, weight_quantization, shard_start,
    shard_end (inclusive), validated, detail, validated_at_unix_nanos, and identity (an identity
    document; absent or null in legacy reports).
    """
    try:
        if report is None:
            raise _Stop(
                State.MISSING, "there is no capability report: let the node validate itself"
            )
        fields = _well_formed(report, now_unix_nanos)
        declaration = _declared(fields, assignment)
        _check_proof(fields, assignment, now_unix_nanos)
        if declaration is None:
            _check_legacy(fields, assignment)
            return Admission(
                State.ADMITTED, "admitted by legacy policy: nothing about its fingerprint is proven"
            )
        _check_model(fields, declaration, assignment)
        _check_shard(fields, declaration.shard, assignment)
        _check_labels(fields, {**declaration.axes, **declaration.labels})
        _check_catalogue(fields, assignment)
        _check_fingerprint(declaration, assignment, ledger)
    except _Stop as stop:
        return Admission(stop.state, stop.message)
    return Admission(State.ADMITTED, "admitted: every derived fact agrees", declaration)


def _well_formed(report: object, now: int) -> dict[str, Any]:
    if not isinstance(report, Mapping):
        raise _Stop(State.MALFORMED, f"the report is a {type(report).__name__}, not an object")
    fields = {"identity": None, **report}
    if fields.keys() != _KEYS:
        odd = sorted(str(name) for name in fields.keys() ^ _KEYS)
        raise _Stop(
            State.MALFORMED, f"missing or unknown keys {', '.join(odd)}: send exactly the report's"
        )
    for name in _TEXTS:
        if not isinstance(fields[name], str) or not (fields[name] or name == "detail"):
            raise _Stop(State.MALFORMED, f"{name} is {fields[name]!r}, expected text: send it")
    for name in _NUMBERS:
        if type(fields[name]) is not int or not 0 <= fields[name] < _INT64_END:
            raise _Stop(State.MALFORMED, f"{name} is no integer in 0..2^63-1: send one")
    if fields["schema_version"] != 1:
        raise _Stop(State.MALFORMED, f"schema_version is {fields['schema_version']}, expected 1")
    if type(fields["validated"]) is not bool:
        raise _Stop(State.MALFORMED, f"validated is {fields['validated']!r}, expected a boolean")
    if fields["shard_end"] < fields["shard_start"]:
        raise _Stop(State.MALFORMED, "the Shard ends before it starts: shard_end is inclusive")
    if fields["validated_at_unix_nanos"] > now:
        raise _Stop(State.MALFORMED, "the proof is from the future: set the node's clock")
    return fields


def _declared(fields: Mapping[str, Any], assignment: Assignment) -> Declaration | None:
    if fields["identity"] is None:
        if assignment.legacy is LegacyPolicy.ADMIT_UNPROVEN:
            return None
        raise _Stop(
            State.MISSING,
            "the report has no identity and the policy refuses legacy reports: update",
        )
    try:
        return read_declaration(fields["identity"])
    except ClaimRefused as refused:
        raise _Stop(State.FINGERPRINT_MISMATCH, refused.message) from refused
    except DeclarationRefused as refused:
        raise _Stop(State.MALFORMED, f"its identity: {refused.message}") from refused


def _check_proof(fields: Mapping[str, Any], assignment: Assignment, now: int) -> None:
    if not fields["validated"]:
        raise _Stop(State.FAILED, f"the node's own validation failed: {fields['detail']!r}")
    age = now - fields["validated_at_unix_nanos"]
    if age > assignment.max_age_nanos:
        raise _Stop(
            State.EXPIRED,
            f"the proof is {age / 1e9:.0f} s old, at most {assignment.max_age_nanos / 1e9:.0f} s "
            "are accepted: validate again",
        )


def _check_legacy(fields: Mapping[str, Any], assignment: Assignment) -> None:
    """Hold a report without identity to the route's own names; digests it has none."""
    route = assignment.route
    if fields["artifact_id"] != route.artifact_id:
        raise _differs(
            State.MODEL_MISMATCH, "artifact_id", fields["artifact_id"], route.artifact_id
        )
    _check_shard(fields, assignment.shard, assignment)
    _check_catalogue(fields, assignment)
    expected = {**route.axes, **route.labels, "catalogue_version": fields["catalogue_version"]}
    _check_labels(fields, expected)


def _check_model(
    fields: Mapping[str, Any], declaration: Declaration, assignment: Assignment
) -> None:
    route = assignment.route
    if fields["artifact_id"] != declaration.artifact_id:
        raise _differs(
            State.MODEL_MISMATCH, "artifact_id", fields["artifact_id"], declaration.artifact_id
        )
    for name in ("source_digest", "architecture", "architecture_digest", "layer_count"):
        found, expected = getattr(declaration, name), getattr(route, name)
        if found != expected:
            raise _differs(State.MODEL_MISMATCH, name, found, expected)


def _check_shard(fields: Mapping[str, Any], shard: tuple[int, int], assignment: Assignment) -> None:
    reported = (fields["shard_start"], fields["shard_end"] + 1)
    if reported != shard:
        raise _differs(
            State.SHARD_MISMATCH, "the report's Shard, read end-exclusive,", reported, shard
        )
    if shard != assignment.shard:
        raise _differs(State.SHARD_MISMATCH, "the Shard", shard, assignment.shard)


def _check_labels(fields: Mapping[str, Any], expected: Mapping[str, object]) -> None:
    for name in (*_LABELS, "backend_id", "weight_quantization"):
        if fields[name] != expected[name]:
            raise _differs(State.RECIPE_MISMATCH, name, fields[name], expected[name])


def _check_catalogue(fields: Mapping[str, Any], assignment: Assignment) -> None:
    version = fields["catalogue_version"]
    if version not in assignment.catalogue_versions:
        known = ", ".join(sorted(assignment.catalogue_versions)) or "none"
        raise _Stop(
            State.CATALOGUE_INCOMPATIBLE,
            f"catalogue {version!r} is not understood here (known: {known}): update one side",
        )


def _check_fingerprint(declaration: Declaration, assignment: Assignment, ledger: Standings) -> None:
    mine, route = declaration.axes, assignment.route.axes
    if declaration.recipe_digest != assignment.route.recipe_digest:
        names = [name for name in AXES if mine[name] != route[name]]
        raise _differs(
            State.FINGERPRINT_MISMATCH,
            " and ".join(names),
            [mine[name] for name in names],
            [route[name] for name in names],
        )
    for reason in uncertified(declaration, ledger, for_certification=assignment.for_certification):
        raise _Stop(State.UNCERTIFIED, reason.message)


def _differs(state: State, name: str, found: object, expected: object) -> _Stop:
    return _Stop(state, f"{name} is {found!r}, expected {expected!r}: make the node run the same")
