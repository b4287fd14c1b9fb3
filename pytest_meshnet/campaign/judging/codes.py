"""The stable codes of everything that invalidates a campaign, and what a reader is told of each."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Code(StrEnum):
    """Why a campaign is no valid baseline; tools and reports rely on these very texts."""

    BENCH_BW_SKIPPED = "bench_bw.skipped"
    BENCH_BW_FAILED = "bench_bw.failed"
    BENCH_BW_PROFILE_UNREADABLE = "bench_bw.profile_unreadable"
    BENCH_BW_PROFILE_GPU_UNVERIFIED = "bench_bw.profile_gpu_unverified"
    BENCH_BW_PROFILE_GPU_MISMATCH = "bench_bw.profile_gpu_mismatch"
    BENCH_BW_CALIBRATION_UNUSABLE = "bench_bw.nvfp4_calibration_unusable"
    INSTRUMENTATION_UNAVAILABLE = "runtime.instrumentation_unavailable"
    CONFIG_MISSING = "runtime.config_missing"
    CONFIG_MISSING_FIELD = "runtime.config_missing_field"
    B3_RESOLUTION_UNEXPECTED = "sweep.b3_resolution_unexpected"
    EXPERT_QUANT_MISMATCH = "held_constant.expert_quant_mismatch"
    HELD_CONSTANT_MISMATCH = "held_constant.mismatch"
    PROMPT_SHAPE_VIOLATION = "workload.prompt_shape_violation"
    COMPLETION_LENGTH_MISMATCH = "workload.completion_length_mismatch"
    PREFILL_UNAVAILABLE = "prefill.unavailable"
    PREFILL_DISABLED = "prefill.instrumentation_disabled"
    PREFILL_NO_FRESH_RECORD = "prefill.no_fresh_record"
    PREFILL_AMBIGUOUS = "prefill.ambiguous_records"
    PREFILL_SHARED_BATCH = "prefill.shared_batch"
    PREFILL_UNUSABLE_TIMING = "prefill.unusable_timing"
    GPU_UNPROVEN = "gpu.unproven"
    GPU_MISMATCH = "gpu.mismatch"
    MODEL_REVISION_MISMATCH = "provenance.model_revision_mismatch"
    MODEL_REPOSITORY_MISMATCH = "provenance.model_repository_mismatch"
    DIRTY_WORKING_TREE = "provenance.dirty_working_tree"
    MISSING_REQUIRED = "provenance.missing_required"
    GENERATION_FAILED = "execution.generation_failed"
    SERVER_FAILED = "execution.server_failed"


WHAT_TO_DO: Mapping[Code, str] = {
    Code.BENCH_BW_SKIPPED: "run without --no-bench-bw",
    Code.BENCH_BW_FAILED: "run `ft bench bw --dtype nvfp4` by hand and mend what it says",
    Code.BENCH_BW_PROFILE_UNREADABLE: "find out where `ft bench bw` wrote its profile, and what",
    Code.BENCH_BW_PROFILE_GPU_UNVERIFIED: "use a runtime whose profile names the GPU's UUID",
    Code.BENCH_BW_PROFILE_GPU_MISMATCH: "measure the bandwidth on the campaign's own GPU",
    Code.BENCH_BW_CALIBRATION_UNUSABLE: "measure again; NVFP4 figures must be positive numbers",
    Code.INSTRUMENTATION_UNAVAILABLE: "use a runtime that serves GET /v1/instrumentation",
    Code.CONFIG_MISSING: "use a runtime that reports its resolved configuration",
    Code.CONFIG_MISSING_FIELD: "use a runtime that reports this field; a flag is no substitute",
    Code.B3_RESOLUTION_UNEXPECTED: "look at why `auto` resolved to what neither B1 nor B2 is",
    Code.EXPERT_QUANT_MISMATCH: "serve every arm from one artifact",
    Code.HELD_CONSTANT_MISMATCH: "pass the value explicitly, so that all arms share it",
    Code.PROMPT_SHAPE_VIOLATION: "freeze another prompt for the class; none is ever rewritten",
    Code.COMPLETION_LENGTH_MISMATCH: "find out why the runtime ended early or late",
    Code.PREFILL_UNAVAILABLE: "find out why the instrumentation could not be read",
    Code.PREFILL_DISABLED: "start the runtime with FREETOKEN_INSTRUMENT_PREFILL=1",
    Code.PREFILL_NO_FRESH_RECORD: "find out why the prompt left no record of its own",
    Code.PREFILL_AMBIGUOUS: "keep other requests away from the server",
    Code.PREFILL_SHARED_BATCH: "keep other requests away from the server",
    Code.PREFILL_UNUSABLE_TIMING: "find out why the prompt's device time is no positive number",
    Code.GPU_UNPROVEN: "use a runtime that reports the UUID of its GPU",
    Code.GPU_MISMATCH: "find out why the server runs on another GPU than the one it was given",
    Code.MODEL_REVISION_MISMATCH: "name the revision that the snapshot path holds",
    Code.MODEL_REPOSITORY_MISMATCH: "name the repository that the snapshot path holds",
    Code.DIRTY_WORKING_TREE: "commit or remove the changes, and leave the checkout alone in a run",
    Code.MISSING_REQUIRED: "say what is missing; see the options of the command",
    Code.GENERATION_FAILED: "read the server's log; there is no resume, run the campaign again",
    Code.SERVER_FAILED: "read the server's log; there is no resume, run the campaign again",
}
"""What to do about each, in one line."""
