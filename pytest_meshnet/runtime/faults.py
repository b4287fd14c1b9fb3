"""What a lossy line does to the frames of one stream: decided beforehand, the same every time.

A plan names frames by their number in their direction, so that a failure can be run again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from google.protobuf.message import DecodeError

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb

FaultKind = Literal["drop", "repeat", "swap", "delay", "cut", "flip"]
FAULT_KINDS: tuple[FaultKind, ...] = get_args(FaultKind)

# Bits from which a drawn flip chooses, whatever the payload: taken modulo its length.
_FLIP_BITS = 2**16

FrameType = type[pb.SessionRequest] | type[pb.SessionResponse]


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that happens to frame number `frame` of a direction, counted from 0.

    drop: it never arrives. repeat: it arrives `amount` times more. swap: it changes places with the
    next. delay: it is held back until `amount` others have passed. cut: it arrives and the stream
    is lost behind it. flip: bit number `amount` (modulo their length) of its tensor payloads is
    inverted; a frame without payload passes unchanged.
    """

    kind: FaultKind
    frame: int
    amount: int = 1


@dataclass(frozen=True, slots=True)
class Plan:
    """The faults of one stream, in either direction. The default is a perfect line."""

    requests: tuple[Fault, ...] = ()
    responses: tuple[Fault, ...] = ()

    @classmethod
    def drawn(cls, seed: int, frames: int) -> Plan:
        """Draw one to three faults among the first `frames` frames of each direction.

        The same `seed` gives the same plan, on every machine.
        """
        source = random.Random(seed)
        requests, responses = (
            tuple(_drawn(source, frames) for _ in range(source.randint(least, 3)))
            for least in (1, 0)
        )
        return cls(requests, responses)

    def kinds(self) -> frozenset[FaultKind]:
        """Every kind of fault in the plan, of both directions."""
        return frozenset(fault.kind for fault in (*self.requests, *self.responses))


def _drawn(source: random.Random, frames: int) -> Fault:
    kind = source.choice(FAULT_KINDS)
    amount = source.randrange(_FLIP_BITS) if kind == "flip" else source.randint(1, 3)
    return Fault(kind, source.randrange(frames), amount)


class FaultyLine:
    """One direction of a stream under its faults: a frame in, the frames that come out of it.

    `lost` says that the stream was cut: nothing comes out any more.
    """

    def __init__(self, faults: tuple[Fault, ...], frame_type: FrameType) -> None:
        self.lost = False
        self._faults = faults
        self._frame_type = frame_type
        self._count = 0
        # Frames held back, each with the number of others that are still to pass it.
        self._held: list[tuple[int, bytes]] = []

    def carry(self, frame: bytes) -> list[bytes]:
        """Put a frame on the line. Returns what arrives, in order; empty when nothing does."""
        if self.lost:
            return []
        mine = [fault for fault in self._faults if fault.frame == self._count]
        self._count += 1
        kinds = {fault.kind for fault in mine}
        for fault in mine:
            if fault.kind == "flip":
                frame = flipped(frame, fault.amount, self._frame_type)
        self.lost = "cut" in kinds
        if "drop" in kinds:
            return []
        copies = 1 + sum(fault.amount for fault in mine if fault.kind == "repeat")
        back = max((_others(fault) for fault in mine), default=0)
        if back and not self.lost:
            self._held += [(back, frame)] * copies
            return []
        return [frame] * copies + list(self._due())

    def flush(self) -> list[bytes]:
        """Give up everything held back, because no other frame will come."""
        held = [] if self.lost else [frame for _, frame in self._held]
        self._held = []
        return held

    def _due(self) -> Iterator[bytes]:
        """Let one frame more have passed those held back, and yield the ones it sets free."""
        waiting = [(others - 1, frame) for others, frame in self._held]
        self._held = [(others, frame) for others, frame in waiting if others]
        return (frame for others, frame in waiting if not others)


def _others(fault: Fault) -> int:
    """How many frames must pass the one that this fault holds back; 0 when it holds none."""
    return {"swap": 1, "delay": fault.amount}.get(fault.kind, 0)


def flipped(frame: bytes, bit: int, frame_type: FrameType) -> bytes:
    """Invert one bit of the tensor payloads in a frame, counted over all of them in order.

    The frame comes back as it is when it carries no payload or is no protobuf message.
    """
    try:
        message = frame_type.FromString(frame)
    except DecodeError:
        return frame
    fragments = [
        fragment
        for tensor in _tensors_of(message)
        for fragment in tensor.fragments
        if fragment.payload
    ]
    total = 8 * sum(len(fragment.payload) for fragment in fragments)
    if not total:
        return frame
    bit %= total
    for fragment in fragments:
        if bit < 8 * len(fragment.payload):
            payload = bytearray(fragment.payload)
            payload[bit // 8] ^= 1 << bit % 8
            fragment.payload = bytes(payload)
            break
        bit -= 8 * len(fragment.payload)
    return message.SerializeToString()


def _tensors_of(message: pb.SessionRequest | pb.SessionResponse) -> list[pb.NamedTensor]:
    tensors = list(message.chunk.bundle.tensors)
    if isinstance(message, pb.SessionRequest) and message.HasField("decode"):
        tensors.append(message.decode.tensor)
    return tensors
