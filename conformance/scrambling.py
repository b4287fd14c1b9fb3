"""The same message in other bytes: what a parser must read alike, and no echo can serialize."""

from __future__ import annotations

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from .wire_inputs import tagged, varint


def scrambled(message: Message) -> bytes:
    """Serialize with fields last to first, lists unpacked, and each inner message in two pieces.

    A parser merges the pieces of an inner message, and reads numbers packed or not; both are rules
    of the protobuf encoding.
    """
    return b"".join(_field(message, field) for field, _ in reversed(message.ListFields()))


def _field(message: Message, field: FieldDescriptor) -> bytes:
    value = getattr(message, field.name)
    if field.message_type is None:
        if field.is_repeated and field.is_packed:
            # Negative numbers are ten bytes long: those of 64 bits, as they stand.
            return b"".join(tagged(field.number, 0, varint(one % 2**64)) for one in value)
        return _alone(message, field)
    if field.is_repeated:
        return b"".join(tagged(field.number, 2, scrambled(one)) for one in value)
    pieces = _halves(value)
    return b"".join(tagged(field.number, 2, scrambled(piece)) for piece in pieces)


def _alone(message: Message, field: FieldDescriptor) -> bytes:
    """A field as the library writes it."""
    only = type(message)()
    value = getattr(message, field.name)
    if field.is_repeated:
        getattr(only, field.name).extend(value)
    else:
        setattr(only, field.name, value)
    return only.SerializeToString(deterministic=True)


def _halves(message: Message) -> list[Message]:
    """Two messages that merge to this one; one with nothing or one field set stays whole."""
    names = [field.name for field, _ in message.ListFields()]
    if len(names) < 2:
        return [message]
    halves = []
    for kept in (names[: len(names) // 2], names[len(names) // 2 :]):
        half = type(message)()
        half.CopyFrom(message)
        for name in names:
            if name not in kept:
                half.ClearField(name)
        halves.append(half)
    return halves
