"""Workers that cut, count or place chunks wrongly. They break PREFILL-04, -05, -06 and -08."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import Outcome, ShardModel, Work
from pytest_meshnet.protocol.machines.rules import Rules
from pytest_meshnet.protocol.machines.session import Refused, ServedShard, Session, Unit
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.protocol.tensors import Tensor
from pytest_meshnet.reference.catalogue import ModelWrapper, mutant
from pytest_meshnet.reference.mutants.decode_miss import MissDropsTheState
from pytest_meshnet.reference.seeded_weights import Float32Array
from pytest_meshnet.reference.tiny_llama import TinyLlama

# Chunking shows ---------------------------------------------------------------------------------


@mutant("PREFILL-04")
class PositionsRestart(ModelWrapper):
    """Positions begin at zero in every chunk."""

    def run(self, work: Work) -> Outcome:
        first = work.first_position if work.mode == "decode" else 0
        return super().run(replace(work, first_position=first))


@mutant("PREFILL-04")
class PositionsSkipOne(ModelWrapper):
    """A continuing chunk begins one position late."""

    def run(self, work: Work) -> Outcome:
        late = work.mode == "prefill" and work.first_position > 0
        return super().run(replace(work, first_position=work.first_position + late))


@mutant("PREFILL-04")
class ForgetsEarlierChunks(ModelWrapper):
    """Every chunk replaces the state that earlier ones left."""

    def run(self, work: Work) -> Outcome:
        return super().run(replace(work, state=work.state if work.mode == "decode" else None))


@mutant("PREFILL-04")
class SwapsRows(ModelWrapper):
    """The first and the last row of a chunk change places."""

    def run(self, work: Work) -> Outcome:
        rows = work.tensors[0].to_array().copy()
        rows[:, [0, -1]] = rows[:, [-1, 0]]
        old = work.tensors[0]
        encode = Tensor.from_float32 if old.dtype.is_float else Tensor.from_array
        return super().run(replace(work, tensors=(encode(old.name, rows, old.dtype),)))  # type: ignore[arg-type]


class _SeesAhead(TinyLlama):
    def attended(
        self, queries: Float32Array, keys: Float32Array, values: Float32Array
    ) -> Float32Array:
        one_by_one = [super(_SeesAhead, self).attended(one[None], keys, values) for one in queries]
        return np.concatenate(one_by_one)


@mutant("PREFILL-04")
class SeesTheWholeChunk(ModelWrapper):
    """A token attends to the later ones of its chunk: there is no causal mask."""

    def __init__(self, model: ShardModel) -> None:
        assert isinstance(model, TinyLlama), "this mutant is a change of the built-in model"
        super().__init__(_SeesAhead(model.config, model.start, model.end, model.boundary_dtype))


# Token bound ------------------------------------------------------------------------------------


class _AnyLength(Rules):
    def check_tokens(self, session: Session, unit: Unit) -> None:
        if unit.token_count <= session.limits.prefill_tokens:
            super().check_tokens(session, unit)


@mutant("PREFILL-05")
class TakesChunksOfAnyLength(_AnyLength):
    """The settled token bound is not enforced."""


@mutant("PREFILL-05")
class KnowsOnlyItsOwnTokenBound(Rules):
    """A chunk is held against the worker's own token bound, not against the settled one."""

    def check_tokens(self, session: Session, unit: Unit) -> None:
        own = replace(session.limits, prefill_tokens=self.served.limits.prefill_tokens)
        super().check_tokens(replace(session, limits=own), unit)


@mutant("PREFILL-05")
class KnowsOnlyTheProposedTokenBound(_AnyLength):
    """A token bound is enforced only where the client proposed a lower one."""

    def check_tokens(self, session: Session, unit: Unit) -> None:
        if session.limits.prefill_tokens < self.served.limits.prefill_tokens:
            Rules.check_tokens(self, session, unit)


@mutant("PREFILL-05")
class OneTokenOverIsFine(Rules):
    """A chunk that continues may have one token more than was settled."""

    def check_tokens(self, session: Session, unit: Unit) -> None:
        slack = int(unit.expected_past_len > 0)
        more = replace(session.limits, prefill_tokens=session.limits.prefill_tokens + slack)
        super().check_tokens(replace(session, limits=more), unit)


@mutant("PREFILL-05")
class CutsLongChunks(Worker):
    """Of a chunk that is too long the first tokens are computed and acknowledged."""

    def __init__(self, served: ServedShard) -> None:
        super().__init__(served, _AnyLength(served))

    def start(self, session: Session, unit: Unit, tensors: tuple[Tensor, ...]) -> None:
        count = min(unit.token_count, session.limits.prefill_tokens)
        super().start(session, replace(unit, token_count=count), (tensors[0].rows(0, count),))


class _Recoded(Rules):
    """Refuses with `code` what the rule refuses."""

    code: int = pb.ERROR_CODE_INTERNAL

    def again(self, refused: Refused) -> Refused:
        return Refused(self.code, refused.detail, actual_past_len=refused.actual_past_len)


@mutant("PREFILL-05")
class LongChunkMisses(_Recoded):
    """A chunk that is too long is refused as CACHE_MISS."""

    code = pb.ERROR_CODE_CACHE_MISS

    def check_tokens(self, session: Session, unit: Unit) -> None:
        try:
            super().check_tokens(session, unit)
        except Refused as refused:
            raise self.again(refused) from None


