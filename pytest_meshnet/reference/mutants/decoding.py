"""How a suite mutant bends the decoder: what it sees of a message, and what it makes of it."""

from __future__ import annotations

from collections.abc import Callable

from pytest_meshnet.protocol import codec
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.tensors import Tensor
from pytest_meshnet.reference.mutants.patching import replace


def before_decoding(mend: Callable[[pb.NamedTensor], None]) -> None:
    """Let the decoder see each message as `mend` leaves a copy of it."""
    right = codec._decode

    def decode(message: pb.NamedTensor, max_bytes: int, room: int) -> tuple[Tensor, int]:
        copy = pb.NamedTensor()
        copy.CopyFrom(message)
        mend(copy)
        return right(copy, max_bytes, room)

    replace(codec, "_decode", decode)


def after_decoding(bend: Callable[[Tensor], Tensor]) -> None:
    """Let the decoder return what `bend` makes of each tensor."""
    right = codec._decode

    def decode(message: pb.NamedTensor, max_bytes: int, room: int) -> tuple[Tensor, int]:
        tensor, wire_bytes = right(message, max_bytes, room)
        return bend(tensor), wire_bytes

    replace(codec, "_decode", decode)
