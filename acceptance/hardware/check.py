"""Everything of the hardware lanes that needs a device, in one run of under five minutes.

    python acceptance/hardware/check.py [--out DIR]

Downloads nothing and needs no installation: a Python with pytest and nvidia-ml-py on a machine
with an NVIDIA GPU; without torch the figures are reported as missing. Prints one line a check,
writes check.json, and ends with 1 when a check failed or could not be made.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from acceptance.hardware.running import figure, holding, masks, seen_and_foretold  # noqa: E402
from pytest_meshnet.hardware import profile  # noqa: E402
from pytest_meshnet.hardware.arch_gates import GATES, ask  # noqa: E402
from pytest_meshnet.hardware.inventory import read  # noqa: E402
from pytest_meshnet.hardware.inventory.nvml import NvmlDriver  # noqa: E402
from pytest_meshnet.hardware.microbench.__main__ import FIGURES  # noqa: E402
from pytest_meshnet.hardware.pinning.lease import Desk  # noqa: E402
from pytest_meshnet.hardware.placement.gpu import Gpu, Placement  # noqa: E402
from pytest_meshnet.hardware.placement.senses import real  # noqa: E402

PYTEST_TIMEOUT_S = 100.0
BUDGET_S = 290.0

Check = Callable[[], Any]


class Bench:
    """The machine under the checks."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.senses = real()
        self.inventory = read(self.senses.drivers)
        self.placements: list[dict[str, object]] = []

    def lease(self, check: Callable[[Gpu], Any]) -> Any:
        """Run a check on the first usable NVIDIA device, with the looks around it."""
        usable = [one for one in self.inventory.devices if one.vendor == "nvidia" and not one.split]
        desk = Desk(self.out / "leases")
        with desk.lease(usable, 1, timeout_s=10, holder="check.py") as lease:
            gpu = Gpu(lease.devices, self.inventory, self.senses, os.environ, self._note)
            before = gpu.before()
            told = check(gpu)
            during, after = gpu.observe(), gpu.after()
        for placement in (before, during, after):
            assert placement.verdict == "proven", f"expected proven, got: {placement}"
        return told

    def _note(self, placement: Placement) -> None:
        self.placements.append(placement.document())

    # The checks --------------------------------------------------------------------------------

    def devices(self) -> Any:
        assert not self.inventory.problems, f"unreadable: {self.inventory.problems}"
        assert self.inventory.devices, f"expected a device, found {self.inventory.summary}"
        return [one.facts() for one in self.inventory.devices]

    def profile(self) -> Any:
        return profile.take(self.inventory, NvmlDriver()).document()

    def gates(self) -> Any:
        device = self.inventory.devices[0]
        return {
            f"{g.format} {g.role}": ask(g.format, g.role, device.capability).word for g in GATES
        }

    def masks(self) -> Any:
        uuid = next(str(one.uuid) for one in self.inventory.devices if one.vendor == "nvidia")
        told = {}
        for what, mask in masks(uuid).items():
            shown, foretold = seen_and_foretold(self.inventory, mask, os.environ)
            told[what] = {"mask": mask, "shown": shown, "foretold": foretold}
        wrong = {what: one for what, one in told.items() if one["shown"] != one["foretold"]}
        assert not wrong, f"CUDA reads masks in another way: {json.dumps(wrong)}"
        return told

    def placement(self) -> Any:
        def hold(gpu: Gpu) -> Any:
            with holding(gpu):
                listed = {
                    one.label: self.senses.drivers[0].processes(one)
                    for one in self.inventory.devices
                    if one.provider == "nvml" and not one.split
                }
                return {"nvml_lists": listed, "last_look": gpu.observe().document()}

        told = self.lease(hold)
        told["pids_are_those_of_the_host"] = self.senses.procfs.counts_as_the_host()
        return told

    def figures(self) -> Any:
        return {name: self.lease(partial(figure, name=name)) for name in FIGURES}

    def suite(self) -> Any:
        done = self._pytest("-m", "gpu", "-k", "not microbenchmarks and not foretold", "-v")
        assert done.returncode == 0, f"expected exit 0, got {done.returncode}: {_tail(done)}"
        return _tail(done)

    def absent_lane(self) -> Any:
        names = [one.name or "" for one in self.inventory.devices]
        lane = "h200" if any("3060" in name for name in names) else "rtx3060"
        done = self._pytest("-m", lane)
        text = done.stdout + done.stderr
        assert done.returncode == 4, (
            f"expected the refusal of {lane}, got {done.returncode}: {text}"
        )
        assert str(self.inventory.devices[0].uuid) in text, f"the refusal names no device: {text}"
        return _tail(done)

    def _pytest(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pytest", "-p", "pytest_meshnet.hardware.fixtures"]
        command += ["-c", os.devnull, f"--rootdir={ROOT}", "-p", "no:cacheprovider", "-q"]
        return subprocess.run(
            [*command, *arguments, str(Path(__file__).parent)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=PYTEST_TIMEOUT_S,
            check=False,
            env=dict(os.environ) | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        )


def _tail(done: subprocess.CompletedProcess[str]) -> list[str]:
    return (done.stdout + done.stderr).strip().splitlines()[-25:]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path("hardware-check"))
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    bench = Bench(out)
    checks: tuple[Check, ...] = (
        bench.devices,
        bench.profile,
        bench.gates,
        bench.masks,
        bench.placement,
        bench.figures,
        bench.suite,
        bench.absent_lane,
    )
    results = {}
    for check in checks:
        results[check.__name__] = _made(check, time.monotonic() - started)
        told = {"results": results, "placements": bench.placements}
        (out / "check.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return 0 if all(one["good"] for one in results.values()) else 1


def _made(check: Check, elapsed: float) -> dict[str, Any]:
    started = time.monotonic()
    try:
        if elapsed > BUDGET_S:
            raise TimeoutError(f"{elapsed:.0f} s are over already")
        result = {"good": True, "told": check()}
    except Exception as error:  # noqa: BLE001 - every later check must still be made
        result = {"good": False, "told": f"{type(error).__name__}: {error}"}
    result["seconds"] = round(time.monotonic() - started, 2)
    word = "ok    " if result["good"] else "FAILED"
    why = "" if result["good"] else f"  {result['told']}"
    sys.stdout.write(f"{word} {check.__name__:12} {result['seconds']:6.1f} s{why}\n")
    sys.stdout.flush()
    return result


if __name__ == "__main__":
    sys.exit(main())
