"""Comparing two runs: refused unless they are alike, then statuses and ratios."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_meshnet.evidence import metrics
from pytest_meshnet.evidence.bundle import BundleWriter
from pytest_meshnet.evidence.compare import run_compare
from pytest_meshnet.evidence.compare.likeness import KINDS
from pytest_meshnet.evidence.documents import Named
from pytest_meshnet.evidence.metrics import Metric
from pytest_meshnet.evidence.signing.keys import SigningKey
from pytest_meshnet.ledger.applicability import Fact
from pytest_meshnet.tests.evidence import making
from pytest_meshnet.tests.evidence.making import RUNTIME_TEST

ONE_SECOND = {"duration_ns": 1_000_000_000}


def told(before: Path, after: Path, *allow: str) -> dict[str, Any]:
    text, code = run_compare(before, after, allow=allow, as_json=True)
    document: dict[str, Any] = json.loads(text)
    assert document["exit_code"] == code
    return document


@pytest.fixture(autouse=True)
def one_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that knows its name, as not every container does."""
    monkeypatch.setattr("pytest_meshnet.evidence.host.host_facts", lambda: {"host_id": "this"})


def on_device(uuid: str, driver: str) -> dict[str, Any]:
    seen = {"uuid": uuid, "driver": driver, "provider": "nvml"}

    def extra(writer: BundleWriter) -> None:
        writer.recorder.device(RUNTIME_TEST, {"uuid": uuid}, seen)

    return {"extra": extra, "gpus": ({"uuid": uuid},)}


def of_recipe(kv_dtype: str) -> dict[str, Any]:
    def extra(writer: BundleWriter) -> None:
        writer.recorder.claims({"recipe.kv_dtype": Fact(kv_dtype, "capability")})

    return {"extra": extra}


UNLIKE = {
    "device": (on_device("GPU-1", "1"), on_device("GPU-2", "1")),
    "driver": (on_device("GPU-1", "1"), on_device("GPU-1", "2")),
    "artifact": ({"artifacts": (Named("a", "1"),)}, {"artifacts": (Named("a", "2"),)}),
    "recipe": (of_recipe("float16"), of_recipe("q8_0")),
    "policy": ({"policy_digest": "1"}, {"policy_digest": "2"}),
    "profiles": ({"profiles": ("core-wire", "kv")}, {"profiles": ("core-wire",)}),
}


@pytest.mark.parametrize("kind", UNLIKE)
def test_unlike_runs_are_refused_unless_told_otherwise(tmp_path: Path, key: SigningKey, kind: str):
    one, other = (
        making.make(tmp_path / str(n), key, **said) for n, said in enumerate(UNLIKE[kind])
    )
    text, code = run_compare(one, other)
    assert code == 2
    assert text.startswith(f"not compared: the runs are not alike: {kind} is ")
    assert text.endswith(f"with --allow {kind}\n")
    assert text.count("\n") == 1
    assert run_compare(one, other, allow=["suite"])[1] == 2, "another kind does not help"
    document = told(one, other, kind)
    assert document["exit_code"] == 0
    (differing,) = document["allowed_differences"]
    assert differing["kind"] == kind
    assert f"allowed: {kind} is " in run_compare(one, other, allow=[kind])[0]


@pytest.mark.parametrize(
    ("kind", "seen"),
    [
        ("device", {"uuid": "unknown", "driver": "1"}),
        ("driver", {"uuid": "GPU-1", "driver": ""}),
        ("driver", {"uuid": "GPU-1"}),
    ],
    ids=str,
)
def test_a_device_of_which_something_is_unknown_is_unlike_any(
    tmp_path: Path, key: SigningKey, kind: str, seen: dict[str, Any]
):
    def extra(writer: BundleWriter) -> None:
        writer.recorder.device(RUNTIME_TEST, {"uuid": seen["uuid"]}, seen)

    said = {"extra": extra, "gpus": ({"uuid": seen["uuid"]},)}
    one, other = (making.make(tmp_path / name, key, **said) for name in "ab")
    assert told(one, other)["message"].startswith(f"the runs are not alike: {kind} is unknown and")
    assert told(one, other, kind)["exit_code"] == 0


@pytest.mark.parametrize("host", [{}, {"host_id": "unknown"}], ids=str)
def test_a_machine_that_is_unknown_is_unlike_any(
    tmp_path: Path, key: SigningKey, monkeypatch: pytest.MonkeyPatch, host: dict[str, str]
):
    monkeypatch.setattr("pytest_meshnet.evidence.host.host_facts", lambda: host)
    one, other = (making.make(tmp_path / name, key) for name in "ab")
    assert "device is no GPU, host unknown and no GPU, host unknown" in told(one, other)["message"]


def test_another_suite_and_another_machine_are_unlike(
    tmp_path: Path, key: SigningKey, monkeypatch: pytest.MonkeyPatch
):
    one = making.make(tmp_path / "a", key)
    monkeypatch.setattr(making, "SUITE", "ab" * 32)
    monkeypatch.setattr("pytest_meshnet.evidence.host.host_facts", lambda: {"host_id": "another"})
    other = making.make(tmp_path / "b", key)
    document = told(one, other)
    assert "suite is " in document["message"]
    assert "device is no GPU, host " in document["message"]
    assert told(one, other, "suite", "device")["exit_code"] == 0


