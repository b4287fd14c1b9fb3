"""Capability admission: one state a report, in a fixed order, and every state reachable."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_meshnet.identity.capability import (
    Admission,
    Assignment,
    LegacyPolicy,
    State,
    admit_capability,
)
from pytest_meshnet.identity.certification import Standing
from pytest_meshnet.tests.identity import samples
from pytest_meshnet.tests.identity.test_route import Everywhere

NOW = 1_800_000_000_000_000_000
HOUR = 3_600_000_000_000
ASSIGNMENT = Assignment(
    route=samples.declaration(),
    shard=(0, 4),
    catalogue_versions=frozenset({"2026.07.1"}),
    max_age_nanos=HOUR,
    legacy=LegacyPolicy.REFUSE,
    for_certification=False,
)


def report(**changes: Any) -> dict[str, Any]:
    found = {
        "schema_version": 1,
        "artifact_id": "example/model",
        "recipe_id": "example-gguf",
        "recipe_version": "1",
        "catalogue_version": "2026.07.1",
        "backend_id": "llama.cpp",
        "weight_quantization": "Q4_K_M",
        "shard_start": 0,
        "shard_end": 3,
        "validated": True,
        "detail": "",
        "validated_at_unix_nanos": NOW - 1,
        "identity": samples.claimed(samples.document()),
    }
    found.update(changes)
    return found


def admit(found: object, standing: Standing = Standing.CERTIFIED, **assignment: Any) -> Admission:
    expected = replace(ASSIGNMENT, **assignment)
    return admit_capability(found, expected, Everywhere(standing), now_unix_nanos=NOW)


def test_a_report_that_agrees_in_everything_is_admitted_with_derived_facts():
    admission = admit(report())
    assert admission.state is State.ADMITTED
    assert admission.declaration is not None
    assert admission.declaration.fingerprint == ASSIGNMENT.route.fingerprint


def test_a_shard_of_one_layer_begins_and_ends_inclusively_at_it():
    document = samples.document(shard_start=3, shard_end=4)
    found = report(shard_start=3, shard_end=3, identity=document)
    assert admit(found, shard=(3, 4)).state is State.ADMITTED


def wrong_claim() -> dict[str, Any]:
    document = samples.claimed(samples.document())
    document["fingerprint"]["runtime_recipe_digest"] = "0" * 64
    return document


OTHER_MODEL = samples.document("artifact", "content_digest", "d" * 64)
OTHER_LAYERS = samples.document("artifact", "layer_count", 9)
OTHER_ARCHITECTURE = samples.document("artifact", "architecture_digest", "d" * 64)
STATES: list[tuple[State, str, object]] = [
    (State.MISSING, "no capability report", None),
    (State.MISSING, "no identity", report(identity=None)),
    (State.MISSING, "no identity", samples.without(report(), "identity")),
    (State.MALFORMED, "not an object", "report"),
    (State.MALFORMED, "not an object", [report()]),
    (State.MALFORMED, "unknown keys", report(extra=1)),
    (State.MALFORMED, "unknown keys", samples.without(report(), "backend_id")),
    (State.MALFORMED, "recipe_id", report(recipe_id="")),
    (State.MALFORMED, "backend_id", report(backend_id=3)),
    (State.MALFORMED, "shard_start", report(shard_start=True)),
    (State.MALFORMED, "shard_end", report(shard_end=-1)),
    (State.MALFORMED, "shard_end", report(shard_end=10**5000)),
    (State.MALFORMED, "shard_end", report(shard_end=2**63)),
    (State.MALFORMED, "ends before", report(shard_start=4)),
    (State.MALFORMED, "schema_version", report(schema_version=2)),
    (State.MALFORMED, "validated", report(validated=1)),
    (State.MALFORMED, "from the future", report(validated_at_unix_nanos=NOW + 1)),
    (State.MALFORMED, "its identity", report(identity={})),
    (State.MALFORMED, "its identity", report(identity=samples.document(shard_end=99))),
    (State.FAILED, "out of memory", report(validated=False, detail="out of memory")),
    (State.EXPIRED, "3600 s", report(validated_at_unix_nanos=NOW - HOUR - 1)),
    (State.MODEL_MISMATCH, "source_digest", report(identity=OTHER_MODEL)),
    (State.MODEL_MISMATCH, "layer_count", report(identity=OTHER_LAYERS)),
    (State.MODEL_MISMATCH, "architecture_digest", report(identity=OTHER_ARCHITECTURE)),
    (State.MODEL_MISMATCH, "artifact_id", report(artifact_id="example/other")),
    (State.SHARD_MISMATCH, "(0, 5)", report(shard_end=4)),
    (State.SHARD_MISMATCH, "(1, 4)", report(shard_start=1)),
    (
        State.SHARD_MISMATCH,
        "the Shard is (4, 8)",
        report(shard_start=4, shard_end=7, identity=samples.document(shard_start=4, shard_end=8)),
    ),
    (State.RECIPE_MISMATCH, "recipe_id", report(recipe_id="other")),
    (State.RECIPE_MISMATCH, "recipe_version", report(recipe_version="2")),
    (State.RECIPE_MISMATCH, "catalogue_version", report(catalogue_version="2026.08.1")),
    (State.RECIPE_MISMATCH, "backend_id", report(backend_id="torch")),
    (State.RECIPE_MISMATCH, "weight_quantization", report(weight_quantization="Q8_0")),
    (
        State.CATALOGUE_INCOMPATIBLE,
        "2026.09.1",
        report(
            catalogue_version="2026.09.1",
            identity=samples.document("recipe", "catalogue_version", "2026.09.1"),
        ),
    ),
    (State.FINGERPRINT_MISMATCH, "runtime_recipe_digest", report(identity=wrong_claim())),
    (
        State.FINGERPRINT_MISMATCH,
        "kv_dtype",
        report(identity=samples.document("recipe", "kv_dtype", "f16")),
    ),
    # faults.md 6: one shifted table under the same labels still shows in the schema version.
    (
        State.FINGERPRINT_MISMATCH,
        "protocol_schema_version",
        report(identity=samples.document("recipe", "protocol_schema_version", 2)),
    ),
]


@pytest.mark.parametrize(("state", "words", "found"), STATES)
def test_a_report_that_disagrees_has_its_state_and_says_why(state, words, found):
    admission = admit(found)
    assert admission.state is state, admission.message
    assert words in admission.message
    assert admission.declaration is None


def test_every_state_is_reached_by_these_tests():
    assert {state for state, _, _ in STATES} | {State.ADMITTED, State.UNCERTIFIED} == set(State)


@pytest.mark.parametrize("standing", [Standing.DARK, Standing.UNKNOWN])
def test_a_recipe_that_is_not_certified_is_not_admitted(standing):
    assert admit(report(), standing).state is State.UNCERTIFIED


def test_a_dark_recipe_is_admitted_to_certify_it_and_an_unknown_one_is_not():
    assert admit(report(), Standing.DARK, for_certification=True).state is State.ADMITTED
    assert admit(report(), Standing.UNKNOWN, for_certification=True).state is State.UNCERTIFIED


def test_proof_age_is_accepted_up_to_the_bound_and_not_a_nanosecond_more():
    assert admit(report(validated_at_unix_nanos=NOW)).state is State.ADMITTED
    assert admit(report(validated_at_unix_nanos=NOW - HOUR)).state is State.ADMITTED
    assert admit(report(validated_at_unix_nanos=NOW - HOUR - 1)).state is State.EXPIRED


LEGACY = report(identity=None)


def test_a_legacy_report_is_admitted_only_by_a_policy_that_says_so_and_proves_nothing():
    assert admit(LEGACY).state is State.MISSING
    admission = admit(LEGACY, legacy=LegacyPolicy.ADMIT_UNPROVEN)
    assert admission.state is State.ADMITTED
    assert admission.declaration is None
    assert "proven" in admission.message


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ({"artifact_id": "example/other"}, State.MODEL_MISMATCH),
        ({"shard_end": 4}, State.SHARD_MISMATCH),
        ({"recipe_id": "other"}, State.RECIPE_MISMATCH),
        ({"recipe_version": "2"}, State.RECIPE_MISMATCH),
        ({"backend_id": "torch"}, State.RECIPE_MISMATCH),
        ({"weight_quantization": "Q8_0"}, State.RECIPE_MISMATCH),
        ({"catalogue_version": "2020.01.1"}, State.CATALOGUE_INCOMPATIBLE),
        ({"validated": False}, State.FAILED),
        ({"validated_at_unix_nanos": 0}, State.EXPIRED),
    ],
)
def test_a_legacy_report_is_still_held_to_what_it_says(change, state):
    assert admit({**LEGACY, **change}, legacy=LegacyPolicy.ADMIT_UNPROVEN).state is state


MESS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


@given(st.sampled_from(sorted(report())), MESS)
@settings(deadline=None, max_examples=200)
def test_no_value_of_any_key_raises_and_none_is_admitted_by_accident(key, value):
    admission = admit(report(**{key: value}))
    assert admission.state in set(State)
    harmless = key in ("detail", "validated_at_unix_nanos") or value == report()[key]
    assert admission.state is not State.ADMITTED or harmless
