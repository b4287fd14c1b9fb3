"""A complete invented record: everything is met, except that it says what it is."""

from __future__ import annotations

import hashlib
from typing import Any

from pytest_meshnet.alpha.criteria.semantics import KINDS
from pytest_meshnet.alpha.reading import GIB
from pytest_meshnet.target.documents import LockedTarget

HOSTS = ("ada", "bob", "cyd", "dan", "eve")
SPANS = ((0, 16), (16, 32), (32, 48), (48, 64), (64, 78))
HARDWARE = "Consumer desktop, 64 GiB"
SENTINELS = ("coding", "structured_tool_call_json", "multi_step_reasoning")
FILES = {
    f"{name}-{kind}.txt": f"the raw {kind} of {name}".encode()
    for name in SENTINELS
    for kind in ("prompt", "output")
}


def claim(value: Any) -> dict[str, Any]:
    return {"value": value, "source": "measured", "by": "the test"}


def claims(**values: Any) -> dict[str, Any]:
    return {name: claim(value) for name, value in values.items()}


def complete(locked: LockedTarget) -> dict[str, Any]:
    """A record that is `alpha` but for its flag; a new one at each call."""
    parts = 2 * locked.snapshot.architecture.backbone_layers
    size = locked.manifest.total_bytes * 9995 // 10000 // parts
    tensors = [
        {"name": f"blk.{layer}.{part}.weight", "bytes": size}
        for layer in range(78)
        for part in ("attn", "ffn")
    ]
    nodes = [_node(locked, place, tensors) for place in range(len(HOSTS))]
    return {
        "schema": "meshnet.alpha-record/1",
        "synthetic": True,
        "taken": {"started": "2026-01-01T10:00:00Z", "ended": "2026-01-01T12:00:00Z", "by": "test"},
        "labels": claims(
            hardware=[HARDWARE],
            topology="five desktops at one switch",
            aggregate_floor_class="experimental_hard_fit_floor",
        ),
        "attachments": [_attachment(name, data) for name, data in FILES.items()],
        "identity_and_fit": {
            "target": {
                name: claim(value) for name, value in locked.contract.to_dict()["target"].items()
            },
            "nodes": nodes,
            "inventory": claims(tensors=tensors, excluded=[]),
        },
        "semantic_correctness": _semantics(locked),
        "target_run": _target_run(),
        "performance": _performance(),
        "reliability": _reliability(),
        "storage": {
            "artifacts": [
                claims(resolved_path=f"/mnt/models/{one.name}", mounted=True)
                for _ in HOSTS
                for one in locked.manifest.shards
            ],
            "log_scans": {
                host: claims(
                    files_scanned=2,
                    lines_scanned=800,
                    prompts_searched=3,
                    secrets_found=0,
                    prompt_payloads_found=0,
                )
                for host in HOSTS
            },
        },
    }


def _attachment(name: str, data: bytes) -> dict[str, Any]:
    return {"name": name, "sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}


def _node(locked: LockedTarget, place: int, tensors: list[dict[str, Any]]) -> dict[str, Any]:
    first, end = SPANS[place]
    owned = [dict(one) for one in tensors[2 * first : 2 * end]]
    weights = sum(one["bytes"] for one in owned)
    return claims(
        host=HOSTS[place],
        hardware=HARDWARE,
        role="head" if place == 0 else "tail" if place == len(HOSTS) - 1 else "middle",
        layers=[first, end],
        backend="llama.cpp b6000",
        kv_recipe="Q8_0, conservative",
        patch_digest="ab" * 32,
        gguf_revision=locked.contract.target.gguf_revision,
        worker_kind="whole",
        files=[
            {"name": one.name, "size_bytes": one.size_bytes, "sha256": one.sha256}
            for one in locked.manifest.shards
        ],
        usable_bytes=64 * GIB,
        gpu_bytes=12 * GIB,
        unified=False,
        reserve_bytes=13 * GIB,
        weight_bytes=weights,
        kv_bytes=200_000_000,
        peak_rss_bytes=weights,
        peak_vram_bytes=2 * GIB,
        peak_scratch_bytes=3 * GIB,
        swap_bytes=0,
        overcommitted=False,
        mmap_only=False,
        owned=owned,
    )


def _semantics(locked: LockedTarget) -> dict[str, Any]:
    marker = locked.snapshot.reasoning_effort.rendered_marker
    return {
        "graph": claims(
            moe_routed_tokens=4608,
            shared_expert_tokens=4608,
            indexer_selections=4608,
            sparse_attention_steps=4608,
            indexshare_full_layers=21,
            indexshare_shared_layers=57,
            dense_attention_fallbacks=0,
        ),
        "rendered_template": claim(f"[gMASK]<sop>{marker}<|user|>Write a parser."),
        "f32_seam": claims(tokens_compared=32, tokens_equal=32),
        "production_seam": claims(
            greedy_token_agreement=0.97,
            mean_cosine_similarity=0.9995,
            tensors_checked=900,
            nonfinite_tensors=0,
        ),
        "handshakes": {kind: claims(tried=1, refused=1) for kind in KINDS},
    }


def _target_run() -> dict[str, Any]:
    usage = {"prompt_tokens": 4096, "completion_tokens": 512, "total_tokens": 4608}
    return {
        **claims(
            context_tokens=16384,
            kv_dtype="Q8_0",
            concurrency=1,
            prompt_tokens=4096,
            output_tokens=512,
            finish_reason="length",
        ),
        "response": claims(model="glm-5.2", finish_reason="length", usage=usage),
        "sentinels": {
            name: claims(
                parsed=True,
                **{
                    f"{kind}_sha256": hashlib.sha256(FILES[f"{name}-{kind}.txt"]).hexdigest()
                    for kind in ("prompt", "output")
                },
            )
            for name in SENTINELS
        },
        "links": [claims(host=host, wired=True, switch="sw-1", rate_gbps=10.0) for host in HOSTS],
    }


def _performance() -> dict[str, Any]:
    stage = claims(
        compute=0.2,
        queue=0.01,
        kv=200_000_000,
        seam_bytes=12288,
        seam_latency=0.001,
        rss=36 * GIB,
        vram=2 * GIB,
        backend_timing=0.2,
        kv_pressure=0.3,
        seam_latency_p95=0.002,
        errors=0,
        energy_joules=90_000.0,
    )
    return {
        **claims(
            warmups=1,
            ttft_seconds=240.0,
            ttft_prompt_tokens=4096,
            unexplained_gaps_seconds=[1.5, 12.0],
        ),
        "decode": [claims(tokens_per_second=0.8, tokens=512, seconds=640.0) for _ in range(3)],
        "stages": [{"host": host, **stage} for host in HOSTS],
    }


def _reliability() -> dict[str, Any]:
    released = claims(
        sessions_before=0,
        sessions_after=0,
        sessions_during=1,
        buffer_bytes_before=4096,
        buffer_bytes_during=65536,
        buffer_bytes_after=4096,
        kv_bytes_before=0,
        kv_bytes_during=50_000_000,
        kv_bytes_after=0,
    )
    return {
        "cold_starts": [claims(served=True, residue=0), claims(served=True, residue=0)],
        "cancellation": {"prefill": released, "decode": dict(released)},
        "worker_loss": claims(
            route_aborted=True,
            retry_policy="from_token_zero_on_new_compatible_route",
            retry_first_position=0,
            old_epoch=1,
            new_epoch=2,
            output_equals_undisturbed=True,
            kv_migrations=0,
        ),
        "stale_epoch": claims(tried=1, refused=1),
        "replayed_step": claims(tried=1, duplicates=1, past_len_before=40, past_len_after=40),
    }
