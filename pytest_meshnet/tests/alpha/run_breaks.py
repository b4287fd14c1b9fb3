"""How the criteria of the run, of speed, reliability and storage are broken; see `breaks`."""

from __future__ import annotations

import hashlib
import math
from typing import Any

from pytest_meshnet.alpha.reading import GIB

from .complete import FILES, claims

NODE = "identity_and_fit/nodes/1"
FIT, SEM, RUN = "identity_and_fit", "semantic_correctness", "target_run"
PERF, REL, STORE = "performance", "reliability", "storage"
PROMPT = hashlib.sha256(FILES["coding-prompt.txt"]).hexdigest()
# Each rate is within its rounding of tokens by seconds, which are below the floor.
SLOW = [claims(tokens_per_second=0.5, tokens=512, seconds=1030.0)] * 2
SHORT = [claims(tokens_per_second=900.0, tokens=1, seconds=0.001)]
ALMOST = claims(tokens_per_second=0.8, tokens=126, seconds=157.5)
ONE_FILE = [claims(resolved_path="/mnt/models/part-1.gguf", mounted=True)]

RUN_BREAKS: dict[str, list[tuple[str, Any, str]]] = {
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
        (f"{PERF}/stages/1/queue", 2.0, "contradictory"),
        (f"{PERF}/stages/1/backend_timing", 2.0, "contradictory"),
        (f"{PERF}/stages/1/rss", 60 * GIB, "contradictory"),
        (f"{PERF}/stages/1/vram", 3 * GIB, "contradictory"),
        (f"{PERF}/stages/1/kv", GIB, "contradictory"),
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
        (f"{STORE}/log_scans/bob/lines_scanned", 0, "nothing-scanned"),
        (f"{STORE}/log_scans/bob/files_scanned", 0, "nothing-scanned"),
    ],
    f"{STORE}.forbid_unrestricted_prompt_payloads_in_logs": [
        (f"{STORE}/log_scans/bob/prompt_payloads_found", 2, "found-in-logs"),
        (f"{STORE}/log_scans/bob/lines_scanned", 0, "nothing-scanned"),
        (f"{STORE}/log_scans/bob/prompts_searched", 0, "nothing-searched"),
        (f"{STORE}/log_scans/bob/files_scanned", 0, "nothing-scanned"),
    ],
}
