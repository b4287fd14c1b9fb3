"""The verdict as an in-toto statement about the record, for signing.

Signed payloads hold integers and texts only: a float is written as its shortest repr.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from pytest_meshnet import __version__

if TYPE_CHECKING:
    from pytest_meshnet.alpha.judge import Verdict

TYPE = "https://in-toto.io/Statement/v1"
PREDICATE = "urn:pytest-meshnet:alpha-verdict:1"


def statement(verdict: Verdict, record: bytes) -> dict[str, Any]:
    """Return the statement that `record` (its bytes) came to this verdict."""
    return {
        "_type": TYPE,
        "subject": [{"name": "record", "digest": {"sha256": hashlib.sha256(record).hexdigest()}}],
        "predicateType": PREDICATE,
        "predicate": _plain(verdict.to_dict() | {"suite_version": __version__}),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value
