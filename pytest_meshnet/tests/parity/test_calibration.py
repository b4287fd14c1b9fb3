"""A bound lies between honest rounding and the weakest control, or there is none."""

import json
from dataclasses import replace

import pytest

from pytest_meshnet.parity.calibration import Calibration, NoSeparation, Subject, calibrated
from pytest_meshnet.runtime.errors import Refusal

ABOUT = Subject("model", "a" * 64, "bfloat16", "0" * 64)
HONEST = {"0:15 15:30": 0.05, "0:10 10:30": 0.08}
CONTROLS = {"decode-shifted-by-one": 1.9, "one-layer-skipped": 14.0}


def test_the_bound_lies_between_both_sides():
    found = calibrated(ABOUT, HONEST, CONTROLS)
    assert found.highest_honest == 0.08
    assert found.weakest_control == ("decode-shifted-by-one", 1.9)
    assert found.bound == pytest.approx((0.08 * 1.9) ** 0.5)


def test_a_given_bound_is_kept_when_it_separates():
    assert calibrated(ABOUT, HONEST, CONTROLS, bound=0.25).bound == 0.25


@pytest.mark.parametrize("bound", [0.07, 0.08, 1.9, 2.0, float("nan"), float("inf")])
def test_a_bound_that_does_not_separate_is_refused(bound):
    with pytest.raises(NoSeparation, match="expected the bound between them"):
        calibrated(ABOUT, HONEST, CONTROLS, bound=bound)


@pytest.mark.parametrize(
    ("honest", "controls"),
    [({"a": 1.0}, {"b": 1.5}), ({"a": 1.0}, {"b": 0.5}), ({}, {"b": 1.0}), ({"a": 1.0}, {}),
     ({"a": float("nan")}, {"b": 1.0}), ({"a": float("inf")}, {"b": 9.0}),
     ({"a": 0.1, "c": float("nan")}, {"b": 1.0}), ({"a": 0.1}, {"b": 1.0, "c": float("nan")})],
)  # fmt: skip
def test_without_a_gap_there_is_no_bound(honest, controls):
    with pytest.raises(NoSeparation):
        calibrated(ABOUT, honest, controls)


def test_an_honest_error_of_zero_still_has_a_bound():
    assert calibrated(ABOUT, {"a": 0.0}, {"b": 1.0}).bound == 0.5


def test_a_control_that_is_not_finite_is_far_away():
    found = calibrated(ABOUT, HONEST, {"b": float("inf"), "c": 2.0})
    assert found.weakest_control == ("c", 2.0)
    assert found.controls["b"] == 1e30


def test_figures_are_kept_with_the_model(tmp_path):
    found = calibrated(ABOUT, HONEST, CONTROLS, bound=0.25)
    found.write(tmp_path / "model.json")
    assert Calibration.read(tmp_path / "model.json") == found


@pytest.mark.parametrize(
    ("name", "value"),
    [("bound", 1.95), ("bound", 0.01), ("schema", 1), ("about", {"model": "m"}), ("honest", {})],
)
def test_kept_figures_that_do_not_hold_are_refused(tmp_path, name, value):
    path = tmp_path / "model.json"
    calibrated(ABOUT, HONEST, CONTROLS, bound=0.25).write(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}))
    with pytest.raises(Refusal):
        Calibration.read(path)


def test_a_file_that_is_none_is_refused(tmp_path):
    (tmp_path / "x.json").write_text("[]")
    with pytest.raises(Refusal, match="calibrate again"):
        Calibration.read(tmp_path / "x.json")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"digest": "b" * 64}, f"weights {'a' * 16}, expected {'b' * 16}"),
        ({"corpus": "1" * 64}, f"prompts {'0' * 16}, expected {'1' * 16}"),
        ({"dtype": "float16"}, "boundary bfloat16, expected float16"),
    ],
)
def test_figures_of_something_else_are_refused(change, line):
    found = calibrated(ABOUT, HONEST, CONTROLS)
    with pytest.raises(Refusal, match="pytest-meshnet parity calibrate") as refused:
        found.check_subject(replace(ABOUT, **change))
    assert line in refused.value.message
    assert "\n" not in refused.value.message


def test_figures_hold_under_another_name_and_without_a_boundary():
    found = calibrated(ABOUT, HONEST, CONTROLS)
    found.check_subject(replace(ABOUT, model="renamed"))
    found.check_subject(replace(ABOUT, dtype=""))
