"""What no 1.0 wire tells about a model: from the descriptor, the boundary spec, or both."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_meshnet.protocol.additions.boundary import BoundarySpec
from pytest_meshnet.protocol.additions.sideband import IndexShare
from pytest_meshnet.protocol.errors import ProtocolError
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.tensors import DType
from pytest_meshnet.runtime.errors import Refusal


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Sizes and boundary of a model. `input_scale` is a standard deviation.

    `layers` counts the layers of the whole model; None where only the Shard's boundary spec is
    known, which tells no more than whether the Shard is the tail. `index_share` has the roles of
    all layers where some share indices.
    """

    layers: int | None
    hidden_size: int
    vocab_size: int
    boundary_dtypes: tuple[DType, ...] = (DType.BFLOAT16,)
    input_scale: float = 1.0
    index_share: IndexShare | None = None


def boundary_of(report: pb.CapabilityReport) -> BoundarySpec | None:
    """The boundary spec of a report, None where there is none. Raises Refusal when malformed."""
    if not report.HasField("boundary"):
        return None
    try:
        return BoundarySpec.from_proto(report.boundary)
    except ProtocolError as error:
        raise Refusal(
            f"the boundary spec of the capability report cannot be used ({error}): correct field "
            "15, or leave it out and describe the model in the descriptor"
        ) from None


def model_of(declared: ModelFacts | None, spec: BoundarySpec | None) -> ModelFacts:
    """What is known of the model: what the descriptor says, or else the Shard's boundary spec.

    Raises Refusal when neither tells, and when they disagree.
    """
    if declared is None and spec is None:
        raise Refusal(
            "nothing tells hidden size and vocabulary: add a [model] table to the descriptor, or "
            "report a boundary spec (FEATURE_BOUNDARY_SPEC)"
        )
    if spec is None:
        assert declared is not None
        return declared
    told = _from_spec(spec)
    if declared is None:
        return told
    for name, ours, theirs in (
        ("hidden_size", declared.hidden_size, told.hidden_size),
        ("vocab_size", declared.vocab_size, told.vocab_size),
    ):
        if ours != theirs:
            raise Refusal(
                f"model.{name} is {ours} in the descriptor and {theirs} in the Shard's boundary "
                "spec: correct the wrong one"
            )
    return declared


def _from_spec(spec: BoundarySpec) -> ModelFacts:
    states = spec.tensor("hidden_states")
    dtypes = states.dtypes if states is not None else (DType.BFLOAT16,)
    return ModelFacts(
        None, spec.hidden_size, spec.vocab_size, dtypes, spec.input_scale or 1.0, None
    )
