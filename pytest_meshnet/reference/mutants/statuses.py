"""Workers whose statuses say too much, too little or the wrong thing. They break the group ERR."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.events import Outcome, Received, Work
from pytest_meshnet.protocol.machines.rules import Rules
from pytest_meshnet.protocol.machines.session import Refused, Session, Unit
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.reference.catalogue import ModelWrapper, mutant


class _OtherDetail(Worker):
    """Writes another detail into every status of a unit."""

    def detail(self, refused: Refused) -> str:
        raise NotImplementedError

    def refuse_unit(self, session: Session, unit: Unit, refused: Refused) -> None:
        refused.detail = self.detail(refused)
        super().refuse_unit(session, unit, refused)


@mutant("ERR-01")
class DetailShowsAPath(_OtherDetail):
    """A detail names the source file that refused."""

    def detail(self, refused: Refused) -> str:
        return f"{refused.detail} (/opt/runtime/src/worker.cc)"


@mutant("ERR-01")
class DetailShowsATraceback(_OtherDetail):
    """A detail holds a traceback."""

    def detail(self, refused: Refused) -> str:
        return f"Traceback (most recent call last): ValueError: {refused.detail}"


@mutant("ERR-01")
class DetailShowsAnAddress(_OtherDetail):
    """A detail shows where an object lies in memory."""

    def detail(self, refused: Refused) -> str:
        return f"{refused.detail}: <Unit object at {id(refused):#x}>"


@mutant("ERR-01")
class DetailShowsTheEnvironment(_OtherDetail):
    """A detail shows the value of an environment variable."""

    def detail(self, refused: Refused) -> str:
        longest = max(os.environ.values(), key=len)
        return f"{refused.detail} with {longest}"


@mutant("ERR-01")
class DetailEchoesTheClient(Rules):
    """A detail repeats what the client sent, credentials included."""

    def check_fingerprint(self, offered: pb.Fingerprint) -> None:
        try:
            super().check_fingerprint(offered)
        except Refused as refused:
            refused.detail += f": {offered.model_artifact_digest} {offered.runtime_recipe_digest}"
            raise


@mutant("ERR-01")
class DetailWithoutEnd(_OtherDetail):
    """A detail is longer than 512 characters."""

    def detail(self, refused: Refused) -> str:
        return refused.detail * 600


@mutant("ERR-02")
class UncodedMisses(Worker):
    """A miss leaves the code unspecified."""

    def send_status(self, session: Session, work_id: str, step: int, refused: Refused) -> None:
        if refused.code == pb.ERROR_CODE_CACHE_MISS:
            refused.code = pb.ERROR_CODE_UNSPECIFIED
        super().send_status(session, work_id, step, refused)


@mutant("ERR-02")
class CodesOfItsOwn(Worker):
    """A corrupt payload gets a code that no schema knows."""

    def send_status(self, session: Session, work_id: str, step: int, refused: Refused) -> None:
        if refused.code == pb.ERROR_CODE_PAYLOAD_CORRUPT:
            refused.code = 99
        super().send_status(session, work_id, step, refused)


@mutant("ERR-03")
class MissesAreRetryable(Worker):
    """A miss invites to send the same again."""

    def send_status(self, session: Session, work_id: str, step: int, refused: Refused) -> None:
        refused.retryable = refused.retryable or refused.code == pb.ERROR_CODE_CACHE_MISS
        super().send_status(session, work_id, step, refused)


@mutant("ERR-03")
class RefusedOpensAreRetryable(Worker):
    """An open refused for its schema, identity, range or epoch invites to try again."""

    def refuse_stream(self, event: Received, refused: Refused) -> None:
        refused.retryable = True
        super().refuse_stream(event, refused)


@mutant("ERR-03")
class FullIsForEver(Rules):
    """A refusal for lack of a place says that a retry is of no use."""

    def check_capacity(self, places_held: int) -> None:
        try:
            super().check_capacity(places_held)
        except Refused as refused:
            refused.retryable = False
            raise


@mutant("ERR-04")
class StatusNamesNoWork(Worker):
    """A status about a unit leaves its work id out."""

    def refuse_unit(self, session: Session, unit: Unit, refused: Refused) -> None:
        super().refuse_unit(session, replace(unit, work_id=""), refused)


@mutant("ERR-04")
class StatusNamesAnotherStep(Worker):
    """A status about a unit names the last applied step."""

    def refuse_unit(self, session: Session, unit: Unit, refused: Refused) -> None:
        super().refuse_unit(session, replace(unit, step=max(session.last_step, 0)), refused)


@mutant("ERR-05")
class LogsPayloads(ModelWrapper):
    """The log shows the payload of every unit in hex."""

    def run(self, work: Work) -> Outcome:
        print(*(bytes(one.data).hex() for one in work.tensors), file=sys.stderr)  # noqa: T201
        return super().run(work)


@mutant("ERR-05")
class LogsReasons(Worker):
    """The log shows why a client cancelled, in the client's words."""

    def on_cancel_signal(self, session: Session, signal: pb.CancelSignal) -> None:
        print(f"cancelled: {signal.reason}", file=sys.stderr, flush=True)  # noqa: T201
        super().on_cancel_signal(session, signal)


@mutant("ERR-05")
class LogsItsEnvironment(Worker):
    """The log shows the environment when a unit is refused."""

    def refuse_unit(self, session: Session, unit: Unit, refused: Refused) -> None:
        print(dict(os.environ), file=sys.stderr, flush=True)  # noqa: T201
        super().refuse_unit(session, unit, refused)
