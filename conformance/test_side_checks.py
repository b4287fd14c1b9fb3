"""SIDE-04, 05 and 06: what a Shard checks of the indices that it is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pytest_meshnet.protocol.additions.sideband import PADDING, origin_tensor
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.results import rows_of
from pytest_meshnet.runtime.session import Session
from pytest_meshnet.runtime.shard import ShardUnderTest

from .sidebands import PADDINGS, Sharing, indices

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Picks = NDArray[np.int64]

FORMS = pytest.mark.parametrize("form", ["chunk", "decode-full", "decode-bundle"])


@dataclass(frozen=True, slots=True)
class Given:
    """The sideband of one right unit: positions for `rows` rows from `first` on."""

    sharing: Sharing
    picks: Picks
    first: int

    @property
    def length(self) -> int:
        """Tokens held with this unit."""
        return self.first + len(self.picks)


Change = Callable[[Given], list[Tensor]]


def _refused_then_right(
    shard: ShardUnderTest, change: Change, form: str, prompt: int, rows: int = 1
) -> None:
    """A unit with another sideband is refused; the right one works as if it had never come."""
    sharing = Sharing.of(shard)
    states = sharing.states(prompt + rows)
    prompt = states.shape[1] - rows
    expected = sharing.undisturbed(states, prompt)
    with sharing.session() as session:
        exchanges = sharing.prefill(session, states.rows(0, prompt))
        first = session.client.past_len
        given = Given(sharing, sharing.picks(first, 1), first)
        step = states.rows(prompt, prompt + 1)
        session.refused(session.exchange(_unit(session, form, [step, *change(given)])))
        for at in range(prompt, states.shape[1]):
            exchanges.append(sharing.decode(session, states.rows(at, at + 1)))
    shard.check_equal(rows_of(exchanges), expected, "after a refused sideband")


def _unit(session: Session, form: str, tensors: list[Tensor]) -> pb.SessionRequest:
    if form == "chunk":
        return session.client.chunk(tensors)
    return session.client.decode(tensors, full=form == "decode-full")


def _origin(given: Given) -> Tensor:
    producer = given.sharing.producer
    assert producer is not None, "the Shard starts on a Shared layer"
    return origin_tensor(producer, given.first)


def _with(edit: Callable[[Given], Tensor]) -> Change:
    return lambda given: [edit(given), _origin(given)]


# Wrong width or rows -----------------------------------------------------------------------------


def _wider(given: Given) -> Tensor:
    return indices(np.pad(given.picks, ((0, 0), (0, 1)), constant_values=PADDING))


def _flat(given: Given) -> Tensor:
    right = indices(given.picks)
    return Tensor(right.name, right.dtype, right.shape[1:], right.data)


WIDTHS: dict[str, Callable[[Given], Tensor]] = {
    "one-row-more": lambda given: indices(np.vstack([given.picks, given.picks[-1:]])),
    "no-row": lambda given: indices(given.picks[:0]),
    "int64": lambda given: indices(given.picks, DType.INT64),
    "float32": lambda given: indices(given.picks, DType.FLOAT32),
    "uint8": lambda given: indices(given.picks % 256, DType.UINT8),
    "k-below": lambda given: indices(given.picks[:, :-1]),
    "k-above": _wider,
    "rank-two": _flat,
}


@pytest.mark.requirement("SIDE-04")
@FORMS
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("long", [False, True], ids=["short", "long"])
def test_indices_of_another_shape_or_dtype_are_refused(
    sharing_shard: ShardUnderTest, width: str, form: str, long: bool
) -> None:
    """Below and above the number of positions an indexer keeps, where k is the length or topk."""
    topk = Sharing.of(sharing_shard).share.topk
    prompt = topk + 2 if long else max(1, topk // 2)
    _refused_then_right(sharing_shard, _with(WIDTHS[width]), form, prompt)


@pytest.mark.requirement("SIDE-04")
def test_a_short_prompt_is_not_padded_to_all_that_an_indexer_keeps(
    sharing_shard: ShardUnderTest,
) -> None:
    """k is min(topk, total length), and no fixed width."""

    def padded(given: Given) -> Tensor:
        topk = given.sharing.share.topk
        missing = topk - given.picks.shape[1]
        return indices(np.pad(given.picks, ((0, 0), (0, missing)), constant_values=PADDING))

    topk = Sharing.of(sharing_shard).share.topk
    if topk < 3:
        padded_prompt, change = topk, _with(_wider)
    else:
        padded_prompt, change = 1, _with(padded)
    _refused_then_right(sharing_shard, change, "chunk", padded_prompt)


# Out of range ------------------------------------------------------------------------------------


def _last_set_to(value: Callable[[Given], int]) -> Callable[[Given], Tensor]:
    def edit(given: Given) -> Tensor:
        picks = given.picks.copy()
        picks[-1, -1] = value(given)
        return indices(picks)

    return edit


RANGES: dict[str, Callable[[Given], Tensor]] = {
    "the-length": _last_set_to(lambda given: given.length),
    "beyond": _last_set_to(lambda given: given.length + 7),
    "largest": _last_set_to(lambda given: 2**31 - 1),
    "minus-two": _last_set_to(lambda given: -2),
    "minus-the-length": _last_set_to(lambda given: -given.length - 1),
    "smallest": _last_set_to(lambda given: -(2**31)),
}


@pytest.mark.requirement("SIDE-05")
@FORMS
@pytest.mark.parametrize("value", RANGES)
def test_an_index_outside_of_what_is_held_is_refused(
    sharing_shard: ShardUnderTest, value: str, form: str
) -> None:
    """One number of one row; the length counts the unit's own rows."""
    prompt = Sharing.of(sharing_shard).share.topk + 1
    _refused_then_right(sharing_shard, _with(RANGES[value]), form, prompt)


