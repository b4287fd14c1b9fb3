"""What a field of the node's identity document may hold, and how it is refused otherwise."""

import re
from collections.abc import Mapping
from typing import Any

from pytest_meshnet.identity.canonical import DocumentRefused, Refused, canonical_bytes

MOVING_REFERENCES = frozenset({"main", "master", "head", "latest", "dev", "trunk"})
WIRE_INTEGER_LIMIT = 2**32 - 1  # layers and schema versions travel as uint32

_DIGEST = re.compile(r"[0-9a-f]{64}")


class IdentityError(Refused):
    """An identity that cannot be told apart from another; `code` is stable, the message is not."""


class FingerprintClaimError(IdentityError):
    """The document claims a fingerprint that its own content does not give."""

    def __init__(self, message: str) -> None:
        super().__init__("fingerprint-claim", message)


def keys(
    where: str, value: object, required: tuple[str, ...], optional: tuple[str, ...] = ()
) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise IdentityError(
            "wrong-type", f"{where} is a {type(value).__name__}, expected an object: write one"
        )
    for name in required:
        if name not in value:
            raise IdentityError("missing-field", f"{where} has no {name!r}: every field is needed")
    for name in value:
        if name not in required and name not in optional:
            raise IdentityError(
                "unknown-field", f"{where} has {name!r}, which means nothing here: remove it"
            )
    return dict(value)


def require_text(where: str, value: object) -> None:
    if not isinstance(value, str):
        raise IdentityError(
            "wrong-type", f"{where} is a {type(value).__name__}, expected a string: write one"
        )
    if not value or value != value.strip():
        raise IdentityError(
            "blank-text", f"{where} is {value!r}: write it, without white space around it"
        )
    try:
        canonical_bytes(value)
    except DocumentRefused as error:
        raise IdentityError("not-utf8", f"{where}: {error.message}") from error


def require_fixed(where: str, value: object) -> None:
    require_text(where, value)
    folded = str(value).casefold()
    if folded in MOVING_REFERENCES or folded.startswith("refs/"):
        raise IdentityError(
            "moving-reference",
            f"{where} is {value!r}, a reference that moves: pin the commit it points to",
        )


def require_digest(where: str, value: object) -> None:
    require_text(where, value)
    if not _DIGEST.fullmatch(str(value)):
        raise IdentityError(
            "digest-format", f"{where} is {value!r}, expected 64 lowercase hex digits: recompute it"
        )


def require_integer(where: str, value: object, *, minimum: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise IdentityError(
            "wrong-type", f"{where} is a {type(value).__name__}, expected an integer: write one"
        )
    if not minimum <= value <= WIRE_INTEGER_LIMIT:
        raise IdentityError(
            "out-of-range",
            f"{where} is outside {minimum}..{WIRE_INTEGER_LIMIT}: correct it",
        )
