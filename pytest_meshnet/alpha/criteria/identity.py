"""The target and the identity half of `identity_and_fit`: is this the locked artifact, complete?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from pytest_meshnet.alpha.criteria import criterion
from pytest_meshnet.alpha.reading import MISSING, Reading

SECTION = "identity_and_fit"
BOUND = (
    "source_repo_id",
    "source_revision",
    "gguf_repo_id",
    "gguf_revision",
    "quantization",
    "shard_count",
    "total_bytes",
    "target_manifest_sha256",
    "architecture_snapshot_sha256",
    "reasoning_effort",
)


@criterion("target", *BOUND, action="load exactly the locked artifact and record its identity")
def target_is_the_locked_one(at: Reading) -> None:
    """What the machines loaded is named as the contract names it."""
    found = at.claim(at.part(SECTION, "target"), at.key, "target", told=True)
    if found is not None:
        at.show(found)
        at.equal(found, at.threshold, at.key)


@criterion(SECTION, "require_exact_revisions", action="pin both revisions and load again")
def revisions_are_exact(at: Reading) -> None:
    """Both revisions are the bound commits, on every machine."""
    bound = at.locked.contract.target
    target = at.part(SECTION, "target")
    for name in ("source_revision", "gguf_revision"):
        found = at.text(target, name, "target", told=True)
        if found is not None:
            at.show(found)
            at.equal(found, getattr(bound, name), name)
    for where, node in at.nodes():
        found = at.text(node, "gguf_revision", where, told=True)
        if found is not None:
            at.equal(found, bound.gguf_revision, f"{where}.gguf_revision")


@criterion(
    SECTION, "require_all_shard_sha256", action="run `pytest-meshnet artifact verify` on each node"
)
def all_files_have_their_digest(at: Reading) -> None:
    """Every file of every machine is one of the manifest's, and together they are all of them."""
    expected = {one.name: (one.size_bytes, one.sha256) for one in at.locked.manifest.shards}
    seen = set()
    for where, node in at.nodes():
        for entry in at.items(node, "files", where) or ():
            name, found = _file(entry)
            if name not in expected:
                at.fail("unknown-file", f"{where}: {name!r} is no file of the manifest")
            elif found[0] != expected[name][0]:
                at.fail("wrong-size", f"{where}: {name} has {found[0]} bytes")
            elif found != expected[name]:
                at.fail("wrong-digest", f"{where}: {name} has the right size and another SHA-256")
            else:
                seen.add(name)
    at.show(len(seen), "files")
    if any(one.code == MISSING for one in at.problems):
        return
    for name in sorted(expected.keys() - seen):
        at.fail("unverified-file", f"no node verified {name}")


def _file(entry: Any) -> tuple[str, tuple[Any, Any]]:
    if not isinstance(entry, Mapping):
        return str(entry), (None, None)
    return str(entry.get("name")), (entry.get("size_bytes"), entry.get("sha256"))


def owned(at: Reading) -> dict[str, dict[str, int]] | None:
    """Bytes by tensor by node; None, with the reason noted, when a report cannot be used."""
    reports = {where: tensors(at, node, "owned", where) for where, node in at.nodes()}
    found = {where: report for where, report in reports.items() if report is not None}
    return found if found and len(found) == len(reports) else None


def tensors(at: Reading, part: Mapping[str, Any], name: str, where: str) -> dict[str, int] | None:
    """A list of {name, bytes} as a mapping; None, with the reason noted, when it is none."""
    items = at.items(part, name, where, told=True)
    if items is None:
        return None
    found: dict[str, int] = {}
    for entry in items:
        tensor = entry.get("name") if isinstance(entry, Mapping) else None
        size = entry.get("bytes") if isinstance(entry, Mapping) else None
        if not isinstance(tensor, str) or isinstance(size, bool) or not isinstance(size, int):
            at.fail("wrong-type", f"{where}.{name} holds {entry!r}, expected a name and its bytes")
            return None
        if tensor in found:
            at.fail("listed-twice", f"{where}.{name} lists {tensor} twice")
            return None
        found[tensor] = size
    if not found:
        at.fail("empty", f"{where}.{name} lists no tensor")
        return None
    return found


@criterion(
    SECTION, "require_per_node_owned_tensor_report", action="have each node list what it owns"
)
def every_node_reports_its_tensors(at: Reading) -> None:
    """Each machine lists the tensors it owns, with their bytes."""
    found = owned(at)
    if found is not None:
        at.show(sum(map(len, found.values())), "tensors")


@criterion(
    SECTION,
    "require_owned_tensor_union_equals_inventory",
    action="compare the ownership reports with `pytest-meshnet artifact inventory`",
)
def union_is_the_inventory(at: Reading) -> None:
    """Nothing of the certified inventory is missing, nothing foreign is owned, sizes agree."""
    reports, part = owned(at), at.part(SECTION, "inventory")
    inventory = tensors(at, part, "tensors", "inventory")
    excluded = at.items(part, "excluded", "inventory")
    if reports is None or inventory is None or excluded is None:
        return
    if sum(inventory.values()) > at.locked.manifest.total_bytes:
        at.fail("contradictory", "the inventory holds more bytes than the artifact")
    union = {name: size for report in reports.values() for name, size in report.items()}
    wanted = inventory.keys() - set(map(str, excluded))
    at.show(len(union), "tensors")
    for name in sorted(wanted - union.keys()):
        at.fail("unowned-tensor", f"no node owns {name}")
    for name in sorted(union.keys() - wanted):
        at.fail("foreign-tensor", f"{name} is owned and not in the certified inventory")
    for where, report in reports.items():
        for name in sorted(report.keys() & wanted):
            if report[name] != inventory[name]:
                at.fail("wrong-size", f"{where}: {name} has {report[name]} bytes")


@criterion(SECTION, "max_unintended_tensor_overlap", action="give each tensor to exactly one node")
def overlap_is_within_the_limit(at: Reading) -> None:
    """How many tensors more than one machine owns."""
    reports = owned(at)
    if reports is None:
        return
    owners = Counter(name for report in reports.values() for name in report)
    twice = sorted(name for name, count in owners.items() if count > 1)
    at.show(len(twice), "tensors")
    if len(twice) > at.limit:
        at.fail("overlap", f"{len(twice)} tensors are owned twice, {twice[0]} among them")
