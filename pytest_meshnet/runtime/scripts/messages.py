"""The message that a unit of a script is, with at most one thing wrong in it."""

from __future__ import annotations

from collections.abc import Callable

from pytest_meshnet.protocol.codec import encode_bundle, encode_tensor
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.client import SeamClient
from pytest_meshnet.protocol.tensors import Tensor
from pytest_meshnet.runtime.scripts.model import Message
from pytest_meshnet.runtime.scripts.script import Flaw

LONG_PAST = 1_000_000_000
"""A deadline that has passed for every clock, in nanoseconds."""

Draw = Callable[[int, int, int], Tensor]
"""Gives the inputs of a draw at positions [start, stop)."""

_MODES = {
    "fresh": (pb.CACHE_MODE_PREFILL, pb.PHASE_PREFILL),
    "append": (pb.CACHE_MODE_PREFILL, pb.PHASE_PREFILL),
    "stateless": (pb.CACHE_MODE_STATELESS, pb.PHASE_PREFILL),
    "decode": (pb.CACHE_MODE_DECODE, pb.PHASE_DECODE),
}


def unit_message(client: SeamClient, unit: Message, draw: Draw) -> pb.SessionRequest:
    """Build a unit; the same numbers give the same message again."""
    if unit.kind == "decode" and not unit.full:
        return _compact(client, unit, draw)
    mode, phase = _MODES[unit.kind]
    if unit.flaw == "phase":
        phase = pb.PHASE_PREFILL if phase == pb.PHASE_DECODE else pb.PHASE_DECODE
    tensor = draw(unit.key, unit.expected, unit.expected + unit.tokens)
    bundle = encode_bundle([tensor])
    if unit.flaw == "checksum":
        _spoil(bundle.tensors[0])
    message = client.chunk(
        [tensor],
        final=unit.final,
        mode=mode,
        phase=phase,
        expected=unit.expected,
        first=unit.expected + (unit.flaw == "position"),
        tokens=unit.tokens + (unit.flaw == "length"),
        step=unit.number,
        deadline=_deadline(unit),
        bundle=bundle,
    )
    if unit.flaw in _EDITS:
        _EDITS[unit.flaw](message.chunk.envelope)
    return message


def _compact(client: SeamClient, unit: Message, draw: Draw) -> pb.SessionRequest:
    stop = unit.expected + 1 + (unit.flaw == "length")
    tensor = encode_tensor(draw(unit.key, unit.expected, stop))
    if unit.flaw == "checksum":
        _spoil(tensor)
    return client.decode(
        tensor,
        expected=unit.expected,
        position=unit.expected + (unit.flaw == "position"),
        step=unit.number,
        deadline=_deadline(unit),
    )


def _deadline(unit: Message) -> int:
    return LONG_PAST if unit.flaw == "deadline" else 0


def _spoil(tensor: pb.NamedTensor) -> None:
    tensor.checksum.value = bytes(byte ^ 0xFF for byte in tensor.checksum.value)


def _another_session(envelope: pb.Envelope) -> None:
    envelope.route_session_id += "-another"


def _another_epoch(by: int) -> Callable[[pb.Envelope], None]:
    def edit(envelope: pb.Envelope) -> None:
        envelope.route_epoch += by

    return edit


def _another_fingerprint(envelope: pb.Envelope) -> None:
    envelope.fingerprint.model_artifact_digest += "0"


def _another_range(envelope: pb.Envelope) -> None:
    envelope.shard_range.end_layer += 1


def _no_schema(envelope: pb.Envelope) -> None:
    envelope.schema_version = pb.SCHEMA_VERSION_UNSPECIFIED


_EDITS: dict[Flaw, Callable[[pb.Envelope], None]] = {
    "session": _another_session,
    "newer-epoch": _another_epoch(1),
    "older-epoch": _another_epoch(-1),
    "fingerprint": _another_fingerprint,
    "range": _another_range,
    "schema": _no_schema,
}
