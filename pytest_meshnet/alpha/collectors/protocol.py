"""What is measured through the protocol: refused handshakes, fenced epochs, replayed steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_meshnet.alpha.collectors.claims import Claims, claims
from pytest_meshnet.alpha.criteria.semantics import KINDS
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.opening import edited_session, try_edited

if TYPE_CHECKING:
    from pytest_meshnet.identity.node import Identity
    from pytest_meshnet.protocol.machines.exchange import Exchange
    from pytest_meshnet.runtime.shard import ShardUnderTest

BY = "the protocol"
_OTHER = "another"


def handshakes(shard: ShardUnderTest, identity: Identity) -> Mapping[str, Claims]:
    """Try an open with each kind of mismatch, and count what was refused.

    `identity` is what the Shard serves. Raises Nonconformance when the Shard's own fingerprint is
    not the one that this identity derives, or is refused: then no axis can be told from another.
    """
    served = identity.fingerprint().to_proto()
    told = shard.report.fingerprint
    for name in ("model_artifact_digest", "runtime_recipe_digest"):
        if getattr(told, name) != getattr(served, name):
            raise Nonconformance(
                f"{name} {getattr(served, name)}, which the identity derives",
                f"{name} {getattr(told, name)}",
                "declare the identity that the Shard serves",
            )
    with edited_session(shard, lambda opening: opening.fingerprint.CopyFrom(served)):
        pass
    return {kind: _tried(shard, other) for kind, other in mismatches(identity)}


def mismatches(identity: Identity) -> Iterator[tuple[str, pb.Fingerprint]]:
    """The fingerprint of the same Shard with one axis changed, for every kind."""
    artifact, recipe = identity.artifact, identity.recipe
    changed: dict[str, Any] = {
        "artifact": replace(artifact, content_digest="0" * 64, derived_from=None),
        "tokenizer": replace(recipe, tokenizer_revision="0" * 40),
        "adapter": replace(recipe, architecture_adapter=_OTHER),
        "dsa-metadata": replace(artifact, architecture_digest="0" * 64),
        "boundary": replace(recipe, boundary_schema_version=recipe.boundary_schema_version + 1),
        "activation": replace(recipe, activation_dtype=_OTHER),
        "kv": replace(recipe, kv_dtype=_OTHER),
        "backend-class": replace(recipe, backend_id=_OTHER),
        "patch": replace(recipe, runtime_version=_OTHER),
    }
    for kind in KINDS:
        part = changed[kind]
        field = "artifact" if type(part) is type(artifact) else "recipe"
        other = replace(identity, **{field: part}, claim=None)
        yield kind, other.fingerprint().to_proto()


def _tried(shard: ShardUnderTest, fingerprint: pb.Fingerprint) -> Claims:
    answer = try_edited(shard, lambda opening: opening.fingerprint.CopyFrom(fingerprint))
    return claims(
        BY, {"tried": 1, "refused": int(_refused(answer, pb.ERROR_CODE_FINGERPRINT_MISMATCH))}
    )


def _refused(answer: pb.SessionAccepted | pb.ShardStatus, code: int) -> bool:
    """Whether it was refused for what it is: a crash or a lack of room is no refusal of it."""
    return isinstance(answer, pb.ShardStatus) and answer.error.code == code


def stale_epoch(shard: ShardUnderTest) -> Claims:
    """Open an epoch, then try the one before it and the same one again."""
    seam = replace(shard.seam(), epoch=5)
    with shard.session(seam):
        pass
    refused = 0
    for epoch in (4, 5):
        with shard.unopened(replace(seam, epoch=epoch)) as late:
            answer = late.try_open(late.client.open())
            refused += _refused(answer, pb.ERROR_CODE_EPOCH_STALE)
    return claims(BY, {"tried": 2, "refused": refused})


def replayed_step(shard: ShardUnderTest) -> Claims:
    """Send the last applied decode step again, and see whether the length moved.

    The length afterwards is what the next unit finds, whatever the answer to the replay says.
    """
    tokens = shard.tokens(4)
    with shard.session() as session:
        session.prefill(tokens.rows(0, 2))
        step = session.exchange(session.client.decode(tokens.rows(2, 3)))
        again = session.send_unit(step.request)
        # A worker that takes it for new may answer in any way, or not at all.
        with suppress(Nonconformance):
            session.wait(again)
        following = session.exchange(session.client.decode(tokens.rows(3, 4)))
    duplicate = again.ack is not None and again.ack.duplicate
    lengths = {"past_len_before": _held(step, 0), "past_len_after": _held(following, 1)}
    known = {name: length for name, length in lengths.items() if length is not None}
    return claims(BY, {"tried": 1, "duplicates": int(duplicate)} | known)


def _held(exchange: Exchange, own: int) -> int | None:
    """The length before the `own` tokens of this unit, None when no answer tells it."""
    if exchange.ack is not None:
        return exchange.ack.cache_result.past_len - own
    missed = exchange.status is not None and exchange.status.error.code == pb.ERROR_CODE_CACHE_MISS
    return exchange.status.error.actual_past_len if exchange.status and missed else None
