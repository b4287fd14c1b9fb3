"""Bytes of each layer's cache: every family, per-layer arrays whole, unknown never zero."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_meshnet.target.documents import LockedTarget
from pytest_meshnet.target.fields import TargetRefused
from pytest_meshnet.target.plan.kv_cache import (
    KV_TYPES,
    IndexerLayout,
    LayerCache,
    gguf_layers,
    kv_bytes,
    target_layers,
)

ARCHITECTURE = LockedTarget.load().snapshot.architecture


def metadata(**keys: Any) -> dict[str, Any]:
    named = {f"toy.{key.replace('__', '.')}": value for key, value in keys.items()}
    return {"general.architecture": "toy", **named}


GQA = metadata(embedding_length=576, attention__head_count=9, attention__head_count_kv=3)
MLA = metadata(
    attention__kv_lora_rank=512,
    rope__dimension_count=64,
    attention__indexer__key_length=128,
    attention__head_count=64,
    attention__head_count_kv=1,
)
SWA = metadata(
    attention__head_count=8,
    attention__head_count_kv=4,
    attention__key_length=256,
    attention__value_length=128,
    attention__sliding_window=1024,
    attention__sliding_window_pattern=(True, True, False, True),
)
HYBRID = metadata(
    embedding_length=64,
    attention__head_count=4,
    attention__head_count_kv=(2, 0, 0, 1),
    ssm__conv_kernel=4,
    ssm__inner_size=128,
    ssm__state_size=16,
    ssm__group_count=2,
)


# faults.md 65 and 69: a table by hand, one family a row; 4096 tokens of F16.
@pytest.mark.parametrize(
    ("family", "layers", "expected"),
    [
        ("GQA", (GQA, 30), 30 * 4096 * 2 * (3 * 64 + 3 * 64)),
        ("MLA", (MLA, 61), 61 * 4096 * 2 * (512 + 64 + 128)),
        ("SWA", (SWA, 4), (3 * 1024 + 4096) * 2 * (4 * 256 + 4 * 128)),
        (
            "hybrid",
            (HYBRID, 4),
            4096 * 2 * (2 * 16 * 2 + 1 * 16 * 2) + 2 * 4 * (3 * (128 + 2 * 2 * 16) + 16 * 128),
        ),
    ],
)
def test_a_family_costs_what_its_layers_cache(family, layers, expected):
    found, count = layers
    assert kv_bytes(gguf_layers(found, count, count), 4096, "F16") == expected


# faults.md 70: the effective KV type decides; q8_0 is 34 bytes for 32 values.
def test_a_quantized_cache_is_counted_in_its_own_blocks():
    layer = LayerCache((576, 128))
    assert layer.bytes(262_144, "q8_0") == 262_144 * (18 * 34 + 4 * 34)
    assert layer.bytes(1, "Q8_0") * 32 == layer.bytes(1, "F16") * 17
    assert LayerCache((33,)).bytes(1, "Q8_0") == 2 * 34  # a row is whole blocks


def test_the_kv_types_are_the_librarys():
    tables = pytest.importorskip("gguf.constants", reason="needs gguf: pip install gguf")
    for name, size in KV_TYPES.items():
        assert tables.GGML_QUANT_SIZES[tables.GGMLQuantizationType[name]] == size


def test_the_target_as_a_gguf_file_costs_what_the_planner_says():
    found = gguf_layers(MLA, 79, ARCHITECTURE.backbone_layers)
    assert found == target_layers(ARCHITECTURE, IndexerLayout.CONSERVATIVE)


def test_only_full_layers_pay_for_indexer_keys_in_the_optimized_layout():
    layers = target_layers(ARCHITECTURE, IndexerLayout.OPTIMIZED)
    charged = [index for index, layer in enumerate(layers) if len(layer.rows) == 2]
    assert charged == sorted(ARCHITECTURE.group_starts())


@given(st.lists(st.integers(0, 64), min_size=1, max_size=40), st.integers(1, 10_000))
@settings(deadline=None)
def test_per_layer_arrays_are_summed_and_never_read_at_zero(heads, tokens):
    found = metadata(
        embedding_length=64,
        attention__head_count=1,
        attention__head_count_kv=tuple(heads),
        attention__key_length=64,
        attention__value_length=64,
    )
    layers = gguf_layers(found, len(heads), len(heads))
    assert kv_bytes(layers, tokens, "F16") == sum(heads) * 2 * 64 * 2 * tokens


@given(
    st.lists(st.integers(1, 300), min_size=1, max_size=4),
    st.sampled_from(sorted(KV_TYPES)),
    st.integers(1, 10**7),
    st.integers(1, 8),
)
@settings(deadline=None)
def test_a_cache_grows_strictly_with_context_and_linearly_with_sequences(
    rows, kv_type, tokens, concurrency
):
    layer = LayerCache(tuple(rows))
    assert layer.bytes(tokens + 1, kv_type) > layer.bytes(tokens, kv_type)
    assert layer.bytes(tokens, kv_type, concurrency) == concurrency * layer.bytes(tokens, kv_type)


@given(st.integers(1, 10_000))
@settings(deadline=None)
def test_a_window_bounds_what_its_layer_keeps(tokens):
    windowed, full = LayerCache((64,), window=100), LayerCache((64,))
    assert windowed.bytes(tokens, "F16") == full.bytes(min(tokens, 100), "F16")


def test_a_pattern_that_names_no_layers_counts_every_layer_in_full():
    """A period instead of a list does not say which layers: none is taken for windowed."""
    periodic = {**SWA, "toy.attention.sliding_window_pattern": 2}
    assert all(layer.window is None for layer in gguf_layers(periodic, 4, 4))


def test_backbone_layers_are_read_from_an_array_that_has_the_nextn_layer_too():
    found = {**GQA, "toy.attention.head_count_kv": (3, 1, 2)}
    assert [layer.rows[0] // 64 for layer in gguf_layers(found, 3, 2)] == [3, 1]


@pytest.mark.parametrize(
    "change",
    [
        {"attention__head_count": None, "attention__head_count_kv": None},
        {
            "attention__head_count": None,
            "attention__head_count_kv": None,
            "attention__key_length": 64,
            "attention__value_length": 64,
        },
        {"attention__head_count_kv": "3"},
        {"attention__head_count_kv": -3},
        {"attention__head_count_kv": (3,) * 29},
        {"attention__head_count_kv": (3,) * 29 + ("x",)},
        {"embedding_length": None},
        {"embedding_length": 577},
        {"attention__key_length": -1},
    ],
)
def test_a_cache_whose_size_is_not_said_is_refused_and_not_zero(change):
    found = {**GQA, **metadata(**change)}
    with pytest.raises(TargetRefused) as refused:
        gguf_layers({key: value for key, value in found.items() if value is not None}, 30, 30)
    assert refused.value.code == "kv-unknown"


def test_a_latent_cache_without_its_rotary_part_is_refused():
    found = {key: value for key, value in MLA.items() if "rope" not in key}
    with pytest.raises(TargetRefused, match=r"rope\.dimension_count"):
        gguf_layers(found, 61, 61)


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ((0, "F16", 1), "context"),
        ((True, "F16", 1), "context"),
        ((1, "F16", 0), "concurrency"),
        ((1, "Q8_1X", 1), "kv-type"),
    ],
)
def test_what_has_no_size_is_refused(call, code):
    with pytest.raises(TargetRefused) as refused:
        LayerCache((1,)).bytes(*call)
    assert refused.value.code == code
