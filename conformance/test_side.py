"""SIDE-01, 02, 03 and 07: when the index sideband travels, and what a Shard does without it."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np
import pytest

from pytest_meshnet.protocol.additions.features import Feature
from pytest_meshnet.protocol.additions.sideband import (
    INDICES,
    ORIGIN,
    PADDING,
    IndexShare,
    indices_of,
)
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.exchange import Exchange
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.runtime.errors import Nonconformance, NotProvoked
from pytest_meshnet.runtime.results import check_code, rows_of
from pytest_meshnet.runtime.session import Session
from pytest_meshnet.runtime.shard import ShardUnderTest

from .sidebands import FEATURES, Sharing, later_shared_starts, sideband_in

# Carried when split ------------------------------------------------------------------------------


def _check_sideband(exchange: Exchange, share: IndexShare, producer: int) -> None:
    """A result brings indices and origin for exactly its rows."""
    found = sideband_in(exchange)
    if set(found) != {INDICES, ORIGIN}:
        raise Nonconformance(
            f"{INDICES} and {ORIGIN} in the result of work {exchange.work_id!r}",
            f"tensors {[one.name for one in exchange.tensors]}",
        )
    first, rows = exchange.first_position, exchange.token_count
    shape = (1, rows, share.width(first + rows))
    picks, origin = found[INDICES], found[ORIGIN]
    if (picks.dtype, picks.shape) != (DType.INT32, shape):
        raise Nonconformance(
            f"{INDICES} int32 {list(shape)}: k is min({share.topk}, {first + rows})",
            f"{picks.dtype.name.lower()} {list(picks.shape)}",
        )
    if (origin.dtype, origin.shape) != (DType.INT64, (2,)) or indices_of(origin) != (
        producer,
        first,
    ):
        raise Nonconformance(
            f"{ORIGIN} int64 [2] with layer {producer} and position {first}",
            f"{origin.dtype.name.lower()} {list(origin.shape)} {list(indices_of(origin))}",
        )
    beyond = [one for one in indices_of(picks) if not PADDING <= one < first + rows]
    if beyond:
        raise Nonconformance(f"indices from -1 to {first + rows - 1}", f"{beyond[:4]}")


# Tokens of a prompt, by the number of positions that an indexer keeps.
LENGTHS: dict[str, Callable[[int], int]] = {
    "one": lambda topk: 1,
    "below": lambda topk: max(1, topk // 2),
    "exactly": lambda topk: topk,
    "above": lambda topk: 2 * topk + 1,
}


@pytest.mark.requirement("SIDE-01")
@pytest.mark.parametrize("tokens", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("chunk", [None, 3], ids=["whole", "chunked"])
def test_a_result_before_a_shared_layer_carries_indices_and_their_origin(
    splitting_shard: ShardUnderTest, tokens: Callable[[int], int], chunk: int | None
) -> None:
    """Prompts around the number of positions an indexer keeps, then decode steps in both forms."""
    sharing = Sharing.of(splitting_shard)
    producer = _producer_behind(sharing)
    states = sharing.states(tokens(sharing.share.topk) + 2)
    prompt = max(1, states.shape[1] - 2)
    with sharing.session() as session:
        exchanges = sharing.prefill(session, states.rows(0, prompt), chunk)
        for at in range(prompt, states.shape[1]):
            step = states.rows(at, at + 1)
            exchanges.append(sharing.decode(session, step, full=at % 2 == 0))
    for exchange in exchanges:
        _check_sideband(exchange, sharing.share, producer)


def _producer_behind(sharing: Sharing) -> int:
    producer = sharing.share.across(sharing.shard.layers.stop)
    assert producer is not None, "the fixture gives Shards that split a group"
    return producer


@pytest.mark.requirement("SIDE-01")
def test_a_range_of_shared_layers_passes_on_the_indices_it_was_given(
    splitting_shard: ShardUnderTest,
) -> None:
    """Nothing between the Full layer and the seam chooses anew: the same positions, row by row."""
    shard = splitting_shard
    producer = _producer_behind(Sharing.of(shard))
    shared = [Sharing.of(shard, one) for one in [*_own_start(shard), *later_shared_starts(shard)]]
    within = [one for one in shared if one.producer == producer]
    if not within:
        raise NotProvoked(
            "no session can begin in the index group that the Shard splits: let its range begin on "
            "a Shared layer of it, or accept a later start there"
        )
    sharing = within[0]
    states = sharing.states(2 * sharing.share.topk)
    with sharing.session() as session:
        exchanges = sharing.prefill(session, states)
    for exchange in exchanges:
        _check_sideband(exchange, sharing.share, producer)
        first, rows = exchange.first_position, exchange.token_count
        _check_passed_on(sharing.picks(first, rows), sideband_in(exchange)[INDICES], first)


def _check_passed_on(given: np.ndarray, found: Tensor, first: int) -> None:
    came = found.to_array()[0]
    for position, (expected, row) in enumerate(zip(given, came, strict=True), start=first):
        wanted = {int(one) for one in expected if 0 <= one <= position}
        seen = {int(one) for one in row if 0 <= one <= position}
        if wanted != seen:
            raise Nonconformance(
                f"the positions {sorted(wanted)} for the row at {position}", f"{sorted(seen)}"
            )


@pytest.mark.requirement("SIDE-01")
def test_a_stateless_result_carries_indices_too(splitting_shard: ShardUnderTest) -> None:
    """It attends only to itself: the total length is that of its own rows."""
    sharing = Sharing.of(splitting_shard)
    with sharing.session() as session:
        limit = session.client.limits.prefill_tokens
        states = sharing.states(min(limit, sharing.share.topk + 1))
        message = session.client.chunk(sharing.unit(states, 0), mode=pb.CACHE_MODE_STATELESS)
        exchange = session.applied(session.exchange(message))
    _check_sideband(exchange, sharing.share, _producer_behind(sharing))


# Absent when whole -------------------------------------------------------------------------------


@pytest.mark.requirement("SIDE-02")
@pytest.mark.parametrize("chunk", [None, 2], ids=["whole", "chunked"])
def test_no_sideband_is_sent_where_no_group_is_split(
    whole_shard: ShardUnderTest, chunk: int | None
) -> None:
    """The sideband was agreed on, and there is nothing for it to carry."""
    sharing = Sharing.of(whole_shard)
    states = sharing.states(sharing.share.topk + 3)
    prompt = max(1, states.shape[1] - 2)
    with sharing.session() as session:
        exchanges = sharing.prefill(session, states.rows(0, prompt), chunk)
        for at in range(prompt, states.shape[1]):
            exchanges.append(sharing.decode(session, states.rows(at, at + 1), full=at % 2 == 0))
    for exchange in exchanges:
        names = [one.name for one in exchange.tensors]
        if set(names) & {INDICES, ORIGIN}:
            raise Nonconformance("no sideband behind a whole group", f"tensors {names}")


# Missing -----------------------------------------------------------------------------------------


def _without(*names: str) -> Callable[[Sharing, Tensor, int], list[Tensor]]:
    def tensors(sharing: Sharing, states: Tensor, first: int) -> list[Tensor]:
        return [one for one in sharing.unit(states, first) if one.name not in names]

    return tensors


MISSING = {"both": _without(INDICES, ORIGIN), "indices": _without(INDICES)}
FORMS: dict[str, Callable[[Session, list[Tensor]], pb.SessionRequest]] = {
    "next-chunk": lambda session, tensors: session.client.chunk(tensors),
    "first-chunk": lambda session, tensors: session.client.chunk(tensors, fresh=True),
    "stateless": lambda session, tensors: session.client.chunk(
        tensors, mode=pb.CACHE_MODE_STATELESS
    ),
    "decode-full": lambda session, tensors: session.client.decode(tensors, full=True),
    "decode-bundle": lambda session, tensors: session.client.decode(tensors),
    "decode-compact": lambda session, tensors: session.client.decode(tensors[0]),
}
PROMPT = 3


@pytest.mark.requirement("SIDE-03")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("missing", MISSING)
def test_a_unit_for_a_shared_layer_without_indices_is_refused_and_moves_nothing(
    sharing_shard: ShardUnderTest, missing: str, form: str
) -> None:
    """Computed densely it would look right; then the same step with its indices works."""
    sharing = Sharing.of(sharing_shard)
    states = sharing.states(PROMPT + 1)
    expected = sharing.undisturbed(states, PROMPT)
    first = 0 if form in ("first-chunk", "stateless") else PROMPT
    step = states.rows(PROMPT, PROMPT + 1)
    with sharing.session() as session:
        exchanges = sharing.prefill(session, states.rows(0, PROMPT))
        message = FORMS[form](session, MISSING[missing](sharing, step, first))
        session.refused(session.exchange(message))
        exchanges.append(sharing.decode(session, step))
    sharing_shard.check_equal(rows_of(exchanges), expected, f"after a unit without {missing}")


# Order -------------------------------------------------------------------------------------------

NOT_AGREED: dict[str, Collection[Feature]] = {
    "no-feature": (),
    "every-other-feature": (Feature.DECODE_BUNDLE, Feature.BOUNDARY_SPEC),
}


def _refused_open(shard: ShardUnderTest, start: int | None, features: Collection[Feature]) -> None:
    with shard.unopened(shard.seam(effective_start=start)) as session:
        answer = session.try_open(session.client.open(features=features))
    if isinstance(answer, pb.SessionAccepted):
        raise Nonconformance(
            f"the open refused: layer {start} shares indices and no sideband was agreed on",
            "accepted",
        )
    check_code(answer)


@pytest.mark.requirement("SIDE-07")
@pytest.mark.parametrize("features", NOT_AGREED.values(), ids=NOT_AGREED)
def test_a_range_that_starts_on_a_shared_layer_is_refused_without_the_sideband(
    sharing_shard: ShardUnderTest, features: Collection[Feature]
) -> None:
    """Refused at open, before a token was computed; with the sideband the same range is served."""
    start = sharing_shard.layers.start
    _refused_open(sharing_shard, start, features)
    sharing = Sharing.of(sharing_shard)
    with sharing.session() as session:
        sharing.prefill(session, sharing.states(2))


@pytest.mark.requirement("SIDE-07")
def test_a_later_start_on_a_shared_layer_is_refused_without_the_sideband(
    splitting_shard: ShardUnderTest, sharing_shard: ShardUnderTest
) -> None:
    """The effective start counts, not the first served layer."""
    every = [
        (shard, start)
        for shard in (splitting_shard, sharing_shard)
        for start in [*later_shared_starts(shard), *_own_start(shard)]
    ]
    for shard, start in every:
        _refused_open(shard, start, ())
        with shard.unopened(shard.seam(effective_start=start)) as session:
            session.open(FEATURES)


def _own_start(shard: ShardUnderTest) -> list[int]:
    share = shard.target.model.index_share
    start = shard.layers.start
    return [start] if share is not None and share.across(start) is not None else []
