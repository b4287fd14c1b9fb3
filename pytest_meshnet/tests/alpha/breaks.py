"""How each criterion is broken: a path into the record, what is written there, the code expected.

A star in a path stands for every entry of a list. `breaking` adds what can happen to any claim.
"""

from __future__ import annotations

from typing import Any

from pytest_meshnet.alpha.reading import GIB

from .run_breaks import FIT, NODE, RUN_BREAKS, SEM

HUGE = 2**45

LISTED: dict[str, list[tuple[str, Any, str]]] = {
    "target.source_repo_id": [(f"{FIT}/target/source_repo_id", "a/b", "differs")],
    "target.source_revision": [(f"{FIT}/target/source_revision", "main", "differs")],
    "target.gguf_repo_id": [(f"{FIT}/target/gguf_repo_id", "a/b", "differs")],
    "target.gguf_revision": [(f"{FIT}/target/gguf_revision", "ab" * 20, "differs")],
    "target.quantization": [(f"{FIT}/target/quantization", "UD-IQ1_M", "differs")],
    "target.shard_count": [(f"{FIT}/target/shard_count", 5, "differs")],
    "target.total_bytes": [(f"{FIT}/target/total_bytes", 216715360961, "differs")],
    "target.target_manifest_sha256": [
        (f"{FIT}/target/target_manifest_sha256", "ab" * 32, "differs")
    ],
    "target.architecture_snapshot_sha256": [
        (f"{FIT}/target/architecture_snapshot_sha256", "ab" * 32, "differs")
    ],
    "target.reasoning_effort": [(f"{FIT}/target/reasoning_effort", "high", "differs")],
    f"{FIT}.require_exact_revisions": [
        (f"{NODE}/backend", "", "wrong-type"),
        (f"{NODE}/patch_digest", "none", "no-digest"),
        (f"{FIT}/target/source_revision", "main", "differs"),
        (f"{NODE}/gguf_revision", "ab" * 20, "differs"),
        (f"{NODE}/gguf_revision", 7, "wrong-type"),
    ],
    f"{FIT}.require_all_shard_sha256": [
        (f"{NODE}/files/value/0/size_bytes", 1.0, "wrong-size"),
        (f"{NODE}/files", [], "unverified-file"),
        (f"{NODE}/files/value/0/sha256", "00" * 32, "wrong-digest"),
        (f"{NODE}/files/value/0/size_bytes", 1, "wrong-size"),
        (f"{NODE}/files/value/0/name", "other.gguf", "unknown-file"),
        (f"{FIT}/nodes/*/files", [], "unverified-file"),
    ],
    f"{FIT}.require_per_node_owned_tensor_report": [
        (f"{NODE}/owned/value/0/bytes", 0, "impossible-size"),
        (f"{NODE}/owned/value/0/bytes", -1, "impossible-size"),
        (f"{NODE}/owned/value/0/bytes", True, "wrong-type"),
        (f"{NODE}/owned/value/0/name", "blk.2.attn.weight", "other-layers"),
        (f"{NODE}/owned/value/0/name", "token_embd.weight", "other-layers"),
        (f"{NODE}/owned/value/0/name", "output_norm.weight", "other-layers"),
        (f"{NODE}/owned/value/0/name", "blk.78.nextn.weight", "other-layers"),
        (f"{NODE}/owned", [], "empty"),
        (f"{NODE}/owned/value/0/bytes", "many", "wrong-type"),
        (f"{NODE}/owned/value/1/name", "blk.16.attn.weight", "listed-twice"),
    ],
    f"{FIT}.require_owned_tensor_union_equals_inventory": [
        (f"{FIT}/inventory/tensors/value/0/bytes", 1, "contradictory"),
        (f"{FIT}/inventory/tensors/value/*/name", "blk.0.weight", "listed-twice"),
        (f"{FIT}/inventory/excluded", ["blk.3.attn.weight"], "not-nextn"),
        (f"{FIT}/inventory/excluded", [3], "not-nextn"),
        (f"{FIT}/inventory/excluded", ["blk.78.unheard"], "not-nextn"),
        (f"{NODE}/owned/value/0/name", "blk.99.weight", "foreign-tensor"),
        (f"{NODE}/owned/value/0/name", "blk.98.weight", "unowned-tensor"),
        (f"{NODE}/owned/value/0/bytes", 1, "wrong-size"),
        (f"{FIT}/inventory/excluded", ["blk.3.attn.weight"], "foreign-tensor"),
        (f"{FIT}/inventory/tensors/value/0/bytes", HUGE, "impossible-size"),
    ],
    f"{FIT}.max_unintended_tensor_overlap": [
        (f"{NODE}/owned/value/0/name", "blk.0.attn.weight", "overlap")
    ],
    f"{FIT}.require_no_single_node_can_admit_complete_recipe": [
        (f"{NODE}/usable_bytes", 512 * GIB, "one-node-suffices")
    ],
    f"{FIT}.min_node_reserve_fraction": [
        (f"{NODE}/reserve_bytes", 23 * GIB, "contradictory"),
        (f"{NODE}/usable_bytes", 0, "contradictory"),
        (f"{NODE}/reserve_bytes", 12 * GIB, "too-low"),
        (f"{NODE}/kv_bytes", 20 * GIB, "over-budget"),
    ],
    f"{FIT}.min_node_reserve_gib": [(f"{NODE}/reserve_bytes", 7 * GIB, "too-low")],
    f"{FIT}.require_measured_peak_scratch_inside_reserve": [
        (f"{NODE}/peak_scratch_bytes", 0, "zero"),
        (f"{NODE}/peak_vram_bytes", 14 * GIB, "beyond-reserve"),
        (f"{NODE}/peak_scratch_bytes", 14 * GIB, "too-high"),
        (f"{NODE}/peak_rss_bytes", 65 * GIB, "contradictory"),
        (f"{NODE}/peak_rss_bytes", GIB, "not-resident"),
    ],
    f"{FIT}.forbid_swap": [(f"{NODE}/swap_bytes", 4096, "swapped")],
    f"{FIT}.forbid_overcommit": [
        (f"{NODE}/overcommitted", True, "overcommitted"),
        (f"{NODE}/overcommitted", 0, "wrong-type"),
    ],
    f"{FIT}.forbid_mmap_only_fit_claim": [
        (f"{NODE}/mmap_only", True, "mmap-only"),
        (f"{NODE}/mmap_only", "no", "wrong-type"),
    ],
    f"{FIT}.forbid_double_counted_unified_memory": [
        (f"{NODE}/peak_vram_bytes", 13 * GIB, "wrong-pool"),
        (f"{NODE}/peak_rss_bytes", 53 * GIB, "wrong-pool"),
        (f"{NODE}/gpu_bytes", 64 * GIB, "contradictory"),
        (f"{NODE}/unified", True, "counted-twice"),
        (f"{NODE}/gpu_bytes", 65 * GIB, "contradictory"),
    ],
    f"{FIT}.aggregate_hard_fit_floor_gib": [
        (f"{NODE}/host", " ADA", "same-host-twice"),
        (f"{FIT}/nodes/*/usable_bytes", 44 * GIB, "too-low"),
        (f"{NODE}/host", "ada", "same-host-twice"),
    ],
    f"{FIT}.aggregate_floor_class": [("labels/aggregate_floor_class", "production", "differs")],
    f"{FIT}.recommended_topologies": [(f"{NODE}/usable_bytes", 64.5, "not-a-number")],
    f"{FIT}.arithmetic_minimum_requires_measured_placement_evidence": [
        (f"{NODE}/weight_bytes", 1, "contradictory"),
        (f"{NODE}/kv_bytes", 0, "kv-too-small"),
        (f"{NODE}/kv_bytes", 160_000_000, "kv-too-small"),
    ],
    f"{SEM}.require_active_moe_routing": [(f"{SEM}/graph/moe_routed_tokens", 0, "never-ran")],
    f"{SEM}.require_active_shared_expert": [(f"{SEM}/graph/shared_expert_tokens", 0, "never-ran")],
    f"{SEM}.require_active_dsa_lightning_indexer": [
        (f"{SEM}/graph/indexer_selections", 0, "never-ran")
    ],
    f"{SEM}.require_active_sparse_attention": [
        (f"{SEM}/graph/sparse_attention_steps", 0, "never-ran")
    ],
    f"{SEM}.require_active_indexshare_full_and_shared": [
        (f"{SEM}/graph/indexshare_full_layers", 78, "differs"),
        (f"{SEM}/graph/indexshare_shared_layers", 0, "differs"),
    ],
    f"{SEM}.dense_attention_fallback_satisfies_alpha": [
        (f"{SEM}/graph/dense_attention_fallbacks", 1, "dense-fallback")
    ],
    f"{SEM}.require_rendered_reasoning_effort_marker": [
        (
            f"{SEM}/rendered_template",
            "<sop><|user|>Say <|system|>Reasoning Effort: Max",
            "no-marker",
        ),
        (f"{SEM}/rendered_template", ["<|system|>Reasoning Effort: Max"], "wrong-type"),
        (f"{SEM}/rendered_template", "<|system|>Reasoning Effort: High", "no-marker"),
        (f"{SEM}/rendered_template", " ", "wrong-type"),
    ],
    f"{SEM}.f32_seam_fixture_exact_match_tokens": [
        (f"{SEM}/f32_seam/tokens_compared", 31, "too-low")
    ],
    f"{SEM}.f32_seam_fixture_requires_exact_match": [
        (f"{SEM}/f32_seam/tokens_equal", 31, "token-differs"),
        (f"{SEM}/f32_seam/tokens_equal", 33, "contradictory"),
    ],
    f"{SEM}.min_greedy_token_agreement": [
        (f"{SEM}/production_seam/greedy_token_agreement", 0.8999, "too-low"),
        (f"{SEM}/production_seam/greedy_token_agreement", 1.5, "contradictory"),
    ],
    f"{SEM}.min_mean_state_cosine_similarity": [
        (f"{SEM}/production_seam/mean_cosine_similarity", 0.9989, "too-low"),
        (f"{SEM}/production_seam/mean_cosine_similarity", 1.01, "contradictory"),
    ],
    f"{SEM}.forbid_nonfinite_tensors": [
        (f"{SEM}/production_seam/nonfinite_tensors", 901, "contradictory"),
        (f"{SEM}/production_seam/nonfinite_tensors", 1, "nonfinite"),
        (f"{SEM}/production_seam/tensors_checked", 0, "nothing-checked"),
    ],
    f"{SEM}.require_fail_closed_on_fingerprint_mismatch": [
        (f"{SEM}/handshakes/kv/refused", 0, "accepted"),
        (f"{SEM}/handshakes/tokenizer/refused", 2, "contradictory"),
        (f"{SEM}/handshakes/patch/tried", 0, "not-tried"),
    ],
    **RUN_BREAKS,
}