def test_a_status_that_got_worse_ends_with_one_and_the_way_back_with_zero(
    tmp_path: Path, key: SigningKey
):
    good = making.make(tmp_path / "a", key)
    bad = making.make(tmp_path / "b", key, calls={RUNTIME_TEST: making.FAILING}, exit_status=1)
    document = told(good, bad)
    assert document["exit_code"] == 1
    assert document["requirements"] == [
        {"id": "DECODE-01", "before": "passed", "after": "failed", "worse": True}
    ]
    assert document["tests"] == [
        {"id": RUNTIME_TEST, "before": "passed", "after": "failed", "worse": True}
    ]
    text, code = run_compare(bad, good)
    assert code == 0
    assert "tests: 1 changed, 0 got worse" in text
    assert f"  {RUNTIME_TEST}: failed -> passed" in text
    assert "A  reference: NOT CONFORMANT" in text


def test_a_pass_that_became_incomplete_got_worse_although_no_status_changed(
    tmp_path: Path, key: SigningKey
):
    whole = making.make(tmp_path / "a", key)
    cut = making.make(tmp_path / "b", key, seal=False)
    document = told(whole, cut)
    assert (document["exit_code"], document["verdict_worse"]) == (1, True)
    assert (document["tests"], document["requirements"]) == ([], [])
    assert "the verdict got worse: CERTIFIED -> INCOMPLETE" in run_compare(whole, cut)[0]
    assert told(cut, whole)["exit_code"] == 0


def test_a_run_whose_suite_changed_under_it_passes_no_more(
    tmp_path: Path, key: SigningKey, monkeypatch: pytest.MonkeyPatch
):
    def change(_: BundleWriter) -> None:
        monkeypatch.setattr(making, "SUITE", "ab" * 32)

    whole = making.make(tmp_path / "a", key)
    document = told(whole, making.make(tmp_path / "b", key, extra=change))
    assert document["after"]["verdict"] == "INCOMPLETE"
    assert document["exit_code"] == 1


def test_a_requirement_that_is_claimed_no_more_got_worse(tmp_path: Path, key: SigningKey):
    one = making.make(tmp_path / "a", key)
    other = making.make(tmp_path / "b", key, profiles=("kv",), exit_status=3)
    document = told(one, other, "profiles")
    assert document["exit_code"] == 1
    changed = {row["id"]: row for row in document["requirements"]}
    assert changed["DECODE-01"]["after"] == "not-claimed"
    assert changed["DECODE-01"]["worse"]
    assert changed["KV-01"]["before"] == "not-claimed"
    assert not changed["KV-01"]["worse"]


def test_equal_runs_have_no_change(tmp_path: Path, key: SigningKey):
    one, other = making.make(tmp_path / "a", key), making.make(tmp_path / "b", key)
    text, code = run_compare(one, other)
    assert code == 0
    assert "no status changed" in text


def test_a_test_that_is_gone_got_worse(tmp_path: Path, key: SigningKey):
    planned = making.planned()
    one = making.make(tmp_path / "a", key)
    other = making.make(
        tmp_path / "b", key, collection=making.Collection(planned[1:]), exit_status=3
    )
    document = told(one, other)
    assert document["exit_code"] == 1
    assert {"id": planned[0].test, "before": "passed", "after": None, "worse": True} in document[
        "tests"
    ]


def test_durations_of_a_group_are_given_as_a_ratio(tmp_path: Path, key: SigningKey):
    one = making.make(tmp_path / "a", key, calls={RUNTIME_TEST: ONE_SECOND})
    twice = {"duration_ns": 2 * ONE_SECOND["duration_ns"]}
    other = making.make(tmp_path / "b", key, calls={RUNTIME_TEST: twice})
    (found,) = told(one, other)["durations"]
    assert (found["name"], found["unit"], found["better"]) == ("DECODE", "s", "lower")
    assert found["ratio"] == pytest.approx(2, rel=1e-3)
    assert "DECODE: 1.00 -> 2.00 s, 2.000" in run_compare(one, other)[0]


def test_metrics_are_given_as_ratios_where_both_runs_have_them(tmp_path: Path, key: SigningKey):
    def measured(*values: Metric) -> Any:
        def extra(writer: BundleWriter) -> None:
            data = metrics.encode(values)
            writer.recorder.attach(RUNTIME_TEST, "speed", data, metrics.MEDIA_TYPE)

        return extra

    speed = Metric("decode", "10", "tokens/s", "higher")
    zero = Metric("misses", "0", "1", "lower")
    alone = Metric("prefill", "1", "s", "lower")
    one = making.make(tmp_path / "a", key, extra=measured(speed, zero, alone))
    faster = replace(speed, value="12.5")
    other = making.make(tmp_path / "b", key, extra=measured(faster, zero))
    found = told(one, other)["metrics"]
    assert [(row["name"].rpartition(", ")[2], row["ratio"]) for row in found] == [
        ("decode", 1.25),
        ("misses", None),
    ]
    assert "decode: 10 -> 12.5 tokens/s, 1.250, higher is better" in run_compare(one, other)[0]


def test_what_cannot_be_compared_is_one_line_and_exit_2(tmp_path: Path, key: SigningKey):
    good, broken = making.make(tmp_path / "a", key), making.make(tmp_path / "b", key)
    (broken / "stranger").touch()
    for answer, part in (
        (run_compare(good, broken), "is invalid: see `pytest-meshnet verify"),
        (run_compare(good, tmp_path / "nothing"), "cannot be read"),
        (run_compare(good, good, allow=["weather"]), f"expected one of {', '.join(KINDS)}"),
    ):
        assert answer[1] == 2
        assert part in answer[0]
        assert answer[0].count("\n") == 1


def test_a_hostile_run_cannot_steer_the_terminal(tmp_path: Path, key: SigningKey):
    target = replace(making.TARGET, name="evil\x1b[2J")
    one = making.make(tmp_path / "a", key, target=target)
    text, _ = run_compare(one, making.make(tmp_path / "b", key, target=target))
    assert "evil\\x1b[2J" in text
    assert all(one.isprintable() for line in text.splitlines() for one in line)
