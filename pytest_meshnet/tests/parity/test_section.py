"""The parity section: a document that JSON takes, and what a report makes of it."""

import json

import pytest

from pytest_meshnet.evidence.report.sections import Attached, SectionError
from pytest_meshnet.parity.metrics import Share
from pytest_meshnet.parity.record import RouteRecord
from pytest_meshnet.parity.section import attachment, section
from pytest_meshnet.suite.parity_report import Parity
from pytest_meshnet.suite.sections import providers
from pytest_meshnet.tests.parity.samples import comparison


def record(label="0:2 2:4", **changes):
    whole = {"a": comparison(), "b": comparison(**changes)}
    return RouteRecord(label, ((0, 2), (2, 4)), whole, {}, {}, (), 1, (), 5)


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


def blocks(*records):
    data = attachment(section("f32 seam", {"oracle": "whole"}, records))
    (found,) = Parity().sections([Attached("test", "parity-figures.json", data)])
    return found.blocks


def test_the_report_shows_figures_and_the_error_of_each_cut():
    about, table, errors, agreement = blocks(record(errors=(0.0, 0.25)), record("0:1 1:4"))
    assert "2 route(s)" in about.text
    assert [row[0] for row in table.rows] == ["0:2 2:4", "0:1 1:4"]
    assert [(one.label, one.value) for one in errors.bars] == [("0:2 2:4", 0.25), ("0:1 1:4", 0.0)]
    assert agreement.text == "f32 seam: no route diverged within 2 tokens."


def test_agreement_by_position_is_a_picture_where_a_route_diverged():
    diverged = record(divergence=1, before=Share(1, 1), after=Share(0, 1))
    *_, agreement = blocks(diverged, record())
    assert [(one.label, one.shown) for one in agreement.bars] == [
        ("token 0", "100%"),
        ("token 1", "75%"),
    ]


def test_scores_that_are_not_finite_are_said_and_not_drawn():
    _, table, errors, _ = blocks(record("broken", errors=(float("inf"), 0.0)))
    assert errors.text == "f32 seam: scores that are not finite on broken."
    assert table.rows[0][5] == "not finite"


@pytest.mark.parametrize(
    "data", [b"[]", b"{", b'{"schema": 2, "routes": [1]}', b'{"schema": 1, "routes": []}',
             b'{"schema": 1, "routes": [{}], "lane": "x", "about": {}}'],
)  # fmt: skip
def test_an_attachment_that_is_no_section_is_refused(data):
    with pytest.raises(SectionError):
        list(Parity().sections([Attached(None, "parity-figures.json", data)]))


def test_every_provider_can_be_made():
    assert any(isinstance(one, Parity) for one in providers())
