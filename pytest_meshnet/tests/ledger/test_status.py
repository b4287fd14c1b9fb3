import pytest

from pytest_meshnet.ledger.applicability import Fact
from pytest_meshnet.ledger.expected import ExpectedFailure, ExpectedFailures
from pytest_meshnet.ledger.requirements import UnknownRequirement
from pytest_meshnet.ledger.status import (
    STALE_EXPECTATION,
    WORST_FIRST,
    Judgement,
    PlannedTest,
    Status,
    judge,
)
from pytest_meshnet.tests.ledger.samples import LEDGER, phase, run

TEST = "conformance/test_a.py::test"
ONE_SESSION = {"max_concurrent_sessions": Fact(1, "capability")}
LISTED = ExpectedFailures({TEST: ExpectedFailure(TEST, "bug 7", "past_len")})


def judged(phases, *ids, claimed=("core",), facts=None, expected=None, lost=None):
    return judge(
        PlannedTest(TEST, ids or ("DECODE-01",)),
        phases,
        ledger=LEDGER,
        claimed=frozenset(claimed),
        facts=facts or {},
        expected=expected or ExpectedFailures(),
        lost=lost,
    )


def judged_without_requirement(phases):
    return judge(
        PlannedTest(TEST, ()),
        phases,
        ledger=LEDGER,
        claimed=frozenset({"core"}),
        facts={},
        expected=ExpectedFailures(),
        lost=None,
    )


def test_a_test_with_subtests_has_several_calls_and_still_must_end():
    phases = [phase("setup"), phase("call"), phase("call"), phase("teardown")]
    assert judged(phases).status is Status.PASSED
    assert judged(phases[:-1]).status is Status.ENGINE_ERROR
    assert judged([phases[0], phases[1], phases[3], phases[1]]).status is Status.ENGINE_ERROR


def test_three_passed_phases_are_passed():
    expected = Judgement(TEST, Status.PASSED, "", ("DECODE-01",))
    assert judged(run()) == expected


def test_a_nonconformance_in_the_call_is_failed_with_its_first_line():
    answer = judged(run("failed", "nonconformance", message="past_len is 3\nframes follow"))
    assert (answer.status, answer.reason) == (Status.FAILED, "past_len is 3")


def test_a_nonconformance_in_the_setup_is_failed_too():
    phases = [phase("setup", "failed", "nonconformance", message="no accept"), phase("teardown")]
    assert judged(phases).status is Status.FAILED


def test_another_exception_is_an_engine_error_even_after_a_nonconformance():
    phases = run("failed", "nonconformance", message="wrong")[:2]
    phases.append(phase("teardown", "failed", "engine-error", reason="KeyError"))
    answer = judged(phases)
    assert (answer.status, answer.reason) == (Status.ENGINE_ERROR, "teardown: KeyError")


@pytest.mark.parametrize("when", ["setup", "teardown"])
def test_a_plain_failure_outside_the_call_is_an_engine_error(when):
    phases = [phase(when, "failed") if one.when == when else one for one in run()]
    assert judged(phases).status is Status.ENGINE_ERROR


def test_every_status_has_one_place_among_the_worst():
    assert sorted(WORST_FIRST) == sorted(Status)


def test_a_plain_failure_of_the_call_is_failed():
    assert judged(run("failed")).status is Status.FAILED


def test_a_failing_self_check_of_the_suite_is_an_engine_error_that_names_it():
    answer = judged(run("failed", "nonconformance", message="wrong bytes"), "CODEC-01", "DECODE-01")
    assert (answer.status, answer.reason) == (
        Status.ENGINE_ERROR,
        "the suite breaks CODEC-01: wrong bytes",
    )


def judged_on_testee(phases, **facts):
    return judge(
        PlannedTest(TEST, ("CODEC-01",), testee=True),
        phases,
        ledger=LEDGER,
        claimed=frozenset({"core"}),
        facts={name: Fact(value, "descriptor") for name, value in facts.items()},
        expected=ExpectedFailures(),
        lost=None,
    )


def test_on_the_runtimes_own_codec_a_failure_is_the_runtimes():
    answer = judged_on_testee(run("failed", "nonconformance", message="wrong bytes"))
    assert (answer.status, answer.reason, answer.testee) == (Status.FAILED, "wrong bytes", True)


def test_a_test_of_a_codec_testee_is_excused_only_where_there_is_recorded_to_be_none():
    skipped = [phase("setup", "skipped", "not-applicable"), phase("teardown")]
    answer = judged_on_testee(skipped, codec_testee=False)
    assert (answer.status, answer.reason) == (
        Status.NOT_APPLICABLE,
        "needs codec-testee: codec-testee",
    )
    assert judged_on_testee(skipped).status is Status.ENGINE_ERROR
    assert judged_on_testee(skipped, codec_testee=True).status is Status.ENGINE_ERROR
    assert judged_on_testee(run(), codec_testee=False).status is Status.ENGINE_ERROR
    assert judged_on_testee(run(), codec_testee=True).status is Status.PASSED


def test_an_unclaimed_test_is_not_claimed_and_one_claimed_requirement_is_enough():
    skipped = [phase("setup", "skipped", "not-claimed"), phase("teardown")]
    answer = judged(skipped, "KV-02")
    assert (answer.status, answer.reason) == (Status.NOT_CLAIMED, "profile kv is not claimed")
    assert judged(run(), "KV-02", "DECODE-01").status is Status.PASSED


