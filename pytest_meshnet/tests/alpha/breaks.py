"""How each criterion is broken: a path into the record, what is written there, the code expected.

A star in a path stands for every entry of a list. `breaking` adds what can happen to any claim.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

from pytest_meshnet.alpha.reading import GIB

from .complete import FILES, claims

NODE = "identity_and_fit/nodes/1"


FIT, SEM, RUN = "identity_and_fit", "semantic_correctness", "target_run"
PERF, REL, STORE = "performance", "reliability", "storage"
HUGE = 2**45
PROMPT = hashlib.sha256(FILES["coding-prompt.txt"]).hexdigest()
# Each rate is within its rounding of tokens by seconds, which are below the floor.
SLOW = [claims(tokens_per_second=0.5, tokens=512, seconds=1030.0)] * 2
SHORT = [claims(tokens_per_second=900.0, tokens=1, seconds=0.001)]
ALMOST = claims(tokens_per_second=0.8, tokens=126, seconds=157.5)
ONE_FILE = [claims(resolved_path="/mnt/models/part-1.gguf", mounted=True)]

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
        (f"{NODE}/weight_bytes", 1, "contradictory")
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
    f"{RUN}.context_tokens": [(f"{RUN}/context_tokens", 8192, "differs")],
    f"{RUN}.kv_dtype": [
        (f"{NODE}/kv_recipe", "F16", "other-recipe"),
        (f"{NODE}/kv_recipe", "IQ8_0x", "other-recipe"),
        (f"{RUN}/kv_dtype", "F16", "differs"),
    ],
    f"{RUN}.concurrency": [
        (f"{RUN}/concurrency", 2, "differs"),
        (f"{RUN}/concurrency", True, "differs"),
    ],
    f"{RUN}.prompt_lane_tokens": [(f"{RUN}/prompt_tokens", 4095, "differs")],
    f"{RUN}.min_output_tokens": [(f"{RUN}/output_tokens", 511, "too-low")],
    f"{RUN}.min_output_tokens_with_natural_eos": [
        (f"{RUN}/output_tokens", 127, "too-low"),
        (f"{RUN}/finish_reason", "error", "unnatural-end"),
    ],
    f"{RUN}.require_same_switch_wired_network": [
        (f"{RUN}/links/1/wired", False, "not-wired"),
        (f"{RUN}/links/1/switch", "sw-2", "several-switches"),
        (f"{RUN}/links/1/host", "ada", "unlinked-host"),
    ],
    f"{RUN}.min_link_rate_gbps": [(f"{RUN}/links/1/rate_gbps", 2.4, "too-low")],
    f"{RUN}.recommended_link_rate_gbps": [(f"{RUN}/links/1/rate_gbps", "fast", "not-a-number")],
    f"{RUN}.require_sentinels": [
        (f"{RUN}/sentinels/coding/parsed", 1, "wrong-type"),
        (f"{RUN}/sentinels/multi_step_reasoning/output_sha256", PROMPT, "shared"),
        (f"{RUN}/sentinels/coding/output_sha256", PROMPT, "shared"),
        ("attachments/0/size", 0, "empty"),
        (f"{RUN}/sentinels/coding/parsed", False, "unparsed"),
        (f"{RUN}/sentinels/multi_step_reasoning/output_sha256", "ab" * 32, "not-attached"),
    ],
    f"{RUN}.require_openai_compatible_response_fields": [
        (f"{RUN}/response/model", ["glm"], "wrong-type"),
        (f"{RUN}/response/model", 5, "wrong-type"),
        (f"{RUN}/response/usage", [], "empty"),
        (f"{RUN}/response/usage", "many", "not-a-number"),
        (f"{RUN}/response/usage/value/prompt_tokens", 4096.0, "not-a-number"),
        (f"{RUN}/response/usage/value/prompt_tokens", math.nan, "not-finite"),
        (f"{RUN}/response/usage/value/completion_tokens", "512", "not-a-number"),
        (
            f"{RUN}/response/usage",
            {"prompt_tokens": 12, "completion_tokens": 512, "total_tokens": 524},
            "contradictory",
        ),
        (
            f"{RUN}/response/usage",
            {"prompt_tokens": 16000, "completion_tokens": 512, "total_tokens": 16512},
            "beyond-context",
        ),
        (f"{RUN}/response/model", "", "empty"),
        (f"{RUN}/response/finish_reason", "stop", "differs"),
        (f"{RUN}/response/usage/value/total_tokens", 4609, "contradictory"),
        (f"{RUN}/response/usage/value/prompt_tokens", None, "not-a-number"),
        (f"{RUN}/output_tokens", 600, "contradictory"),
    ],
    f"{PERF}.min_median_decode_tokens_per_second": [
        (f"{PERF}/decode/1", ALMOST, "too-short"),
        (f"{RUN}/output_tokens", 600, "not-the-run"),
        (f"{PERF}/decode", SLOW, "too-low"),
        (f"{PERF}/decode", SHORT, "too-short"),
        (f"{PERF}/decode/1/tokens_per_second", 5.0, "contradictory"),
        (f"{PERF}/decode/1/seconds", 0.0, "contradictory"),
    ],
    f"{PERF}.max_ttft_seconds_at_4096_prompt": [
        (f"{PERF}/ttft_seconds", 0, "zero"),
        (f"{PERF}/ttft_seconds", 600.5, "too-high"),
        (f"{PERF}/ttft_prompt_tokens", 128, "differs"),
    ],
    f"{PERF}.max_unexplained_stall_seconds": [
        (f"{PERF}/unexplained_gaps_seconds", [61.0], "too-high"),
        (f"{PERF}/unexplained_gaps_seconds", [math.nan], "not-finite"),
        (f"{PERF}/unexplained_gaps_seconds", [True], "not-a-number"),
        (f"{PERF}/unexplained_gaps_seconds", 12.0, "wrong-type"),
    ],
    f"{PERF}.warmups": [(f"{PERF}/warmups", 0, "differs")],
    f"{PERF}.require_per_stage_telemetry": [
        (f"{PERF}/stages/1/compute", 0, "zero"),
        (f"{PERF}/stages/1/rss", 0.0, "zero"),
        (f"{PERF}/stages/1/seam_bytes", 0, "zero"),
        (f"{PERF}/stages/1/compute", 0.9, "contradictory"),
        (f"{PERF}/stages/1/kv_pressure", 1.2, "contradictory"),
        (f"{PERF}/stages/1/seam_latency_p95", 0.0005, "contradictory"),
        (f"{PERF}/stages/1/errors", 3, "errors"),
        (f"{PERF}/stages/1/host", "ada", "listed-twice"),
        (f"{PERF}/stages/1/vram", "none", "not-a-number"),
        (f"{PERF}/stages/1/host", "ada", "silent-stage"),
    ],
    f"{PERF}.quality_pass_with_speed_fail_verdict": [
        (f"{PERF}/decode", SLOW, "speed-failed"),
        (f"{PERF}/ttft_seconds", 601.0, "speed-failed"),
        (f"{PERF}/unexplained_gaps_seconds", [70.0], "speed-failed"),
    ],
    f"{PERF}.forbid_generalising_results_to_other_hardware": [
        ("labels/hardware", [], "other-hardware"),
        ("labels/hardware", [7], "other-hardware"),
        ("labels/hardware", ["any PC"], "other-hardware"),
        ("labels/topology", "", "wrong-type"),
    ],
    f"{REL}.consecutive_clean_cold_starts": [
        (f"{REL}/cold_starts/1/served", False, "too-low"),
        (f"{REL}/cold_starts/0/residue", 1, "residue"),
    ],
    f"{REL}.require_cancellation_releases_buffers_and_kv": [
        (f"{REL}/cancellation/prefill/kv_bytes_during", 0, "nothing-held"),
        (f"{REL}/cancellation/decode/sessions_during", 0, "nothing-held"),
        (f"{REL}/cancellation/decode/buffer_bytes_during", 4096, "nothing-held"),
        (f"{REL}/cancellation/prefill/kv_bytes_after", 4096, "not-released"),
        (f"{REL}/cancellation/decode/buffer_bytes_after", 4097, "not-released"),
        (f"{REL}/cancellation/decode/sessions_after", 1, "not-released"),
    ],
    f"{REL}.require_worker_loss_aborts_route": [
        (f"{REL}/worker_loss/route_aborted", False, "went-on")
    ],
    f"{REL}.retry_policy": [
        (f"{REL}/worker_loss/retry_policy", "resume", "differs"),
        (f"{REL}/worker_loss/retry_first_position", 40, "not-from-zero"),
        (f"{REL}/worker_loss/new_epoch", 1, "old-epoch"),
        (f"{REL}/worker_loss/output_equals_undisturbed", False, "output-differs"),
    ],
    f"{REL}.forbid_silent_kv_migration": [(f"{REL}/worker_loss/kv_migrations", 1, "migrated")],
    f"{REL}.require_reject_stale_epoch": [
        (f"{REL}/stale_epoch/refused", 0, "accepted"),
        (f"{REL}/stale_epoch/tried", 0, "not-tried"),
    ],
    f"{REL}.require_reject_duplicate_step_id": [
        (f"{REL}/replayed_step/past_len_before", 0, "nothing-held"),
        (f"{REL}/replayed_step/duplicates", 2, "applied-again"),
        (f"{REL}/replayed_step/past_len_after", 41, "length-moved"),
        (f"{REL}/replayed_step/duplicates", 0, "applied-again"),
        (f"{REL}/replayed_step/tried", 0, "not-tried"),
    ],
    f"{REL}.synthetic_workers_satisfy_alpha": [
        ("synthetic", 0, "synthetic"),
        ("synthetic", None, "synthetic"),
        (f"{NODE}/worker_kind", "Whole", "unknown-kind"),
        (f"{NODE}/worker_kind", "synthetic", "synthetic"),
        (f"{NODE}/worker_kind", "pass-through", "pass-through"),
        (f"{NODE}/worker_kind", "zero-layer", "zero-layer"),
        (f"{NODE}/worker_kind", "normal", "unknown-kind"),
    ],
    f"{REL}.layer_reduced_fixtures_satisfy_alpha": [
        (f"{NODE}/role", "head", "other-role"),
        (f"{NODE}/layers", [16.0, 32.0], "wrong-type"),
        (f"{NODE}/layers", [-1, 32], "gap-or-overlap"),
        (f"{NODE}/worker_kind", "layer-reduced", "layer-reduced"),
        (f"{NODE}/layers", [17, 32], "gap-or-overlap"),
        (f"{NODE}/layers", [15, 32], "gap-or-overlap"),
        (f"{FIT}/nodes/4/layers", [64, 79], "layers-missing"),
        (f"{NODE}/layers", [32, 16], "wrong-type"),
    ],
    f"{STORE}.mounted_storage_only": [
        (f"{STORE}/artifacts", ONE_FILE, "unlisted-file"),
        (f"{STORE}/artifacts/0/mounted", "yes", "wrong-type"),
        (f"{STORE}/artifacts/0/mounted", False, "not-mounted"),
    ],
    f"{STORE}.forbidden_path_prefixes": [
        (f"{STORE}/artifacts", ONE_FILE, "unlisted-file"),
        (f"{STORE}/artifacts/0/resolved_path", "//home/me/part.gguf", "not-resolved"),
        (f"{STORE}/artifacts/0/resolved_path", "part.gguf", "not-resolved"),
        (f"{STORE}/artifacts/0/resolved_path", "/home/me/part.gguf", "forbidden-path"),
        (f"{STORE}/artifacts/0/resolved_path", "/mnt/../home/part.gguf", "not-resolved"),
    ],
    f"{STORE}.forbid_secrets_in_logs": [
        (f"{STORE}/log_scans/bob/secrets_found", 1, "found-in-logs"),
        (f"{STORE}/log_scans/bob/files_scanned", 0, "nothing-scanned"),
    ],
    f"{STORE}.forbid_unrestricted_prompt_payloads_in_logs": [
        (f"{STORE}/log_scans/bob/prompt_payloads_found", 2, "found-in-logs"),
        (f"{STORE}/log_scans/bob/files_scanned", 0, "nothing-scanned"),
    ],
}
