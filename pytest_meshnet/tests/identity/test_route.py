"""Comparing Shards and admitting routes: every reason, none hidden, nothing admitted by default."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_meshnet.identity.certification import Standing
from pytest_meshnet.identity.coverage import coverage_gap, execution_gap, idle_ranges
from pytest_meshnet.identity.declaration import AXES, read_declaration
from pytest_meshnet.identity.route import KIND_OF_AXIS, Kind, admit_route, compare
from pytest_meshnet.tests.identity import samples


class Everywhere:
    """A ledger that gives one standing to every fingerprint."""

    def __init__(self, standing: Standing) -> None:
        self._standing = standing

    def standing(self, artifact_digest: str, recipe_digest: str) -> Standing:
        return self._standing


CERTIFIED = Everywhere(Standing.CERTIFIED)
KINDS = {
    ("artifact", "content_digest"): (Kind.ARTIFACT, "d" * 64),
    ("artifact", "layer_count"): (Kind.ARTIFACT, 9),
    ("artifact", "architecture"): (Kind.ARCHITECTURE, "dense-qwen"),
    ("artifact", "architecture_digest"): (Kind.ARCHITECTURE, "d" * 64),
    ("recipe", "architecture_adapter"): (Kind.ARCHITECTURE, "llama/range-v2"),
    ("recipe", "tokenizer_revision"): (Kind.TOKENIZER, "fedcba9876543210"),
    ("recipe", "boundary_schema_version"): (Kind.BOUNDARY_SCHEMA, 2),
    ("recipe", "protocol_schema_version"): (Kind.BOUNDARY_SCHEMA, 2),
    ("recipe", "weight_quantization"): (Kind.ACTIVATION_RECIPE, "Q8_0"),
    ("recipe", "activation_dtype"): (Kind.ACTIVATION_RECIPE, "float16"),
    ("recipe", "compute_dtype"): (Kind.ACTIVATION_RECIPE, "bfloat16"),
    ("recipe", "backend_id"): (Kind.ACTIVATION_RECIPE, "torch"),
    ("recipe", "runtime_version"): (Kind.ACTIVATION_RECIPE, "llama.cpp@cafe+meshnet.1"),
    ("recipe", "kv_dtype"): (Kind.CACHE_LAYOUT, "f16"),
    ("recipe", "kv_layout"): (Kind.CACHE_LAYOUT, "flat-v1"),
}


# faults.md 5, 22 and 47: a refusal names the axis that differs and both values.
@pytest.mark.parametrize("path", list(KINDS))
def test_a_differing_axis_has_its_kind_and_both_values(path):
    kind, value = KINDS[path]
    route = samples.declaration()
    candidate = read_declaration(samples.document(*path, value))
    reasons = compare(route, candidate)
    assert {reason.kind for reason in reasons} == {kind, Kind.FINGERPRINT}
    first = reasons[0]
    assert repr(samples.document()[path[0]][path[1]]) in first.message
    assert repr(value) in first.message


def test_every_axis_has_a_kind():
    assert set(KIND_OF_AXIS) == set(AXES)
    assert {path[1] for path in KINDS if path[0] == "recipe"} == set(AXES)


def test_every_difference_is_told_and_not_only_the_first():
    other = samples.declaration(kv_dtype="f16", tokenizer_revision="beef", backend_id="torch")
    kinds = [reason.kind for reason in compare(samples.declaration(), other)]
    assert sorted(kinds) == sorted(
        [Kind.ACTIVATION_RECIPE, Kind.CACHE_LAYOUT, Kind.TOKENIZER, Kind.FINGERPRINT]
    )


def test_labels_are_for_people_and_give_no_reason():
    other = samples.declaration(recipe_id="renamed", recipe_version="2", catalogue_version="x")
    assert compare(samples.declaration(), other) == ()


def test_a_split_joins_the_route_of_its_source():
    source = samples.document()["artifact"]["content_digest"]
    split = samples.split_document(source=source)
    split["artifact"]["content_digest"] = "d" * 64
    assert compare(samples.declaration(), read_declaration(split)) == ()


def test_a_candidate_past_the_routes_model_is_out_of_range():
    document = samples.document("artifact", "layer_count", 12)
    document["shard_end"] = 12
    kinds = {reason.kind for reason in compare(samples.declaration(), read_declaration(document))}
    assert kinds == {Kind.ARTIFACT, Kind.RANGE, Kind.FINGERPRINT}


@pytest.mark.parametrize(
    ("standing", "for_certification", "admitted"),
    [
        (Standing.CERTIFIED, False, True),
        (Standing.CERTIFIED, True, True),
        (Standing.DARK, True, True),
        (Standing.DARK, False, False),
        (Standing.UNKNOWN, False, False),
        (Standing.UNKNOWN, True, False),
    ],
)
def test_a_dark_recipe_is_routed_only_to_certify_it(standing, for_certification, admitted):
    route = [samples.declaration(0, 4), samples.declaration(4, 8)]
    reasons = admit_route(route, Everywhere(standing), for_certification)
    assert {reason.kind for reason in reasons} == (set() if admitted else {Kind.UNCERTIFIED})
    assert all(standing in reason.message for reason in reasons)
    told = compare(route[0], route[1], Everywhere(standing), for_certification=for_certification)
    assert (told == ()) is admitted


def test_an_empty_route_is_a_reason():
    assert [reason.kind for reason in admit_route([], CERTIFIED, False)] == [Kind.RANGE]


@pytest.mark.parametrize(
    ("ranges", "told"),
    [
        ([(0, 8)], None),
        ([(0, 5), (3, 8)], None),
        ([(0, 8), (2, 4)], None),
        ([(0, 4), (5, 8)], "[4, 5)"),
        ([(1, 8)], "[0, 1)"),
        ([(0, 7)], "[7, 8)"),
        ([(4, 8), (0, 4)], "order the route"),
    ],
)
def test_a_route_covers_every_layer_in_order(ranges, told):
    reasons = admit_route([samples.declaration(*item) for item in ranges], CERTIFIED, False)
    assert [reason.kind for reason in reasons] == ([] if told is None else [Kind.RANGE])
    assert all(told in reason.message for reason in reasons)


def test_every_shard_of_a_mixed_route_is_told_by_position():
    route = [
        samples.declaration(0, 4),
        samples.declaration(4, 6, kv_dtype="f16"),
        samples.declaration(6, 8, kv_layout="flat"),
    ]
    reasons = admit_route(route, CERTIFIED, False)
    assert {reason.message.split(":")[0] for reason in reasons} == {"Shard 1", "Shard 2"}


def test_a_model_of_one_layer_is_covered_by_it():
    assert coverage_gap([(0, 1)], 1) is None


@pytest.mark.parametrize(
    ("ranges", "layers"),
    [
        ([(0, 9)], 8),
        ([(3, 3), (0, 8)], 8),
        ([(5, 3), (0, 8)], 8),
        ([(-1, 8)], 8),
        ([(False, 8)], 8),
        ([(0, 8.0)], 8),
        ([], 8),
        ([(0, 8)], 0),
        ([(0, 1)], True),
    ],
)
def test_what_is_no_coverage_is_told(ranges, layers):
    assert coverage_gap(ranges, layers) is not None


@given(
    st.integers(1, 6),
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=5),
)
@settings(deadline=None, max_examples=400)
def test_coverage_equals_counting_layers_one_by_one(layers, ranges):
    legal = all(0 <= start < end <= layers for start, end in ranges)
    covered = set(itertools.chain.from_iterable(range(start, end) for start, end in ranges))
    assert (coverage_gap(ranges, layers) is None) == (legal and covered == set(range(layers)))


@given(
    st.integers(1, 6),
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=5),
)
@settings(deadline=None, max_examples=400)
def test_execution_equals_running_layers_one_by_one(layers, ranges):
    ran, idle, in_order = 0, [], True
    for position, (start, end) in enumerate(ranges):
        in_order &= 0 <= start <= ran and start < end <= layers
        idle += [] if end > ran else [position]
        ran = max(ran, end)
    assert (execution_gap(ranges, layers) is None) == (in_order and ran == layers)
    assert idle_ranges(ranges) == idle
