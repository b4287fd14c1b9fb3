"""A run judged again from its journals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_meshnet.evidence.bundle import BundleError, BundleWriter
from pytest_meshnet.evidence.journal import Collection, CollectionError
from pytest_meshnet.evidence.recorder import Recorder
from pytest_meshnet.evidence.summary import Summary
from pytest_meshnet.ledger.applicability import Fact
from pytest_meshnet.ledger.status import PhaseRecord, PlannedTest, Status
from pytest_meshnet.tests.evidence import making
from pytest_meshnet.tests.evidence.making import RUNTIME_TEST


def judged(
    tmp_path: Path,
    act: Callable[[BundleWriter], Any] = lambda _: None,
    collection: Collection | None = None,
    **about: Any,
) -> Summary:
    """Judge a run in which `act` happens and every other planned test passes."""
    writer = making.begin(tmp_path, **about)
    collection = collection or Collection(making.planned())
    writer.recorder.collected(collection)
    writer.plan(collection)
    act(writer)
    begun = writer.recorded().processes
    for one in collection.tests:
        if one.test not in begun:
            making.record(writer.recorder, one.test)
    summary = writer.summary()
    writer.recorder.close()
    return summary


def status(summary: Summary, test: str = RUNTIME_TEST) -> tuple[Status, str]:
    return next((one.status, one.reason) for one in summary.judgements if one.test == test)


def breaches(summary: Summary) -> list[str]:
    return [one.test for one in summary.judgements if one.test.startswith("<")]


def test_a_run_whose_tests_all_passed_is_certified(tmp_path: Path):
    assert judged(tmp_path).verdict.word == "CERTIFIED"


def test_a_failure_is_judged_from_its_phase(tmp_path: Path):
    def act(writer: BundleWriter) -> None:
        making.record(writer.recorder, RUNTIME_TEST, **making.FAILING)

    summary = judged(tmp_path, act)
    assert status(summary) == (Status.FAILED, "expected: 1")
    assert summary.verdict.exit_code == 1


def test_a_rerun_never_repairs_a_failure(tmp_path: Path):
    def act(writer: BundleWriter) -> None:
        making.record(writer.recorder, RUNTIME_TEST, **making.FAILING)
        making.record(writer.recorder, RUNTIME_TEST)

    assert status(judged(tmp_path, act))[0] is Status.FAILED


def test_an_xfail_dressed_as_passed_is_an_engine_error(tmp_path: Path):
    def act(writer: BundleWriter) -> None:
        making.record(writer.recorder, RUNTIME_TEST, wasxfail="later")

    assert status(judged(tmp_path, act)) == (Status.ENGINE_ERROR, "xfail is no verdict: later")


@pytest.mark.parametrize("kind", ["nonconformance", "engine-error", "not-run"])
def test_a_report_rewritten_to_passed_does_not_pass(tmp_path: Path, kind: str):
    def act(writer: BundleWriter) -> None:
        making.record(writer.recorder, RUNTIME_TEST, kind=kind, message="m")

    assert judged(tmp_path, act).verdict.exit_code != 0


def test_several_calls_of_one_attempt_are_subtests(tmp_path: Path):
    def act(writer: BundleWriter) -> None:
        writer.recorder.attempt(RUNTIME_TEST)
        setup, call, teardown = making.phases(RUNTIME_TEST)
        for one in (setup, call, next(iter([call])), teardown):
            writer.recorder.phase(one)

    assert breaches(judged(tmp_path, act)) == []


def test_an_expected_failure_is_judged_by_the_list_in_the_start(tmp_path: Path):
    listed = f'[[failure]]\ntest = "{RUNTIME_TEST}"\nreason = "known"\nmessage = "expected: 1"\n'

    def act(writer: BundleWriter) -> None:
        making.record(writer.recorder, RUNTIME_TEST, **making.FAILING)

    summary = judged(tmp_path, act, expected_failures=listed)
    assert status(summary) == (Status.KNOWN_FAILURE, "known")
    assert summary.verdict.word == "NOT CERTIFIED"


def test_a_malformed_list_of_expected_failures_cannot_be_judged(tmp_path: Path):
    with pytest.raises(BundleError, match="cannot be judged"):
        judged(tmp_path, expected_failures="[[failure]]\n")


def test_a_deselected_test_that_was_claimed_did_not_run(tmp_path: Path):
    tests = making.planned()
    dropped = next(one for one in tests if one.test == RUNTIME_TEST)
    rest = tuple(one for one in tests if one is not dropped)
    summary = judged(tmp_path, collection=Collection(rest, (dropped,)))
    assert status(summary) == (Status.NOT_RUN, "deselected")
    assert summary.verdict.exit_code == 3


def test_a_deselected_test_that_nobody_claimed_does_not_matter(tmp_path: Path):
    other = next(
        one for one in making.LEDGER.requirements if one.profile not in ("core", "core-wire")
    )
    unclaimed = PlannedTest("conformance/test_other.py::test_x", (other.id,))
    summary = judged(tmp_path, collection=Collection(making.planned(), (unclaimed,)))
    assert status(summary, unclaimed.test)[0] is Status.NOT_CLAIMED
    assert summary.verdict.word == "CERTIFIED"


def test_a_collection_error_is_an_engine_error(tmp_path: Path):
    errors = (CollectionError("conformance/test_x.py", "boom"),)
    summary = judged(tmp_path, collection=Collection(making.planned(), (), errors))
    assert status(summary, "conformance/test_x.py") == (Status.ENGINE_ERROR, "collection: boom")
    assert summary.verdict.exit_code == 3


def test_a_refusal_is_the_verdict(tmp_path: Path):
    summary = judged(tmp_path, lambda writer: writer.recorder.refusal("no route"))
    assert (summary.verdict.word, summary.verdict.exit_code) == ("REFUSED", 2)


def test_facts_decide_what_is_not_applicable(tmp_path: Path):
    needing = next(one for one in making.LEDGER.requirements if one.needs == ("sessions>=2",))
    test = PlannedTest("conformance/test_n.py::test_n", (needing.id,))

    def act(writer: BundleWriter) -> None:
        writer.recorder.facts({"max_concurrent_sessions": Fact(1, "capability")})
        writer.recorder.attempt(test.test)

    profiles = (making.PROFILE, needing.profile)
    collection = Collection((*making.planned(), test))
    summary = judged(tmp_path, act, collection, profiles=profiles)
    assert status(summary, test.test)[0] is Status.NOT_APPLICABLE


def test_the_first_writer_of_a_fact_wins_and_a_contradiction_breaks_the_run(tmp_path: Path):
    def act(writer: BundleWriter) -> None:
        writer.recorder.facts({"layers": Fact(8, "capability")})
        writer.recorder.facts({"layers": Fact(8, "observed")})
        writer.recorder.facts({"layers": Fact(4, "observed")})

    summary = judged(tmp_path, act)
    assert summary.facts["layers"] == Fact(8, "capability")
    assert breaches(summary) == ["<facts-differ>"]
    assert summary.verdict.exit_code == 3


def start_only(writer: BundleWriter, test: str, process: str = "gw0") -> Recorder:
    worker = Recorder.join(writer.ticket(), process)
    worker.collected(Collection(making.planned()))
    worker.attempt(test)
    worker.phase(next(making.phases(test)))
    return worker


def test_a_test_in_which_its_worker_crashed_has_the_crash_as_reason(tmp_path: Path):
    def act(writer: BundleWriter) -> None:
        start_only(writer, RUNTIME_TEST).close()
        writer.recorder.worker_lost("gw0", RUNTIME_TEST, "gw0 crashed")

    summary = judged(tmp_path, act)
    assert status(summary) == (Status.NOT_RUN, "gw0 crashed")
    assert summary.verdict.exit_code == 3


def test_a_test_whose_process_died_without_a_word_is_an_engine_error(tmp_path: Path):
    summary = judged(tmp_path, lambda writer: start_only(writer, RUNTIME_TEST).close())
    assert status(summary)[0] is Status.ENGINE_ERROR


def test_a_test_that_never_began_has_the_loss_of_the_target_as_reason(tmp_path: Path):
    writer = making.begin(tmp_path)
    writer.recorder.collected(Collection(making.planned()))
    writer.plan(Collection(making.planned()))
    writer.recorder.target_lost("the runtime exited with -9")
    summary = writer.summary()
    writer.recorder.close()
    assert status(summary) == (Status.NOT_RUN, "the runtime exited with -9")


def test_the_loss_of_another_process_excuses_no_test_that_began(tmp_path: Path):
    def act(writer: BundleWriter) -> None:
        other = Recorder.join(writer.ticket(), "gw1")
        other.target_lost("gone")
        other.close()
        start_only(writer, RUNTIME_TEST).close()

    assert status(judged(tmp_path, act))[0] is Status.ENGINE_ERROR


def test_a_test_may_run_again_elsewhere_only_after_its_worker_was_lost(tmp_path: Path):
    def twice(writer: BundleWriter) -> None:
        start_only(writer, RUNTIME_TEST).close()
        making.record(writer.recorder, RUNTIME_TEST)

    def after_loss(writer: BundleWriter) -> None:
        twice(writer)
        writer.recorder.worker_lost("gw0", RUNTIME_TEST, "crashed")

    assert breaches(judged(tmp_path / "a", twice)) == ["<ran-twice>"]
    assert breaches(judged(tmp_path / "b", after_loss)) == []


def phase(writer: BundleWriter, when: int, attempt: int = 1) -> PhaseRecord:
    found = list(making.phases(RUNTIME_TEST, attempt))[when]
    writer.recorder.phase(found)
    return found


SETUP, CALL, TEARDOWN = range(3)


@pytest.mark.parametrize(
    ("steps", "code"),
    [
        (["attempt", SETUP, CALL, TEARDOWN], None),
        (["attempt", SETUP, TEARDOWN], None),
        ([SETUP], "attempt-gap"),
        (["attempt", CALL], "phase-order"),
        (["attempt", SETUP, SETUP], "phase-order"),
        (["attempt", SETUP, CALL, TEARDOWN, CALL], "phase-order"),
        (["attempt", SETUP, CALL, TEARDOWN, TEARDOWN], "phase-order"),
        (["attempt", SETUP, "attempt"], "phase-order"),
    ],
)
def test_phases_out_of_order_break_the_run(tmp_path: Path, steps: list[Any], code: str | None):
    def act(writer: BundleWriter) -> None:
        for step in steps:
            if step == "attempt":
                writer.recorder.attempt(RUNTIME_TEST)
            else:
                phase(writer, step)

    assert breaches(judged(tmp_path, act)) == ([f"<{code}>"] if code else [])


def test_a_phase_of_another_attempt_than_the_one_that_began_breaks_the_run(tmp_path: Path):
    def act(writer: BundleWriter) -> None:
        writer.recorder.attempt(RUNTIME_TEST)
        phase(writer, SETUP, attempt=2)

    assert breaches(judged(tmp_path, act)) == ["<attempt-gap>"]


def test_an_unplanned_test_breaks_the_run(tmp_path: Path):
    summary = judged(tmp_path, lambda writer: making.record(writer.recorder, "x.py::test_x"))
    assert breaches(summary) == ["<unplanned-test>"]


def test_a_worker_that_collected_something_else_breaks_the_run(tmp_path: Path):
    def act(writer: BundleWriter) -> None:
        worker = Recorder.join(writer.ticket(), "gw0")
        worker.collected(Collection(making.planned()[1:]))
        worker.close()

    assert breaches(judged(tmp_path, act)) == ["<plan-differs>"]


def test_workers_may_collect_in_another_order(tmp_path: Path):
    def act(writer: BundleWriter) -> None:
        worker = Recorder.join(writer.ticket(), "gw0")
        worker.collected(Collection(making.planned()[::-1]))
        worker.close()

    assert breaches(judged(tmp_path, act)) == []


def test_a_process_collects_once(tmp_path: Path):
    def act(writer: BundleWriter) -> None:
        writer.recorder.collected(Collection(making.planned()))

    assert breaches(judged(tmp_path, act)) == ["<collected-twice>"]


def test_a_plan_that_names_a_test_twice_breaks_the_run(tmp_path: Path):
    tests = making.planned()
    assert "<plan-duplicate>" in breaches(
        judged(tmp_path, collection=Collection((*tests, tests[0])))
    )


def test_a_plan_that_no_journal_collected_breaks_the_run(tmp_path: Path):
    writer = making.begin(tmp_path)
    writer.plan(Collection(making.planned()))
    summary = writer.summary()
    writer.recorder.close()
    assert breaches(summary) == ["<collected-missing>"]


def test_a_run_that_executed_nothing_is_incomplete(tmp_path: Path):
    writer = making.begin(tmp_path)
    assert writer.seal(0).verdict.exit_code == 3
