"""Certification: dark until a real distributed forward, and nothing less certifies."""

from dataclasses import replace
from typing import Any

import pytest

from pytest_meshnet.identity.certification import (
    Book,
    CertificationRefused,
    ForwardEvidence,
    Registration,
    Stage,
    Standing,
    from_record,
    to_record,
)
from pytest_meshnet.identity.declaration import read_declaration
from pytest_meshnet.tests.identity import samples

DECLARED = samples.declaration()
REGISTRATION = Registration.of(DECLARED)


def evidence(**changes: Any) -> ForwardEvidence:
    found = ForwardEvidence(
        artifact_digest=DECLARED.artifact_digest,
        recipe_digest=DECLARED.recipe_digest,
        stages=(Stage("rig-a", 0, 4), Stage("rig-b", 4, 8)),
        token_count=1,
        synthetic=False,
        bundle="e" * 64,
    )
    return replace(found, **changes)


def registered() -> Book:
    book = Book()
    book.add(REGISTRATION)
    return book


def test_a_recipe_is_unknown_then_dark_then_certified_and_names_its_bundle():
    book = Book()
    assert book.standing(*DECLARED.fingerprint) is Standing.UNKNOWN
    book.add(REGISTRATION)
    assert book.standing(*DECLARED.fingerprint) is Standing.DARK
    assert book.registrations() == (REGISTRATION,)
    assert book.bundles(*DECLARED.fingerprint) == ()
    book.add(evidence())
    assert book.standing(*DECLARED.fingerprint) is Standing.CERTIFIED
    assert book.bundles(*DECLARED.fingerprint) == ("e" * 64,)


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("unknown-fingerprint", evidence(recipe_digest="0" * 64)),
        ("unknown-fingerprint", evidence(artifact_digest="0" * 64)),
        ("synthetic", evidence(synthetic=True)),
        ("synthetic", evidence(synthetic=None)),
        ("synthetic", evidence(synthetic=0)),
        ("no-token", evidence(token_count=0)),
        ("no-token", evidence(token_count=-1)),
        ("no-token", evidence(token_count=True)),
        ("no-token", evidence(token_count="1")),
        ("not-distributed", evidence(stages=(Stage("rig-a", 0, 8),))),
        ("not-distributed", evidence(stages=())),
        ("node-twice", evidence(stages=(Stage("rig-a", 0, 4), Stage("rig-a", 4, 8)))),
        ("node-twice", evidence(stages=(Stage("rig-a", 0, 4), Stage("RIG-A", 4, 8)))),
        ("coverage", evidence(stages=(Stage("a", 0, 4), Stage("b", 5, 8)))),
        ("coverage", evidence(stages=(Stage("a", 0, 4), Stage("b", 4, 7)))),
        ("coverage", evidence(stages=(Stage("a", 0, 4), Stage("b", 4, 9)))),
        ("coverage", evidence(stages=(Stage("a", 0, 4), Stage("b", 4, 4)))),
        ("coverage", evidence(stages=(Stage("a", 0, 8), Stage("b", True, 8)))),
        ("order", evidence(stages=(Stage("a", 4, 8), Stage("b", 0, 4)))),
        ("idle-node", evidence(stages=(Stage("a", 0, 8), Stage("b", 0, 8)))),
    ],
)
def test_evidence_of_less_than_a_real_distributed_forward_does_not_certify(code, found):
    book = registered()
    with pytest.raises(CertificationRefused) as refused:
        book.add(found)
    assert refused.value.code == code
    assert book.standing(*DECLARED.fingerprint) is Standing.DARK


def test_evidence_is_bound_to_the_fingerprint_and_not_only_to_its_halves():
    """Two recipes of one artifact: a forward of the first says nothing about the second."""
    other = samples.declaration(kv_dtype="f16")
    book = registered()
    book.add(Registration.of(other))
    book.add(evidence())
    assert book.standing(*other.fingerprint) is Standing.DARK
    refusal = evidence().refusal(Registration.of(other))
    assert refusal is not None
    assert refusal.code == "fingerprint-mismatch"


def test_coverage_is_held_to_the_registered_model_and_not_to_what_the_evidence_says():
    taller = samples.document("artifact", "layer_count", 12)
    declared = read_declaration(taller)
    book = Book()
    book.add(Registration.of(declared))
    found = evidence(artifact_digest=declared.artifact_digest)
    with pytest.raises(CertificationRefused, match=r"\[8, 12\)"):
        book.add(found)


def test_overlapping_stages_certify_when_each_computes():
    book = registered()
    book.add(evidence(stages=(Stage("a", 0, 6), Stage("b", 3, 8))))
    assert book.standing(*DECLARED.fingerprint) is Standing.CERTIFIED


def test_a_second_registration_changes_nothing_and_another_layer_count_is_refused():
    book = registered()
    book.add(replace(REGISTRATION, recipe_id="renamed"))
    assert book.registrations() == (REGISTRATION,)
    with pytest.raises(CertificationRefused) as refused:
        book.add(replace(REGISTRATION, layer_count=4))
    assert refused.value.code == "registered-otherwise"


@pytest.mark.parametrize(
    "change",
    [
        {"artifact_digest": "A" * 64},
        {"recipe_digest": "sha256:abc"},
        {"layer_count": True},
        {"layer_count": 0},
        {"recipe_id": ""},
        {"catalogue_version": None},
    ],
)
def test_a_registration_of_what_is_no_fingerprint_is_refused(change):
    with pytest.raises(CertificationRefused):
        replace(REGISTRATION, **change)


@pytest.mark.parametrize("node", ["", " rig", None, 7])
def test_a_stage_of_no_named_node_is_refused(node):
    with pytest.raises(CertificationRefused):
        Stage(node, 0, 4)


@pytest.mark.parametrize("name", ["artifact_digest", "recipe_digest"])
def test_evidence_about_what_is_no_digest_is_refused(name):
    with pytest.raises(CertificationRefused) as refused:
        evidence(**{name: "A" * 64})
    assert refused.value.code == "digest-format"


def test_what_is_held_already_would_change_nothing():
    book = registered()
    assert book.holds(REGISTRATION)
    assert not book.holds(replace(REGISTRATION, layer_count=9))
    assert not book.holds(evidence())
    book.add(evidence())
    assert book.holds(evidence())
    assert not book.holds(evidence(bundle="d" * 64))


@pytest.mark.parametrize("bundle", ["", None, "bundle-1", "E" * 64])
def test_an_entry_without_the_seal_of_its_bundle_is_refused(bundle):
    with pytest.raises(CertificationRefused):
        evidence(bundle=bundle)


@pytest.mark.parametrize("entry", [REGISTRATION, evidence()])
def test_an_entry_survives_its_record(entry):
    assert from_record(to_record(entry)) == entry


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"type": "promoted"},
        {**to_record(REGISTRATION), "type": "certified"},
        {**to_record(REGISTRATION), "extra": 1},
        {**to_record(evidence()), "stages": [["a", 0]]},
        {**to_record(evidence()), "stages": 3},
        {key: value for key, value in to_record(evidence()).items() if key != "synthetic"},
    ],
)
def test_a_record_that_is_no_entry_is_refused(record):
    with pytest.raises(CertificationRefused):
        from_record(record)
