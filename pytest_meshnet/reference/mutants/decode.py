"""Workers that decode at another place, in another form, or another number of tokens.

They break DECODE-01 and -05 to -08; the other decode mutants are in the modules beside.
"""

from __future__ import annotations

from dataclasses import replace

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import Outcome, Start, Work
from pytest_meshnet.protocol.machines.rules import Rules
from pytest_meshnet.protocol.machines.session import Refused, Session, Unit
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.protocol.tensors import Tensor
from pytest_meshnet.reference.catalogue import ModelWrapper, mutant
from pytest_meshnet.reference.mutants import decode_cache, decode_miss  # noqa: F401

# Advance by one ---------------------------------------------------------------------------------


class _OtherLength(Worker):
    """Holds another length after a decode step."""

    def after(self, unit: Unit) -> int:
        raise NotImplementedError

    def commit(self, session: Session, unit: Unit, outcome: Outcome) -> None:
        super().commit(session, unit, outcome)
        if unit.mode == pb.CACHE_MODE_DECODE:
            session.held = self.after(unit)


@mutant("DECODE-01")
class AdvancesByTwo(_OtherLength):
    """A decode step counts its input and its output."""

    def after(self, unit: Unit) -> int:
        return unit.expected_past_len + 2


@mutant("DECODE-01")
class StandsStill(_OtherLength):
    """A decode step leaves the length where it was."""

    def after(self, unit: Unit) -> int:
        return unit.expected_past_len


@mutant("DECODE-01")
class FullFormStandsStill(_OtherLength):
    """A decode step in its full form leaves the length where it was."""

    def after(self, unit: Unit) -> int:
        return unit.expected_past_len + (unit.envelope is None)


@mutant("DECODE-01")
class AcksTheOldLength(Worker):
    """A decode step is acknowledged with the length before it."""

    def send(self, stream: int, message: pb.SessionResponse) -> None:
        if message.ack.cache_result.mode == pb.CACHE_MODE_DECODE:
            message.ack.cache_result.past_len -= 1
        super().send(stream, message)


# Full form --------------------------------------------------------------------------------------


class _OtherFullForm(Worker):
    """Computes another work for a decode step in its full form."""

    def other(self, work: Work) -> Work:
        raise NotImplementedError

    def start(self, session: Session, unit: Unit, tensors: tuple[Tensor, ...]) -> None:
        super().start(session, unit, tensors)
        if unit.mode == pb.CACHE_MODE_DECODE and unit.envelope is not None:
            effect = self.effects.pop()
            assert isinstance(effect, Start), "a started unit ends in its Start"
            self.effects.append(Start(self.other(effect.work)))


@mutant("DECODE-05")
class FullFormAtNextPosition(_OtherFullForm):
    """The full form of a decode step is computed one position late."""

    def other(self, work: Work) -> Work:
        return replace(work, first_position=work.first_position + 1)


@mutant("DECODE-05")
class FullFormAtPositionZero(_OtherFullForm):
    """The full form of a decode step is computed at position 0."""

    def other(self, work: Work) -> Work:
        return replace(work, first_position=0)


@mutant("DECODE-05")
class FullFormAttendsToItself(_OtherFullForm):
    """The full form of a decode step attends to nothing but itself."""

    def other(self, work: Work) -> Work:
        return replace(work, state=None)


@mutant("DECODE-05")
class FullFormLeavesNoTrace(Worker):
    """A decode step in its full form advances the length and keeps the state without it."""

    def commit(self, session: Session, unit: Unit, outcome: Outcome) -> None:
        if unit.mode == pb.CACHE_MODE_DECODE and unit.envelope is not None:
            outcome = replace(outcome, state=session.state)
        super().commit(session, unit, outcome)


# Prefill equals decode --------------------------------------------------------------------------


@mutant("DECODE-06")
class DecodePositionsAreShifted(ModelWrapper):
    """Decode steps are computed one position late against the prefill."""

    def run(self, work: Work) -> Outcome:
        late = work.mode == "decode"
        return super().run(replace(work, first_position=work.first_position + late))


@mutant("DECODE-06")
class DecodePositionsStandStill(ModelWrapper):
    """Every decode step is computed at position 1."""

    def run(self, work: Work) -> Outcome:
        first = 1 if work.mode == "decode" else work.first_position
        return super().run(replace(work, first_position=first))


@mutant("DECODE-06")
class DecodeAttendsToItself(ModelWrapper):
    """A decode step attends to nothing but itself."""

    def run(self, work: Work) -> Outcome:
        return super().run(replace(work, state=None if work.mode == "decode" else work.state))


