"""The attacks bite: a verifier with one check taken out lets one of them through.

Only a sample here; `tox run -e bite-verify` takes out every check.
"""

from __future__ import annotations

import pytest

from pytest_meshnet.tests.evidence.attacks import ATTACKS
from pytest_meshnet.tests.evidence.attacks.base import Corpus
from pytest_meshnet.tests.evidence.attacks.bite import Mutant, applied, mutants, noticed_by

MUTANTS = list(mutants())


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return Corpus.make(tmp_path_factory.mktemp("bite"))


@pytest.mark.parametrize("mutant", MUTANTS[::12], ids=lambda one: one.place)
def test_an_attack_goes_through_where_a_check_was_taken_out(corpus: Corpus, mutant: Mutant):
    assert noticed_by(mutant, corpus, ATTACKS) is not None


def test_a_verifier_of_which_nothing_was_taken_out_is_not_noticed(corpus: Corpus):
    whole = MUTANTS[0]
    same = Mutant("nothing", whole.function, whole.function.__code__, whole.codes, whole.beside)
    assert noticed_by(same, corpus, ATTACKS[:20]) is None


def test_a_mutant_is_the_verifier_only_while_it_is_applied():
    before = MUTANTS[0].function.__code__
    with applied(MUTANTS[0]):
        assert MUTANTS[0].function.__code__ is not before
    assert MUTANTS[0].function.__code__ is before


def test_every_reason_code_that_an_attack_expects_is_of_a_function_that_is_mutated():
    told = frozenset[str]().union(*(one.beside for one in MUTANTS))
    put_together = {"statement-differs"}
    assert {one.code for one in ATTACKS} - {""} - told == put_together
