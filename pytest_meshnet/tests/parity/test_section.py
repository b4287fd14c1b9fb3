"""The parity section: a document that JSON takes, and pictures that a page takes."""

import json
from xml.etree import ElementTree

import pytest

from pytest_meshnet.parity.metrics import Share
from pytest_meshnet.parity.picture import agreement_picture, error_picture
from pytest_meshnet.parity.record import RouteRecord
from pytest_meshnet.parity.section import attachment, section
from pytest_meshnet.tests.parity.samples import comparison


def record(label="0:2 2:4", **changes):
    whole = {"a": comparison(), "b": comparison(**changes)}
    return RouteRecord(label, ((0, 2), (2, 4)), whole, {}, {}, (), 1)


def document(*records):
    return json.loads(attachment(section("f32 seam", {"oracle": "whole"}, records or [record()])))


def test_the_section_names_lane_routes_and_figures():
    found = document()
    assert found["lane"] == "f32 seam"
    assert found["about"] == {"oracle": "whole"}
    assert found["routes"][0]["ranges"] == [[0, 2], [2, 4]]
    assert found["routes"][0]["figures"]["agreement"]["ratio"] == 1.0


def test_agreement_by_position_falls_at_the_divergence():
    found = document(record(divergence=1, before=Share(1, 1), after=Share(0, 1), errors=(0.0, 2.0)))
    assert found["routes"][0]["agreement_by_position"] == [1.0, 0.5]
    assert found["routes"][0]["error_by_position"] == [0.0, 2.0]


def test_a_number_that_is_not_finite_is_null():
    found = document(record(errors=(float("inf"), 0.0)))
    assert found["routes"][0]["figures"]["max_error"] is None


@pytest.mark.parametrize("picture", [agreement_picture, error_picture])
@pytest.mark.parametrize("errors", [(0.0, 0.0), (1e-6, 3.0), (float("nan"), 0.0)])
def test_a_picture_is_well_formed_and_asks_for_nothing(picture, errors):
    svg = picture(document(record(errors=errors), record("<b>&", errors=errors)))
    root = ElementTree.fromstring(svg)
    assert root.tag.endswith("svg")
    assert not any(word in svg.replace("http://www.w3.org/2000/svg", "")
                   for word in ("http", "<script", "href", "<b>"))  # fmt: skip


def test_the_bound_is_drawn_above_what_is_below_it():
    svg = error_picture(document(record(errors=(0.05, 0.05))), bound=0.25)
    root = ElementTree.fromstring(svg)
    space = "{http://www.w3.org/2000/svg}"
    (bound,) = [one for one in root.iter(f"{space}line") if one.get("stroke-dasharray")]
    marks = [float(one.get("cy", "nan")) for one in root.iter(f"{space}circle")]
    assert all(float(bound.get("y1", "nan")) < mark for mark in marks)
    assert "calibrated bound 0.25" in svg
