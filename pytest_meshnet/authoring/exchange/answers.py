"""What an answer says, as the words of the notation, and whether a written answer is that one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from pytest_meshnet.authoring.exchange.notation import Frame

Facts = Mapping[str, str]

ANY_CODE = "*"
"""Any code but UNSPECIFIED and INTERNAL."""

_SHORT = {
    "work_id": "work",
    "idempotency_step": "step",
    "route_session_id": "session",
    "route_epoch": "epoch",
    "cache_result.past_len": "past_len",
    "cache_result.cache_hit": "hit",
    "cache_result.mode": "mode",
    "error.code": "code",
    "error.retryable": "retryable",
    "error.actual_past_len": "actual_past_len",
    "envelope.work_id": "work",
    "envelope.idempotency_step": "step",
    "envelope.route_session_id": "session",
    "envelope.route_epoch": "epoch",
    "envelope.position.first_position": "first",
    "envelope.position.token_count": "count",
}
"""The words of a trace for fields with long paths."""

_FLAGS = {"ack": ("duplicate",), "status": ("terminal",)}
"""Bare words whose absence in a written answer means that they must not be true."""


def facts(message: Message) -> dict[str, str]:
    """Every scalar field of an answer by its path, and by its short word where it has one."""
    found = dict(_fields(message, ""))
    found |= {word: found[path] for path, word in _SHORT.items() if path in found}
    return found


def _fields(message: Message, prefix: str) -> Iterator[tuple[str, str]]:
    for known in message.DESCRIPTOR.fields:
        path = f"{prefix}{known.name}"
        if known.is_repeated:
            yield f"{path}.length", str(len(getattr(message, known.name)))
        elif known.type == FieldDescriptor.TYPE_MESSAGE:
            yield from _fields(getattr(message, known.name), f"{path}.")
        else:
            yield path, _text(known, getattr(message, known.name))


def _text(known: Any, value: Any) -> str:
    if known.enum_type is None:
        return str(value)
    named = known.enum_type.values_by_number.get(value)
    prefix = known.enum_type.values_by_number[0].name.removesuffix("UNSPECIFIED")
    return str(named.name).removeprefix(prefix) if named else f"unknown({value})"


def differs(frame: Frame, kind: str, found: Facts) -> str:
    """Say in which word an answer is not the written one; empty when it is."""
    if frame.kind != kind:
        return f"{kind} instead of {frame.kind}"
    for word in _FLAGS.get(kind, ()):
        if (found.get(word) == "True") != (word in frame.words):
            return f"{word}={found.get(word)}"
    if kind == "status" and frame.words and not _code_fits(frame.words[0], found["code"]):
        return f"code {found['code']}"
    for key, value in frame.values.items():
        if key not in _COMPARED_ELSEWHERE and not fits(value, found.get(key, "absent")):
            return f"{key}={found.get(key, 'absent')}"
    return ""


_COMPARED_ELSEWHERE = frozenset({"same-as", "unlike"})


def _code_fits(written: str, code: str) -> bool:
    if written == ANY_CODE:
        return code not in ("UNSPECIFIED", "INTERNAL")
    return written == "terminal" or code in written.split("|")


def fits(written: str, found: str) -> bool:
    """Whether a value is the written one, or lies in the written range (`1..4`, `1..`).

    `present` is anything but empty, zero and absent.
    """
    if written == "present":
        return found not in ("", "0", "absent")
    low, dots, high = written.partition("..")
    if not dots:
        return written == found
    return found.isdecimal() and int(low) <= int(found) and (not high or int(found) <= int(high))
