"""Workers that miss wrongly, or not at all. They break DECODE-02, -03 and -04."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import Outcome
from pytest_meshnet.protocol.machines.rules import Rules
from pytest_meshnet.protocol.machines.session import Refused, ServedShard, Session, Unit
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.protocol.tensors import Tensor
from pytest_meshnet.reference.catalogue import mutant

# What should be a miss --------------------------------------------------------------------------


class _LaxLength(Rules):
    """Answers some decode steps that expect another length than a finished prefill left."""

    def lax(self, session: Session, unit: Unit) -> bool:
        raise NotImplementedError

    def check_decode_cache(self, session: Session, unit: Unit) -> None:
        if not (session.held and session.finished and self.lax(session, unit)):
            super().check_decode_cache(session, unit)


@mutant("DECODE-02")
class AnswersOneTooLow(_LaxLength):
    """A decode step that expects fewer tokens than are held is answered."""

    def lax(self, session: Session, unit: Unit) -> bool:
        return unit.expected_past_len < session.held


@mutant("DECODE-02")
class AnswersOneTooHigh(_LaxLength):
    """A decode step that expects more tokens than are held is answered."""

    def lax(self, session: Session, unit: Unit) -> bool:
        return unit.expected_past_len > session.held


@mutant("DECODE-02")
class AnswersAnyLengthInFullForm(_LaxLength):
    """A decode step in its full form is answered whatever length it expects."""

    def lax(self, session: Session, unit: Unit) -> bool:
        return unit.envelope is not None


# How it is told ---------------------------------------------------------------------------------


class _OtherMiss(Worker):
    """Refuses a decode step at another length in another way."""

    def other(self, session: Session, unit: Unit, refused: Refused) -> Refused:
        raise NotImplementedError

    def refuse_unit(self, session: Session, unit: Unit, refused: Refused) -> None:
        missed = refused.code == pb.ERROR_CODE_CACHE_MISS and unit.mode == pb.CACHE_MODE_DECODE
        super().refuse_unit(
            session, unit, self.other(session, unit, refused) if missed else refused
        )


@mutant("DECODE-02")
class MissIsRetryable(_OtherMiss):
    """A miss invites the client to try the same again."""

    def other(self, _session: Session, _unit: Unit, refused: Refused) -> Refused:
        return Refused(refused.code, refused.detail, retryable=True)


@mutant("DECODE-02")
class MissHidesThePosition(_OtherMiss):
    """A miss does not tell the held length."""

    def other(self, _session: Session, _unit: Unit, refused: Refused) -> Refused:
        return Refused(refused.code, refused.detail, actual_past_len=0)


@mutant("DECODE-02")
class MissEchoesTheExpectation(_OtherMiss):
    """A miss tells the expected length as the held one."""

    def other(self, _session: Session, unit: Unit, refused: Refused) -> Refused:
        return Refused(refused.code, refused.detail, actual_past_len=unit.expected_past_len)


@mutant("DECODE-02")
class MissIsCorrupt(_OtherMiss):
    """A decode step at another length is PAYLOAD_CORRUPT."""

    def other(self, _session: Session, _unit: Unit, refused: Refused) -> Refused:
        return Refused(pb.ERROR_CODE_PAYLOAD_CORRUPT, refused.detail)


class _MissWithResult(Worker):
    def guess(self, session: Session, unit: Unit) -> None:
        rows = np.zeros((1, 1, self.served.hidden_size), dtype=np.float32)
        tensor = Tensor.from_float32("hidden_states", rows, self.served.boundary_dtype)
        self.send_result(session, unit, Outcome(None, (tensor,), 0))


@mutant("DECODE-02")
class MissAfterResult(_MissWithResult):
    """A result is sent before the miss is noticed."""

    def refuse_unit(self, session: Session, unit: Unit, refused: Refused) -> None:
        if refused.code == pb.ERROR_CODE_CACHE_MISS:
            self.guess(session, unit)
        super().refuse_unit(session, unit, refused)


@mutant("DECODE-02")
class ResultAfterMiss(_MissWithResult):
    """A result is sent although a miss was reported."""

    def refuse_unit(self, session: Session, unit: Unit, refused: Refused) -> None:
        super().refuse_unit(session, unit, refused)
        if refused.code == pb.ERROR_CODE_CACHE_MISS:
            self.guess(session, unit)


# What it leaves ---------------------------------------------------------------------------------


@mutant("DECODE-03")
class MissDropsTheState(Worker):
    """After a miss nothing is held any more."""

    def refuse_unit(self, session: Session, unit: Unit, refused: Refused) -> None:
        super().refuse_unit(session, unit, refused)
        if refused.code == pb.ERROR_CODE_CACHE_MISS:
            session.drop_state()


@mutant("DECODE-03")
class MissAdvances(Worker):
    """A missed step moves the length all the same."""

    def refuse_unit(self, session: Session, unit: Unit, refused: Refused) -> None:
        super().refuse_unit(session, unit, refused)
        session.held += refused.code == pb.ERROR_CODE_CACHE_MISS


@mutant("DECODE-03")
class MissLeavesItsToken(Worker):
    """The token of a missed step is computed in place of that of the next one."""

    def __init__(self, served: ServedShard) -> None:
        super().__init__(served)
        self.left: dict[str, Unit] = {}

    def refuse_unit(self, session: Session, unit: Unit, refused: Refused) -> None:
        super().refuse_unit(session, unit, refused)
        if refused.code == pb.ERROR_CODE_CACHE_MISS:
            self.left[session.session_id] = unit

    def begin(self, session: Session, unit: Unit) -> None:
        missed = self.left.pop(session.session_id, unit)
        super().begin(session, replace(unit, tensor=missed.tensor, bundle=missed.bundle))


@mutant("DECODE-03")
class MissNeedsFreshPrefill(Worker):
    """After a miss the session answers nothing but a prefill from zero."""

    def refuse_unit(self, session: Session, unit: Unit, refused: Refused) -> None:
        super().refuse_unit(session, unit, refused)
        session.finished = session.finished and refused.code != pb.ERROR_CODE_CACHE_MISS


@mutant("DECODE-03")
class MissEndsTheStream(Worker):
    """A miss is terminal."""

    def refuse_unit(self, session: Session, unit: Unit, refused: Refused) -> None:
        refused.terminal = refused.terminal or refused.code == pb.ERROR_CODE_CACHE_MISS
        super().refuse_unit(session, unit, refused)


# Nothing is held --------------------------------------------------------------------------------


@mutant("DECODE-04")
class DecodesFromNothing(Rules):
    """A decode step expecting 0 begins a session."""

    def check_decode_cache(self, session: Session, unit: Unit) -> None:
        if session.held or unit.expected_past_len:
            super().check_decode_cache(session, unit)


@mutant("DECODE-04")
class EstablishesByDecode(Rules):
    """Where nothing is held, a decode step is answered whatever it expects."""

    def check_decode_cache(self, session: Session, unit: Unit) -> None:
        if session.held:
            super().check_decode_cache(session, unit)


class _OtherEmptyMiss(Rules):
    def empty(self, unit: Unit) -> Refused:
        raise NotImplementedError

    def check_decode_cache(self, session: Session, unit: Unit) -> None:
        if session.held == 0:
            raise self.empty(unit)
        super().check_decode_cache(session, unit)


@mutant("DECODE-04")
class NothingIsInternal(_OtherEmptyMiss):
    """A decode step where nothing is held is a fault, reported as INTERNAL."""

    def empty(self, _unit: Unit) -> Refused:
        return Refused(pb.ERROR_CODE_INTERNAL, "no such session")


@mutant("DECODE-04")
class NothingIsCorrupt(_OtherEmptyMiss):
    """A decode step where nothing is held is PAYLOAD_CORRUPT."""

    def empty(self, _unit: Unit) -> Refused:
        return Refused(pb.ERROR_CODE_PAYLOAD_CORRUPT, "nothing to decode from")


@mutant("DECODE-04")
class NothingEchoesTheExpectation(_OtherEmptyMiss):
    """A decode step where nothing is held is a miss that tells the expected length."""

    def empty(self, unit: Unit) -> Refused:
        position = unit.expected_past_len
        return Refused(pb.ERROR_CODE_CACHE_MISS, "missed", actual_past_len=position)


@mutant("DECODE-04")
class StatelessLeavesState(Worker):
    """Stateless work on an empty session can be continued by a decode step."""

    def apply(self, session: Session, unit: Unit, outcome: Outcome) -> None:
        super().apply(session, unit, outcome)
        if unit.mode == pb.CACHE_MODE_STATELESS and session.held == 0:
            session.held, session.finished = unit.token_count, True
