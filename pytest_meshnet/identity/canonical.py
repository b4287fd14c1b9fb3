"""The one digest convention of every document here, and the strict reading that goes with it.

The convention is Python's own, not RFC 8785: the published digests depend on it.
"""

import hashlib
import json
import math
from typing import Any, NoReturn

JsonValue = Any  # what json.loads can return; mypy has no recursive type that callers could narrow


class Refused(ValueError):
    """What is given cannot be accepted; `code` is stable, the message is not."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class DocumentRefused(Refused):
    """A document that cannot be read or digested without guessing."""


def canonical_bytes(value: JsonValue) -> bytes:
    """Return the UTF-8 bytes that are digested: keys sorted, no white space, no ASCII escapes.

    The published digests of identities and documents fix this form. Raises DocumentRefused for
    what JSON cannot say in exactly one way: keys that are not strings, non-finite numbers, other
    types, lone surrogates.
    """
    try:
        _require_json(value, "$")
        text = json.dumps(
            value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        )
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DocumentRefused(
            "not-utf8", f"a string holds a lone surrogate ({error.reason}): use valid Unicode"
        ) from error
    except RecursionError as error:
        raise DocumentRefused(
            "too-deep", "the document nests deeper than can be read: flatten it"
        ) from error


def digest(value: JsonValue) -> str:
    """Return the canonical SHA-256 of `value` as 64 lowercase hex digits.

    Raises DocumentRefused as `canonical_bytes` does.
    """
    return hashlib.sha256(canonical_bytes(value)).hexdigest()


def load_strict(data: bytes, source: str) -> JsonValue:
    """Parse one JSON document; `source` names it in refusals.

    Raises DocumentRefused for bytes that are not UTF-8, syntax errors, a key that occurs twice
    (the second would silently win), NaN and infinities (1e999 included) and absurd nesting.
    """

    def pairs(items: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
        found: dict[str, JsonValue] = {}
        for key, item in items:
            if key in found:
                raise DocumentRefused(
                    "duplicate-key", f"{source}: the key {key!r} occurs twice: keep one of them"
                )
            found[key] = item
        return found

    def refuse_number(text: str) -> NoReturn:
        raise DocumentRefused(
            "non-finite", f"{source}: {text} is not a finite number: write the real value"
        )

    def finite(text: str) -> float:
        number = float(text)
        return number if math.isfinite(number) else refuse_number(text)

    try:
        return json.loads(
            data.decode("utf-8"),
            object_pairs_hook=pairs,
            parse_constant=refuse_number,
            parse_float=finite,
        )
    except DocumentRefused:
        raise
    except UnicodeDecodeError as error:
        raise DocumentRefused(
            "not-utf8", f"{source}: byte {error.start} is not UTF-8: save the document as UTF-8"
        ) from error
    except RecursionError as error:
        raise DocumentRefused(
            "too-deep", f"{source}: nests deeper than can be read: flatten it"
        ) from error
    except ValueError as error:
        raise DocumentRefused(
            "not-json", f"{source}: not JSON ({error}): fix the syntax"
        ) from error


def _require_json(value: JsonValue, where: str) -> None:
    if value is None or isinstance(value, (str, bool, int)):
        return
    if isinstance(value, float):
        if not math.isfinite(value):
            raise DocumentRefused("non-finite", f"{where} is {value}: only finite numbers digest")
        return
    if isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _require_json(item, f"{where}[{index}]")
        return
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise DocumentRefused(
                    "key-type", f"{where} has the key {key!r}, which is not a string: rename it"
                )
            _require_json(item, f"{where}.{key}")
        return
    raise DocumentRefused(
        "not-json", f"{where} is a {type(value).__name__}, which JSON does not have: convert it"
    )
