"""Charts as plain geometry: inside their frame, in order, and readable without sight."""

import math

import pytest

from pytest_meshnet.campaign.report.charts import histogram, plain, scatter

LABELS = ("x", "y")


def test_points_lie_in_the_frame_and_grow_to_the_right_and_upwards():
    chart = scatter("t", LABELS, [(0.0, 10.0), (5.0, 20.0), (9.0, 30.0)], "words")
    xs, ys = [one.x for one in chart.dots], [one.y for one in chart.dots]
    assert xs == sorted(xs)
    assert ys == sorted(ys, reverse=True)
    assert all(chart.left <= x <= chart.right for x in xs)
    assert all(chart.top <= y <= chart.bottom for y in ys)


@pytest.mark.parametrize("values", [[1.0], [4.0, 4.0, 4.0], [0.001, 90_000.0], [-3.0, 3.0]])
def test_axes_of_any_range_have_a_few_ticks_in_the_frame(values):
    chart = scatter("t", LABELS, [(float(n), one) for n, one in enumerate(values)], "words")
    for ticks, low, high in (
        (chart.x_ticks, chart.left, chart.right),
        (chart.y_ticks, chart.top, chart.bottom),
    ):
        assert 1 <= len(ticks) <= 7
        assert all(low <= tick.place <= high for tick in ticks)


def test_an_axis_of_nothing_but_zero_has_no_negative_place():
    chart = scatter("t", LABELS, [(0.0, 3.0), (0.0, 4.0)], "words")
    assert chart.x_ticks[0].label == "0"


def test_every_value_is_in_one_bar_and_one_stall_still_shows():
    chart = histogram("t", LABELS, [10.0] * 999 + [900.0], "words")
    assert sum(int(mark.title.rpartition(" ")[2]) for mark in chart.marks) == 1000
    tall, short = chart.marks
    assert math.isclose(tall.height, chart.bottom - chart.top)
    assert short.height > 5


def test_without_data_there_is_no_chart():
    assert scatter("t", LABELS, [], "words") is None
    assert histogram("t", LABELS, [], "words") is None


@pytest.mark.parametrize(
    ("value", "text"),
    [(12_345.6, "12,346"), (0.0085134, "0.008513"), (55.0, "55"), (-2000, "-2,000")],
)
def test_numbers_are_written_without_exponents(value, text):
    assert plain(value) == text
