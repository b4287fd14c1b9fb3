"""The model against an independent implementation, and bit for bit against itself."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.reference.seeded_weights import DEFAULT, SMALL, TinyLlamaConfig
from pytest_meshnet.reference.tiny_llama import BatchedTinyLlama, TinyLlama, served_shard
from pytest_meshnet.tests.reference import straightforward
from pytest_meshnet.tests.reference.works import (
    random_states,
    random_tokens,
    repeatable,
    run_in_chunks,
    tokens,
    work,
)

F32 = DType.FLOAT32
TWO_LAYERS = replace(SMALL, layers=2)
HEAD = TinyLlama(TWO_LAYERS, 0, 1, F32)
MIDDLE = TinyLlama(SMALL, 1, 2, F32)
TAIL = TinyLlama(TWO_LAYERS, 1, 2, F32)
DEFAULT_MIDDLE = TinyLlama(DEFAULT, 3, 5, F32)

chunkings = st.lists(st.integers(1, 40), min_size=1, max_size=8)


class BreaksAfterItsKeys(TinyLlama):
    """Fills in keys and values and then fails."""

    def attended(self, queries: NDArray[np.float32], *_: object) -> NDArray[np.float32]:
        raise ZeroDivisionError


# Right --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [TinyLlama, BatchedTinyLlama])
@pytest.mark.parametrize(
    "config",
    [SMALL, DEFAULT, replace(SMALL, heads=8, kv_heads=2, seed=3), replace(SMALL, kv_heads=4)],
    ids=["small", "default", "group-of-4", "no-groups"],
)
def test_logits_equal_a_straightforward_float64_decoder(
    config: TinyLlamaConfig, kind: type[TinyLlama]
) -> None:
    model, prompt = kind(config, boundary_dtype=F32), random_tokens(70)
    result, _ = run_in_chunks(model, prompt, [33, 36, 1])
    rows = straightforward.embed(config, prompt.to_array()[0].tolist())
    expected = straightforward.logits(
        config, straightforward.run_layers(config, rows, 0, config.layers)
    )
    np.testing.assert_allclose(np.frombuffer(result, "<f4"), expected[-1], atol=2e-5)


@pytest.mark.parametrize("start", [3, 4])
def test_a_middle_shard_runs_exactly_its_layers_from_the_effective_start(start: int) -> None:
    states = random_states(DEFAULT_MIDDLE, 20)
    result, _ = run_in_chunks(DEFAULT_MIDDLE, states, [12, 8], start=start)
    rows = states.to_float32()[0].astype(np.float64)
    expected = straightforward.run_layers(DEFAULT, rows, start, 5)
    found = np.frombuffer(result, "<f4").reshape(20, -1)
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_a_uniform_shift_of_positions_is_invisible_and_a_shifted_decode_is_not() -> None:
    states = random_states(MIDDLE, 12)
    whole = MIDDLE.run(work(MIDDLE, states)).tensors[0].to_float32()
    shifted = MIDDLE.run(work(MIDDLE, states, first=1000)).tensors[0].to_float32()
    np.testing.assert_allclose(shifted, whole, atol=1e-4)
    state = MIDDLE.run(work(MIDDLE, states.rows(0, 11))).state
    last = states.rows(11, 12)
    right = MIDDLE.run(work(MIDDLE, last, state, 11, mode="decode")).tensors[0].to_float32()
    wrong = MIDDLE.run(work(MIDDLE, last, state, 12, mode="decode")).tensors[0].to_float32()
    np.testing.assert_array_equal(right[0, 0], whole[0, -1])
    assert np.abs(wrong[0, 0] - whole[0, -1]).max() > 0.02


# The same bits ------------------------------------------------------------------------------------


@repeatable(25)
@given(chunkings)
def test_any_chunking_gives_the_same_bits(sizes: list[int]) -> None:
    count = sum(sizes)
    for model, inputs in ((HEAD, random_tokens(count)), (MIDDLE, random_states(MIDDLE, count))):
        assert run_in_chunks(model, inputs, sizes)[0] == run_in_chunks(model, inputs, [count])[0]


@repeatable(10)
@given(chunkings)
def test_any_chunking_gives_the_same_bits_at_the_default_size(sizes: list[int]) -> None:
    states = random_states(DEFAULT_MIDDLE, sum(sizes))
    chunked, _ = run_in_chunks(DEFAULT_MIDDLE, states, sizes)
    assert chunked == run_in_chunks(DEFAULT_MIDDLE, states, [sum(sizes)])[0]


def test_token_by_token_gives_the_bits_of_one_prefill() -> None:
    prompt = random_tokens(150)
    whole, _ = run_in_chunks(HEAD, prompt, [150])
    assert run_in_chunks(HEAD, prompt, [1] * 150)[0] == whole


@repeatable(20)
@given(st.data())
def test_interleaved_sessions_have_the_bits_they_have_alone(data: st.DataObject) -> None:
    prompts = [random_states(DEFAULT_MIDDLE, 24, seed) for seed in range(3)]
    alone = [run_in_chunks(DEFAULT_MIDDLE, prompt, [24])[0] for prompt in prompts]
    states: list[object | None] = [None] * 3
    done, results = [0] * 3, [b""] * 3
    while unfinished := [i for i in range(3) if done[i] < 24]:
        i = data.draw(st.sampled_from(unfinished))
        size = data.draw(st.integers(1, min(9, 24 - done[i])))
        piece = prompts[i].rows(done[i], done[i] + size)
        outcome = DEFAULT_MIDDLE.run(work(DEFAULT_MIDDLE, piece, states[i], done[i]))
        results[i] += bytes(outcome.tensors[0].data)
        states[i], done[i] = outcome.state, done[i] + size
    assert results == alone


def test_sessions_computed_in_parallel_threads_have_the_bits_they_have_alone() -> None:
    prompts = [random_states(DEFAULT_MIDDLE, 40, seed) for seed in range(6)]
    alone = [run_in_chunks(DEFAULT_MIDDLE, prompt, [40])[0] for prompt in prompts]
    with ThreadPoolExecutor(6) as threads:
        together = threads.map(lambda p: run_in_chunks(DEFAULT_MIDDLE, p, [5] * 8)[0], prompts)
        assert list(together) == alone


@pytest.mark.parametrize("cut", range(1, DEFAULT.layers))
def test_two_shards_with_a_float32_seam_have_the_bits_of_the_whole_at_every_cut(cut: int) -> None:
    prompt = random_tokens(20)
    whole, _ = run_in_chunks(TinyLlama(DEFAULT, boundary_dtype=F32), prompt, [20])
    head, tail = TinyLlama(DEFAULT, 0, cut, F32), TinyLlama(DEFAULT, cut, None, F32)
    seam = head.run(work(head, prompt)).tensors[0]
    assert run_in_chunks(tail, seam, [7, 13])[0] == whole


def test_a_bfloat16_seam_costs_no_more_than_its_rounding() -> None:
    prompt = random_tokens(20)
    head, tail = TinyLlama(DEFAULT, 0, 4), TinyLlama(DEFAULT, 4)
    seam = head.run(work(head, prompt)).tensors[0]
    assert seam.dtype is DType.BFLOAT16
    split = tail.run(work(tail, seam)).tensors[0].to_float32()
    whole = TinyLlama(DEFAULT).run(work(TinyLlama(DEFAULT), prompt)).tensors[0].to_float32()
    assert 0 < np.abs(split - whole).max() < 0.1
    assert split.argmax() == whole.argmax()


# State --------------------------------------------------------------------------------------------


def test_an_old_state_and_each_of_its_forks_go_on_as_if_alone() -> None:
    states = random_states(MIDDLE, 40)
    whole = MIDDLE.run(work(MIDDLE, states)).tensors[0].to_float32()
    old = MIDDLE.run(work(MIDDLE, states.rows(0, 20))).state
    fork = MIDDLE.run(work(MIDDLE, states.rows(20, 30), old, 20)).state
    MIDDLE.run(work(MIDDLE, random_states(MIDDLE, 70, seed=9), old, 20))
    MIDDLE.run(work(MIDDLE, random_states(MIDDLE, 1, seed=8), old, 20, mode="decode"))
    again = MIDDLE.run(work(MIDDLE, states.rows(20, 40), old, 20)).tensors[0].to_float32()
    later = MIDDLE.run(work(MIDDLE, states.rows(30, 40), fork, 30)).tensors[0].to_float32()
    np.testing.assert_array_equal(again[0], whole[0, 20:])
    np.testing.assert_array_equal(later[0], whole[0, 30:])


def test_a_run_that_failed_leaves_the_state_usable() -> None:
    prompt = random_tokens(12)
    old = HEAD.run(work(HEAD, prompt.rows(0, 8))).state
    broken = BreaksAfterItsKeys(TWO_LAYERS, 0, 1, F32)
    with pytest.raises(ZeroDivisionError):
        broken.run(work(broken, prompt.rows(8, 12), old, 8))
    result = HEAD.run(work(HEAD, prompt.rows(8, 12), old, 8)).tensors[0].to_float32()
    whole = HEAD.run(work(HEAD, prompt)).tensors[0].to_float32()
    np.testing.assert_array_equal(result, whole[:, 8:])


def test_stateless_work_attends_only_to_itself_and_leaves_state_alone() -> None:
    states, other = random_states(TAIL, 10), random_states(TAIL, 6, seed=2)
    held = TAIL.run(work(TAIL, states)).state
    outcome = TAIL.run(work(TAIL, other, held, mode="stateless"))
    assert outcome.state is held
    assert outcome.tensors == TAIL.run(work(TAIL, other)).tensors


def test_a_state_of_other_layers_is_refused() -> None:
    state = DEFAULT_MIDDLE.run(work(DEFAULT_MIDDLE, random_states(DEFAULT_MIDDLE, 4))).state
    later = work(DEFAULT_MIDDLE, random_states(DEFAULT_MIDDLE, 4), state, 4, start=4)
    with pytest.raises(ValueError, match="layers 4 onwards"):
        DEFAULT_MIDDLE.run(later)


# The ends -----------------------------------------------------------------------------------------


def test_the_tail_gives_logits_of_the_last_position_for_final_chunks_only() -> None:
    states = random_states(TAIL, 10)
    first = TAIL.run(work(TAIL, states.rows(0, 5), final=False))
    assert first.tensors == ()
    (logits,) = TAIL.run(work(TAIL, states.rows(5, 10), first.state, 5)).tensors
    assert (logits.name, logits.dtype, logits.shape) == ("logits", F32, (1, 1, SMALL.vocab))


@pytest.mark.parametrize("dtype", [DType.BFLOAT16, F32])
def test_a_head_gives_hidden_states_for_every_chunk_in_the_boundary_dtype(dtype: DType) -> None:
    head = TinyLlama(SMALL, 0, 1, dtype)
    (hidden,) = head.run(work(head, random_tokens(5), final=False)).tensors
    assert (hidden.name, hidden.dtype, hidden.shape) == ("hidden_states", dtype, (1, 5, 16))


@pytest.mark.parametrize("ids", [(0, 256), (-1,), (2**31 - 1,), (-(2**31),)])
def test_a_token_id_outside_the_vocabulary_is_a_fault_and_not_another_row(
    ids: tuple[int, ...],
) -> None:
    with pytest.raises(ValueError, match="outside the vocabulary of 256"):
        HEAD.run(work(HEAD, tokens(*ids)))


def test_infinite_and_huge_inputs_compute_without_a_warning() -> None:
    rows = np.full((1, 3, SMALL.hidden), np.inf, np.float32)
    rows[0, 1] = 3e38
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TAIL.run(work(TAIL, Tensor.from_float32("hidden_states", rows, F32)))


@pytest.mark.parametrize("start", range(DEFAULT.layers))
def test_states_have_about_the_declared_scale_at_every_seam(start: int) -> None:
    model = TinyLlama(DEFAULT, start, start + 1, F32)
    inputs = random_tokens(100) if start == 0 else random_states(model, 100)
    result = np.frombuffer(run_in_chunks(model, inputs, [100])[0], "<f4")
    if start == DEFAULT.layers - 1:
        assert 0.8 < result.std() < 1.2  # Logits.
    else:
        assert DEFAULT.input_scale < result.std() < 1.1 * DEFAULT.input_scale


def test_all_layers_together_keep_the_scale() -> None:
    model = TinyLlama(DEFAULT, 0, 7, F32)
    result = np.frombuffer(run_in_chunks(model, random_tokens(100), [100])[0], "<f4")
    assert DEFAULT.input_scale < result.std() < 1.5 * DEFAULT.input_scale


# Other rounding -----------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [7, 8])
def test_the_batched_form_rounds_otherwise_and_stays_close(end: int) -> None:
    prompt = random_tokens(128)
    exact, _ = run_in_chunks(TinyLlama(DEFAULT, 0, end, F32), prompt, [128])
    batched, _ = run_in_chunks(BatchedTinyLlama(DEFAULT, 0, end, F32), prompt, [128])
    difference = np.abs(np.frombuffer(exact, "<f4") - np.frombuffer(batched, "<f4")).max()
    assert 0 < difference < 1e-4


def test_the_batched_form_depends_on_the_chunking_in_its_last_bits() -> None:
    model, prompt = BatchedTinyLlama(DEFAULT, 0, 4, F32), random_tokens(60)
    whole, _ = run_in_chunks(model, prompt, [60])
    chunked, _ = run_in_chunks(model, prompt, [1] * 60)
    assert whole != chunked
    difference = np.abs(np.frombuffer(whole, "<f4") - np.frombuffer(chunked, "<f4")).max()
    assert difference < 1e-4


# What is served -----------------------------------------------------------------------------------


def test_the_fingerprint_tells_models_and_boundaries_apart_and_ranges_not() -> None:
    base = served_shard(SMALL, 0, 1).fingerprint
    other_range = served_shard(SMALL, 1, 2).fingerprint
    other_seed = served_shard(replace(SMALL, seed=7), 0, 1).fingerprint
    other_boundary = served_shard(SMALL, 0, 1, F32).fingerprint
    assert base == other_range
    assert other_seed.model_artifact_digest != base.model_artifact_digest
    assert other_seed.runtime_recipe_digest == base.runtime_recipe_digest
    assert other_boundary.model_artifact_digest == base.model_artifact_digest
    assert other_boundary.runtime_recipe_digest != base.runtime_recipe_digest
    for digest in (base.model_artifact_digest, base.runtime_recipe_digest):
        assert len(bytes.fromhex(digest)) == 32


def test_what_is_served_agrees_with_the_model() -> None:
    served = served_shard(DEFAULT, 2, None, F32, max_sessions=3, max_context=99)
    assert (served.start_layer, served.end_layer, served.layer_count) == (2, 8, 8)
    assert (served.hidden_size, served.vocab_size, served.is_tail) == (64, 256, True)
    assert (served.max_sessions, served.max_context) == (3, 99)
    assert served.input_boundary(2).dtypes == (F32,)
