"""The fit half of `identity_and_fit`: did every machine hold its part in real memory?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from pytest_meshnet.alpha.criteria import criterion
from pytest_meshnet.alpha.criteria.identity import SECTION, span, tensors
from pytest_meshnet.alpha.reading import GIB, Reading
from pytest_meshnet.target.plan.kv_cache import IndexerLayout, kv_bytes, target_layers


def _bytes(at: Reading, node: Mapping[str, Any], where: str, *names: str) -> list[int] | None:
    """Some byte counts of one machine, all of them or None."""
    found = [at.count(node, name, where) for name in names]
    usable = [one for one in found if one is not None]
    return usable if len(usable) == len(found) else None


def _reserve(at: Reading, usable: int) -> float:
    fraction = at.locked_number(SECTION, "min_node_reserve_fraction")
    least = at.locked_number(SECTION, "min_node_reserve_gib")
    return max(fraction * usable, least * GIB)


@criterion(
    SECTION,
    "require_no_single_node_can_admit_complete_recipe",
    action="use machines that could not hold the whole recipe alone",
)
def no_node_could_hold_everything(at: Reading) -> None:
    """The budget of each machine is below all weights that are loaded and all of the KV."""
    part = at.part(SECTION, "inventory")
    inventory = tensors(at, part, "tensors", "inventory")
    excluded = at.items(part, "excluded", "inventory")
    nodes = dict(at.nodes())
    found = {w: _bytes(at, node, w, "usable_bytes", "kv_bytes") for w, node in nodes.items()}
    sizes = {where: one for where, one in found.items() if one is not None}
    if inventory is None or excluded is None or not sizes or len(sizes) < len(found):
        return
    loaded = sum(size for name, size in inventory.items() if name not in excluded)
    whole = loaded + sum(kv for _, kv in sizes.values())
    for where, (usable, _) in sizes.items():
        if usable - _reserve(at, usable) >= whole:
            at.fail("one-node-suffices", f"{where} could hold all of the recipe alone")
    at.show(round(max(usable for usable, _ in sizes.values()) / GIB, 3), "GiB")


@criterion(SECTION, "min_node_reserve_fraction", action="place less on the node that is named")
def reserve_is_a_fraction(at: Reading) -> None:
    """Each reserve is the locked fraction of usable memory, and what is placed keeps out of it."""
    shares: list[float] = []
    for where, node in at.nodes():
        names = ("usable_bytes", "reserve_bytes", "weight_bytes", "kv_bytes")
        sizes = _bytes(at, node, where, *names)
        if sizes is None:
            continue
        usable, reserve, weights, kv = sizes
        shares.append(round(reserve / usable, 4) if usable else 0)
        at.show(min(shares), "of usable memory")
        at.at_least(reserve, at.limit * usable, f"{where}.reserve_bytes")
        if weights + kv > usable - _reserve(at, usable):
            at.fail("over-budget", f"{where}: weights and KV reach into the reserve")
        if weights + kv + reserve > usable:
            at.fail("contradictory", f"{where}: weights, KV and reserve exceed the machine")


@criterion(SECTION, "min_node_reserve_gib", action="place less on the node that is named")
def reserve_has_a_floor(at: Reading) -> None:
    """Each reserve is at least the locked number of GiB."""
    reserves: list[int] = []
    for where, node in at.nodes():
        reserve = at.count(node, "reserve_bytes", where)
        if reserve is not None:
            reserves.append(reserve)
            at.show(min(reserves), "bytes")
            at.at_least(reserve, at.limit * GIB, f"{where}.reserve_bytes")


@criterion(
    SECTION,
    "require_measured_peak_scratch_inside_reserve",
    action="measure the peak of the node that is named, and place less on it",
)
def peak_stays_inside(at: Reading) -> None:
    """Peak scratch is inside the reserve, and what was resident inside the machine."""
    names = ("peak_scratch_bytes", "reserve_bytes", "peak_rss_bytes", "peak_vram_bytes")
    peaks: list[int] = []
    for where, node in at.nodes():
        sizes = _bytes(at, node, where, *names, "usable_bytes", "weight_bytes", "kv_bytes")
        if sizes is None:
            continue
        scratch, reserve, rss, vram, usable, weights, kv = sizes
        peaks.append(scratch)
        at.show(max(peaks), "bytes")
        at.above_zero(scratch, f"{where}.peak_scratch_bytes")
        at.at_most(scratch, reserve, f"{where}.peak_scratch_bytes")
        if rss + vram > usable:
            at.fail("contradictory", f"{where}: more was resident than the machine has")
        if rss + vram < weights:
            at.fail("not-resident", f"{where}: less was resident than its weights need")
        if rss + vram > weights + kv + reserve:
            at.fail(
                "beyond-reserve", f"{where}: what was resident beside weights and KV exceeds it"
            )


def _never(at: Reading, name: str, code: str, text: str) -> None:
    for where, node in at.nodes():
        found = at.flag(node, name, where)
        if found is not None:
            at.show(found or bool(at.measured))
        if found:
            at.fail(code, f"{where}: {text}")


@criterion(SECTION, "forbid_swap", action="switch swap off and run again")
def nothing_was_swapped(at: Reading) -> None:
    """No byte was in swap at any time."""
    for where, node in at.nodes():
        found = at.count(node, "swap_bytes", where)
        if found is not None:
            at.show(max(found, at.measured or 0), "bytes")
            if found:
                at.fail("swapped", f"{where}: {found} bytes were in swap")


@criterion(SECTION, "forbid_overcommit", action="forbid overcommit and run again")
def nothing_was_overcommitted(at: Reading) -> None:
    """Memory was not promised that the machine does not have."""
    _never(at, "overcommitted", "overcommitted", "memory was overcommitted")


@criterion(SECTION, "forbid_mmap_only_fit_claim", action="make the weights resident")
def fit_is_not_a_mapping(at: Reading) -> None:
    """That a file can be mapped does not say that it fits."""
    _never(at, "mmap_only", "mmap-only", "the fit rests on a mapped file alone")


@criterion(
    SECTION, "forbid_double_counted_unified_memory", action="count the one pool of memory once"
)
def unified_memory_counts_once(at: Reading) -> None:
    """A machine with one pool names no GPU memory beside it; two pools each hold their own."""
    for where, node in at.nodes():
        unified = at.flag(node, "unified", where)
        names = ("gpu_bytes", "usable_bytes", "peak_rss_bytes", "peak_vram_bytes")
        sizes = _bytes(at, node, where, *names)
        if unified is None or sizes is None:
            continue
        gpu, usable, rss, vram = sizes
        at.show(unified or bool(at.measured))
        if unified and gpu:
            at.fail("counted-twice", f"{where}: unified, and {gpu} bytes of GPU beside it")
        if gpu >= usable:
            at.fail("contradictory", f"{where}: its GPU has all of the memory of the machine")
        if not unified and (vram > gpu or rss > usable - gpu):
            at.fail("wrong-pool", f"{where}: more was resident in a pool than it has")


@criterion(SECTION, "aggregate_hard_fit_floor_gib", action="add a machine, each one counted once")
def machines_reach_the_floor(at: Reading) -> None:
    """Usable memory of all machines together, none of them named twice."""
    hosts = [at.text(node, "host", where) for where, node in at.nodes()]
    sizes = [_bytes(at, node, where, "usable_bytes") for where, node in at.nodes()]
    names = (one.strip().casefold() for one in hosts if one is not None)
    for host, count in Counter(names).items():
        if count > 1:
            at.fail("same-host-twice", f"{host} is named {count} times")
    if not sizes or any(one is None for one in sizes):
        return
    total = sum(one[0] for one in sizes if one is not None) / GIB
    at.show(round(total, 3), "GiB")
    at.at_least(total, at.limit, "usable memory of all machines in GiB")


@criterion(SECTION, "aggregate_floor_class", action="label the result as the contract does")
def floor_is_labelled(at: Reading) -> None:
    """The result says what kind of floor it was held to."""
    found = at.text(at.part("labels"), "aggregate_floor_class", "labels")
    if found is not None:
        at.show(found)
        at.equal(found, at.threshold, "labels.aggregate_floor_class")


@criterion(SECTION, "recommended_topologies", action="record the usable memory of each machine")
def topology_is_known(at: Reading) -> None:
    """Which topology it was; another than a recommended one is noted and no fault."""
    sizes = [_bytes(at, node, where, "usable_bytes") for where, node in at.nodes()]
    known = [round(one[0] / GIB) for one in sizes if one is not None]
    if not known or len(known) < len(sizes):
        return
    groups = Counter(known)
    found = "+".join(f"{count}x{size}GiB" for size, count in sorted(groups.items()))
    at.show(found)
    if isinstance(at.threshold, tuple) and found not in at.threshold:
        at.note = f"not a recommended topology ({', '.join(at.threshold)})"


def _least_kv(at: Reading, first: int, end: int) -> int:
    """Bytes of KV of these layers at the locked context, with indexer keys in Full layers alone."""
    layers = target_layers(at.locked.snapshot.architecture, IndexerLayout.OPTIMIZED)
    tokens, concurrency = (
        int(at.locked_number("target_run", key)) for key in ("context_tokens", "concurrency")
    )
    kv_type = str(at.locked.contract.threshold("target_run", "kv_dtype"))
    return kv_bytes(layers[max(first, 0) : max(end, 0)], tokens, kv_type, concurrency)


@criterion(
    SECTION,
    "arithmetic_minimum_requires_measured_placement_evidence",
    action="measure what is placed and resident on every machine",
)
def placement_was_measured(at: Reading) -> None:
    """At least two machines, each with measured placement and peak: arithmetic proves no fit."""
    names = ("weight_bytes", "kv_bytes", "peak_rss_bytes", "peak_vram_bytes")
    sizes = [_bytes(at, node, where, *names) for where, node in at.nodes()]
    at.show(len(sizes), "machines")
    if len(sizes) < 2:
        at.fail("not-distributed", f"{len(sizes)} machine(s) in the record, two are needed")
    for (where, node), found in zip(at.nodes(), sizes, strict=True):
        layers, report = span(at, node, where), tensors(at, node, "owned", where)
        if found is not None and layers is not None and found[1] < _least_kv(at, *layers):
            at.fail(
                "kv-too-small", f"{where}: {found[1]} bytes hold no KV of layers {list(layers)}"
            )
        if found is not None and report is not None and found[0] != sum(report.values()):
            at.fail("contradictory", f"{where}: the weights placed are not the tensors owned")
