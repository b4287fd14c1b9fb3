import pytest

from pytest_meshnet.ledger.requirements import UnknownProfile
from pytest_meshnet.ledger.status import STALE_EXPECTATION, Judgement, Status
from pytest_meshnet.ledger.verdict import judge_run
from pytest_meshnet.tests.ledger.samples import LEDGER

CORE_MUST = ("CODEC-01", "DECODE-01", "DECODE-02", "IDEM-01")


def judgement(id, status=Status.PASSED, reason=""):
    return Judgement(f"conformance/test_a.py::test_{id}", status, reason, (id,))


def verdict(*changed, claimed=("core",), **run):
    """The verdict of a run whose claimed MUSTs all pass but for the changed judgements."""
    changed_ids = {name for one in changed for name in one.requirements}
    rest = [judgement(id) for id in CORE_MUST if id not in changed_ids]
    return judge_run([*rest, *changed], LEDGER, frozenset(claimed), **run)


def test_every_claimed_must_passed_is_certified():
    answer = verdict()
    assert (answer.word, answer.exit_code, answer.blocking) == ("CERTIFIED", 0, ())
    assert answer.counts[Status.PASSED] == 4
    assert set(answer.counts) == set(Status)


def test_a_failed_must_is_not_conformant():
    answer = verdict(judgement("DECODE-02", Status.FAILED, "past_len is 3"))
    assert (answer.word, answer.exit_code) == ("NOT CONFORMANT", 1)
    assert answer.blocking == ("failed conformance/test_a.py::test_DECODE-02: past_len is 3",)
    assert answer.by_requirement["DECODE-02"] is Status.FAILED


def test_a_failed_should_is_shown_and_does_not_block():
    answer = verdict(judgement("DECODE-03", Status.FAILED, "slow"))
    assert (answer.word, answer.exit_code) == ("CERTIFIED", 0)
    assert answer.by_requirement["DECODE-03"] is Status.FAILED
    assert answer.counts[Status.FAILED] == 1


def test_a_stale_expectation_blocks_even_for_a_should():
    answer = verdict(judgement("DECODE-03", Status.FAILED, STALE_EXPECTATION))
    assert (answer.word, answer.exit_code) == ("NOT CONFORMANT", 1)


@pytest.mark.parametrize("id", ["DECODE-02", "DECODE-03"])
def test_an_engine_error_outweighs_a_failure(id):
    answer = verdict(judgement("DECODE-01", Status.FAILED), judgement(id, Status.ENGINE_ERROR))
    assert (answer.word, answer.exit_code) == ("INCOMPLETE", 3)


def test_a_failure_outweighs_what_was_not_run():
    answer = verdict(judgement("DECODE-01", Status.FAILED), judgement("DECODE-02", Status.NOT_RUN))
    assert (answer.word, answer.exit_code) == ("NOT CONFORMANT", 1)


def test_a_must_that_was_not_run_is_incomplete():
    answer = verdict(judgement("IDEM-01", Status.NOT_RUN, "not provoked: no race"))
    assert (answer.word, answer.exit_code) == ("INCOMPLETE", 3)


def test_a_should_that_was_not_run_does_not_block():
    assert verdict(judgement("DECODE-03", Status.NOT_RUN)).exit_code == 0


def test_a_claimed_must_without_a_test_is_missing_and_incomplete():
    answer = judge_run([judgement(id) for id in CORE_MUST[:3]], LEDGER, frozenset({"core"}))
    assert answer.missing == ("IDEM-01",)
    assert answer.by_requirement["IDEM-01"] is Status.NOT_RUN
    assert (answer.word, answer.exit_code) == ("INCOMPLETE", 3)
    assert answer.blocking == ("not-run IDEM-01: no test yet",)


def test_known_failures_exit_zero_but_are_never_certified():
    answer = verdict(judgement("DECODE-01", Status.KNOWN_FAILURE, "bug 7"))
    assert (answer.word, answer.exit_code) == ("NOT CERTIFIED", 0)
    assert answer.blocking == ("known-failure conformance/test_a.py::test_DECODE-01: bug 7",)


def test_a_refusal_outweighs_everything():
    answer = verdict(judgement("DECODE-01", Status.ENGINE_ERROR), refusal="cannot reach ::1")
    assert (answer.word, answer.exit_code) == ("REFUSED", 2)
    assert answer.blocking == ("refused: cannot reach ::1",)


def test_a_recorded_loss_is_incomplete_even_when_every_test_passed():
    assert verdict(lost="worker gw0 crashed").exit_code == 3


def test_a_run_that_executed_nothing_is_incomplete():
    nothing = [judgement("KV-01", Status.NOT_APPLICABLE)]
    answer = judge_run(nothing, LEDGER, frozenset({"kv"}))
    assert answer.exit_code == 3
    assert "no test was executed" in answer.blocking


def test_a_must_whose_need_is_unmet_does_not_block():
    answer = verdict(
        judgement("KV-01", Status.NOT_APPLICABLE), judgement("KV-02"), claimed=["core", "kv"]
    )
    assert (answer.word, answer.exit_code) == ("CERTIFIED", 0)


def test_a_must_without_needs_is_never_excused_by_the_need_of_another():
    both = Judgement("conformance/test_a.py::both", Status.NOT_APPLICABLE, "", ("KV-01", "KV-02"))
    answer = verdict(both, claimed=["core", "kv"])
    assert answer.exit_code == 3
    assert "KV-02: no applicable test" in answer.blocking


def test_the_severest_status_speaks_for_a_requirement():
    more = judgement("DECODE-01", Status.FAILED), judgement("DECODE-01", Status.NOT_RUN)
    assert verdict(*more, judgement("DECODE-01")).by_requirement["DECODE-01"] is Status.FAILED
    passed_and_excused = judgement("DECODE-01", Status.NOT_APPLICABLE), judgement("DECODE-01")
    assert verdict(*passed_and_excused).by_requirement["DECODE-01"] is Status.PASSED


def test_an_unclaimed_failure_is_no_part_of_the_verdict():
    assert verdict(judgement("KV-02", Status.NOT_CLAIMED)).exit_code == 0
    assert "KV-02" not in verdict().by_requirement


def test_an_unknown_profile_is_refused():
    with pytest.raises(UnknownProfile):
        verdict(claimed=["everything"])