@pytest.mark.requirement("SIDE-05")
@pytest.mark.parametrize("padding", PADDINGS[1:])
@pytest.mark.parametrize("chunk", [None, 3], ids=["whole", "chunked"])
def test_padding_is_ignored_whether_minus_one_or_masked(
    sharing_shard: ShardUnderTest, padding: str, chunk: int | None
) -> None:
    """Early rows see fewer positions than an indexer keeps; what fills them up changes nothing."""
    plain = Sharing.of(sharing_shard)
    states = plain.states(plain.share.topk + 2)
    found = []
    for sharing in (plain, replace(plain, padding=padding)):
        with sharing.session() as session:
            found.append(rows_of(sharing.prefill(session, states, chunk)))
    sharing_shard.check_equal(found[1], found[0], f"padding {padding} against -1")


@pytest.mark.requirement("SIDE-05")
def test_a_padded_row_attends_to_what_is_left_of_it(sharing_shard: ShardUnderTest) -> None:
    """-1 in a late row, where every position could be meant: as if the last one were not there."""
    sharing = Sharing.of(sharing_shard)
    states = sharing.states(sharing.share.topk + 3)
    prompt = states.shape[1] - 1
    step = states.rows(prompt, prompt + 1)
    found = []
    for place in (0, 1):
        with sharing.session() as session:
            sharing.prefill(session, states.rows(0, prompt))
            given = Given(sharing, sharing.picks(prompt, 1), prompt)
            picks = given.picks[:, : max(1, given.picks.shape[1] - 1)]
            padded = np.insert(picks, place * picks.shape[1], PADDING, axis=1)
            tensors = [step, indices(padded[:, : given.picks.shape[1]]), _origin(given)]
            exchange = session.exchange(_unit(session, "decode-full", tensors))
            found.append(rows_of([session.applied(exchange)]))
    sharing_shard.check_equal(found[1], found[0], "padding behind the others against before them")


@pytest.mark.requirement("SIDE-05")
@pytest.mark.parametrize("also", [False, True], ids=["first-or-itself", "itself-or-not"])
def test_the_indices_decide_what_a_row_attends_to(
    sharing_shard: ShardUnderTest, also: bool
) -> None:
    """Else ignoring all indices would pass for ignoring padding, and -1 could be the last token."""
    sharing = Sharing.of(sharing_shard)
    states = sharing.states(3 * sharing.share.topk)
    prompt = states.shape[1] - 1
    if prompt < 2:
        raise Nonconformance("a context of at least three tokens", f"{states.shape[1]}")
    step = states.rows(prompt, prompt + 1)
    found = []
    for attended in ([0], [0, prompt]) if also else ([0], [prompt]):
        with sharing.session() as session:
            sharing.prefill(session, states.rows(0, prompt))
            given = Given(sharing, sharing.picks(prompt, 1), prompt)
            picks = np.full_like(given.picks, PADDING)
            picks[0, : len(attended)] = attended[: picks.shape[1]]
            tensors = [step, indices(picks), _origin(given)]
            exchange = session.exchange(_unit(session, "decode-full", tensors))
            found.append(rows_of([session.applied(exchange)]))
    if not sharing_shard.differ(found[0], found[1]):
        raise Nonconformance(
            "another result for a row that attends to other positions", "equal results"
        )


# Stale -------------------------------------------------------------------------------------------


def _from(producer: Callable[[Given], int], first: Callable[[Given], int]) -> Change:
    return lambda given: [indices(given.picks), origin_tensor(producer(given), first(given))]


def _own(given: Given) -> int:
    assert given.sharing.producer is not None, "the Shard starts on a Shared layer"
    return given.sharing.producer


ORIGINS: dict[str, Change] = {
    "layer-before": _from(lambda given: _own(given) - 1, lambda given: given.first),
    "layer-behind": _from(lambda given: _own(given) + 1, lambda given: given.first),
    "layer-of-the-consumer": _from(lambda given: given.sharing.start, lambda given: given.first),
    "no-layer": _from(lambda given: PADDING, lambda given: given.first),
    "position-before": _from(_own, lambda given: given.first - 1),
    "position-behind": _from(_own, lambda given: given.first + 1),
    "position-zero": _from(_own, lambda given: 0),
    "no-position": _from(_own, lambda given: PADDING),
    "swapped": _from(lambda given: given.first + 100, _own),
}


@pytest.mark.requirement("SIDE-06")
@FORMS
@pytest.mark.parametrize("origin", ORIGINS)
def test_indices_of_another_producer_or_position_are_refused(
    sharing_shard: ShardUnderTest, origin: str, form: str
) -> None:
    """In shape and range they fit: only their origin tells that they are not of this step."""
    _refused_then_right(sharing_shard, ORIGINS[origin], form, 4)


@pytest.mark.requirement("SIDE-06")
@FORMS
def test_the_sideband_of_the_step_before_is_refused(
    sharing_shard: ShardUnderTest, form: str
) -> None:
    """A sender that forgets to renew it: the very tensors of the last step come again."""
    prompt = Sharing.of(sharing_shard).share.topk + 1
    _refused_then_right(
        sharing_shard,
        lambda given: given.sharing.sideband(given.first - 1, 1),
        form,
        prompt,
        rows=2,
    )