@mutant("DECODE-06")
class DecodeSeesThePromptOnly(ModelWrapper):
    """A decode step attends to the prompt and to itself, not to earlier decode steps."""

    def run(self, work: Work) -> Outcome:
        outcome = super().run(work)
        return replace(outcome, state=work.state) if work.mode == "decode" else outcome


# Position and payload ---------------------------------------------------------------------------


@mutant("DECODE-07")
class IgnoresThePosition(Rules):
    """The position of a DecodeStep is not looked at."""

    def check_position(self, unit: Unit) -> None:
        if unit.envelope is not None:
            super().check_position(unit)


@mutant("DECODE-07")
class IgnoresEarlierPositions(Rules):
    """A DecodeStep may name a position before its expected length."""

    def check_position(self, unit: Unit) -> None:
        if unit.position > unit.expected_past_len:
            super().check_position(unit)


@mutant("DECODE-07")
class IgnoresLaterPositions(Rules):
    """A DecodeStep may name a position behind its expected length."""

    def check_position(self, unit: Unit) -> None:
        if unit.position < unit.expected_past_len:
            super().check_position(unit)


@mutant("DECODE-07")
class ThePositionDecides(Worker):
    """The position of a DecodeStep replaces its expected length."""

    def begin(self, session: Session, unit: Unit) -> None:
        if unit.envelope is None:
            unit = replace(unit, expected_past_len=unit.position)
        super().begin(session, unit)


@mutant("DECODE-07")
class OtherPositionIsInternal(Rules):
    """A DecodeStep whose position differs is a fault, reported as INTERNAL."""

    def check_position(self, unit: Unit) -> None:
        if unit.position != unit.expected_past_len:
            raise Refused(pb.ERROR_CODE_INTERNAL, "assertion failed")


@mutant("DECODE-07")
class OtherPositionAdvances(Worker):
    """A DecodeStep whose position differs is refused, and yet moves the length."""

    def refuse_unit(self, session: Session, unit: Unit, refused: Refused) -> None:
        super().refuse_unit(session, unit, refused)
        session.held += unit.position != unit.expected_past_len


class _AnyRows(Rules):
    """Takes decode payloads with some other number of rows."""

    def taken(self, unit: Unit, rows: int) -> bool:
        raise NotImplementedError

    def check_tokens(self, session: Session, unit: Unit) -> None:
        decode_in_full = unit.phase == pb.PHASE_DECODE and unit.envelope is not None
        if not (decode_in_full and self.taken(unit, unit.token_count)):
            super().check_tokens(session, unit)

    def check_rows(self, unit: Unit, tensor: Tensor, trailing: tuple[int, ...]) -> None:
        if not (unit.phase == pb.PHASE_DECODE and self.taken(unit, tensor.shape[1])):
            super().check_rows(unit, tensor, trailing)


@mutant("DECODE-08")
class DecodesManyTokens(_AnyRows):
    """A DecodeStep may carry several tokens, which count as one."""

    def taken(self, unit: Unit, rows: int) -> bool:
        return unit.envelope is None and rows > 1


@mutant("DECODE-08")
class DecodesManyTokensInFullForm(_AnyRows):
    """A decode step in its full form may carry several tokens, all of them computed."""

    def taken(self, unit: Unit, rows: int) -> bool:
        return unit.envelope is not None and rows > 1


@mutant("DECODE-08")
class DecodesNothing(_AnyRows):
    """A decode step may carry no token, which is computed as one of zeros."""

    def taken(self, unit: Unit, rows: int) -> bool:
        return rows == 0

    def read_tensors(self, session: Session, unit: Unit) -> tuple[Tensor, ...]:
        (tensor,) = super().read_tensors(session, unit)
        if tensor.shape[1] == 0:
            one = replace(tensor, shape=(1, 1, *tensor.shape[2:]))
            tensor = replace(one, data=bytes(one.size))
        return (tensor,)


@mutant("DECODE-08")
class ManyTokensAdvance(Worker):
    """A decode step without exactly one token is refused, and yet moves the length."""

    def refuse_unit(self, session: Session, unit: Unit, refused: Refused) -> None:
        super().refuse_unit(session, unit, refused)
        session.held += unit.mode == pb.CACHE_MODE_DECODE


@mutant("DECODE-08")
class ManyTokensAreInternal(Rules):
    """A decode step without exactly one token is a fault, reported as INTERNAL."""

    def check_rows(self, unit: Unit, tensor: Tensor, trailing: tuple[int, ...]) -> None:
        if unit.phase == pb.PHASE_DECODE and tensor.shape[1] != 1:
            raise Refused(pb.ERROR_CODE_INTERNAL, "assertion failed")
        super().check_rows(unit, tensor, trailing)