@mutant("PREFILL-05")
class CountsWhatItRefused(Worker):
    """A chunk that is too long is refused, and yet moves the position."""

    def refuse_unit(self, session: Session, unit: Unit, refused: Refused) -> None:
        if refused.code == pb.ERROR_CODE_FLOW_CONTROL_VIOLATION:
            session.held = unit.expected_past_len + unit.token_count
        super().refuse_unit(session, unit, refused)


# Gaps -------------------------------------------------------------------------------------------


@mutant("PREFILL-06")
class AcceptsGaps(Rules):
    """A chunk may begin behind what is held."""

    def check_prefill_cache(self, session: Session, unit: Unit) -> None:
        if not 0 < session.held < unit.expected_past_len:
            super().check_prefill_cache(session, unit)


@mutant("PREFILL-06")
class AcceptsOverlaps(Rules):
    """A chunk may begin before the end of what is held."""

    def check_prefill_cache(self, session: Session, unit: Unit) -> None:
        if not 0 < unit.expected_past_len < session.held:
            super().check_prefill_cache(session, unit)


@mutant("PREFILL-06")
class ContinuesNothing(Rules):
    """The first chunk of a session may expect any length."""

    def check_prefill_cache(self, session: Session, unit: Unit) -> None:
        if session.held:
            super().check_prefill_cache(session, unit)


@mutant("PREFILL-06")
class AppendsAnywhere(Rules):
    """After a finished prefill the next may expect any length."""

    def check_prefill_cache(self, session: Session, unit: Unit) -> None:
        if not session.finished:
            super().check_prefill_cache(session, unit)


class _OtherMiss(_Recoded):
    code = pb.ERROR_CODE_CACHE_MISS

    def position(self, session: Session, _unit: Unit) -> int:
        return session.held

    def check_prefill_cache(self, session: Session, unit: Unit) -> None:
        try:
            super().check_prefill_cache(session, unit)
        except Refused as refused:
            refused.actual_past_len = self.position(session, unit)
            raise self.again(refused) from None


@mutant("PREFILL-06")
class GapIsCorrupt(_OtherMiss):
    """A gap is PAYLOAD_CORRUPT."""

    code = pb.ERROR_CODE_PAYLOAD_CORRUPT


@mutant("PREFILL-06")
class GapHidesThePosition(_OtherMiss):
    """A gap is a miss that always reports position 0."""

    def position(self, _session: Session, _unit: Unit) -> int:
        return 0


@mutant("PREFILL-06")
class GapEchoesTheExpectation(_OtherMiss):
    """A gap is a miss that reports the expected position."""

    def position(self, _session: Session, unit: Unit) -> int:
        return unit.expected_past_len


@mutant("PREFILL-06")
class GapDropsTheState(MissDropsTheState):
    """A gap is a miss after which nothing is held."""


# Token count ------------------------------------------------------------------------------------


@mutant("PREFILL-08")
class BelievesTheCount(Rules):
    """The rows of the tensor are not counted; the position follows token_count."""

    def check_rows(self, unit: Unit, tensor: Tensor, trailing: tuple[int, ...]) -> None:
        pass


class _BelievesTheTensor(Worker):
    def overlooked(self, claimed: int, rows: int) -> bool:
        raise NotImplementedError

    def begin(self, session: Session, unit: Unit) -> None:
        if unit.bundle is not None and unit.bundle.tensors:
            rows = unit.bundle.tensors[0].shape[1]
            if self.overlooked(unit.token_count, rows):
                unit = replace(unit, token_count=rows)
        super().begin(session, unit)


@mutant("PREFILL-08")
class ZeroTokensMeansUncounted(_BelievesTheTensor):
    """A token_count of 0 is replaced by the rows of the tensor."""

    def overlooked(self, claimed: int, _rows: int) -> bool:
        return claimed == 0


@mutant("PREFILL-08")
class IgnoresTheExcess(_BelievesTheTensor):
    """A token_count above the rows of the tensor is overlooked, as if the rest were padding."""

    def overlooked(self, claimed: int, rows: int) -> bool:
        return claimed > rows


@mutant("PREFILL-08")
class IgnoresTheLack(_BelievesTheTensor):
    """A token_count below the rows of the tensor is overlooked in a chunk that continues."""

    def overlooked(self, claimed: int, rows: int) -> bool:
        return 0 < claimed < rows


@mutant("PREFILL-08")
class WrongCountIsInternal(_Recoded):
    """A wrong token_count ends in a fault, reported as INTERNAL."""

    def check_rows(self, unit: Unit, tensor: Tensor, trailing: tuple[int, ...]) -> None:
        try:
            super().check_rows(unit, tensor, trailing)
        except Refused as refused:
            raise self.again(refused) from None


@mutant("PREFILL-08")
class WrongCountAdvances(Worker):
    """A wrong token_count is refused after the position has moved."""

    def refuse_unit(self, session: Session, unit: Unit, refused: Refused) -> None:
        if refused.code == pb.ERROR_CODE_PAYLOAD_CORRUPT:
            session.held += unit.token_count or 1
        super().refuse_unit(session, unit, refused)
