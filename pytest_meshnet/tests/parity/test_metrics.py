"""Each metric by figures that can be checked in the head."""

from math import isnan, log

import numpy as np
import pytest

from pytest_meshnet.parity.lanes import cross_engine, exact, figures, production, within
from pytest_meshnet.parity.metrics import Share, compare, cosine_rows, log_probabilities
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.tests.parity.samples import comparison, generation

NAN = float("nan")


def test_equal_generations_agree_in_everything():
    one = generation([1, 3, 2], [2, 1, 0], states={2: [[1, 0], [0, 1], [1, 1], [2, 0]]})
    found = compare(one, one)
    assert found.divergence is None
    assert found.agreement == Share(2, 2)
    assert found.identical
    assert found.max_error == 0.0
    assert min(found.cosines) == pytest.approx(1.0)
    assert found.margin is None


def test_tokens_before_and_after_the_divergence_are_counted_apart():
    ours = generation(*[[1, 0, 0]] * 4, tokens=[0, 1, 2, 0])
    theirs = generation(*[[1, 0, 0]] * 4, tokens=[0, 2, 2, 1])
    found = compare(ours, theirs)
    assert (found.divergence, found.before, found.after) == (1, Share(1, 1), Share(1, 3))
    assert found.agreement == Share(2, 4)


def test_scores_count_up_to_and_with_the_divergence():
    ours = generation([1, 0], [0, 1.5], [9, 0])
    theirs = generation([1, 0], [2, 0], [1, 0])
    found = compare(ours, theirs)
    assert found.divergence == 1
    assert found.errors == (0.0, 2.0)
    assert found.relative_errors == (0.0, 1.0)


def test_the_margin_is_the_oracles_own_at_the_divergence():
    found = compare(generation([0.0, 1.0]), generation([1.0, 0.75]))
    assert found.margin == pytest.approx(0.25)


def test_states_count_for_the_prompt_and_the_tokens_before_the_divergence():
    rows = [[1, 0], [1, 0], [1, 0], [0, 1]]
    ours = generation([1, 0], [0, 1], states={4: rows})
    theirs = generation([0, 1], [0, 1], states={4: [[1, 0], [1, 0], [1, 0], [1, 0]]})
    assert compare(ours, theirs).state_cosines == {4: (1.0, 1.0, 1.0)}


def test_a_nan_among_logits_is_an_infinite_error_and_no_cosine():
    found = compare(generation([1, 2, NAN], tokens=[1]), generation([1, 2, 0]))
    assert found.max_error == float("inf")
    assert isnan(found.logit_cosines[0])


def test_a_log_probability_that_is_not_told_is_left_out():
    ours = generation([-0.1, NAN, -2.5], scale="log-probabilities", tokens=[0])
    theirs = generation([-0.1, -7.0, -2.0], scale="log-probabilities")
    assert compare(ours, theirs).errors == (0.5,)


def test_logits_are_compared_with_log_probabilities_as_such():
    ours = generation([log(0.75), log(0.25)], scale="log-probabilities")
    theirs = generation([log(3.0) + 5, 5.0])
    found = compare(ours, theirs)
    assert found.max_error == pytest.approx(0.0, abs=1e-6)
    assert found.first_log_prob_error == pytest.approx(0.0, abs=1e-6)


def test_the_five_best_must_be_in_the_oracles_order():
    theirs = generation([6, 5, 4, 3, 2, 1])
    assert compare(generation([6, 5, 4, 3, 2, 0]), theirs).top5_first
    swapped = compare(generation([6, 4, 5, 3, 2, 1]), theirs)
    assert (swapped.argmax_first, swapped.top5_first) == (True, False)


def test_bits_are_told_from_values():
    assert not compare(generation([0.0, 1.0]), generation([-0.0, 1.0])).identical


def test_scores_of_another_vocabulary_are_a_finding():
    with pytest.raises(Nonconformance, match="shape"):
        compare(generation([1, 0]), generation([1, 0, 0]))


def test_generations_of_two_prompts_are_not_compared():
    with pytest.raises(ValueError, match="one prompt"):
        compare(generation([1, 0]), generation([1, 0], [1, 0]))


def test_cosines_of_zeros():
    ours, theirs = np.array([[0.0, 0], [0, 0], [3, 4]]), np.array([[0.0, 0], [1, 0], [4, 3]])
    assert cosine_rows(ours, theirs).tolist() == [1.0, 0.0, pytest.approx(24 / 25)]


def test_log_probabilities_sum_to_one():
    assert np.exp(log_probabilities(np.array([[1.0, 2, 3]]))).sum() == pytest.approx(1)


# Lanes ---------------------------------------------------------------------------------------


def test_the_float32_lane_finds_tokens_errors_and_bits():
    assert exact({"a": comparison()}, bits=True) == []
    assert "token 1 differs" in exact({"a": comparison(divergence=1)})[0]
    assert "0.002" in exact({"a": comparison(errors=(0.002,))})[0]
    assert exact({"a": comparison(errors=(0.0009,))}) == []
    assert "bit for bit" in exact({"a": comparison(identical=False)}, bits=True)[0]
    assert exact({"a": comparison(errors=(NAN,))}) != []


def test_the_production_lane_sums_over_the_corpus():
    nine = {str(n): comparison(before=Share(10, 10)) for n in range(9)}
    bad = comparison(before=Share(1, 1), after=Share(0, 9), divergence=1, margin=0.1)
    assert production({**nine, "bad": bad}) == []
    worse = {**dict(list(nine.items())[:8]), "bad": bad}
    assert "81 of 90" not in "".join(production({**nine, "bad": bad}))
    assert production({**worse, "bad2": bad}) != []


def test_a_mean_cosine_below_the_line_is_found():
    assert production({"a": comparison(logit_cosines=(0.9985, 0.9985))}) != []
    assert production({"a": comparison(logit_cosines=(0.9995, 0.9986))}) == []
    assert production({"a": comparison(logit_cosines=(NAN, 1.0))}) != []


def test_the_bound_is_on_every_prompt():
    found = {"a": comparison(errors=(0.1,)), "b": comparison(errors=(0.3,))}
    assert [line.partition(":")[0] for line in within(found, 0.25)] == ["b"]


def test_another_engine_is_judged_by_agreement_and_the_first_step():
    assert cross_engine({"a": comparison(first_log_prob_error=0.006)}) == []
    assert cross_engine({"a": comparison(first_log_prob_error=0.05)}) != []
    apart = comparison(before=Share(4, 4), after=Share(0, 20), divergence=4)
    assert cross_engine({"a": apart}) != []


def test_figures_of_nothing_are_refused():
    with pytest.raises(ValueError, match="no comparison"):
        figures([])


def test_figures_count_and_keep_the_worst():
    found = figures([comparison(errors=(0.1,)), comparison(errors=(0.4,), identical=False)])
    assert (found.prompts, found.max_error, found.identical) == (2, 0.4, 1)
    assert found.as_document()["agreement"] == {"equal": 4, "compared": 4, "ratio": 1.0}
    assert found.as_document()["after"]["ratio"] is None
