"""The tiny model with shared indices: the same at every cut, and sensitive to what travels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pytest_meshnet.protocol.additions.sideband import INDICES, IndexShare
from pytest_meshnet.protocol.machines.events import Work
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.reference.index_share import (
    DEFAULT_INDEX_SHARE,
    attended_positions,
    chosen_positions,
    picks_of,
    picks_tensor,
)
from pytest_meshnet.reference.tiny_llama import TinyLlama

CONFIG = DEFAULT_INDEX_SHARE
F32 = DType.FLOAT32
TOKENS = 24


def _run(model, tensors, state=None, first=0, start=None):
    start = model.start if start is None else start
    count = tensors[0].shape[1]
    work = Work(1, "s", 1, "prefill", state, first, count, start, model.end, True, tuple(tensors))
    return model.run(work)


def _ids(count=TOKENS):
    ids = np.random.default_rng(3).integers(0, CONFIG.vocab, (1, count))
    return Tensor.from_array("token_ids", ids, DType.INT32)


@pytest.fixture(scope="module")
def whole():
    return _run(TinyLlama(CONFIG, boundary_dtype=F32), [_ids()]).tensors[0].to_float32()


@pytest.mark.parametrize("cut", range(1, CONFIG.layers))
def test_every_cut_gives_the_bits_of_the_whole_in_one_chunk_and_in_many(cut, whole):
    head, tail = TinyLlama(CONFIG, 0, cut, F32), TinyLlama(CONFIG, cut, None, F32)
    seam = _run(head, [_ids()])
    assert (_run(tail, seam.tensors).tensors[0].to_float32() == whole).all()
    assert (len(seam.tensors) == 2) == (CONFIG.index_share.across(cut) is not None)
    states = [None, None]
    for first in range(0, TOKENS, 7):
        part = _run(head, [_ids().rows(first, min(TOKENS, first + 7))], states[0], first)
        last = _run(tail, part.tensors, states[1], first)
        states = [part.state, last.state]
    assert (last.tensors[0].to_float32() == whole).all()


@pytest.fixture(scope="module")
def seam():
    return _run(TinyLlama(CONFIG, 0, 4, F32), [_ids()]).tensors


@pytest.fixture(scope="module")
def consumer():
    return TinyLlama(CONFIG, 4, 6, F32)


def _rows(model, states, picks):
    return _run(model, [states, picks_tensor(picks)]).tensors[0].to_float32()[0]


def test_a_shared_layer_without_indices_raises(consumer, seam):
    with pytest.raises(ValueError, match="a Shared layer without indices"):
        _run(consumer, seam[:1])


def test_permuted_indices_change_nothing(consumer, seam):
    picks = picks_of(seam)
    assert (_rows(consumer, seam[0], picks[:, ::-1]) == _rows(consumer, seam[0], picks)).all()


def test_padding_and_masked_positions_change_nothing(consumer, seam):
    picks = picks_of(seam)
    early = np.arange(TOKENS)[:, None] < picks
    assert early.any()
    padded = np.where(early, -1, picks)
    assert (_rows(consumer, seam[0], padded) == _rows(consumer, seam[0], picks)).all()


def test_other_indices_for_one_row_move_only_that_row_in_the_first_layer(seam):
    model = TinyLlama(CONFIG, 4, 5, F32)
    picks = picks_of(seam)
    other = picks.copy()
    other[20] = np.setdiff1d(np.arange(20), picks[20])[: picks.shape[1]]
    moved = (_rows(model, seam[0], other) != _rows(model, seam[0], picks)).any(axis=1)
    assert np.flatnonzero(moved).tolist() == [20]


def test_a_row_of_nothing_but_padding_is_computed(consumer, seam):
    picks = np.full_like(picks_of(seam), -1)
    assert np.isfinite(_rows(consumer, seam[0], picks)).all()


def test_the_choice_is_the_best_of_what_a_row_sees_and_then_what_is_masked():
    share = IndexShare(3, ("full",))
    keys = np.array([1.0, 4.0, 2.0, 4.0, 0.0], dtype=np.float32).reshape(5, 1, 1)
    queries = np.ones((4, 2, 1), dtype=np.float32)
    picks = chosen_positions(share, queries, keys)
    assert picks.tolist() == [[1, 0, 2], [1, 2, 0], [1, 3, 2], [1, 3, 2]]
    seen = [row.tolist() for row in attended_positions(picks, 5)]
    assert seen == [[0, 1], [0, 1, 2], [1, 2, 3], [1, 2, 3]]


def test_the_sideband_is_int32_and_as_wide_as_the_length_allows():
    producer = TinyLlama(CONFIG, 0, 4, F32)
    for count, width in ((3, 3), (8, 8), (12, 8)):
        (_, sideband) = _run(producer, [_ids(count)]).tensors
        assert (sideband.name, sideband.dtype, sideband.shape) == (
            INDICES,
            DType.INT32,
            (1, count, width),
        )


def test_the_roles_are_part_of_the_identity():
    assert replace(CONFIG, topk=9).digest() != CONFIG.digest()
    assert replace(CONFIG, full_layers=(0,)).digest() != CONFIG.digest()
