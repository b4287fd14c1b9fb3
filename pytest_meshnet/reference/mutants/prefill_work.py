"""Workers that mistake what a chunk is, or run other layers than its session named.

They break PREFILL-10 and -15.
"""

from __future__ import annotations

from dataclasses import replace

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import Outcome, ShardModel, Work
from pytest_meshnet.protocol.machines.rules import Rules
from pytest_meshnet.protocol.machines.session import Refused, Session, Unit
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.reference.catalogue import ModelWrapper, mutant
from pytest_meshnet.reference.tiny_llama import TinyLlama

# Effective start --------------------------------------------------------------------------------


class _OtherStart(ModelWrapper):
    def __init__(self, model: ShardModel) -> None:
        assert isinstance(model, TinyLlama), "only the built-in model tells its first layer"
        super().__init__(model)
        self.first = model.start

    def start(self, work: Work) -> int:
        raise NotImplementedError

    def run(self, work: Work) -> Outcome:
        return super().run(replace(work, start_layer=self.start(work)))


@mutant("PREFILL-10")
class IgnoresTheEffectiveStart(_OtherStart):
    """Every layer is executed whatever start was asked for."""

    def start(self, work: Work) -> int:
        return self.first


@mutant("PREFILL-10")
class StartsOneLayerEarly(_OtherStart):
    """Execution begins one layer before a later start."""

    def start(self, work: Work) -> int:
        return max(self.first, work.start_layer - 1)


@mutant("PREFILL-10")
class StartsOneLayerLate(_OtherStart):
    """Execution begins one layer after a later start."""

    def start(self, work: Work) -> int:
        return work.start_layer + (work.start_layer > self.first)


@mutant("PREFILL-10")
class KeepsTheFirstStart(_OtherStart):
    """The start of the first session counts for all that follow."""

    kept: int | None = None

    def start(self, work: Work) -> int:
        if self.kept is None:
            self.kept = work.start_layer
        return self.kept


# Phase and cache mode ---------------------------------------------------------------------------


class _LaxPhase(Rules):
    def lax(self, unit: Unit) -> bool:
        raise NotImplementedError

    def check_phase(self, unit: Unit) -> None:
        if not self.lax(unit):
            super().check_phase(unit)


@mutant("PREFILL-15")
class OnlyTheModeCounts(_LaxPhase):
    """The phase of a chunk is not looked at."""

    def lax(self, unit: Unit) -> bool:
        return unit.mode != pb.CACHE_MODE_UNSPECIFIED


@mutant("PREFILL-15")
class NoPhaseMeansPrefill(_LaxPhase):
    """A chunk without a phase is a prefill."""

    def lax(self, unit: Unit) -> bool:
        return (unit.phase, unit.mode) == (pb.PHASE_UNSPECIFIED, pb.CACHE_MODE_PREFILL)


@mutant("PREFILL-15")
class NoPhaseMeansDecode(_LaxPhase):
    """A chunk without a phase may be a decode step."""

    def lax(self, unit: Unit) -> bool:
        return (unit.phase, unit.mode) == (pb.PHASE_UNSPECIFIED, pb.CACHE_MODE_DECODE)


@mutant("PREFILL-15")
class ReleasePhaseIsWork(_LaxPhase):
    """A chunk in phase RELEASE is computed as its mode says."""

    def lax(self, unit: Unit) -> bool:
        return unit.phase == pb.PHASE_RELEASE and unit.mode == pb.CACHE_MODE_PREFILL


@mutant("PREFILL-15")
class CancelPhaseIsWork(_LaxPhase):
    """A chunk in phase CANCEL is computed as its mode says."""

    def lax(self, unit: Unit) -> bool:
        return unit.phase == pb.PHASE_CANCEL and unit.mode == pb.CACHE_MODE_STATELESS


@mutant("PREFILL-15")
class DecodesInPrefillPhase(_LaxPhase):
    """A chunk in phase PREFILL may have mode DECODE."""

    def lax(self, unit: Unit) -> bool:
        return (unit.phase, unit.mode) == (pb.PHASE_PREFILL, pb.CACHE_MODE_DECODE)


@mutant("PREFILL-15")
class PrefillsInDecodePhase(_LaxPhase):
    """A chunk in phase DECODE may have mode PREFILL."""

    def lax(self, unit: Unit) -> bool:
        return (unit.phase, unit.mode) == (pb.PHASE_DECODE, pb.CACHE_MODE_PREFILL)


@mutant("PREFILL-15")
class StatelessInDecodePhase(_LaxPhase):
    """A chunk in phase DECODE may be stateless."""

    def lax(self, unit: Unit) -> bool:
        return (unit.phase, unit.mode) == (pb.PHASE_DECODE, pb.CACHE_MODE_STATELESS)


@mutant("PREFILL-15")
class ContradictionIsInternal(Rules):
    """A chunk whose phase and mode disagree is a fault, reported as INTERNAL."""

    def check_phase(self, unit: Unit) -> None:
        try:
            super().check_phase(unit)
        except Refused as refused:
            raise Refused(pb.ERROR_CODE_INTERNAL, refused.detail) from None


@mutant("PREFILL-15")
class ReleasePhaseReleases(Worker):
    """A chunk in phase RELEASE is refused, and yet releases the state."""

    def refuse_unit(self, session: Session, unit: Unit, refused: Refused) -> None:
        if unit.phase == pb.PHASE_RELEASE:
            session.drop_state()
        super().refuse_unit(session, unit, refused)
