"""Tails that sign another contract, or sample otherwise than it says."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np

from pytest_meshnet.protocol.additions.canonical import canonical_digest
from pytest_meshnet.protocol.additions.choice import choose
from pytest_meshnet.protocol.additions.sampling import SampledToken, SamplingContract
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import Outcome
from pytest_meshnet.protocol.machines.rules import Rules
from pytest_meshnet.protocol.machines.session import ServedShard, Session, Unit
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.protocol.tensors import Tensor
from pytest_meshnet.reference.catalogue import mutant
from pytest_meshnet.reference.mutants.tails import OtherResult

# Sampling identity -------------------------------------------------------------------------------


class _OtherDigest(OtherResult):
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
