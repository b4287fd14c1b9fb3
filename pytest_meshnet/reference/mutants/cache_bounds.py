"""Workers wrong about the context and about stateless work. KV-08 and KV-09 catch them."""

from __future__ import annotations

from dataclasses import replace

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import Outcome, Start
from pytest_meshnet.protocol.machines.rules import Rules
from pytest_meshnet.protocol.machines.session import Refused, ServedShard, Session, Unit
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.protocol.tensors import Tensor
from pytest_meshnet.reference.catalogue import mutant


@mutant("KV-08")
class NoContextBound(Rules):
    """A state grows beyond the context that was declared."""

    def check_context_length(self, unit: Unit) -> None:
        """Let it grow."""


@mutant("KV-08")
class BoundsChunksOnly(Rules):
    """A decode step grows the state beyond the context."""

    def check_context_length(self, unit: Unit) -> None:
        if unit.mode != pb.CACHE_MODE_DECODE:
            super().check_context_length(unit)


@mutant("KV-08")
class BoundsStepsOnly(Rules):
    """A chunk grows the state beyond the context."""

    def check_context_length(self, unit: Unit) -> None:
        if unit.mode == pb.CACHE_MODE_DECODE:
            super().check_context_length(unit)


@mutant("KV-08")
class CallsFullAMiss(Rules):
    """Growing past the context is refused as a CACHE_MISS."""

    def check_context_length(self, unit: Unit) -> None:
        if unit.expected_past_len + unit.token_count > self.served.max_context:
            raise Refused(pb.ERROR_CODE_CACHE_MISS, "the context is full")


@mutant("KV-08")
class FullDropsTheState(Worker):
    """The refusal of what would grow too far takes the state along."""

    def refuse_unit(self, session: Session, unit: Unit, refused: Refused) -> None:
        if refused.code == pb.ERROR_CODE_RESOURCE_EXHAUSTED:
            session.drop_state()
        super().refuse_unit(session, unit, refused)


@mutant("KV-08")
class FullEndsTheSession(Rules):
    """Growing past the context ends the stream."""

    def check_context_length(self, unit: Unit) -> None:
        try:
            super().check_context_length(unit)
        except Refused as refused:
            raise Refused(refused.code, refused.detail, terminal=True) from None


@mutant("KV-08")
class FullIsFullForEver(Worker):
    """Once refused for want of room, a session is refused whatever it sends."""

    def __init__(self, served: ServedShard) -> None:
        super().__init__(served)
        self.full: set[str] = set()

    def begin(self, session: Session, unit: Unit) -> None:
        if session.session_id in self.full:
            raise Refused(pb.ERROR_CODE_RESOURCE_EXHAUSTED, "the context is full")
        super().begin(session, unit)

    def refuse_unit(self, session: Session, unit: Unit, refused: Refused) -> None:
        if refused.code == pb.ERROR_CODE_RESOURCE_EXHAUSTED:
            self.full.add(session.session_id)
        super().refuse_unit(session, unit, refused)


# Stateless work ----------------------------------------------------------------------------------


class _RefusesStateless(Rules):
    """Refuses stateless work in one situation."""

    def check_cache(self, session: Session, unit: Unit) -> None:
        if unit.mode == pb.CACHE_MODE_STATELESS and self.is_refused(session):
            raise Refused(pb.ERROR_CODE_CACHE_MISS, "the session is not free for stateless work")
        super().check_cache(session, unit)

    def is_refused(self, session: Session) -> bool:
        raise NotImplementedError


@mutant("KV-09")
class NoStatelessFirst(_RefusesStateless):
    """Stateless work needs a session that holds something."""

    def is_refused(self, session: Session) -> bool:
        return not session.held


@mutant("KV-09")
class NoStatelessInMidPrefill(_RefusesStateless):
    """Stateless work is refused between the chunks of a prefill."""

    def is_refused(self, session: Session) -> bool:
        return bool(session.held) and not session.finished


@mutant("KV-09")
class NoStatelessBesideState(_RefusesStateless):
    """Stateless work is refused by a session that has finished a prefill."""

    def is_refused(self, session: Session) -> bool:
        return session.finished


@mutant("KV-09")
class NoStatelessWithAFullContext(_RefusesStateless):
    """Stateless work is refused where the context is filled."""

    def is_refused(self, session: Session) -> bool:
        return session.held >= self.served.max_context


@mutant("KV-09")
class StatelessAttendsToTheState(Worker):
    """Stateless work is computed behind what its session holds."""

    def start(self, session: Session, unit: Unit, tensors: tuple[Tensor, ...]) -> None:
        super().start(session, unit, tensors)
        started = self.effects[-1]
        if unit.mode == pb.CACHE_MODE_STATELESS and isinstance(started, Start):
            work = replace(started.work, mode="prefill", state=session.state)
            self.effects[-1] = Start(work)


@mutant("KV-09")
class StatelessMovesThePosition(Worker):
    """Stateless work leaves the held length longer by its tokens."""

    def apply(self, session: Session, unit: Unit, outcome: Outcome) -> None:
        super().apply(session, unit, outcome)
        if unit.mode == pb.CACHE_MODE_STATELESS and session.held:
            session.held += unit.token_count


@mutant("KV-09")
class StatelessDropsTheState(Worker):
    """Stateless work takes the place of what its session held."""

    def apply(self, session: Session, unit: Unit, outcome: Outcome) -> None:
        super().apply(session, unit, outcome)
        if unit.mode == pb.CACHE_MODE_STATELESS:
            session.drop_state()


@mutant("KV-09")
class StatelessWorkMayGoOn(Rules):
    """Stateless work that is not final is taken all the same, and more of it waited for."""

    def check_phase(self, unit: Unit) -> None:
        stateless = unit.mode == pb.CACHE_MODE_STATELESS
        super().check_phase(replace(unit, final=True) if stateless else unit)
