"""Numbers that a run measured, attached as a document that reports show and `compare` compares.

    {"schema": 1, "metrics": [{"name": "decode", "value": "14.91", "unit": "tokens/s",
                               "better": "higher"}]}

A value is a decimal in a string, exact on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Literal

from pytest_meshnet.evidence import strict
from pytest_meshnet.evidence.strict import StrictError

MEDIA_TYPE = "application/vnd.pytest-meshnet.metrics+json"
_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Metric:
    """One number with its unit; `better` says which way is an improvement."""

    name: str
    value: str
    unit: str
    better: Literal["higher", "lower"]

    @property
    def number(self) -> Decimal:
        """The value as a finite number. Raises StrictError when it is none."""
        try:
            found = Decimal(self.value)
        except InvalidOperation:
            found = Decimal("NaN")
        if not found.is_finite():
            raise StrictError("metric-value", f"{self.name} is {self.value!r}: expected a decimal")
        return found


@dataclass(frozen=True, slots=True)
class _Document:
    schema: int
    metrics: tuple[Metric, ...]


def encode(metrics: Iterable[Metric]) -> bytes:
    """Return the document of some metrics. Raises StrictError for a value that is no number."""
    return strict.dumps(strict.encode(_checked(_Document(_SCHEMA, tuple(metrics)))))


def decode(data: bytes) -> tuple[Metric, ...]:
    """Read a document. Raises StrictError for anything but what `encode` writes."""
    document = _checked(strict.decode(_Document, strict.loads(data), "metrics"))
    if document.schema != _SCHEMA:
        raise StrictError("metric-schema", f"schema {document.schema}, this suite reads {_SCHEMA}")
    return document.metrics


def _checked(document: _Document) -> _Document:
    for one in document.metrics:
        _ = one.number
    return document
