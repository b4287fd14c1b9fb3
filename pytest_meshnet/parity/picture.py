"""Two pictures of a parity section as inline SVG: agreement by position, error by cut.

Plain shapes and text, no script and no outside reference; colours come from the page by
`currentColor`, and every mark has a title that says its figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from math import ceil, floor, log10
from typing import Any

_WIDTH, _HEIGHT = 640, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 14, 34


def agreement_picture(document: Mapping[str, Any]) -> str:
    """Agreement by position: one line a route, from 0 to 1 over the generated tokens.

    A line that stays at the top has no divergence.
    """
    routes = document["routes"]
    longest = max(len(one["agreement_by_position"]) for one in routes)
    body = [*_frame("generated token", "agreement"), *_levels([0.0, 0.5, 1.0], lambda v: v)]
    body += _columns(longest)
    for one in routes:
        values = one["agreement_by_position"]
        points = " ".join(
            f"{_x(index, longest):.1f},{_y(value):.1f}" for index, value in enumerate(values)
        )
        share = one["figures"]["agreement"]
        title = f"{one['label']}: {share['equal']} of {share['compared']} tokens agree"
        body.append(
            f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-opacity="0.55" '
            f'stroke-width="1.6"><title>{escape(title)}</title></polyline>'
        )
    return _svg("Agreement by position", body)


def error_picture(document: Mapping[str, Any], bound: float | None = None) -> str:
    """Error by cut: the largest logit error of each route on a logarithmic scale, and the bound.

    A route without any error has its mark on the ground.
    """
    routes = document["routes"]
    errors = [_error(one) for one in routes]
    shown = [value for value in (*errors, bound) if value]
    low, high = _decades(shown)

    def height(value: float | None) -> float:
        if value is None:
            return 1.0
        return 0.0 if value <= 0 else max(0.0, (log10(value) - low) / (high - low))

    body = [*_frame("route", "largest logit error")]
    body += _levels([10.0**power for power in range(low, high + 1)], height)
    for index, (one, error) in enumerate(zip(routes, errors, strict=True)):
        x, y = _x(index, len(routes)), _y(height(error))
        told = "not finite" if error is None else f"{error:.3g}"
        body.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_y(0):.1f}" y2="{y:.1f}" stroke="currentColor" '
            f'stroke-opacity="0.3"/><circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="currentColor">'
            f"<title>{escape(one['label'])}: {told}</title></circle>"
            f'<text x="{x:.1f}" y="{_y(0) + 14:.1f}" text-anchor="middle">{_cuts(one)}</text>'
        )
    if bound:
        y = _y(height(bound))
        body.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" '
            f'stroke="currentColor" stroke-dasharray="5 4"/><text x="{_WIDTH - _RIGHT}" '
            f'y="{y - 4:.1f}" text-anchor="end">calibrated bound {bound:.3g}</text>'
        )
    return _svg("Error by cut", body)


def _error(route: Mapping[str, Any]) -> float | None:
    error = route["figures"]["max_error"]
    return None if error is None else float(error)


def _cuts(route: Mapping[str, Any]) -> str:
    return " ".join(str(start) for start, _ in route["ranges"][1:]) or "whole"


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """Whole powers of ten around values, at least one apart."""
    if not values:
        return -1, 0
    low = floor(log10(min(values)))
    return low, max(low + 1, ceil(log10(max(values))))


def _x(index: int, count: int) -> float:
    room = _WIDTH - _LEFT - _RIGHT
    return _LEFT + room * (index + 0.5) / count


def _y(share: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * share


def _frame(below: str, beside: str) -> Iterator[str]:
    yield (
        f'<text x="{_WIDTH / 2:.0f}" y="{_HEIGHT - 4}" text-anchor="middle">{escape(below)}</text>'
    )
    yield (
        f'<text x="12" y="{_HEIGHT / 2:.0f}" text-anchor="middle" '
        f'transform="rotate(-90 12 {_HEIGHT / 2:.0f})">{escape(beside)}</text>'
    )


def _levels(values: Sequence[float], height: Any) -> Iterator[str]:
    for value in values:
        y = _y(height(value))
        yield (
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" '
            f'stroke="currentColor" stroke-opacity="0.15"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'
        )


def _columns(count: int) -> Iterator[str]:
    for index in range(0, count, max(1, count // 8)):
        yield (
            f'<text x="{_x(index, count):.1f}" y="{_y(0) + 14:.1f}" text-anchor="middle">'
            f"{index}</text>"
        )


def _svg(title: str, body: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(title)}" font-size="11" fill="currentColor" '
        f'style="max-width:{_WIDTH}px;width:100%">'
        f"<title>{escape(title)}</title>{''.join(body)}</svg>"
    )
