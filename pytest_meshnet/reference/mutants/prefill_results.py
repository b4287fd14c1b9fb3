"""Workers whose results do not repeat their request, or carry another tensor.

They break PREFILL-02, and one of them PREFILL-01: a result of other work belongs to nothing.
"""

from __future__ import annotations

from dataclasses import replace

from pytest_meshnet.protocol.codec import encode_bundle
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import Outcome
from pytest_meshnet.protocol.machines.session import Session, Unit
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.reference.catalogue import mutant

# What a result repeats --------------------------------------------------------------------------


class _ChangedResult(Worker):
    def change(self, envelope: pb.Envelope) -> None:
        raise NotImplementedError

    def send(self, stream: int, message: pb.SessionResponse) -> None:
        if message.HasField("chunk"):
            self.change(message.chunk.envelope)
        super().send(stream, message)


@mutant("PREFILL-01")
class ResultNamesOtherWork(_ChangedResult):
    """The result is named after its session, not after its work."""

    def change(self, envelope: pb.Envelope) -> None:
        envelope.work_id = envelope.route_session_id


@mutant("PREFILL-02")
class ResultWithoutStep(_ChangedResult):
    """The envelope of a result has no step."""

    def change(self, envelope: pb.Envelope) -> None:
        envelope.ClearField("idempotency_step")


@mutant("PREFILL-02")
class ResultWithoutSchema(_ChangedResult):
    """The envelope of a result has no schema version."""

    def change(self, envelope: pb.Envelope) -> None:
        envelope.ClearField("schema_version")


@mutant("PREFILL-02")
class ResultOfOtherSession(_ChangedResult):
    """The envelope of a result names the session by another spelling."""

    def change(self, envelope: pb.Envelope) -> None:
        envelope.route_session_id = envelope.route_session_id.upper()


@mutant("PREFILL-02")
class ResultOfOtherEpoch(_ChangedResult):
    """The envelope of a result carries the epoch in 32 bits."""

    def change(self, envelope: pb.Envelope) -> None:
        envelope.route_epoch %= 2**32


@mutant("PREFILL-02")
class ResultOfFirstEpoch(_ChangedResult):
    """The envelope of a result always names epoch 1."""

    def change(self, envelope: pb.Envelope) -> None:
        envelope.route_epoch = 1


@mutant("PREFILL-02")
class ResultWithoutFingerprint(_ChangedResult):
    """The envelope of a result has no fingerprint."""

    def change(self, envelope: pb.Envelope) -> None:
        envelope.ClearField("fingerprint")


@mutant("PREFILL-02")
class ResultWithoutArtifact(_ChangedResult):
    """The fingerprint of a result has no artifact digest."""

    def change(self, envelope: pb.Envelope) -> None:
        envelope.fingerprint.ClearField("model_artifact_digest")


@mutant("PREFILL-02")
class ResultWithoutRecipe(_ChangedResult):
    """The fingerprint of a result has no recipe digest."""

    def change(self, envelope: pb.Envelope) -> None:
        envelope.fingerprint.ClearField("runtime_recipe_digest")


@mutant("PREFILL-02")
class ResultWithoutRange(_ChangedResult):
    """The envelope of a result has no range."""

    def change(self, envelope: pb.Envelope) -> None:
        envelope.ClearField("shard_range")


@mutant("PREFILL-02")
class ResultOfNextRange(_ChangedResult):
    """The range of a result is that of the Shard it goes to."""

    def change(self, envelope: pb.Envelope) -> None:
        envelope.shard_range.start_layer = envelope.shard_range.end_layer


@mutant("PREFILL-02")
class ResultForgetsEffectiveStart(_ChangedResult):
    """The range of a result begins where the Shard begins, not where execution began."""

    def change(self, envelope: pb.Envelope) -> None:
        envelope.shard_range.effective_start_layer = envelope.shard_range.start_layer


@mutant("PREFILL-02")
class ResultWithoutPosition(_ChangedResult):
    """The envelope of a result has no positions."""

    def change(self, envelope: pb.Envelope) -> None:
        envelope.ClearField("position")


