"""The models on torch, each against the whole model in transformers: plain function calls."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="not run: needs torch, pip install 'pytest-meshnet[torch]'")
pytest.importorskip("transformers", reason="not run: pip install 'pytest-meshnet[torch]'")

from pytest_meshnet.parity.metrics import compare
from pytest_meshnet.parity.oracles.whole_transformers import TransformersOracle
from pytest_meshnet.protocol.machines.events import Work
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.reference.models import built_in
from pytest_meshnet.reference.torch_models import glm_dsa
from pytest_meshnet.tests.parity.samples import route_here

NAME = "glm-dsa-tiny"
F32 = DType.FLOAT32


PROMPT = tuple(np.random.default_rng(1).integers(0, 512, 21).tolist())


@pytest.fixture(scope="module")
def whole():
    return TransformersOracle(glm_dsa.whole_model()).generate(PROMPT, 32)


@pytest.mark.parametrize("cut", range(1, 8))
def test_a_glm_graph_has_the_whole_models_bits_at_every_cut(whole, cut):
    found = compare(route_here(NAME, [cut]).generate(PROMPT, 32), whole)
    assert found.identical, f"largest error {found.max_error:.3g}"


def test_a_shard_holds_its_own_layers_alone():
    _, shard = glm_dsa.load_shard(2, 5, F32)
    assert list(shard.parts.layers) == [2, 3, 4]
    assert shard.parts.embedding is None
    assert shard.parts.head is None


def test_a_later_start_uses_the_cache_of_its_own_layers():
    _, shard = glm_dsa.load_shard(0, 7, F32)
    _, alone = glm_dsa.load_shard(6, 7, F32)
    rows = states(5)
    one = shard.run(work(rows, start=6, end=7))
    other = alone.run(work(rows, start=6, end=7))
    assert bytes(one.tensors[0].data) == bytes(other.tensors[0].data)
    step = states(1, seed=2)
    one = shard.run(work(step, one.state, 5, start=6, end=7))
    other = alone.run(work(step, other.state, 5, start=6, end=7))
    assert bytes(one.tensors[0].data) == bytes(other.tensors[0].data)


def test_an_older_state_is_continued_as_if_nothing_had_followed():
    _, shard = glm_dsa.load_shard(0, 3, F32)
    before = shard.run(work(ids(9), start=0, end=3)).state
    first = shard.run(work(ids(1, 5), before, 9, start=0, end=3))
    shard.run(work(ids(1, 6), before, 9, start=0, end=3))
    again = shard.run(work(ids(1, 5), before, 9, start=0, end=3))
    assert bytes(first.tensors[0].data) == bytes(again.tensors[0].data)


def test_a_shared_layer_without_indices_raises():
    _, shard = glm_dsa.load_shard(4, 6, F32)
    with pytest.raises(ValueError, match="Shared DSA layers require"):
        shard.run(work(states(4), start=4, end=6))


def test_wrong_indices_of_one_row_move_only_that_row():
    picks = np.tile(np.arange(16, dtype=np.int32), (20, 1))
    wrong = picks.copy()
    wrong[19] = np.arange(4, 20)
    rows = [_shared(picks), _shared(wrong)]
    differs = [bool(one) for one in (rows[0] != rows[1]).any(axis=1)]
    assert differs == [False] * 19 + [True]


def test_permuted_and_padded_indices_change_nothing():
    picks = np.tile(np.arange(16, dtype=np.int32), (20, 1))
    padded = np.where(picks[:, ::-1] > 18, -1, picks[:, ::-1])
    padded[:8, 0] = -1
    assert (_shared(picks)[:8] == _shared(padded)[:8]).all()
    assert (_shared(picks) == _shared(picks[:, ::-1].copy())).all()


def test_dropping_an_expert_changes_the_result():
    _, shard = glm_dsa.load_shard(2, 3, F32)
    before = shard.run(work(states(20), start=2, end=3)).tensors[0].to_float32()
    shard.drop_expert()
    after = shard.run(work(states(20), start=2, end=3)).tensors[0].to_float32()
    moved = (before != after).any(axis=-1)[0]
    assert moved.any()
    assert not moved.all(), "rows of other experts stay"


@pytest.mark.timeout(600)  # transformers takes long to read a GGUF file
def test_smollm2_shards_have_the_weights_that_transformers_loads():
    model = built_in_or_skip("smollm2")
    _, shard = model.shard(14, 16, F32)
    whole = dict(model.whole().named_parameters())
    for number, layer in shard.parts.layers.items():
        for name, ours in layer.named_parameters():
            assert ours.equal(whole[f"model.layers.{number}.{name}"]), f"{number} {name}"


def built_in_or_skip(name):
    from pytest_meshnet.reference.models import ModelUnavailable

    try:
        return built_in(name)
    except ModelUnavailable as error:
        pytest.skip(f"not run: {error}")


def _shared(picks):
    """Rows of a Shared layer over 20 states with the indices [20, 16] given."""
    _, shard = glm_dsa.load_shard(3, 4, F32)
    indices = Tensor.from_array("topk_indices", picks[None], DType.INT32)
    outcome = shard.run(work(states(20), start=3, end=4, extra=(indices,)))
    return outcome.tensors[0].to_float32()[0]


def ids(count, seed=1):
    drawn = np.random.default_rng(seed).integers(0, 512, (1, count))
    return Tensor.from_array("token_ids", drawn, DType.INT32)


def states(count, seed=1):
    rows = np.random.default_rng(seed).standard_normal((1, count, 64), dtype=np.float32)
    return Tensor.from_float32("hidden_states", rows, F32)


def work(tensor, state=None, first=0, *, start, end, extra=()):
    return Work(
        number=1,
        session="s",
        epoch=1,
        mode="decode" if first else "prefill",
        state=state,
        first_position=first,
        token_count=tensor.shape[1],
        start_layer=start,
        end_layer=end,
        final=True,
        tensors=(tensor, *extra),
    )
