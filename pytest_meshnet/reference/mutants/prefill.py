"""Workers that keep, drop or finish the state of a prefill wrongly.

They break PREFILL-07, -11 to -14 and -16; the other prefill mutants are in the modules beside.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import Outcome, ShardModel, Work
from pytest_meshnet.protocol.machines.rules import Rules
from pytest_meshnet.protocol.machines.session import Refused, Session, Unit
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.protocol.tensors import Tensor
from pytest_meshnet.reference.catalogue import ModelWrapper, mutant
from pytest_meshnet.reference.mutants import (  # noqa: F401
    prefill_answers,
    prefill_chunks,
    prefill_envelope,
    prefill_results,
    prefill_work,
)
from pytest_meshnet.reference.seeded_weights import Float32Array

# Fresh starts -----------------------------------------------------------------------------------


@mutant("PREFILL-07")
class FreshPrefillKeepsState(Worker):
    """A prefill expecting 0 counts from zero and still attends to what was held."""

    def state_for(self, session: Session, unit: Unit) -> object | None:
        return session.state if unit.mode != pb.CACHE_MODE_STATELESS else None


@mutant("PREFILL-07")
class FreshPrefillAppends(Worker):
    """A prefill expecting 0 is appended to what is held."""

    def begin(self, session: Session, unit: Unit) -> None:
        if unit.mode == pb.CACHE_MODE_PREFILL and unit.expected_past_len == 0:
            unit = replace(unit, expected_past_len=session.held, position=session.held)
        super().begin(session, unit)


@mutant("PREFILL-07")
class FreshPrefillMisses(Rules):
    """A prefill expecting 0 is refused while state is held."""

    def check_prefill_cache(self, session: Session, unit: Unit) -> None:
        if unit.expected_past_len != session.held:
            raise self.cache_miss(session, "state is held")


@mutant("PREFILL-07")
class FreshPrefillMissesAmidAnother(Rules):
    """A prefill expecting 0 is refused amid another one."""

    def check_prefill_cache(self, session: Session, unit: Unit) -> None:
        if unit.expected_past_len == 0 and session.held and not session.finished:
            raise self.cache_miss(session, "a prefill is under way")
        super().check_prefill_cache(session, unit)


@mutant("PREFILL-07")
class FreshPrefillNeverShortens(Worker):
    """A prefill expecting 0 keeps the longer length where more was held."""

    def commit(self, session: Session, unit: Unit, outcome: Outcome) -> None:
        before = session.held if unit.mode == pb.CACHE_MODE_PREFILL else 0
        super().commit(session, unit, outcome)
        session.held = max(before, session.held)


# Unfinished prefills ----------------------------------------------------------------------------


class _Unfinished(Rules):
    """Answers some decode steps while a prefill is unfinished."""

    def answered(self, session: Session, unit: Unit) -> bool:
        raise NotImplementedError

    def check_decode_cache(self, session: Session, unit: Unit) -> None:
        if session.held == 0 or session.finished or not self.answered(session, unit):
            super().check_decode_cache(session, unit)


@mutant("PREFILL-11")
class UnfinishedAnswersBeyond(_Unfinished):
    """Amid a prefill a decode step at its planned length is answered."""

    def answered(self, session: Session, unit: Unit) -> bool:
        return unit.expected_past_len > session.held


@mutant("PREFILL-11")
class UnfinishedAnswersWithin(_Unfinished):
    """Amid a prefill a decode step at a shorter length is answered."""

    def answered(self, session: Session, unit: Unit) -> bool:
        return unit.expected_past_len < session.held


@mutant("PREFILL-11")
class UnfinishedIsNoMiss(Rules):
    """Amid a prefill a decode step at another length is RESOURCE_EXHAUSTED."""

    def check_decode_cache(self, session: Session, unit: Unit) -> None:
        if session.held and not session.finished:
            raise Refused(pb.ERROR_CODE_RESOURCE_EXHAUSTED, "not ready", retryable=True)
        super().check_decode_cache(session, unit)


@mutant("PREFILL-11")
class UnfinishedIsDropped(Worker):
    """Amid a prefill a decode step at another length is a miss that ends the prefill."""

    def refuse_unit(self, session: Session, unit: Unit, refused: Refused) -> None:
        super().refuse_unit(session, unit, refused)
        if unit.mode == pb.CACHE_MODE_DECODE and not session.finished:
            session.drop_state()


@mutant("PREFILL-12")
class UnfinishedAnswers(_Unfinished):
    """Amid a prefill a decode step of matching length is answered."""

    def answered(self, session: Session, unit: Unit) -> bool:
        return unit.expected_past_len == session.held


@mutant("PREFILL-12")
class UnfinishedAnswersFullForm(_Unfinished):
    """Amid a prefill a decode step of matching length is answered in its full form."""

    def answered(self, session: Session, unit: Unit) -> bool:
        return unit.expected_past_len == session.held and unit.envelope is not None


@mutant("PREFILL-12")
class UnfinishedIsCorrupt(Rules):
    """Amid a prefill a decode step of matching length is PAYLOAD_CORRUPT."""

    def check_decode_cache(self, session: Session, unit: Unit) -> None:
        if not session.finished and unit.expected_past_len == session.held > 0:
            raise Refused(pb.ERROR_CODE_PAYLOAD_CORRUPT, "the prefill has not ended")
        super().check_decode_cache(session, unit)


# The same again ---------------------------------------------------------------------------------


class _ChangedRows(ModelWrapper):
    """Changes the rows [1, n, width] of every result."""

    def changed(self, rows: Float32Array, work: Work) -> Float32Array:
        raise NotImplementedError

    def run(self, work: Work) -> Outcome:
        outcome = super().run(work)
        tensors = tuple(
            Tensor.from_float32(one.name, self.changed(one.to_float32(), work), one.dtype)
            for one in outcome.tensors
        )
        return replace(outcome, tensors=tensors)


@mutant("PREFILL-13")
class NoisyResults(_ChangedRows):
    """Every result carries noise of a tenth of the input scale."""

    def __init__(self, model: ShardModel) -> None:
        super().__init__(model)
        self.noise = np.random.default_rng(0)

    def changed(self, rows: Float32Array, work: Work) -> Float32Array:
        noise = self.noise.standard_normal(rows.shape, dtype=np.float32)
        return rows + np.float32(0.1) * noise


@mutant("PREFILL-13")
class ContinuesTheFormerSession(ModelWrapper):
    """A new session begins with the state that the former one left."""

    state: object | None = None

    def run(self, work: Work) -> Outcome:
        if work.state is None and work.mode == "prefill":
            work = replace(work, state=self.state)
        outcome = super().run(work)
        self.state = outcome.state
        return outcome


@mutant("PREFILL-13")
class GrowsTired(_ChangedRows):
    """Results shrink by five percent with every unit that was computed."""

    strength = 1.0

    def changed(self, rows: Float32Array, work: Work) -> Float32Array:
        self.strength *= 0.95
        return rows * np.float32(self.strength)


# Not finite -------------------------------------------------------------------------------------


@mutant("PREFILL-14")
class Overflows(_ChangedRows):
    """Results above 2 are infinite, as above 65504 in float16."""

    def changed(self, rows: Float32Array, work: Work) -> Float32Array:
        return np.where(rows > 2, np.float32(np.inf), rows)


@mutant("PREFILL-14")
class DecodesNan(_ChangedRows):
    """The first value of every decode result is not a number."""

    def changed(self, rows: Float32Array, work: Work) -> Float32Array:
        if work.mode == "decode":
            rows[..., 0] = np.nan
        return rows


class _Contagious(_ChangedRows):
    """Once an input is not finite, the results of some sessions are not either."""

    def __init__(self, model: ShardModel) -> None:
        super().__init__(model)
        self.before: set[str] = set()
        self.after: set[str] = set()
        self.broke_out = False

    def run(self, work: Work) -> Outcome:
        new = work.session not in self.before
        (self.after if self.broke_out and new else self.before).add(work.session)
        finite = np.isfinite(work.tensors[0].to_float32()).all()
        self.broke_out = self.broke_out or not finite
        return super().run(work)

    def sick(self) -> set[str]:
        raise NotImplementedError

    def changed(self, rows: Float32Array, work: Work) -> Float32Array:
        sick = self.broke_out and work.session in self.sick()
        return rows * np.float32(np.nan) if sick else rows


@mutant("PREFILL-14")
class PoisonReachesNeighbours(_Contagious):
    """A non-finite input spoils every session that was there before it."""

    def sick(self) -> set[str]:
        return self.before


@mutant("PREFILL-14")
class PoisonStays(_Contagious):
    """A non-finite input spoils every session that comes after it."""

    def sick(self) -> set[str]:
        return self.after


@mutant("PREFILL-14")
class NotFiniteIsInternal(Rules):
    """A non-finite input is a fault, reported as INTERNAL."""

    def read_tensors(self, session: Session, unit: Unit) -> tuple[Tensor, ...]:
        tensors = super().read_tensors(session, unit)
        if not all(np.isfinite(one.to_float32()).all() for one in tensors):
            raise Refused(pb.ERROR_CODE_INTERNAL, "assertion failed")
        return tensors


# Appends ----------------------------------------------------------------------------------------


@mutant("PREFILL-16")
class NoAppend(Rules):
    """A finished prefill takes no more chunks."""

    def check_prefill_cache(self, session: Session, unit: Unit) -> None:
        if session.finished and unit.expected_past_len > 0:
            raise self.cache_miss(session, "the prefill has ended")
        super().check_prefill_cache(session, unit)


@mutant("PREFILL-16")
class AppendForgets(Worker):
    """A prefill after a finished one is counted from the held length and attends to nothing."""

    def state_for(self, session: Session, unit: Unit) -> object | None:
        appended = unit.mode == pb.CACHE_MODE_PREFILL and session.finished
        return None if appended else super().state_for(session, unit)


@mutant("PREFILL-16")
class AppendCountsFromZero(Worker):
    """A prefill after a finished one leaves only its own length."""

    def commit(self, session: Session, unit: Unit, outcome: Outcome) -> None:
        appended = unit.mode == pb.CACHE_MODE_PREFILL and session.finished
        super().commit(session, unit, outcome)
        if appended:
            session.held = unit.token_count


@mutant("PREFILL-16")
class AppendStaysFinished(Worker):
    """A prefill that was finished once stays finished, also amid an append."""

    def commit(self, session: Session, unit: Unit, outcome: Outcome) -> None:
        finished = session.finished and unit.expected_past_len > 0
        super().commit(session, unit, outcome)
        session.finished = session.finished or finished
