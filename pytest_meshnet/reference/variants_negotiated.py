"""Honest workers that use what the additions of 1.1 leave free: form, order, padding, sampler."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np

from pytest_meshnet.protocol.additions.choice import choose
from pytest_meshnet.protocol.additions.sampling import SampledToken, SamplingContract, TailWant
from pytest_meshnet.protocol.additions.sideband import INDICES
from pytest_meshnet.protocol.codec import encode_tensor
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import Outcome, ShardModel, Work
from pytest_meshnet.protocol.machines.rules import Rules
from pytest_meshnet.protocol.machines.session import Refused, ServedShard, Session, Unit
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.reference.catalogue import ModelWrapper, variant

# Tail results ------------------------------------------------------------------------------------


@variant
class LogitsAlways(Worker):
    """Sends the logits along with every token, wanted or not."""

    def tail_result(
        self, session: Session, unit: Unit, outcome: Outcome, contract: SamplingContract
    ) -> pb.TailResult:
        """Add them."""
        result = super().tail_result(session, unit, outcome, contract)
        result.logits.CopyFrom(encode_tensor(outcome.tensors[0]))
        return result


@variant
class TokensOnly(Rules):
    """Gives sampled tokens and refuses whoever wants logits."""

    def settled_sampling(self, message: pb.SessionOpen) -> SamplingContract | None:
        """Refuse the other contracts."""
        contract = super().settled_sampling(message)
        if contract is not None and contract.want is not TailWant.TOKEN:
            raise Refused(pb.ERROR_CODE_PAYLOAD_CORRUPT, "logits are not given", terminal=True)
        return contract


@variant
class LogitsInPieces(Worker):
    """Cuts logits into small fragments, without a checksum."""

    def tail_result(
        self, session: Session, unit: Unit, outcome: Outcome, contract: SamplingContract
    ) -> pb.TailResult:
        """Encode them anew."""
        result = super().tail_result(session, unit, outcome, contract)
        if result.HasField("logits"):
            logits = outcome.tensors[0]
            pieces = encode_tensor(
                logits,
                checksum=pb.CHECKSUM_ALGORITHM_NONE,
                fragment_bytes=logits.size // 50 + 1,
            )
            result.logits.CopyFrom(pieces)
        return result


@variant
class OneGeneratorASession(Worker):
    """Draws from a generator that each session seeds, one draw a token."""

    def __init__(self, served: ServedShard, rules: Rules | None = None) -> None:
        super().__init__(served, rules)
        self._generators: dict[tuple[str, int], random.Random] = {}

    def sample(self, session: Session, logits: Tensor, position: int) -> SampledToken:
        """Choose with the next number of the session's own generator."""
        contract = session.sampling
        if contract is None or contract.temperature == 0:
            return super().sample(session, logits, position)
        key = (session.session_id, session.epoch)
        generator = self._generators.setdefault(key, random.Random(contract.seed))
        return choose(logits, replace(contract, seed=generator.getrandbits(63)), position)

    def end(self, session: Session) -> None:
        """Forget the generator of a session that ended."""
        super().end(session)
        self._generators.pop((session.session_id, session.epoch), None)


@variant
class LogitsRoundDifferently(ModelWrapper):
    """Logits differ in their last bits from run to run, as those of kernels that race do."""

    def __init__(self, model: ShardModel) -> None:
        super().__init__(model)
        self._random = np.random.default_rng(0)

    def run(self, work: Work) -> Outcome:
        """Add what another order of sums would."""
        outcome = super().run(work)
        if not outcome.tensors or outcome.tensors[0].name != "logits":
            return outcome
        row = outcome.tensors[0].to_float32()
        noise = self._random.standard_normal(row.shape, dtype=np.float32) * np.float32(1e-6)
        logits = Tensor.from_float32("logits", row * (1 + noise), DType.FLOAT32)
        return replace(outcome, tensors=(logits,))


# Sidebands ---------------------------------------------------------------------------------------


@variant
class SidebandFirst(Worker):
    """Puts the sideband before the hidden states: tensors have names, and no order."""

    def with_sideband(
        self, session: Session, unit: Unit, tensors: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        """The other way round."""
        return super().with_sideband(session, unit, tensors)[::-1]


class _OtherPicks(ModelWrapper):
    """Gives the same positions in another way."""

    def other(self, picks: np.ndarray, work: Work) -> np.ndarray:
        """The indices [n, k] as they are sent."""
        raise NotImplementedError

    def run(self, work: Work) -> Outcome:
        """Rewrite the indices."""
        outcome = super().run(work)
        tensors = tuple(
            Tensor.from_array(INDICES, self.other(one.to_array()[0], work)[None], DType.INT32)
            if one.name == INDICES
            else one
            for one in outcome.tensors
        )
        return replace(outcome, tensors=tensors)


@variant
class PadsWithMinusOne(_OtherPicks):
    """Fills early rows up with -1 instead of masked positions."""

    def other(self, picks: np.ndarray, work: Work) -> np.ndarray:
        """Mark what is masked."""
        own = work.first_position + np.arange(len(picks))[:, None]
        padded: np.ndarray = np.where(picks > own, -1, picks)
        return padded


@variant
class SortsIndices(_OtherPicks):
    """Sends the positions of a row from the last to the first."""

    def other(self, picks: np.ndarray, work: Work) -> np.ndarray:
        """Any order is the same choice."""
        del work
        ordered: np.ndarray = -np.sort(-picks, axis=1)
        return ordered
