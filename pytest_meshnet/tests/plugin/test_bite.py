"""The proof of bite: a mutant is killed by a finding, survives, or has no test; variants pass."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import asdict

import pytest
from click.testing import CliRunner

from pytest_meshnet.ledger.requirements import Ledger
from pytest_meshnet.ledger.status import PlannedTest
from pytest_meshnet.reference.catalogue import entry
from pytest_meshnet.suite.bite import child
from pytest_meshnet.suite.bite.command import mutants
from pytest_meshnet.suite.bite.fate import Bite, Ending, bystanders, designated, judged
from pytest_meshnet.suite.bite.matrix import bite

DUPLICATE = (
    "conformance/test_idem.py::test_a_repeated_decode_step_is_a_duplicate_and_the_next_step_is_"
    "undisturbed[once-decode-step]"
)
GAP = "conformance/test_idem.py::test_a_step_number_that_jumps_ahead_is_accepted"


def test_a_mutant_is_killed_by_a_test_of_its_requirement() -> None:
    (found,) = bite([entry("misses-before-duplicates")], [PlannedTest(DUPLICATE, ("IDEM-01",))], 1)
    assert (found.fate, found.killers) == ("killed", (DUPLICATE,))
    assert "duplicate true" in found.message


def test_a_mutant_that_no_test_of_its_requirement_notices_survives() -> None:
    # The test of another requirement stands in for one whose assertion was weakened.
    (found,) = bite([entry("misses-before-duplicates")], [PlannedTest(GAP, ("IDEM-01",))], 1)
    assert found.fate == "SURVIVED"


def test_a_suite_mutant_is_killed_in_a_process_of_its_own() -> None:
    test = "conformance/test_wire_schema.py::test_the_service_has_exactly_the_five_methods"
    both = [entry("schema-without-cancel"), entry("misses-before-duplicates")]
    fates = {
        one.mutant: one.fate for one in bite(both, [PlannedTest(test, ("WIRE-01", "IDEM-01"))], 1)
    }
    assert fates == {"schema-without-cancel": "killed", "misses-before-duplicates": "SURVIVED"}


def test_a_process_that_breaks_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(order: child.Order) -> child.Result:
        raise OSError("no space left on device")

    monkeypatch.setattr(child, "_run", broken)
    order = child.Order("schema-without-cancel", "in-process", (), apart=True)
    orders = io.StringIO(json.dumps([asdict(order)]))
    monkeypatch.setattr(sys, "stdin", orders)
    with pytest.raises(RuntimeError, match="the process of schema-without-cancel ended with 1"):
        child.main()


@pytest.mark.parametrize(
    ("own", "others", "fate"),
    [
        (["passed", "nonconformance"], [], "killed"),
        (["nonconformance", "engine-error"], ["passed"], "killed"),
        (["engine-error", "passed"], [], "only crashed"),
        (["engine-error", "passed"], ["nonconformance"], "only crashed"),
        (["passed", "not-run"], ["nonconformance"], "only by others"),
        (["passed"], ["engine-error"], "only by others"),
        (["passed", "passed"], ["passed"], "SURVIVED"),
        (["not-applicable", "not-claimed", "not-run"], [], "no test"),
        ([], [], "no test"),
    ],
)
def test_the_fate_follows_from_how_the_tests_ended(
    own: list[str], others: list[str], fate: str
) -> None:
    endings = [Ending(f"own-{number}", kind, "message") for number, kind in enumerate(own)]
    endings += [Ending(f"other-{number}", kind, "message") for number, kind in enumerate(others)]
    designated = [one.test for one in endings if one.test.startswith("own")]
    found = judged(entry("misses-before-duplicates"), endings, designated, 0.0)
    assert found.fate == fate
    assert all(test.startswith("own") for test in found.killers)
    assert all(test.startswith("other") for test in found.others)


@pytest.mark.parametrize(
    ("musts", "others", "fate"),
    [
        (["passed", "not-applicable"], ["not-run"], "passed"),
        (["passed", "not-run"], ["passed"], "NOT EXAMINED"),
        (["passed", "nonconformance"], [], "VARIANT FAILED"),
        (["passed"], ["nonconformance"], "VARIANT FAILED"),
        (["passed", "engine-error", "not-run"], [], "VARIANT FAILED"),
        (["not-applicable"], [], "no test"),
    ],
)
def test_a_variant_must_pass_everything_and_be_examined_by_every_must(
    musts: list[str], others: list[str], fate: str
) -> None:
    endings = [Ending(f"must-{number}", kind, "message") for number, kind in enumerate(musts)]
    endings += [Ending(f"other-{number}", kind, "message") for number, kind in enumerate(others)]
    designated = [one.test for one in endings if one.test.startswith("must")]
    assert judged(entry("one-session"), endings, designated, 0.0).fate == fate


def test_a_mutant_caught_only_by_tests_of_other_requirements_is_named_so() -> None:
    # The designated test is weak on purpose; the whole profile holds one that notices.
    plan = [PlannedTest(GAP, ("IDEM-01",)), PlannedTest(DUPLICATE, ("IDEM-02",))]
    (found,) = bite([entry("misses-before-duplicates")], plan, 1, whole=True)
    assert (found.fate, found.killers, found.others) == ("only by others", (), (DUPLICATE,))


def test_the_bystanders_of_a_mutant_are_of_its_profile_and_of_its_kind() -> None:
    plan = [
        PlannedTest("own", ("IDEM-01",)),
        PlannedTest("same profile", ("DECODE-02",)),
        PlannedTest("another profile", ("KV-01",)),
        PlannedTest("of the suite", ("CODEC-03",)),
        PlannedTest("at length", ("DECODE-02", "ROBUST-05")),
    ]
    assert bystanders(entry("misses-before-duplicates"), plan, Ledger.load()) == ["same profile"]


def test_with_the_designated_tests_alone_the_first_finding_is_enough() -> None:
    second = DUPLICATE.replace("once-decode-step", "three-times-decode-step")
    assert second != DUPLICATE
    plan = [PlannedTest(DUPLICATE, ("IDEM-01",)), PlannedTest(second, ("IDEM-01",))]
    (found,) = bite([entry("misses-before-duplicates")], plan, 1)
    assert (found.fate, found.ran) == ("killed", 1)


def test_on_a_variant_every_test_of_a_runtime_runs_and_none_of_the_suite() -> None:
    of_the_suite = "conformance/test_wire_schema.py::test_there_is_no_such_test"
    plan = [
        PlannedTest(GAP, ("IDEM-06",)),
        PlannedTest(DUPLICATE, ("IDEM-01",)),
        PlannedTest(of_the_suite, ("WIRE-01",)),
    ]
    (found,) = bite([entry("one-session")], plan, 1)
    assert (found.fate, found.killers) == ("passed", ())


@pytest.mark.parametrize(("whole", "ran"), [(False, 1), (True, 3)])
def test_the_long_tests_and_zstd_are_for_a_whole_matrix(whole: bool, ran: int) -> None:
    long = "conformance/test_idem.py::test_a_step_number_that_jumps_ahead_is_accepted"
    plan = [PlannedTest(DUPLICATE, ("IDEM-01",)), PlannedTest(long, ("IDEM-06", "ROBUST-04"))]
    (found,) = bite([entry("one-session")], plan, 1, whole=whole)
    assert (found.fate, found.ran) == ("passed", ran)


def test_a_failing_variant_is_named_with_its_tests_and_makes_the_command_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object) -> list[Bite]:
        return [Bite("one-session", "", "VARIANT FAILED", (GAP,), (), 1, "unfair", 1.0)]

    monkeypatch.setattr("pytest_meshnet.suite.certify.planned_tests", list)
    monkeypatch.setattr("pytest_meshnet.suite.bite.matrix.bite", fails)
    answer = CliRunner().invoke(mutants, ["--run", "one-session"])
    assert answer.exit_code == 1
    assert f"one-session by {GAP}" in answer.output
    assert "0 of 1 variants passed" in answer.output


def test_a_test_that_was_ordered_and_never_started_is_no_pass() -> None:
    nobody = "conformance/test_idem.py::test_that_is_no_more"
    plan = [PlannedTest(DUPLICATE, ("IDEM-01",)), PlannedTest(nobody, ("IDEM-02",))]
    (found,) = bite([entry("one-session")], plan, 1)
    assert (found.fate, found.killers) == ("NOT EXAMINED", (nobody,))
    assert found.message == "never started"


def test_a_suite_that_cannot_be_collected_is_told_and_no_survivor() -> None:
    plan = [PlannedTest("conformance/test_that_is_no_module.py::test_a", ("IDEM-01",))]
    with pytest.raises(RuntimeError, match="could not run"):
        list(bite([entry("misses-before-duplicates")], plan, 1))


def test_an_unknown_id_is_refused() -> None:
    answer = CliRunner().invoke(mutants, ["--run", "NOBODY-99"])
    assert answer.exit_code == 2
    assert "NOBODY-99" in answer.output


def test_the_list_names_requirement_and_docstring() -> None:
    answer = CliRunner().invoke(mutants, ["--list", "IDEM-06"])
    assert answer.exit_code == 0
    assert "demands-the-next-step: A step number that leaves a gap is refused." in answer.output


def test_a_mutant_of_a_testee_is_killed_on_the_testee_and_one_of_the_suite_elsewhere() -> None:
    ledger = Ledger.load()
    plan = [
        PlannedTest("ours", ("CODEC-06",)),
        PlannedTest("theirs", ("CODEC-06",), testee=True),
        PlannedTest("our other", ("CODEC-05",)),
        PlannedTest("their other", ("CODEC-05",), testee=True),
    ]
    of_suite, of_testee = entry("codec-that-takes-big-endian"), "testee-codec-that-takes-big-endian"
    assert designated(of_suite, plan, ledger) == ["ours"]
    assert bystanders(of_suite, plan, ledger) == ["our other"]
    assert designated(entry(of_testee), plan, ledger) == ["theirs"]
    assert bystanders(entry(of_testee), plan, ledger) == ["their other"]
    assert designated(entry("testee-without-rules"), plan, ledger) == ["theirs", "their other"]
    assert designated(entry("one-session"), plan, ledger) == []


def test_a_suite_mutant_is_killed_beside_a_mutant_whose_tests_import_the_same_module() -> None:
    module = "acceptance/parity/test_sensitivity.py"
    tests = [
        PlannedTest(f"{module}::{name}", ("PARITY-06",))
        for name in (
            "test_the_logit_error_stays_below_the_bound_calibrated_for_the_model",
            "test_every_negative_control_exceeds_the_bound_that_honest_routes_keep",
        )
    ]
    both = [entry("decode-shifted-by-one"), entry("only-tokens-count")]
    assert [one.fate for one in bite(both, tests, 1)] == ["killed", "killed"]
