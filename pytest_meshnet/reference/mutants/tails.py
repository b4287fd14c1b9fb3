"""Tails that answer in another way than agreed on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from pytest_meshnet.protocol.additions.sampling import SamplingContract
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import Outcome, Work
from pytest_meshnet.protocol.machines.session import Session, Unit
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.reference.catalogue import ModelWrapper, mutant

# Typed result ------------------------------------------------------------------------------------


class _Untyped(Worker):
    """Answers some units with activation tensors."""

    def is_meant(self, unit: Unit) -> bool:
        raise NotImplementedError

    def send_result(self, session: Session, unit: Unit, outcome: Outcome) -> None:
        sampling = session.sampling
        if self.is_meant(unit):
            session.sampling = None
        super().send_result(session, unit, outcome)
        session.sampling = sampling


@mutant("TAIL-01")
class AnswersWithActivations(_Untyped):
    """The logits come as an activation tensor, agreed on or not."""

    def is_meant(self, unit: Unit) -> bool:
        return True


@mutant("TAIL-01")
class PrefillsEndInActivations(_Untyped):
    """Only decode steps have a typed result."""

    def is_meant(self, unit: Unit) -> bool:
        return unit.mode == pb.CACHE_MODE_PREFILL


@mutant("TAIL-01")
class FullFormsEndInActivations(_Untyped):
    """A decode step in its full form is answered as a chunk is."""

    def is_meant(self, unit: Unit) -> bool:
        return unit.mode == pb.CACHE_MODE_DECODE and unit.envelope is not None


@mutant("TAIL-01")
class StatelessEndsInActivations(_Untyped):
    """Stateless work is answered as before."""

    def is_meant(self, unit: Unit) -> bool:
        return unit.mode == pb.CACHE_MODE_STATELESS


@mutant("TAIL-01")
class BundlesEndInActivations(_Untyped):
    """A decode step in a bundle is answered with a bundle."""

    def is_meant(self, unit: Unit) -> bool:
        return unit.envelope is None and unit.bundle is not None


@mutant("TAIL-01")
class ResultsComeTwice(Worker):
    """Token and logits come in a result each."""

    def send_result(self, session: Session, unit: Unit, outcome: Outcome) -> None:
        super().send_result(session, unit, outcome)
        super().send_result(session, unit, outcome)


@mutant("TAIL-01")
class ForgetsResultsOfSteps(Worker):
    """Decode steps are acknowledged and nothing else."""

    def send_result(self, session: Session, unit: Unit, outcome: Outcome) -> None:
        if unit.mode != pb.CACHE_MODE_DECODE:
            super().send_result(session, unit, outcome)


@mutant("TAIL-01")
class EveryChunkHasAResult(ModelWrapper):
    """A chunk that is not the last has a result too."""

    def run(self, work: Work) -> Outcome:
        return super().run(replace(work, final=True))


class OtherResult(Worker):
    """Sends another message than the right result."""

    def other(self, session: Session, result: pb.TailResult) -> None:
        raise NotImplementedError

    def tail_result(
        self, session: Session, unit: Unit, outcome: Outcome, contract: SamplingContract
    ) -> pb.TailResult:
        result = super().tail_result(session, unit, outcome, contract)
        self.other(session, result)
        return result


@mutant("TAIL-01")
class ResultsOfNoWork(OtherResult):
    """A tail result names no work."""

    def other(self, session: Session, result: pb.TailResult) -> None:
        result.work_id = ""


@mutant("TAIL-01")
class ResultsOfTheStepBefore(OtherResult):
    """A tail result has the number of the step before."""

    def other(self, session: Session, result: pb.TailResult) -> None:
        result.idempotency_step -= 1


@mutant("TAIL-01")
class ResultsWithoutToken(OtherResult):
    """The token is left out where logits come along."""

    def other(self, session: Session, result: pb.TailResult) -> None:
        if result.HasField("logits"):
            result.ClearField("token")


@mutant("TAIL-01")
class ResultsWithoutLogits(OtherResult):
    """Logits are left out: the token was chosen from them."""

    def other(self, session: Session, result: pb.TailResult) -> None:
        result.ClearField("logits")


@mutant("TAIL-01")
class HalfOfTheVocabulary(ModelWrapper):
    """Only the first half of the logits is sent, which are the likely ones."""

    def run(self, work: Work) -> Outcome:
        return _with_logits(super().run(work), lambda row: row[: len(row) // 2])


@mutant("TAIL-01")
class TokensBeyondTheVocabulary(OtherResult):
    """Token ids are counted from the size of the vocabulary, behind the special ones."""

    def other(self, session: Session, result: pb.TailResult) -> None:
        if result.HasField("token"):
            result.token.token_id += self.served.vocab_size


@mutant("TAIL-01")
class LogitsOfTheFirstPosition(ModelWrapper):
    """A prefill gives the logits of its first position."""

    def run(self, work: Work) -> Outcome:
        outcome = super().run(work)
        if work.token_count == 1 or not outcome.tensors:
            return outcome
        first = replace(
            work, token_count=1, tensors=(work.tensors[0].rows(0, 1), *work.tensors[1:])
        )
        return replace(outcome, tensors=super().run(first).tensors)


@mutant("TAIL-01")
class DuplicatesAreSampledAnew(Worker):
    """A repeated step brings another token."""

    def answer_duplicate(self, session: Session, unit: Unit) -> None:
        super().answer_duplicate(session, unit)
        if session.sampling is not None:
            row = np.zeros((1, 1, self.served.vocab_size), dtype=np.float32)
            row[0, 0, -1] = 1
            logits = Tensor.from_float32("logits", row, DType.FLOAT32)
            self.send_result(session, unit, Outcome(None, (logits,), 0))


def _with_logits(outcome: Outcome, edit: Callable[[np.ndarray], np.ndarray]) -> Outcome:
    if not outcome.tensors or outcome.tensors[0].name != "logits":
        return outcome
    row = edit(outcome.tensors[0].to_float32().reshape(-1).copy())
    return replace(
        outcome, tensors=(Tensor.from_float32("logits", row[None, None], DType.FLOAT32),)
    )
