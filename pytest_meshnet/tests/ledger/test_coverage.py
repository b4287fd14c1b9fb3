import pytest

from pytest_meshnet.ledger.coverage import cover
from pytest_meshnet.ledger.requirements import UnknownRequirement
from pytest_meshnet.ledger.status import PlannedTest
from pytest_meshnet.tests.ledger.samples import LEDGER

PLANNED = [PlannedTest("a", ("DECODE-01", "DECODE-02")), PlannedTest("b", ("DECODE-01",))]


def covered(planned=PLANNED, mutants=None):
    return {one.requirement.id: one for one in cover(LEDGER, planned, mutants or {})}


def test_each_requirement_lists_its_tests_and_mutants_in_ledger_order():
    answer = covered(mutants={"forgets-length": ["DECODE-01"]})
    assert list(answer) == [one.id for one in LEDGER.requirements]
    assert answer["DECODE-01"].tests == ("a", "b")
    assert answer["DECODE-01"].mutants == ("forgets-length",)
    assert answer["DECODE-01"].gaps == ()


def test_a_must_says_what_it_lacks_and_a_should_lacks_nothing():
    answer = covered()
    assert answer["DECODE-02"].gaps == ("no mutant",)
    assert answer["IDEM-01"].gaps == ("no test", "no mutant")
    assert answer["DECODE-03"].gaps == ()


@pytest.mark.parametrize(
    ("planned", "mutants"), [([PlannedTest("a", ("DECODE-77",))], {}), ([], {"m": ["DECODE-77"]})]
)
def test_an_id_outside_the_ledger_is_refused(planned, mutants):
    with pytest.raises(UnknownRequirement):
        covered(planned, mutants)
