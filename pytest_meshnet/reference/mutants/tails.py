"""Tails that answer in another way than agreed on, sign another contract, or sample otherwise."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from pytest_meshnet.protocol.additions.canonical import canonical_digest
from pytest_meshnet.protocol.additions.choice import choose
from pytest_meshnet.protocol.additions.sampling import SampledToken, SamplingContract
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import Outcome, Work
from pytest_meshnet.protocol.machines.rules import Rules
from pytest_meshnet.protocol.machines.session import ServedShard, Session, Unit
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


class _OtherResult(Worker):
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
class ResultsOfNoWork(_OtherResult):
    """A tail result names no work."""

    def other(self, session: Session, result: pb.TailResult) -> None:
        result.work_id = ""


@mutant("TAIL-01")
class ResultsOfTheStepBefore(_OtherResult):
    """A tail result has the number of the step before."""

    def other(self, session: Session, result: pb.TailResult) -> None:
        result.idempotency_step -= 1


@mutant("TAIL-01")
class ResultsWithoutToken(_OtherResult):
    """The token is left out where logits come along."""

    def other(self, session: Session, result: pb.TailResult) -> None:
        if result.HasField("logits"):
            result.ClearField("token")


@mutant("TAIL-01")
class ResultsWithoutLogits(_OtherResult):
    """Logits are left out: the token was chosen from them."""

    def other(self, session: Session, result: pb.TailResult) -> None:
        result.ClearField("logits")


@mutant("TAIL-01")
class HalfOfTheVocabulary(ModelWrapper):
    """Only the first half of the logits is sent, which are the likely ones."""

    def run(self, work: Work) -> Outcome:
        return _with_logits(super().run(work), lambda row: row[: len(row) // 2])


@mutant("TAIL-01")
class TokensBeyondTheVocabulary(_OtherResult):
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


# Sampling identity -------------------------------------------------------------------------------


class _OtherDigest(_OtherResult):
    """Signs another document."""

    def document(self, contract: SamplingContract) -> object:
        raise NotImplementedError

    def other(self, session: Session, result: pb.TailResult) -> None:
        assert session.sampling is not None, "tail results have a contract"
        result.sampling_digest = canonical_digest(self.document(session.sampling))


class _Ignores(_OtherDigest):
    """Leaves a field at its default when it digests."""

    field = ""

    def document(self, contract: SamplingContract) -> object:
        default = getattr(SamplingContract(), self.field)
        return replace(contract, **{self.field: default}).document()


@mutant("TAIL-02")
class DigestWithoutTemperature(_Ignores):
    """The temperature is not digested."""

    field = "temperature"


@mutant("TAIL-02")
class DigestWithoutTopK(_Ignores):
    """top_k is not digested."""

    field = "top_k"


@mutant("TAIL-02")
class DigestWithoutTopP(_Ignores):
    """top_p is not digested."""

    field = "top_p"


@mutant("TAIL-02")
class DigestWithoutSeed(_Ignores):
    """The seed is not digested."""

    field = "seed"


@mutant("TAIL-02")
class DigestWithoutTemplate(_Ignores):
    """The chat template is not digested."""

    field = "chat_template_digest"


@mutant("TAIL-02")
class DigestWithoutReasoning(_Ignores):
    """The reasoning effort is not digested."""

    field = "reasoning_effort"


@mutant("TAIL-02")
class DigestWithoutWant(_Ignores):
    """What is wanted is not digested."""

    field = "want"


@mutant("TAIL-02")
class DigestOfNumbers(_OtherDigest):
    """Floats are digested as JSON numbers."""

    def document(self, contract: SamplingContract) -> object:
        document = contract.document()
        body = dict(document["body"])  # type: ignore[call-overload]
        body |= {"temperature": contract.temperature, "top_p": contract.top_p}
        return {**document, "body": body}


@mutant("TAIL-02")
class DigestOfFixedDecimals(_OtherDigest):
    """Floats are digested with six decimals."""

    def document(self, contract: SamplingContract) -> object:
        document = contract.document()
        body = dict(document["body"])  # type: ignore[call-overload]
        body["temperature"] = f"{contract.temperature:.6f}"
        return {**document, "body": body}


@mutant("TAIL-02")
class DigestWithoutItsDomain(_OtherDigest):
    """The body alone is digested."""

    def document(self, contract: SamplingContract) -> object:
        return contract.document()["body"]


@mutant("TAIL-02")
class DigestOfWantAsNumber(_OtherDigest):
    """What is wanted is digested as its number."""

    def document(self, contract: SamplingContract) -> object:
        document = contract.document()
        body = dict(document["body"])  # type: ignore[call-overload]
        return {**document, "body": body | {"want": int(contract.want)}}


@mutant("TAIL-02")
class SeedOfThirtyTwoBits(_OtherDigest):
    """Only the lower half of the seed is kept."""

    def document(self, contract: SamplingContract) -> object:
        return replace(contract, seed=contract.seed % 2**32).document()


@mutant("TAIL-02")
class OnlyPrefillsAreSigned(Worker):
    """The digest comes with the first result only."""

    def tail_result(
        self, session: Session, unit: Unit, outcome: Outcome, contract: SamplingContract
    ) -> pb.TailResult:
        result = super().tail_result(session, unit, outcome, contract)
        if unit.mode == pb.CACHE_MODE_DECODE:
            result.sampling_digest = ""
        return result


@mutant("TAIL-02")
class TheFirstContractStays(Worker):
    """Every session is signed with the contract of the first."""

    def __init__(self, served: ServedShard, rules: Rules | None = None) -> None:
        super().__init__(served, rules)
        self.first: str = ""

    def tail_result(
        self, session: Session, unit: Unit, outcome: Outcome, contract: SamplingContract
    ) -> pb.TailResult:
        self.first = self.first or contract.digest()
        result = super().tail_result(session, unit, outcome, contract)
        result.sampling_digest = self.first
        return result


# Greedy ------------------------------------------------------------------------------------------


class _OtherChoice(Worker):
    """Chooses in another way."""

    def row_of(self, logits: Tensor) -> np.ndarray:
        """The logits as a row."""
        return logits.to_float32().reshape(-1)


@mutant("TAIL-03")
class GreedySamples(_OtherChoice):
    """Temperature 0 is taken for 1, the default of many servers."""

    def sample(self, session: Session, logits: Tensor, position: int) -> SampledToken:
        assert session.sampling is not None, "tail results have a contract"
        contract = replace(session.sampling, temperature=session.sampling.temperature or 1.0)
        return choose(logits, contract, position)


@mutant("TAIL-03")
class GreedyTakesTheSecond(_OtherChoice):
    """The second largest logit wins."""

    def sample(self, session: Session, logits: Tensor, position: int) -> SampledToken:
        token = int(np.argsort(-self.row_of(logits), kind="stable")[1])
        return SampledToken(token, -1.0)


@mutant("TAIL-03")
class GreedyRepeatsItself(_OtherChoice):
    """Decode steps repeat the token of the prefill."""

    def __init__(self, served: ServedShard, rules: Rules | None = None) -> None:
        super().__init__(served, rules)
        self.chosen: dict[tuple[str, int], SampledToken] = {}

    def sample(self, session: Session, logits: Tensor, position: int) -> SampledToken:
        token = super().sample(session, logits, position)
        return self.chosen.setdefault((session.session_id, session.epoch), token)


@mutant("TAIL-03")
class GreedyByHalfPrecision(_OtherChoice):
    """The largest of logits that were rounded to four bits."""

    def sample(self, session: Session, logits: Tensor, position: int) -> SampledToken:
        coarse = np.round(self.row_of(logits) * 2) / 2
        return SampledToken(int(coarse.argmax()), -1.0)


@mutant("TAIL-03")
class BoundedGreedySamples(_OtherChoice):
    """At temperature 0 with a bound one of the bounded set is drawn."""

    def sample(self, session: Session, logits: Tensor, position: int) -> SampledToken:
        contract = session.sampling
        if contract is not None and contract.top_k:
            return choose(logits, replace(contract, temperature=1.0, top_p=0.0), position)
        return super().sample(session, logits, position)


@mutant("TAIL-04")
class TheLastOfEqualLogits(_OtherChoice):
    """Among equal logits the highest id is taken."""

    def sample(self, session: Session, logits: Tensor, position: int) -> SampledToken:
        row = self.row_of(logits)
        return SampledToken(int(len(row) - 1 - row[::-1].argmax()), -1.0)


# Seeded ------------------------------------------------------------------------------------------


class _Generator(_OtherChoice):
    """Draws from a generator that it keeps."""

    def __init__(self, served: ServedShard, rules: Rules | None = None) -> None:
        super().__init__(served, rules)
        self.common = random.Random(0)

    def generator(self, session: Session) -> random.Random:
        """The generator of a session."""
        raise NotImplementedError

    def sample(self, session: Session, logits: Tensor, position: int) -> SampledToken:
        contract = session.sampling
        if contract is None or contract.temperature == 0:
            return super().sample(session, logits, position)
        drawn = self.generator(session).getrandbits(63)
        return choose(logits, replace(contract, seed=drawn), position)


@mutant("TAIL-05")
class SamplesWithoutASeed(_Generator):
    """Every draw is the operating system's."""

    def generator(self, session: Session) -> random.Random:
        return random.SystemRandom()


