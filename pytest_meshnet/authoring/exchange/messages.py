"""From a written frame to the message on the wire, with any field set to something else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from pytest_meshnet.authoring.exchange.notation import BadExchange, Frame
from pytest_meshnet.protocol.codec import encode_tensor
from pytest_meshnet.protocol.flow import FlowLimits
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.client import SeamClient
from pytest_meshnet.protocol.tensors import Tensor

Draw = Callable[[int, int, int], Tensor]
"""Gives the inputs of a draw at positions [start, stop)."""

ABSENT, FLIPPED = "absent", "flipped"

_WORDS = frozenset(
    {"work", "step", "tokens", "rows", "expects", "mode", "final", "inputs", "session", "epoch",
     "credits", "position"}
)  # fmt: skip
"""Keys with a meaning of their own; every other key is the path of a field."""


def request(client: SeamClient, frame: Frame, draw: Draw) -> pb.SessionRequest:
    """Build what a written frame sends in a session. Raises BadExchange."""
    message = _BUILDERS[frame.kind](client, frame, draw)
    body = getattr(message, message.WhichOneof("kind") or "")
    for path, value in frame.values.items():
        if path not in _WORDS:
            set_field(body, path, value)
    return message


def _open(client: SeamClient, frame: Frame, draw: Draw) -> pb.SessionRequest:
    del draw
    credits = number(frame, "credits", FlowLimits().credits)
    return client.open(FlowLimits(credits=credits, inflight=FlowLimits().inflight))


def _chunk(client: SeamClient, frame: Frame, draw: Draw) -> pb.SessionRequest:
    first, _, count = frame.get("tokens", "0+1").partition("+")
    start, tokens = whole(frame, first), whole(frame, count)
    rows = number(frame, "rows", tokens)
    mode = frame.get("mode", frame.words[0] if frame.words else "PREFILL")
    phase = frame.words[0] if frame.words else mode
    return client.chunk(
        [draw(number(frame, "inputs", 0), start, start + rows)],
        final=frame.get("final", "True") == "True",
        mode=pb.CacheMode.Value(f"CACHE_MODE_{mode}"),
        phase=pb.Phase.Value(f"PHASE_{phase}"),
        expected=number(frame, "expects", 0 if mode == "STATELESS" else start),
        first=start,
        tokens=tokens,
        step=number(frame, "step", client.next_step),
        work_id=frame.get("work"),
    )


def _decode(client: SeamClient, frame: Frame, draw: Draw) -> pb.SessionRequest:
    at = number(frame, "position", client.sent_len)
    rows = number(frame, "rows", 1)
    return client.decode(
        encode_tensor(draw(number(frame, "inputs", 0), at, at + rows)),
        position=at,
        expected=number(frame, "expects", at),
        step=number(frame, "step", client.next_step),
        work_id=frame.get("work"),
    )


def _release(client: SeamClient, frame: Frame, draw: Draw) -> pb.SessionRequest:
    del frame, draw
    return client.release()


def _cancel(client: SeamClient, frame: Frame, draw: Draw) -> pb.SessionRequest:
    del draw
    return client.cancel(frame.get("work"))


_BUILDERS: dict[str, Callable[[SeamClient, Frame, Draw], pb.SessionRequest]] = {
    "open": _open,
    "chunk": _chunk,
    "decode": _decode,
    "release": _release,
    "cancel": _cancel,
}


def number(frame: Frame, key: str, default: int) -> int:
    """The whole number of a key. Raises BadExchange."""
    return whole(frame, frame.values[key]) if key in frame.values else default


def whole(frame: Frame, text: str) -> int:
    """A whole number of a frame. Raises BadExchange."""
    if not text.isdecimal():
        raise BadExchange(f"`{frame}` has {text!r} where a whole number is expected")
    return int(text)


def set_field(message: Message, path: str, value: str) -> None:
    """Set the field at a dotted path; digits choose an element. Raises BadExchange.

    `absent` clears it, `flipped` turns every bit of a bytes field, +N and -N count from what is
    there; enums are given by number or by name.
    """
    *parents, last = path.split(".")
    holder: Any = message
    for part in parents:
        holder = holder[int(part)] if part.isdecimal() else _child(holder, part, path)
    known = holder.DESCRIPTOR.fields_by_name
    if last not in known:
        raise BadExchange(f"{holder.DESCRIPTOR.name} has no field {last!r} (in {path!r})")
    if value == ABSENT:
        holder.ClearField(last)
    else:
        setattr(holder, last, _value(known[last], getattr(holder, last), value))


def _child(holder: Any, part: str, path: str) -> Any:
    if part not in holder.DESCRIPTOR.fields_by_name:
        raise BadExchange(f"{holder.DESCRIPTOR.name} has no field {part!r} (in {path!r})")
    return getattr(holder, part)


def _value(known: FieldDescriptor, present: Any, text: str) -> Any:
    if known.type == FieldDescriptor.TYPE_BYTES:
        return bytes(byte ^ 0xFF for byte in present) if text == FLIPPED else text.encode()
    if known.type == FieldDescriptor.TYPE_STRING:
        return text
    if known.type == FieldDescriptor.TYPE_BOOL:
        return text == "True"
    if known.enum_type is not None and not text.lstrip("-").isdecimal():
        return known.enum_type.values_by_name[text].number
    return int(text) + (present if text[0] in "+-" else 0)
