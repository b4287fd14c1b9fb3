"""The judgement of the speed script, and that its measured processes run."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from pytest_meshnet.evidence.verify import Question, verify
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


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        ((10.0, 1.0, 8.0, 1.0, 200.0), []),
        ((10.1, 1.0, 8.0, 1.0, 200.0), ["a record takes 10.1 times its floor, at most 10.0"]),
        ((101.0, 50.0, 8.0, 1.0, 200.0), ["a record takes 101 µs, at most 100"]),
        ((10.0, 1.0, 8.1, 1.0, 200.0), ["verify takes 8.1 times its floor, at most 8.0"]),
        ((10.0, 1.0, 8.0, 1.0, 201.0), ["verify takes 201 MB, at most 200"]),
    ],
)
def test_each_bound_of_the_evidence_is_judged(
    bench: ModuleType, figures: tuple[float, ...], words: list[str]
) -> None:
    assert bench.Evidence(*figures).missed() == words


def test_the_cost_of_evidence_is_measured_on_a_bundle_that_verifies(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(SPEED.parents[1]))
    trip = importlib.import_module("acceptance.speed.evidence_trip")
    monkeypatch.setattr(trip, "TESTS", 200)
    monkeypatch.setattr(trip, "RECORDS", 20)
    for name in ("append", "make"):
        (tmp_path / name).mkdir()
    append = trip.append(tmp_path / "append")
    assert 0 < append["floor"] < append["figure"]
    bundle = Path(trip.make(tmp_path / "make")["bundle"])
    assert verify(bundle, Question()).codes == {"signer-ephemeral"}
    for found in (trip.floor(bundle), trip.whole(bundle)):
        assert found["seconds"] > 0
        assert found["megabytes"] > 1


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
