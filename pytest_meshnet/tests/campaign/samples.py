"""Records of a repetition as they lie in a block, with what a test changes."""

import json
import os
from pathlib import Path

import pytest

VARIABLE = "MESHNET_CAMPAIGN_RECORDS"


def record(repetition=0, **changes):
    """One measured repetition of the arm `one` in class W1; warm-ups have measured=False."""
    told = {
        "schema": "inferswarm.phase1.repetition/1",
        "session_number": 1,
        "execution_index": repetition,
        "arm_id": "one",
        "class_id": "W1",
        "measured": True,
        "repetition": repetition,
        "failed": False,
        "ttft_ms": 1000.0,
        "decode_tok_s": 50.0,
        "decode_window_s": 2.2,
        "decode_steps": 100,
        "inter_token_ms_p50": 20.0,
        "inter_token_ms_p95": 30.0,
        "inter_token_ms_max": 40.0,
        "vram_bytes": 10_000_000,
        "kv": {"used_pages": 3, "total_pages": 9, "page_size": 1},
        "prefill": {
            "gpu_ms": 990.0,
            "new_tokens": 500,
            "cached_tokens": 0,
            "prefill_tok_s": 500 / 0.99,
        },
    }
    return told | changes


def write_block(folder, records, class_id="W1"):
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(one | {"class_id": class_id}) for one in records]
    (folder / f"{class_id}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def real_records():
    """The folder of the published records of a real RTX 3060; they are not part of the suite."""
    told = os.environ.get(VARIABLE)
    if told is None:
        pytest.skip(f"not run: needs the published records, set {VARIABLE} to their folder")
    return Path(told)
