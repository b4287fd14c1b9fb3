"""The alpha contract: sealed thresholds that nobody can weaken, not even by sealing them again."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from types import MappingProxyType
from typing import Any, Final, Self

from pytest_meshnet.identity.canonical import canonical_bytes, digest, load_strict
from pytest_meshnet.target.fields import Fields, TargetRefused

CONTRACT_SHA256: Final = "aab23220280c053a3c14ff559df3cb5c9e1bf7f0f7188c6519e2e9d9ad036ed9"
SECTIONS: Final = (
    "identity_and_fit",
    "semantic_correctness",
    "target_run",
    "performance",
    "reliability",
    "storage",
)
VERDICTS: Final = ("alpha", "stop")

Threshold = bool | int | float | str | tuple[str, ...]


class ThresholdNotLocked(TargetRefused):
    """Somebody asked for a threshold that the contract does not lock; there are no defaults."""

    def __init__(self, message: str) -> None:
        super().__init__("threshold-not-locked", message)


@dataclass(frozen=True, slots=True)
class Binding:
    """What the contract says of the documents it was locked with."""

    source_repo_id: str
    source_revision: str
    gguf_repo_id: str
    gguf_revision: str
    quantization: str
    shard_count: int
    total_bytes: int
    target_manifest_sha256: str
    architecture_snapshot_sha256: str
    reasoning_effort: str


@dataclass(frozen=True, slots=True)
class Contract:
    """The parsed contract. `sections` maps section to key to threshold, read-only all the way."""

    contract_id: str
    target: Binding
    sections: Mapping[str, Mapping[str, Threshold]]
    verdicts: tuple[str, ...]
    sha256: str
    _canonical: bytes

    @classmethod
    def from_dict(cls, document: object) -> Self:
        """Parse a contract, schema 1, and hold it to its own seal.

        Raises TargetRefused: schema-version, not-locked, sections, verdicts, threshold-type,
        seal-broken, and the codes of `Fields`. A document that is whole but not the pinned one
        parses here and is refused by `require_pinned`, or by `documents.LockedTarget`.
        """
        top = Fields("contract", document)
        top.exactly("schema_version", 1, "schema-version")
        top.exactly("contract_version", 1, "schema-version")
        contract_id = top.text("contract_id")
        _check_lock(top)
        target = _read_binding(top.object("target"))
        sections = _read_sections(top)
        verdicts = top.texts("verdicts")
        if verdicts != VERDICTS:
            raise TargetRefused(
                "verdicts", f"the verdicts are {list(verdicts)}, expected {list(VERDICTS)}"
            )
        top.text("amendment_policy")
        seal = top.digest("contract_sha256")
        top.close()
        whole = top.copy()
        found = digest({key: value for key, value in whole.items() if key != "contract_sha256"})
        if found != seal:
            raise TargetRefused(
                "seal-broken",
                f"the contract digests to {found}, its seal says {seal}: restore the document",
            )
        return cls(contract_id, target, sections, verdicts, seal, canonical_bytes(whole))

    def threshold(self, section: str, key: str) -> Threshold:
        """Return one locked threshold. Raises ThresholdNotLocked when the contract has none."""
        try:
            return self.sections[section][key]
        except KeyError:
            raise ThresholdNotLocked(
                f"{section}.{key} is not locked by {self.contract_id}: only what the contract "
                "locked before execution can be judged"
            ) from None

    def number(self, section: str, key: str) -> int | float:
        """Return a numeric threshold. Raises ThresholdNotLocked when it is absent or no number."""
        value = self.threshold(section, key)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ThresholdNotLocked(f"{section}.{key} is {value!r}, which is no number")
        return value

    def to_dict(self) -> dict[str, Any]:
        """Return the whole document, seal included, as a copy that nothing here sees again."""
        document: dict[str, Any] = load_strict(self._canonical, self.contract_id)
        return document

    def require_pinned(self) -> None:
        """Refuse ("not-the-pinned-contract") every contract but the one pinned in code."""
        if self.sha256 != CONTRACT_SHA256:
            raise TargetRefused(
                "not-the-pinned-contract",
                f"the contract is sealed as {self.sha256}, pinned is {CONTRACT_SHA256}: a changed "
                "contract needs a new id, a new version and human review, not a new seal",
            )


def _check_lock(top: Fields) -> None:
    top.exactly("locked_before_target_execution", True, "not-locked")
    top.text("locked_by")
    locked_at = top.text("locked_at")
    try:
        date.fromisoformat(locked_at)
    except ValueError:
        raise TargetRefused(
            "not-locked", f"contract.locked_at is {locked_at!r}, expected a date: restore it"
        ) from None


def _read_binding(fields: Fields) -> Binding:
    binding = Binding(
        source_repo_id=fields.text("source_repo_id"),
        source_revision=fields.revision("source_revision"),
        gguf_repo_id=fields.text("gguf_repo_id"),
        gguf_revision=fields.revision("gguf_revision"),
        quantization=fields.text("quantization"),
        shard_count=fields.integer("shard_count", minimum=1),
        total_bytes=fields.integer("total_bytes", minimum=1),
        target_manifest_sha256=fields.digest("target_manifest_sha256"),
        architecture_snapshot_sha256=fields.digest("architecture_snapshot_sha256"),
        reasoning_effort=fields.text("reasoning_effort"),
    )
    fields.close()
    return binding


def _read_sections(top: Fields) -> Mapping[str, Mapping[str, Threshold]]:
    sections = {}
    for name in SECTIONS:
        try:
            fields = top.object(name)
        except TargetRefused as error:
            raise TargetRefused(
                "sections", f"{error.message} (the six sections are needed)"
            ) from error
        sections[name] = MappingProxyType({key: _threshold(fields, key) for key in top.take(name)})
    return MappingProxyType(sections)


def _threshold(fields: Fields, key: str) -> Threshold:
    value = fields.take(key)
    if isinstance(value, (bool, str)) and value != "":
        return value
    if isinstance(value, (int, float)) and math.isfinite(value):
        return value
    if isinstance(value, (list, tuple)) and value and all(isinstance(v, str) and v for v in value):
        return tuple(value)
    raise TargetRefused(
        "threshold-type",
        f"{fields.where}.{key} is {value!r}, expected a boolean, a finite number, text or a list "
        "of texts",
    )
