import pytest

from pytest_meshnet.ledger.applicability import FACTS, NEEDS, Fact, FactError, unmet


def facts(**values):
    return {name: Fact(value, "observed") for name, value in values.items()}


@pytest.mark.parametrize("need", NEEDS)
def test_a_fact_that_nobody_recorded_never_makes_a_need_unmet(need):
    assert unmet([need], {}) is None


@pytest.mark.parametrize(
    ("need", "met", "contradicted"),
    [
        ("launch", {"launch": True}, {"launch": False}),
        ("sessions>=2", {"max_concurrent_sessions": 2}, {"max_concurrent_sessions": 1}),
        (
            "sessions<=64",
            {"max_concurrent_sessions": 64, "reduced_limits_variant": False},
            {"max_concurrent_sessions": 65, "reduced_limits_variant": False},
        ),
        (
            "reduced-limits",
            {"max_context_tokens": 4096, "reduced_limits_variant": False},
            {"max_context_tokens": 4097, "reduced_limits_variant": False},
        ),
        ("layers>=2", {"layers": 2, "later_start": True}, {"layers": 1, "later_start": True}),
        ("not-tail", {"tail": False}, {"tail": True}),
        ("stall-hook", {"stall_hook": True}, {"stall_hook": False}),
        ("grants", {"grants": True}, {"grants": False}),
        ("drain-command", {"drain_command": True}, {"drain_command": False}),
        ("logits-and-token", {"logits_and_token": True}, {"logits_and_token": False}),
    ],
)
def test_each_need_follows_its_facts(need, met, contradicted):
    assert unmet([need], facts(**met)) is None
    assert unmet([need], facts(**contradicted)) == need


@pytest.mark.parametrize("need", ["sessions<=64", "reduced-limits"])
def test_a_start_variant_with_reduced_limits_meets_a_need_that_the_limits_do_not(need):
    large = facts(max_concurrent_sessions=500, max_context_tokens=100_000)
    assert unmet([need], large) is None, "the variant is not known yet"
    assert unmet([need], large | facts(reduced_limits_variant=True)) is None
    assert unmet([need], large | facts(reduced_limits_variant=False)) == need


@pytest.mark.parametrize(
    ("need", "name"),
    [
        ("sessions>=2", "max_concurrent_sessions"),
        ("sessions<=64", "max_concurrent_sessions"),
        ("reduced-limits", "max_context_tokens"),
    ],
)
def test_a_declared_zero_is_not_known_and_neither_few_nor_small(need, name):
    known = facts(**{name: 0}, reduced_limits_variant=False)
    assert NEEDS[need](known) is None
    assert unmet([need], known) is None


def test_two_layers_without_a_later_start_do_not_meet_the_need():
    assert unmet(["layers>=2"], facts(layers=8, later_start=False)) == "layers>=2"
    assert unmet(["layers>=2"], facts(layers=8)) is None


def test_the_first_unmet_need_is_named():
    known = facts(launch=False, tail=True)
    assert unmet(["grants", "not-tail", "launch"], known) == "not-tail"


@pytest.mark.parametrize(
    "malformed",
    [
        {"max_sessions": Fact(1, "capability")},
        {"launch": Fact(1, "descriptor")},
        {"layers": Fact(True, "descriptor")},
        {"layers": Fact("2", "capability")},
        {"launch": Fact(True, "hearsay")},
    ],
)
def test_a_misspelt_or_mistyped_fact_is_an_error_and_not_unknown(malformed):
    with pytest.raises(FactError):
        unmet([], malformed)


def test_a_need_without_a_rule_is_an_error():
    with pytest.raises(FactError, match="no rule"):
        unmet(["luck"], {})


def test_facts_have_plain_types():
    assert set(FACTS.values()) == {bool, int}
