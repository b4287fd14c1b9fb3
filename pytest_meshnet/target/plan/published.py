"""The published resource plan, computed again: the same document from the same locked inputs."""

from typing import Any

from pytest_meshnet.target.manifest import GB
from pytest_meshnet.target.plan.nodes import Node
from pytest_meshnet.target.plan.planner import TIERS_GIB, Planner, bytes_per_value, gib, kv_table

# The routes the plan was published for: name, machines, unified GiB each.
ROUTES = (
    ("recommended_5x64_unified", 5, 64),
    ("recommended_3x96_unified", 3, 96),
    ("recommended_3x128_unified", 3, 128),
    ("fit_probe_2x128_unified", 2, 128),
    ("fit_probe_4x64_unified", 4, 64),
    ("hard_fit_floor_2x112_unified", 2, 112),
    ("insufficient_3x64_unified", 3, 64),
)
SEAM_ROUTES = (3, 5)


def resource_plan(planner: Planner) -> dict[str, Any]:
    """Return what `published-resource-plan.json` holds, all but the name of who generated it."""
    target, work = planner.target, planner.workload
    manifest, architecture = target.manifest, target.snapshot.architecture
    contract = target.contract
    return {
        "target": {
            "gguf_repo_id": manifest.artifact.repo_id,
            "gguf_revision": manifest.artifact.revision,
            "quantization": manifest.quantization,
            "total_bytes": planner.weight_bytes,
            "total_gib": gib(planner.weight_bytes),
            "total_gb": round(planner.weight_bytes / GB, 3),
        },
        "manifest_sha256": contract.target.target_manifest_sha256,
        "architecture_snapshot_sha256": contract.target.architecture_snapshot_sha256,
        "alpha_contract_sha256": contract.sha256,
        "kv_assumptions": {
            "dtype": work.kv_type,
            "bytes_per_value": bytes_per_value(work.kv_type),
            "context_tokens": work.context_tokens,
            "concurrency": work.concurrency,
            "indexer_layout": str(work.layout),
            "mla_values_per_token_per_layer": architecture.mla_values,
            "backbone_layers": architecture.backbone_layers,
            "indexer_full_layers": architecture.full_layers,
            "note": f"Alpha budgets indexer keys across all {architecture.backbone_layers} layers "
            "(current experimental DSA layout), not only the "
            f"{architecture.full_layers} Full layers.",
        },
        "kv_table_gib": kv_table(planner),
        "aggregate_hard_fit_floor_gib": gib(planner.floor_bytes),
        "aggregate_floor_class": contract.threshold("identity_and_fit", "aggregate_floor_class"),
        "placement_imbalance_factor": float(planner.imbalance),
        "tier_table": {str(tier): planner.tier(tier).to_dict() for tier in TIERS_GIB},
        "routes": {
            name: planner.route(machines(count, size)).to_dict() for name, count, size in ROUTES
        },
        "seams": {
            f"{count}_nodes_{rate}gbe": planner.seams(count, rate).to_dict()
            for count in SEAM_ROUTES
            for rate in (planner.minimum_gbps, planner.recommended_gbps)
        },
    }


def machines(count: int, unified_gib: int) -> list[Node]:
    """Return `count` equal machines of `unified_gib` GiB of unified memory each."""
    return [Node(f"node-{number}", unified_gib, unified=True) for number in range(1, count + 1)]
