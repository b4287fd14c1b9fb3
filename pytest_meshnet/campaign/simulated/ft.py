"""The command `ft` of a simulated FreeToken: `--version`, `bench bw` and `serve`."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from pytest_meshnet.campaign.simulated.server import Settings, serve
from pytest_meshnet.campaign.simulated.switches import GPU_NAME, OTHER_GPU, split

VERSION = "freetoken 0.1.3 (simulated)"


def main(arguments: list[str]) -> int:
    """Run one command; what it prints and returns is what the real one would."""
    switches, folder, arguments = split(arguments)
    if arguments == ["--version"]:
        _say(VERSION)
        return 0
    if arguments[:2] == ["bench", "bw"]:
        return _bench(arguments[2:], switches, folder)
    if arguments[:1] == ["serve"]:
        return _serve(arguments[1:], switches)
    _say(f"unknown command {' '.join(arguments[:2])!r}: expected bench bw or serve")
    return 2


def _bench(arguments: list[str], switches: frozenset[str], folder: Path) -> int:
    parser = argparse.ArgumentParser("ft bench bw")
    parser.add_argument("--dtype", required=True)
    parser.add_argument("--gpu", required=True)
    asked = parser.parse_args(arguments)
    if "bench_bw.failed" in switches:
        _say("CUDA error: out of memory")
        return 1
    path = folder / f"{asked.gpu}.json"
    figure = 0.0 if "bench_bw.nvfp4_calibration_unusable" in switches else 30.0
    profile = {
        "gpu": {"index": 0, "name": GPU_NAME, "uuid": asked.gpu},
        "dtype_kernels": {
            asked.dtype: {
                "cpu_moe_gbs": figure,
                "pcie_gather_gbs": 10.0,
                "recommended": "hybrid",
            }
        },
        "simulated": True,
    }
    if "bench_bw.profile_gpu_unverified" in switches:
        del profile["gpu"]
    if "bench_bw.profile_gpu_mismatch" in switches:
        profile["gpu"] = {"uuid": OTHER_GPU}
    broken = "bench_bw.profile_unreadable" in switches
    path.write_text("not a profile" if broken else json.dumps(profile), encoding="utf-8")
    _say(f"FTBENCH_OUT {path}")
    return 0


def _serve(arguments: list[str], switches: frozenset[str]) -> int:
    parser = argparse.ArgumentParser("ft serve")
    for name in ("model", "host", "moe-backend", "nvfp4-backend", "sampling-defaults", "gpu"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("port", "max-running-requests", "cuda-graph-max-bs"):
        parser.add_argument(f"--{name}", required=True, type=int)
    parser.add_argument("--memory-ratio", required=True, type=float)
    size = parser.add_mutually_exclusive_group(required=True)
    size.add_argument("--moe-cache-auto", action="store_true")
    size.add_argument("--moe-cache-size", type=int)
    parser.add_argument("--moe-cpu-layers", type=int, default=0)
    parser.add_argument("--kv-reserve-tokens", type=int, default=8192)
    parser.add_argument("--max-seq-len-override", type=int, default=40_960)
    asked = parser.parse_args(arguments)
    if "execution.server_failed" in switches:
        _say("RuntimeError: CUDA error: no kernel image is available")
        return 1
    serve(Settings(**vars(asked)), switches)
    return 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
