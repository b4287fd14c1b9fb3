"""Charts as inline SVG: scales, marks and labels, with a text for whoever sees none of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 420, 180
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 10, 12, 34


@dataclass(frozen=True, slots=True)
class Mark:
    """A rectangle in the units of the drawing."""

    x: float
    y: float
    width: float
    height: float
    title: str


@dataclass(frozen=True, slots=True)
class Dot:
    """A point in the units of the drawing."""

    x: float
    y: float
    title: str


@dataclass(frozen=True, slots=True)
class Tick:
    """A labelled place on an axis."""

    place: float
    label: str


@dataclass(frozen=True, slots=True)
class Chart:
    """What a template draws; `text` says in words what the chart shows."""

    title: str
    x_label: str
    y_label: str
    text: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    dots: tuple[Dot, ...] = ()
    marks: tuple[Mark, ...] = ()
    width: int = WIDTH
    height: int = HEIGHT
    left: int = _LEFT
    right: int = WIDTH - _RIGHT
    top: int = _TOP
    bottom: int = HEIGHT - _BOTTOM


def plain(value: float) -> str:
    """Write a number as a person does: no exponent for thousands, four digits below."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


Scale = Callable[[float], float]


def scatter(
    title: str, labels: tuple[str, str], points: Sequence[tuple[float, float]], text: str
) -> Chart | None:
    """Return a chart of points (x, y), None when there are none."""
    if not points:
        return None
    xs, ys = zip(*points, strict=True)
    x, x_ticks = _scale(min(xs), max(xs), _LEFT + 8, WIDTH - _RIGHT - 8)
    y, y_ticks = _scale(min(ys), max(ys), HEIGHT - _BOTTOM - 8, _TOP + 8)
    dots = tuple(Dot(x(one), y(other), f"{plain(one)}, {plain(other)}") for one, other in points)
    return Chart(title, *labels, text, x_ticks, y_ticks, dots=dots)


def histogram(
    title: str, labels: tuple[str, str], values: Sequence[float], text: str, bins: int = 40
) -> Chart | None:
    """Return a chart of counts; the axis of counts is logarithmic, so that one stall shows."""
    if not values:
        return None
    low, high = min(values), max(values)
    size = (high - low) / bins or 1.0
    counts = [0] * bins
    for value in values:
        counts[min(int((value - low) / size), bins - 1)] += 1
    x, x_ticks = _scale(low, low + size * bins, _LEFT, WIDTH - _RIGHT)
    top = math.log10(max(counts) + 1)
    floor = HEIGHT - _BOTTOM

    def rise(count: int) -> float:
        return (floor - _TOP) * math.log10(count + 1) / top

    marks = tuple(
        Mark(
            x(low + number * size),
            floor - rise(count),
            max(x(low + (number + 1) * size) - x(low + number * size) - 0.5, 0.5),
            rise(count),
            f"{plain(low + number * size)} ms: {count}",
        )
        for number, count in enumerate(counts)
        if count
    )
    decades = [10**power for power in range(int(top) + 1)]
    y_ticks = tuple(Tick(floor - rise(count), f"{count}") for count in decades)
    return Chart(title, *labels, text, x_ticks, y_ticks, marks=marks)


def _scale(low: float, high: float, start: float, end: float) -> tuple[Scale, tuple[Tick, ...]]:
    if high == low:
        # No negative place for what counts from nothing.
        low, high = (low - 0.5, high + 0.5) if low else (0.0, 1.0)

    def place(value: float) -> float:
        return start + (value - low) / (high - low) * (end - start)

    return place, tuple(Tick(place(value), plain(value)) for value in _round(low, high))


def _round(low: float, high: float) -> Iterator[float]:
    """Yield three to six round values between two."""
    step = 10 ** math.floor(math.log10((high - low) / 2))
    step = next(step * factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= 6)
    value = math.ceil(low / step) * step
    while value <= high:
        yield value
        value += step
