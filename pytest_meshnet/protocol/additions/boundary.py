"""The boundary spec: which tensors enter and leave a Shard, told by the Shard itself."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_meshnet.protocol.errors import ProtocolError
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.tensors import DType

_DTYPES = {int(dtype): dtype for dtype in DType}


@dataclass(frozen=True, slots=True)
class BoundaryTensor:
    """A tensor of the boundary: its name, accepted dtypes and the shape behind [1, n].

    `topk_indices` has its largest width there, `topk_origin`, which has no rows, its whole shape.
    `optional` means that it depends on the session whether the tensor is there.
    """

    name: str
    dtypes: tuple[DType, ...]
    trailing: tuple[int, ...]
    optional: bool = False

    @classmethod
    def from_proto(cls, message: pb.BoundaryTensor) -> BoundaryTensor:
        """Read the wire form. Raises ProtocolError without a name or a known dtype."""
        if not message.name:
            raise ProtocolError("boundary", "a boundary tensor without a name")
        dtypes = tuple(_DTYPES[one] for one in message.dtypes if one in _DTYPES)
        if not dtypes:
            raise ProtocolError("boundary", f"{message.name[:64]!r} has no dtype that is known")
        if any(dimension < 1 for dimension in message.trailing_shape):
            raise ProtocolError("boundary", f"{message.name[:64]!r} has a dimension below 1")
        return cls(message.name, dtypes, tuple(message.trailing_shape), message.optional)

    def to_proto(self) -> pb.BoundaryTensor:
        """Write the wire form."""
        return pb.BoundaryTensor(
            name=self.name,
            dtypes=[int(dtype) for dtype in self.dtypes],  # type: ignore[misc]
            trailing_shape=self.trailing,
            optional=self.optional,
        )


@dataclass(frozen=True, slots=True)
class BoundarySpec:
    """Field 15 of a capability report: the boundary of the served range.

    `input_scale` is the standard deviation of hidden states at the input seam; 0 was not told.
    """

    inputs: tuple[BoundaryTensor, ...]
    outputs: tuple[BoundaryTensor, ...]
    hidden_size: int
    vocab_size: int
    input_scale: float = 0.0

    @property
    def is_tail(self) -> bool:
        """Whether logits leave the range."""
        return any(tensor.name == "logits" for tensor in self.outputs)

    def tensor(self, name: str) -> BoundaryTensor | None:
        """The input or output of that name, inputs first."""
        every = (*self.inputs, *self.outputs)
        return next((tensor for tensor in every if tensor.name == name), None)

    @classmethod
    def from_proto(cls, message: pb.BoundarySpec) -> BoundarySpec:
        """Read the wire form.

        Raises ProtocolError for a spec that describes nothing: no input, no output, no size, a
        malformed tensor, a negative or non-finite scale.
        """
        if not message.inputs or not message.outputs:
            raise ProtocolError("boundary", "a boundary spec needs inputs and outputs")
        if not message.hidden_size or not message.vocab_size:
            raise ProtocolError("boundary", "a boundary spec needs hidden_size and vocab_size")
        if not 0 <= message.input_scale < float("inf"):
            raise ProtocolError("boundary", f"input_scale {message.input_scale} is no deviation")
        return cls(
            tuple(map(BoundaryTensor.from_proto, message.inputs)),
            tuple(map(BoundaryTensor.from_proto, message.outputs)),
            message.hidden_size,
            message.vocab_size,
            message.input_scale,
        )

    def to_proto(self) -> pb.BoundarySpec:
        """Write the wire form."""
        return pb.BoundarySpec(
            inputs=[tensor.to_proto() for tensor in self.inputs],
            outputs=[tensor.to_proto() for tensor in self.outputs],
            hidden_size=self.hidden_size,
            vocab_size=self.vocab_size,
            input_scale=self.input_scale,
        )
