"""The locked target as a whole: three pinned documents that name one another."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from pytest_meshnet import layout
from pytest_meshnet.identity.canonical import DocumentRefused, digest, load_strict
from pytest_meshnet.target.architecture import Snapshot
from pytest_meshnet.target.contract import Contract
from pytest_meshnet.target.fields import TargetRefused
from pytest_meshnet.target.manifest import Manifest

MANIFEST_SHA256: Final = "0b6aed04479d204902bb64c0203f1a46cab26a47b378ecccf85237b63f6c1962"
SNAPSHOT_SHA256: Final = "253fbd94b06b42acc4724ec2c7f33914e2d4cc43f54a36dff6af19a80ae6ceb1"
FILES: Final = {
    "manifest": "target-manifest.json",
    "snapshot": "architecture-snapshot.json",
    "contract": "alpha-contract.json",
}


@dataclass(frozen=True, slots=True)
class LockedTarget:
    """Manifest, snapshot and contract, cross-bound and equal to the digests pinned in code."""

    manifest: Manifest
    snapshot: Snapshot
    contract: Contract

    @classmethod
    def load(cls, folder: Path | None = None) -> Self:
        """Read the three documents from `folder` (default: the shipped `fixtures/target`).

        Raises TargetRefused as `from_documents` does, and for a file that cannot be read.
        """
        place = layout.folder("fixtures") / "target" if folder is None else folder
        return cls.from_documents(**{key: _read(place / name) for key, name in FILES.items()})

    @classmethod
    def from_documents(cls, manifest: Any, snapshot: Any, contract: Any) -> Self:
        """Parse, bind and pin three parsed JSON documents.

        Each document is first judged by itself, then against the others ("binding"), then against
        the digests pinned in code ("not-the-pinned-manifest", "-snapshot", "-contract"), so that a
        refusal names what was changed and not only that something was.
        """
        target = cls(
            Manifest.from_dict(manifest),
            Snapshot.from_dict(snapshot),
            Contract.from_dict(contract),
        )
        found = {"manifest": _digest(manifest), "snapshot": _digest(snapshot)}
        _check_binding(target, found)
        for name, pinned in (("manifest", MANIFEST_SHA256), ("snapshot", SNAPSHOT_SHA256)):
            if found[name] != pinned:
                raise TargetRefused(
                    f"not-the-pinned-{name}",
                    f"the {name} digests to {found[name]}, pinned is {pinned}: restore the "
                    "published document",
                )
        target.contract.require_pinned()
        return target


def _check_binding(target: LockedTarget, found: Mapping[str, str]) -> None:
    """Raise TargetRefused("binding") when one document contradicts what another says of it."""
    manifest, snapshot = target.manifest, target.snapshot
    named = target.contract.target
    facts = (
        ("source_repo_id", named.source_repo_id, "manifest", manifest.source.repo_id),
        ("source_revision", named.source_revision, "manifest", manifest.source.revision),
        ("source_repo_id", named.source_repo_id, "snapshot", snapshot.source.repo_id),
        ("source_revision", named.source_revision, "snapshot", snapshot.source.revision),
        ("gguf_repo_id", named.gguf_repo_id, "manifest", manifest.artifact.repo_id),
        ("gguf_revision", named.gguf_revision, "manifest", manifest.artifact.revision),
        ("quantization", named.quantization, "manifest", manifest.quantization),
        ("shard_count", named.shard_count, "manifest", len(manifest.shards)),
        ("total_bytes", named.total_bytes, "manifest", manifest.total_bytes),
        (
            "reasoning_effort",
            named.reasoning_effort,
            "snapshot",
            snapshot.reasoning_effort.alpha_mode,
        ),
        (
            "require_rendered_reasoning_effort_marker",
            target.contract.threshold(
                "semantic_correctness", "require_rendered_reasoning_effort_marker"
            ),
            "snapshot",
            snapshot.reasoning_effort.rendered_marker,
        ),
        (
            "forbidden_path_prefixes",
            target.contract.threshold("storage", "forbidden_path_prefixes"),
            "manifest",
            manifest.storage.forbidden_path_prefixes,
        ),
        ("target_manifest_sha256", named.target_manifest_sha256, "manifest", found["manifest"]),
        (
            "architecture_snapshot_sha256",
            named.architecture_snapshot_sha256,
            "snapshot",
            found["snapshot"],
        ),
    )
    for name, expected, document, value in facts:
        if expected != value:
            raise TargetRefused(
                "binding",
                f"the contract binds {name} to {expected!r}, the {document} has {value!r}: "
                "these documents do not belong together",
            )


def _digest(document: Any) -> str:
    try:
        return digest(document)
    except DocumentRefused as error:
        raise TargetRefused(error.code, error.message) from error


def _read(path: Path) -> Any:
    try:
        return load_strict(path.read_bytes(), path.name)
    except OSError as error:
        raise TargetRefused(
            "unreadable", f"{path}: {error.strerror}: reinstall pytest-meshnet"
        ) from error
    except DocumentRefused as error:
        raise TargetRefused(error.code, error.message) from error
