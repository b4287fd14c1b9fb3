"""The target and the identity half of `identity_and_fit`: is this the locked artifact, complete?"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_meshnet.alpha.criteria import criterion
from pytest_meshnet.alpha.reading import Reading

SECTION = "identity_and_fit"
PRECISION = 0.001
"""Share of the artifact that headers take: names, tokenizer and padding are some megabytes."""
_BLOCK = re.compile(r"blk\.([0-9]{1,6})\.")
_DIGEST = re.compile(r"[0-9a-f]{64}")
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
    """Both revisions are the bound commits on every machine, which says what ran there as well."""
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
        at.text(node, "backend", where, told=True)
        patch = at.text(node, "patch_digest", where, told=True)
        if patch is not None and not _DIGEST.fullmatch(patch):
            at.fail("no-digest", f"{where}.patch_digest is {patch!r}, expected a SHA-256")


@criterion(
    SECTION, "require_all_shard_sha256", action="run `pytest-meshnet artifact verify` on each node"
)
def all_files_have_their_digest(at: Reading) -> None:
    """Every machine verified every file of the manifest, and no other."""
    expected = {one.name: (one.size_bytes, one.sha256) for one in at.locked.manifest.shards}
    fewest = len(expected)
    for where, node in at.nodes():
        entries = at.items(node, "files", where)
        if entries is None:
            continue
        seen = set()
        for entry in entries:
            name, found = _file(entry)
            if name not in expected:
                at.fail("unknown-file", f"{where}: {name!r} is no file of the manifest")
            elif type(found[0]) is not int or found[0] != expected[name][0]:
                at.fail("wrong-size", f"{where}: {name} has {found[0]!r} bytes")
            elif found != expected[name]:
                at.fail("wrong-digest", f"{where}: {name} has the right size and another SHA-256")
            else:
                seen.add(name)
        fewest = min(fewest, len(seen))
        at.show(fewest, "files on the node with the fewest")
        for name in sorted(expected.keys() - seen):
            at.fail("unverified-file", f"{where} did not verify {name}")


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
        if not 0 < size <= at.locked.manifest.total_bytes:
            at.fail("impossible-size", f"{where}.{name}: {tensor} cannot have such a size")
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
    """Each machine lists the tensors it owns, with their bytes, and they are of its layers."""
    found = owned(at)
    if found is None:
        return
    at.show(sum(map(len, found.values())), "tensors")
    last = at.locked.snapshot.architecture.backbone_layers
    for where, node in at.nodes():
        layers = span(at, node, where)
        if layers is None:
            continue
        strays = [name for name in found[where] if not _belongs(name, *layers, last)]
        if strays:
            at.fail(
                "other-layers",
                f"{where} owns {strays[0]} and {len(strays) - 1} more that "
                f"layers {list(layers)} do not have",
            )


def span(at: Reading, node: Mapping[str, Any], where: str) -> tuple[int, int] | None:
    """The layers [first, end) of a machine; None, with the reason noted, when they are none."""
    layers = at.items(node, "layers", where, told=True)
    if layers is None:
        return None
    ends = [one for one in layers if isinstance(one, int) and not isinstance(one, bool)]
    if len(ends) != 2 or len(layers) != 2 or ends[0] >= ends[1]:
        at.fail("wrong-type", f"{where}.layers is {list(layers)}, expected [first, end]")
        return None
    return ends[0], ends[1]


def layer_of(tensor: str) -> int | None:
    """The layer that a tensor of the GGUF artifact belongs to, None for one outside the layers."""
    found = _BLOCK.match(tensor)
    return int(found[1]) if found else None


def _belongs(tensor: str, first: int, end: int, last: int) -> bool:
    """Whether the Shard of these layers owns a tensor; NextN tensors are the tail's or nobody's."""
    layer = layer_of(tensor)
    if layer is not None:
        return end == last if layer >= last else first <= layer < end
    if tensor.startswith("token_embd"):
        return first == 0
    return end == last or not tensor.startswith("output")


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
    _check_inventory(at, inventory, excluded)
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


def _check_inventory(at: Reading, inventory: Mapping[str, int], excluded: Sequence[Any]) -> None:
    """The inventory is all of the artifact, and what is left out of it is NextN alone."""
    whole, held = at.locked.manifest.total_bytes, sum(inventory.values())
    if not (1 - PRECISION) * whole <= held <= whole:
        at.fail("contradictory", f"the inventory holds {held} bytes of the artifact's {whole}")
    last = at.locked.snapshot.architecture.backbone_layers
    absent = sorted(set(range(last)) - {layer_of(name) for name in inventory})
    if absent:
        at.fail("layers-missing", f"the inventory has no tensor of the layers {absent}")
    for name in excluded:
        layer = layer_of(name) if isinstance(name, str) and name in inventory else None
        if layer is None or layer < last:
            at.fail("not-nextn", f"{name!r} is excluded and no NextN tensor of the inventory")


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