def test_a_test_for_no_requirement_is_judged_by_what_it_did():
    assert judged_without_requirement(run()).status is Status.PASSED
    assert judged_without_requirement(run("failed")).status is Status.FAILED


def test_a_test_for_no_requirement_may_be_excused_by_its_own_profile():
    skipped = [phase("setup", "skipped", "not-claimed", reason="profile kv"), phase("teardown")]
    answer = judged_without_requirement(skipped)
    assert (answer.status, answer.reason) == (Status.NOT_CLAIMED, "profile kv")
    ran = [phase("setup", "skipped", "not-claimed"), phase("call"), phase("teardown")]
    assert judged_without_requirement(ran).status is Status.ENGINE_ERROR


def test_the_subset_core_wire_claims_its_groups_and_not_the_rest_of_core():
    assert judged(run(), "DECODE-01", claimed=["core-wire"]).status is Status.PASSED
    assert judged([], "IDEM-01", claimed=["core-wire"]).status is Status.NOT_CLAIMED


def test_a_contradicted_need_is_not_applicable_with_its_meaning():
    answer = judged([], "KV-01", claimed=["kv"], facts=ONE_SESSION)
    assert answer.status is Status.NOT_APPLICABLE
    assert answer.reason == "needs sessions>=2: two sessions"


def test_an_undecided_need_excuses_nothing():
    assert judged(run("failed"), "KV-01", claimed=["kv"]).status is Status.FAILED


@pytest.mark.parametrize(
    ("ids", "claimed", "facts"), [(["KV-02"], ["core"], {}), (["KV-01"], ["kv"], ONE_SESSION)]
)
def test_an_excused_test_that_ran_its_call_is_an_engine_error(ids, claimed, facts):
    answer = judged(run(), *ids, claimed=claimed, facts=facts)
    assert answer.status is Status.ENGINE_ERROR
    assert "it ran although" in answer.reason


@pytest.mark.parametrize("kind", ["not-claimed", "not-applicable"])
def test_a_recorded_excuse_that_the_ledger_does_not_give_is_an_engine_error(kind):
    phases = [phase("setup", "skipped", kind), phase("teardown")]
    assert judged(phases).status is Status.ENGINE_ERROR


@pytest.mark.parametrize("outcome", ["passed", "skipped", "failed"])
def test_xfail_is_no_verdict(outcome):
    phases = run()
    phases[1] = phase("call", outcome, wasxfail="flaky")
    answer = judged(phases)
    assert (answer.status, answer.reason) == (Status.ENGINE_ERROR, "xfail is no verdict: flaky")


def test_no_phases_are_not_run_with_the_recorded_loss_when_there_is_one():
    assert judged([]).reason == "never started"
    answer = judged([], lost="worker killed by signal 9")
    assert (answer.status, answer.reason) == (Status.NOT_RUN, "worker killed by signal 9")


def test_a_not_run_phase_keeps_its_reason():
    answer = judged(run("failed", "not-run", reason="not provoked: no race"))
    assert (answer.status, answer.reason) == (Status.NOT_RUN, "not provoked: no race")


def test_a_plain_skip_is_not_run_and_never_passed():
    phases = [phase("setup", "skipped", reason="no numpy"), phase("teardown")]
    answer = judged(phases)
    assert (answer.status, answer.reason) == (Status.NOT_RUN, "skipped: no numpy")


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_a_rerun_never_repairs_a_failure(order):
    failing, passing = order
    phases = run("failed", "nonconformance", attempt=failing) + run(attempt=passing)
    assert judged(phases).status is Status.FAILED


def test_a_test_cut_off_before_its_teardown_is_an_engine_error():
    answer = judged(run()[:2])
    assert answer.status is Status.ENGINE_ERROR
    assert "recorded: setup, call" in answer.reason


def test_a_test_cut_off_by_a_recorded_loss_is_not_run():
    answer = judged(run()[:1], lost="target closed the connection")
    assert (answer.status, answer.reason) == (Status.NOT_RUN, "target closed the connection")


def test_a_listed_failure_with_its_message_is_a_known_failure():
    answer = judged(run("failed", "nonconformance", message="past_len is 3"), expected=LISTED)
    assert (answer.status, answer.reason) == (Status.KNOWN_FAILURE, "bug 7")


def test_a_listed_failure_with_another_message_is_failed():
    answer = judged(run("failed", "nonconformance", message="no answer"), expected=LISTED)
    assert answer.status is Status.FAILED
    assert "expected 'past_len'" in answer.reason


def test_a_listed_failure_that_passes_is_failed():
    answer = judged(run(), expected=LISTED)
    assert (answer.status, answer.reason) == (Status.FAILED, STALE_EXPECTATION)


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [("passed", "nonconformance"), ("skipped", "nonconformance"), ("passed", "engine-error"),
     ("passed", "not-run")],
)  # fmt: skip
def test_an_outcome_that_contradicts_its_kind_is_an_engine_error(outcome, kind):
    assert judged(run(outcome, kind)).status is Status.ENGINE_ERROR


def test_a_plan_of_another_ledger_is_refused():
    with pytest.raises(UnknownRequirement):
        judged(run(), "DECODE-77")
