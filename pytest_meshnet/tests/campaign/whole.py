"""A small campaign as a record: valid, canonical and complete, until a test changes something."""

from dataclasses import replace

from pytest_meshnet.campaign.judging.facts import (
    ArmFacts,
    Bandwidth,
    CampaignRecord,
    Intent,
    Observation,
    Protocol,
    Provenance,
)
from pytest_meshnet.tests.hardware.fakes import RTX3060

UUID = RTX3060
REVISION = "5ad85de24bbd28a0d5c1d5c1a7b5d9a3c5e6f708"
PATH = f"/models/models--nvidia--Qwen3.6-35B-A3B-NVFP4/snapshots/{REVISION}"
ARMS = ("B1", "B2", "B3", "B4", "B5")

PROMPT_TOKENS = {"W1": 569, "W2": 400, "W3": 16_000, "W4": 128}
OUTPUT_TOKENS = {"W1": 512, "W2": 512, "W3": 256, "W4": 128}

_RESOLVED = {
    "B1": ("offload", "marlin"),
    "B2": ("hybrid", "triton"),
    "B3": ("hybrid", "triton"),
    "B4": ("offload", "triton"),
    "B5": ("cpu", "triton"),
}


def configuration(arm_id):
    backend, nvfp4 = _RESOLVED[arm_id]
    return {
        "model": {"expert_quant": "nvfp4"},
        "moe": {
            "backend_requested": "auto",
            "backend_resolved": backend,
            "cpu_threads": 12,
            "cpu_layers_resolved": [],
            "hybrid_max_fetch_resolved": 4,
            "hybrid_fetch_fraction_resolved": 0.25,
        },
        "nvfp4": {"requested": "auto", "resolved": nvfp4},
        "cache": {"policy_requested": "auto", "resolved_slots": 900, "kv_reserve_tokens": 0},
        "runtime": {
            "attention_backend": "triton",
            "page_size": 1,
            "memory_ratio": 0.9,
            "max_running_req": 1,
            "max_seq_len": 40_960,
            "num_pages": 17_000,
            "cuda_graph_max_bs": 1,
            "cuda_graph_capture_happened": False,
            "max_prefill_length_resolved": 8192,
            "cache_type_resolved": "radix",
        },
    }


def arm(arm_id, **changes):
    facts = ArmFacts(
        arm_id=arm_id,
        command=("ft", "serve"),
        environment={},
        ready=True,
        failure=None,
        instrumentation=None,
        configuration=configuration(arm_id),
        gpu_uuids=(UUID.upper(),),
        placement=None,
        log=f"logs/{arm_id}.log",
    )
    return replace(facts, **changes)


def profile(**changes):
    told = {
        "gpu": {"uuid": UUID.lower()},
        "dtype_kernels": {"nvfp4": {"cpu_moe_gbs": 30.0, "pcie_gather_gbs": 10}},
    }
    return told | changes


def bandwidth(**changes):
    told = Bandwidth(
        skipped=False,
        command=("ft", "bench", "bw"),
        started_at="2026-01-01T00:00:00+00:00",
        finished_at="2026-01-01T00:05:00+00:00",
        returncode=0,
        gpu_uuid=UUID,
        path="/profile.json",
        sha256="f" * 64,
        contents=profile(),
        problem=None,
    )
    return replace(told, **changes)


def provenance(**changes):
    told = Provenance(
        model_repository="nvidia/Qwen3.6-35B-A3B-NVFP4",
        model_revision=REVISION,
        model_path=PATH,
        checkout_commit="a" * 40,
        checkout_commit_last="a" * 40,
        dirty_paths=(),
        runtime_version="freetoken 0.1.3",
        suite_version="0.1.0",
        manifest_sha256="b" * 64,
        gpu_uuid=UUID,
        gpu_name="NVIDIA GeForce RTX 3060",
        gpu_memory_bytes=12 * 1024**3,
        driver="580",
        host={},
    )
    return replace(told, **changes)


def observation(arm_id="B1", class_id="W1", index=0, repetition=0, measured=True, **changes):
    told = Observation(
        arm_id=arm_id,
        class_id=class_id,
        execution_index=index,
        measured=measured,
        repetition=repetition,
        failed=False,
        error=None,
        prompt_tokens=PROMPT_TOKENS[class_id],
        completion_tokens=OUTPUT_TOKENS[class_id],
        requested_tokens=OUTPUT_TOKENS[class_id],
        prefill="ok",
        prefill_reason=None,
    )
    return replace(told, **changes)


def intent(**changes):
    told = Intent(
        session_id="session-1",
        session_number=1,
        reversed_order=False,
        dev_smoke=False,
        allow_missing_provenance=False,
        synthetic=False,
    )
    return replace(told, **changes)


def campaign(**changes):
    """Five arms, four classes, two warm-ups and ten measured repetitions a block."""
    protocol = Protocol(ARMS, tuple(PROMPT_TOKENS), 2, 10, baseline_prompts=True)
    numbers = [(False, 0), (False, 1), *((True, number) for number in range(10))]
    places = [
        (arm_id, class_id, measured, number)
        for arm_id in protocol.arms
        for class_id in protocol.classes
        for measured, number in numbers
    ]
    record = CampaignRecord(
        intent=intent(),
        protocol=protocol,
        bandwidth=bandwidth(),
        provenance=provenance(),
        arms=tuple(arm(name) for name in protocol.arms),
        observations=tuple(
            observation(arm_id, class_id, index, number, measured)
            for index, (arm_id, class_id, measured, number) in enumerate(places)
        ),
    )
    return replace(record, **changes)
