"""The parity section of a report: figures as a JSON attachment, made from records alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from pytest_meshnet.parity.lanes import figures
from pytest_meshnet.parity.metrics import Comparison
from pytest_meshnet.parity.record import RouteRecord

MEDIA_TYPE = "application/vnd.pytest-meshnet.parity+json"
NAME = "parity-figures.json"
"""How the attachment of a lane is found in a bundle."""

SCHEMA = 1


def section(lane: str, about: Mapping[str, str], records: Sequence[RouteRecord]) -> dict[str, Any]:
    """What a report shows of one lane.

    `about` names the oracle for a person, and the calibrated bound where there is one. Errors
    by position are in logits, the largest over the prompts; agreement by position is a share of
    the prompts.
    """
    return {
        "schema": SCHEMA,
        "lane": lane,
        "about": dict(about),
        "routes": [_route(record) for record in records],
    }


def attachment(document: Mapping[str, Any]) -> bytes:
    """The document as it is attached: JSON, numbers that are not finite as null."""
    return json.dumps(_plain(document), indent=1, sort_keys=True).encode()


def _route(record: RouteRecord) -> dict[str, Any]:
    every = list(record.whole.values())
    return {
        "label": record.label,
        "ranges": [list(one) for one in record.ranges],
        "epochs": record.epochs,
        "examined": {
            "prompts": len(every),
            "corpus": record.corpus,
            "chunk_tokens": sorted(record.chunked),
            "sessions_at_once": sorted(record.together),
        },
        "figures": figures(every).as_document(),
        "agreement_by_position": agreement_by_position(every),
        "error_by_position": error_by_position(every),
        "execution_nanos": [
            {"range": [one.start_layer, one.end_layer], "units": one.units,
             "nanos": str(one.execution_nanos)}
            for one in record.work[: len(record.ranges)]
        ],
    }  # fmt: skip


def agreement_by_position(comparisons: Sequence[Comparison]) -> list[float]:
    """The share of prompts whose route had not diverged at each generated position."""
    length = min(one.agreement.compared for one in comparisons)
    return [
        sum(one.divergence is None or one.divergence > position for one in comparisons)
        / len(comparisons)
        for position in range(length)
    ]


def error_by_position(comparisons: Sequence[Comparison]) -> list[float]:
    """The largest logit error at each position, over the prompts that had not diverged before."""
    length = max(len(one.errors) for one in comparisons)
    return [
        max(one.errors[position] for one in comparisons if position < len(one.errors))
        for position in range(length)
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not isfinite(value):
        return None
    return value