@mutant("PREFILL-02")
class ResultAtNextPosition(_ChangedResult):
    """The position of a result is where the next unit begins."""

    def change(self, envelope: pb.Envelope) -> None:
        envelope.position.first_position += envelope.position.token_count


@mutant("PREFILL-02")
class ResultCountsNoTokens(_ChangedResult):
    """The envelope of a result does not count its tokens."""

    def change(self, envelope: pb.Envelope) -> None:
        envelope.position.ClearField("token_count")


@mutant("PREFILL-02")
class ResultWithoutPhase(_ChangedResult):
    """The envelope of a result has no phase."""

    def change(self, envelope: pb.Envelope) -> None:
        envelope.ClearField("phase")


@mutant("PREFILL-02")
class ResultWithoutExpectation(_ChangedResult):
    """The envelope of a result has no cache expectation."""

    def change(self, envelope: pb.Envelope) -> None:
        envelope.ClearField("cache_expectation")


@mutant("PREFILL-02")
class ResultWithoutChunkInfo(_ChangedResult):
    """The envelope of a result does not say which chunk it is."""

    def change(self, envelope: pb.Envelope) -> None:
        envelope.ClearField("chunk")


@mutant("PREFILL-02")
class BareDecodeResult(Worker):
    """The result of a DecodeStep names work and step and nothing else."""

    def send_result(self, session: Session, unit: Unit, outcome: Outcome) -> None:
        if unit.envelope is not None:
            super().send_result(session, unit, outcome)
            return
        envelope = pb.Envelope(work_id=unit.work_id, idempotency_step=unit.step)
        chunk = pb.ActivationChunk(envelope=envelope, bundle=encode_bundle(outcome.tensors))
        self.send(session.stream, pb.SessionResponse(chunk=chunk))


# What a result carries --------------------------------------------------------------------------


class _ChangedTensor(Worker):
    def changed(self, tensor: Tensor) -> Tensor:
        raise NotImplementedError

    def encode_result(self, session: Session, outcome: Outcome) -> pb.TensorBundle:
        tensors = tuple(map(self.changed, outcome.tensors))
        return super().encode_result(session, replace(outcome, tensors=tensors))


@mutant("PREFILL-02")
class ResultUnderOtherName(_ChangedTensor):
    """The boundary tensor is called hidden."""

    def changed(self, tensor: Tensor) -> Tensor:
        return replace(tensor, name="hidden")


@mutant("PREFILL-02")
class ResultInOtherDtype(_ChangedTensor):
    """The boundary tensor comes in float32, which was not declared."""

    def changed(self, tensor: Tensor) -> Tensor:
        return Tensor.from_float32(tensor.name, tensor.to_float32(), DType.FLOAT32)


@mutant("PREFILL-02")
class ResultWithoutBatch(_ChangedTensor):
    """The boundary tensor is [n, hidden]."""

    def changed(self, tensor: Tensor) -> Tensor:
        return replace(tensor, shape=tensor.shape[1:])


@mutant("PREFILL-02")
class ResultBatchBehindTokens(_ChangedTensor):
    """The boundary tensor is [n, 1, hidden]."""

    def changed(self, tensor: Tensor) -> Tensor:
        return replace(tensor, shape=(tensor.shape[1], 1, tensor.shape[2]))


@mutant("PREFILL-02")
class ResultOfLastRow(_ChangedTensor):
    """The boundary tensor has the last row only, as on a tail."""

    def changed(self, tensor: Tensor) -> Tensor:
        return tensor.rows(tensor.shape[1] - 1, tensor.shape[1])


@mutant("PREFILL-02")
class ResultIsNarrower(_ChangedTensor):
    """The boundary tensor lacks the last column."""

    def changed(self, tensor: Tensor) -> Tensor:
        return Tensor.from_float32(tensor.name, tensor.to_float32()[..., :-1], tensor.dtype)
