"""The judgement of the speed script, and that its measured processes run."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from types import ModuleType

import pytest

from pytest_meshnet.layout import folder

SPEED = folder("acceptance") / "speed"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SPEED.parents[1]))
    return importlib.import_module("acceptance.speed.bench")


@pytest.mark.parametrize(
    ("figure", "rate", "words"),
    [
        (199.0, 10_000.0, []),
        (201.0, 10_000.0, ["the codec takes 2.01 times its floor, at most 2.0 allowed"]),
        (199.0, 9_999.0, ["9,999 DecodeSteps/s, at least 10,000 wanted"]),
    ],
)
def test_each_bound_is_judged(
    bench: ModuleType, figure: float, rate: float, words: list[str]
) -> None:
    assert bench.missed({"floor": {"best": 100.0}, "figure": {"best": figure}}, rate) == words


@pytest.mark.parametrize("role", ["floor", "figure", "plain"])
def test_a_measured_process_tells_its_times_and_faults(role: str) -> None:
    run = subprocess.run(
        [sys.executable, str(SPEED / "codec_trip.py"), role],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    found = json.loads(run.stdout)
    assert 0 < found["best"] <= found["median"]
    assert found["faults"] >= 0


def test_decode_steps_are_all_applied(bench: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = importlib.import_module("acceptance.speed.decode_steps")
    monkeypatch.setattr(steps, "STEPS", 50)
    pair = steps._Pair()
    for _ in range(50):
        pair.unit(pair.client.decode(steps._ROW))
    assert pair.client.past_len == 51
    rate = steps.best_rate()
    assert rate.by_processor > 0
    assert rate.by_clock > 0
