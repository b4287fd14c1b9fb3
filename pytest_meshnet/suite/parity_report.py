"""The parity section of a report: figures of each lane, error by cut, agreement by position."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytest_meshnet.evidence.report.sections import (
    Attached,
    Bar,
    Bars,
    Block,
    Paragraph,
    Section,
    SectionError,
    Table,
)
from pytest_meshnet.parity.section import MEDIA_TYPE, SCHEMA

EVERY = 4
"""Positions from one bar of agreement to the next."""


class Parity:
    """Shows what the lanes of parity measured."""

    media_type = MEDIA_TYPE

    def sections(self, attachments: Sequence[Attached]) -> Iterator[Section]:
        """Yield one section with every lane that was measured."""
        blocks = [block for one in attachments for block in _blocks(_document(one))]
        yield Section("parity", "Parity with the whole model", tuple(blocks))


def _document(attached: Attached) -> Mapping[str, Any]:
    try:
        document: Mapping[str, Any] = json.loads(attached.data)
        if document["schema"] != SCHEMA or not document["routes"]:
            raise SectionError(f"{attached.name} has another schema, or no route")
    except (ValueError, KeyError, TypeError) as error:
        raise SectionError(f"{attached.name} is no parity section: {error!r}") from error
    return document


def _blocks(document: Mapping[str, Any]) -> Iterator[Block]:
    lane, routes = document["lane"], document["routes"]
    try:
        about = ", ".join(f"{name} {text}" for name, text in document["about"].items())
        yield Paragraph(f"The {lane}: {len(routes)} route(s) against the oracle. {about}.")
        yield Table(f"{lane}: figures", _COLUMNS, tuple(_row(one) for one in routes))
        yield _errors(lane, routes)
        yield _agreement(lane, routes)
    except (KeyError, TypeError, AttributeError) as error:
        raise SectionError(f"the {lane} lacks {error!r}") from error


_COLUMNS = (
    "route", "tokens equal", "first divergence", "mean cosine", "least cosine", "largest error",
    "relative error", "bits equal",
)  # fmt: skip


def _row(route: Mapping[str, Any]) -> tuple[str, ...]:
    found = route["figures"]
    share, flips = found["agreement"], found["divergences"]
    return (
        route["label"],
        f"{share['equal']} of {share['compared']}",
        str(min(flips)) if flips else "none",
        _number(found["mean_cosine"], ".6f"),
        _number(found["least_cosine"], ".6f"),
        _number(found["max_error"], ".3g"),
        _number(found["max_relative_error"], ".3g"),
        f"{found['identical']} of {found['prompts']}",
    )


def _errors(lane: str, routes: Sequence[Mapping[str, Any]]) -> Block:
    """Error by cut. A value that was not finite has no length, so it is said instead."""
    found = [(one["label"], one["figures"]["max_error"]) for one in routes]
    if broken := [label for label, error in found if error is None]:
        return Paragraph(f"{lane}: scores that are not finite on {', '.join(broken)}.")
    bars = (Bar(label, float(error), _number(error, ".3g")) for label, error in found)
    return Bars(f"{lane}: largest logit error by cut, in logits", tuple(bars))


def _agreement(lane: str, routes: Sequence[Mapping[str, Any]]) -> Block:
    """Agreement by position, over all routes and prompts that had not diverged before it."""
    curves = [one["agreement_by_position"] for one in routes]
    length = min(len(curve) for curve in curves)
    means = [sum(curve[position] for curve in curves) / len(curves) for position in range(length)]
    if all(mean == 1.0 for mean in means):
        return Paragraph(f"{lane}: no route diverged within {length} tokens.")
    places = sorted({*range(0, length, EVERY), length - 1})
    bars = (Bar(f"token {place}", means[place], f"{means[place]:.0%}") for place in places)
    return Bars(f"{lane}: agreement by position", tuple(bars))


def _number(value: float | None, form: str) -> str:
    return "not finite" if value is None else format(value, form)
