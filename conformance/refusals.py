"""Ways to be refused: each breaks one rule on a session of its own and returns its status."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.exchange import Exchange
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.session import Session
from pytest_meshnet.runtime.shard import ShardUnderTest

# Planted where a careless runtime would print it: no detail and no log may show it.
PLANTED = "meshnet-planted-credential-4f1c9a7e"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A status and, where it is about a unit, the exchange of that unit."""

    status: pb.ShardStatus
    exchange: Exchange | None = None


Provoke = Callable[[ShardUnderTest], Refusal]


def _open(edit: Callable[[pb.SessionOpen], None]) -> Provoke:
    def provoke(shard: ShardUnderTest) -> Refusal:
        with shard.unopened() as session:
            message = session.client.open()
            edit(message.open)
            answer = session.try_open(message)
        if isinstance(answer, pb.SessionAccepted):
            raise Nonconformance("the open refused", "accepted")
        return Refusal(answer)

    return provoke


def _stale_open(shard: ShardUnderTest) -> Refusal:
    seam = shard.seam(epoch=5)
    with shard.session(seam):
        pass
    with shard.unopened(replace(seam, epoch=4)) as session:
        answer = session.try_open(session.client.open())
    if isinstance(answer, pb.SessionAccepted):
        raise Nonconformance("the open refused", "accepted")
    return Refusal(answer)


def _unit(make: Callable[[Session, ShardUnderTest], pb.SessionRequest]) -> Provoke:
    def provoke(shard: ShardUnderTest) -> Refusal:
        with shard.session() as session:
            session.prefill(shard.tokens(2))
            exchange = session.send(make(session, shard))
            assert exchange is not None, "a unit was made"
            session.wait_or_end(exchange)
            status = exchange.status or session.client.ended
        if status is None:
            raise Nonconformance("the unit refused", "it was applied")
        return Refusal(status, exchange)

    return provoke


def _spoilt_decode(session: Session, shard: ShardUnderTest) -> pb.SessionRequest:
    message = session.client.decode(shard.tokens(1))
    message.decode.tensor.checksum.value = bytes(4)
    return message


def _renamed(session: Session, shard: ShardUnderTest) -> pb.SessionRequest:
    return session.client.chunk([replace(shard.tokens(1), name=PLANTED)])


def _enveloped(edit: Callable[[pb.Envelope], None]) -> Provoke:
    def make(session: Session, shard: ShardUnderTest) -> pb.SessionRequest:
        message = session.client.chunk([shard.tokens(1)])
        edit(message.chunk.envelope)
        return message

    return _unit(make)


def _set(path: str, value: object) -> Callable[[object], None]:
    def edit(message: object) -> None:
        *parents, name = path.split(".")
        for parent in parents:
            message = getattr(message, parent)
        setattr(message, name, value)

    return edit


OPENS: Mapping[str, Provoke] = {
    "open-schema": _open(_set("schema_version", 0)),
    "open-artifact": _open(_set("fingerprint.model_artifact_digest", f"sha256:{PLANTED}")),
    "open-recipe": _open(_set("fingerprint.runtime_recipe_digest", f"sha256:{PLANTED}")),
    "open-range": _open(_set("shard_range.end_layer", 10_000)),
    "open-session-id": _open(_set("route_session_id", "")),
    "open-epoch": _stale_open,
}

UNITS: Mapping[str, Provoke] = {
    "decode-length": _unit(lambda one, shard: one.client.decode(shard.tokens(1), expected=9)),
    "decode-position": _unit(lambda one, shard: one.client.decode(shard.tokens(1), position=9)),
    "decode-checksum": _unit(_spoilt_decode),
    "chunk-length": _unit(lambda one, shard: one.client.chunk([shard.tokens(1)], expected=9)),
    "chunk-tokens": _unit(lambda one, shard: one.client.chunk([shard.tokens(1)], tokens=2)),
    "chunk-name": _unit(_renamed),
    "chunk-empty": _unit(lambda one, _: one.client.chunk([], tokens=1)),
    "chunk-phase": _enveloped(_set("phase", pb.PHASE_RELEASE)),
    "chunk-session": _enveloped(_set("route_session_id", PLANTED)),
    "deadline": _unit(
        lambda one, shard: one.client.decode(
            shard.tokens(1), deadline=time.time_ns() - 600 * 1_000_000_000
        )
    ),
}

TERMINAL_UNITS: Mapping[str, Provoke] = {
    "chunk-epoch": _enveloped(_set("route_epoch", 0)),
    "chunk-artifact": _enveloped(_set("fingerprint.model_artifact_digest", PLANTED)),
    "chunk-range": _enveloped(_set("shard_range.end_layer", 10_000)),
    "chunk-schema": _enveloped(_set("schema_version", 0)),
}

EVERY = {**OPENS, **UNITS, **TERMINAL_UNITS}
