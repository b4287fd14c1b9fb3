"""One break for each code: what turns a valid campaign into one that the code stands against."""

from copy import deepcopy
from dataclasses import replace

from pytest_meshnet.campaign.judging.codes import Code
from pytest_meshnet.tests.campaign.whole import profile

OTHER = "GPU-00000000-0000-0000-0000-000000000000"


def of_bandwidth(**changes):
    return lambda record: replace(record, bandwidth=replace(record.bandwidth, **changes))


def of_protocol(**changes):
    return lambda record: replace(record, protocol=replace(record.protocol, **changes))


def of_provenance(**changes):
    return lambda record: replace(record, provenance=replace(record.provenance, **changes))


def of_arm(number, **changes):
    def change(record):
        arms = list(record.arms)
        arms[number] = replace(arms[number], **changes)
        return replace(record, arms=tuple(arms))

    return change


def of_field(number, path, value):
    """Set one field of an arm's resolved configuration, where it reports one."""

    def change(record):
        told = deepcopy(record.arms[number].configuration)
        if told is None:
            return record
        block, name = path.split(".")
        told[block][name] = value
        return of_arm(number, configuration=told)(record)

    return change


def of_request(number, **changes):
    def change(record):
        every = list(record.observations)
        every[number] = replace(every[number], **changes)
        return replace(record, observations=tuple(every))

    return change


BREAKS = {
    Code.BENCH_BW_SKIPPED: of_bandwidth(skipped=True),
    Code.BENCH_BW_FAILED: of_bandwidth(returncode=1, skipped=False),
    Code.BENCH_BW_PROFILE_UNREADABLE: of_bandwidth(problem="no JSON", returncode=0, skipped=False),
    Code.BENCH_BW_PROFILE_GPU_UNVERIFIED: of_bandwidth(contents=profile(gpu={"name": "3060"})),
    Code.BENCH_BW_PROFILE_GPU_MISMATCH: of_bandwidth(contents=profile(gpu={"uuid": OTHER})),
    Code.BENCH_BW_CALIBRATION_UNUSABLE: of_bandwidth(contents=profile(dtype_kernels={})),
    Code.INSTRUMENTATION_UNAVAILABLE: of_arm(1, instrumentation="404"),
    Code.CONFIG_MISSING: of_arm(1, configuration=None),
    Code.CONFIG_MISSING_FIELD: of_field(1, "runtime.attention_backend", None),
    Code.B3_RESOLUTION_UNEXPECTED: of_field(2, "moe.backend_resolved", "fused"),
    Code.EXPERT_QUANT_MISMATCH: of_field(3, "model.expert_quant", "mxfp4"),
    Code.HELD_CONSTANT_MISMATCH: of_field(3, "runtime.page_size", 16),
    Code.PROMPT_SHAPE_VIOLATION: of_request(1, prompt_tokens=2001),
    Code.COMPLETION_LENGTH_MISMATCH: of_request(2, completion_tokens=511),
    Code.PREFILL_UNAVAILABLE: of_request(14, prefill="unavailable"),
    Code.PREFILL_DISABLED: of_request(15, prefill="instrumentation_disabled"),
    Code.PREFILL_NO_FRESH_RECORD: of_request(47, prefill="no_fresh_record"),
    Code.PREFILL_AMBIGUOUS: of_request(98, prefill="ambiguous_records"),
    Code.PREFILL_SHARED_BATCH: of_request(110, prefill="shared_batch"),
    Code.PREFILL_UNUSABLE_TIMING: of_request(11, prefill="unusable_timing"),
    Code.GPU_UNPROVEN: of_arm(0, gpu_uuids=None),
    Code.GPU_MISMATCH: of_arm(3, gpu_uuids=(OTHER,)),
    Code.MODEL_REVISION_MISMATCH: of_provenance(model_revision="f" * 40),
    Code.MODEL_REPOSITORY_MISMATCH: of_provenance(model_repository="nobody/else"),
    Code.DIRTY_WORKING_TREE: of_provenance(dirty_paths=("changed.py",)),
    Code.MISSING_REQUIRED: of_provenance(driver=None),
    Code.GENERATION_FAILED: of_request(13, failed=True, error="HTTP 500"),
    Code.SERVER_FAILED: of_arm(3, failure="ended with -9"),
}