@mutant("TAIL-05")
class OneGeneratorForAll(_Generator):
    """All sessions draw from one generator."""

    def generator(self, session: Session) -> random.Random:
        return self.common


@mutant("TAIL-05")
class OneGeneratorForASeed(_Generator):
    """Sessions with the same seed draw from one generator."""

    def __init__(self, served: ServedShard, rules: Rules | None = None) -> None:
        super().__init__(served, rules)
        self.by_seed: dict[int, random.Random] = {}

    def generator(self, session: Session) -> random.Random:
        assert session.sampling is not None, "tail results have a contract"
        seed = session.sampling.seed
        return self.by_seed.setdefault(seed, random.Random(seed))


@mutant("TAIL-05")
class TheLastOpenSeeds(_Generator):
    """Each open seeds the generator that all sessions draw from."""

    def accept(self, stream: int, message: pb.SessionOpen) -> None:
        super().accept(stream, message)
        self.common = random.Random(message.sampling.seed)

    def generator(self, session: Session) -> random.Random:
        return self.common


@mutant("TAIL-05")
class SeedsByTheSession(_OtherChoice):
    """The name of the session is mixed into the seed."""

    def sample(self, session: Session, logits: Tensor, position: int) -> SampledToken:
        assert session.sampling is not None, "tail results have a contract"
        mixed = canonical_digest([session.session_id, session.sampling.seed])
        return choose(logits, replace(session.sampling, seed=int(mixed[:15], 16)), position)


@mutant("TAIL-05")
class GreedyNeighboursTakeADraw(_Generator):
    """A draw is taken for every token of every session, greedy ones included."""

    def sample(self, session: Session, logits: Tensor, position: int) -> SampledToken:
        self.common.getrandbits(63)
        return super().sample(session, logits, position)

    def generator(self, session: Session) -> random.Random:
        if session.last_step <= 1:
            assert session.sampling is not None, "tail results have a contract"
            self.common = random.Random(session.sampling.seed)
        return self.common
