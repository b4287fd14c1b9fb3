"""What a run came to, recomputed from its raw journal records by pure functions.

The sealer and the verifier both call `summarize`: a verdict that its journals do not give cannot
be sealed by accident, nor believed when somebody wrote it by hand.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_meshnet.evidence.documents import Start, wrap
from pytest_meshnet.evidence.journal import Collection
from pytest_meshnet.evidence.recorded import BREACH_LIMIT, Breach, Recorded
from pytest_meshnet.evidence.strict import StrictError
from pytest_meshnet.ledger.applicability import Fact, FactError
from pytest_meshnet.ledger.expected import ExpectedFailures, ExpectedFailuresError
from pytest_meshnet.ledger.requirements import Ledger, UnknownProfile, UnknownRequirement
from pytest_meshnet.ledger.status import Judgement, PhaseRecord, PlannedTest, Status, judge
from pytest_meshnet.ledger.verdict import Verdict, judge_run

DESELECTED = "deselected"


@dataclass(frozen=True, slots=True)
class Summary:
    """The judgement of every planned test, and of the run.

    What breaks the record itself, a fact told in two ways or a test that ran unplanned, is an
    engine error under an id in angle brackets.
    """

    judgements: tuple[Judgement, ...]
    verdict: Verdict
    facts: Mapping[str, Fact]


def summarize(start: Start, plan: Collection, recorded: Recorded, ledger: Ledger) -> Summary:
    """Judge a run from its records.

    Raises StrictError when start or plan are not of this ledger: plan-unknown-requirement,
    start-unknown-profile, start-expected-failures; ledger-unknown-need when the ledger has a need
    that this suite has no rule for.
    """
    claimed = frozenset(start.profiles)
    expected = _expected(start.expected_failures)
    facts = recorded.facts()
    try:
        ledger.check_profiles(sorted(claimed))
        judged = [
            judge(
                one,
                phases,
                ledger=ledger,
                claimed=claimed,
                facts=facts,
                expected=expected,
                lost=lost,
            )
            for one, phases, lost in _cases(plan, recorded)
        ]
    except UnknownProfile as error:
        raise StrictError("start-unknown-profile", str(error)) from error
    except UnknownRequirement as error:
        raise StrictError("plan-unknown-requirement", str(error)) from error
    except FactError as error:
        raise StrictError("ledger-unknown-need", str(error)) from error
    judged += [
        Judgement(one.id, Status.ENGINE_ERROR, f"collection: {one.message}") for one in plan.errors
    ]
    judged += [
        Judgement(f"<{one.code}>", Status.ENGINE_ERROR, one.message)
        for one in breaches(plan, recorded)
    ]
    refusal = next(iter(recorded.refusals), None)
    verdict = judge_run(judged, ledger, claimed, refusal=refusal, lost=recorded.loss())
    return Summary(tuple(judged), verdict, facts)


def _cases(
    plan: Collection, recorded: Recorded
) -> Iterable[tuple[PlannedTest, Iterable[PhaseRecord], str | None]]:
    for one in plan.tests:
        yield one, recorded.phases.get(one.test, ()), recorded.loss_of(one.test)
    for one in plan.deselected:
        yield one, (), DESELECTED


def breaches(plan: Collection, recorded: Recorded) -> list[Breach]:
    """Return every rule of the record that the journals break, against the plan."""
    found = list(recorded.breaches)
    names = [one.test for one in (*plan.tests, *plan.deselected)]
    known = set(names)
    if len(known) != len(names):
        found.append(Breach("plan-duplicate", "the plan names a test twice"))
    planned = {one.test for one in plan.tests}
    stray = (recorded.processes.keys() | recorded.phases.keys()) - planned
    found += [Breach("unplanned-test", f"{test} ran unplanned") for test in sorted(stray)]
    for process, collection in recorded.collections.items():
        if not same_collection(collection, plan):
            found.append(Breach("plan-differs", f"{process} collected other tests than the plan"))
    if plan.tests and not recorded.collections:
        found.append(Breach("collected-missing", "no journal says what was collected"))
    first = recorded.facts()
    for _, name, fact in recorded.told:
        told = first[name]
        if told.value != fact.value:
            message = f"{name} is {told.value} by {told.source}, {fact.value} by {fact.source}"
            found.append(Breach("facts-differ", message))
    return found[:BREACH_LIMIT]


def same_collection(one: Collection, other: Collection) -> bool:
    """Say whether two processes collected the same, in any order.

    Messages of collection errors are not compared: they may name addresses and process ids.
    """

    def parts(value: Collection) -> tuple[Any, ...]:
        return (
            sorted((t.test, t.requirements, t.testee) for t in value.tests),
            sorted((t.test, t.requirements, t.testee) for t in value.deselected),
            sorted(e.id for e in value.errors),
            dict(value.hardware),
        )

    return parts(one) == parts(other)


def _expected(text: str) -> ExpectedFailures:
    try:
        return ExpectedFailures.from_document(tomllib.loads(text), "expected failures")
    except (tomllib.TOMLDecodeError, ExpectedFailuresError) as error:
        raise StrictError("start-expected-failures", str(error)) from error


STANDING: Mapping[str, str] = {
    "observed": "proven: measured in this run",
    "capability": "told by the runtime",
    "descriptor": "configured",
}
"""What the source of a fact is worth."""


def run_document(
    start: Start, plan: Collection, recorded: Recorded, summary: Summary
) -> dict[str, Any]:
    """Return the statement with the project's own predicate run/v1: all there is to say."""
    verdict = summary.verdict
    launched = summary.facts.get("launch")
    predicate = {
        "run_id": start.run_id,
        "certificate": start.certificate,
        "endpoint_only": launched is not None and launched.value is False,
        "profiles": start.profiles,
        "verdict": {
            "word": verdict.word,
            "exit_code": verdict.exit_code,
            "counts": verdict.counts,
            "requirements": verdict.by_requirement,
            "missing": verdict.missing,
            "blocking": verdict.blocking,
        },
        "tests": [_test(one, recorded) for one in summary.judgements],
        "deselected": [one.test for one in plan.deselected],
        "facts": _facts(summary.facts, judged=True) + _facts(recorded.first_claims(), judged=False),
        "artifacts": start.artifacts,
        "placements": recorded.devices,
        "losses": [*recorded.worker_losses, *_target_losses(recorded)],
        "refusals": recorded.refusals,
        "warnings": recorded.warnings,
        "attachments": recorded.attachments,
    }
    return wrap("run", start.target, predicate)


def _test(one: Judgement, recorded: Recorded) -> dict[str, Any]:
    phases = recorded.phases.get(one.test, ())
    return {
        "test": one.test,
        "status": str(one.status),
        "reason": one.reason,
        "requirements": one.requirements,
        "testee": one.testee,
        "attempts": recorded.attempts(one.test),
        "processes": recorded.processes.get(one.test, []),
        "duration_ns": str(sum(phase.duration_ns for phase in phases)),
    }


def _facts(facts: Mapping[str, Fact], *, judged: bool) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "value": fact.value,
            "source": fact.source,
            "standing": STANDING[fact.source],
            "judged": judged,
        }
        for name, fact in sorted(facts.items())
    ]


def _target_losses(recorded: Recorded) -> list[dict[str, Any]]:
    return [
        {"process": process, "test": None, "message": reason}
        for process, reason in recorded.target_losses.items()
    ]


def standard_document(start: Start, summary: Summary, ledger: Ledger) -> dict[str, Any]:
    """Return the statement with the standard predicate test-result v0.1.

    It has no word for a test that did not run. What stands against a certificate is therefore
    failed, what is only worth a look is warned, and a run is PASSED only when nothing is either.
    """
    must = {one.id for one in ledger.claims(start.profiles) if one.level == "MUST"}
    passed, warned, failed = [], [], []
    for one in summary.judgements:
        binding = not must.isdisjoint(one.requirements)
        if one.status is Status.PASSED:
            passed.append(one.test)
        elif one.status is Status.ENGINE_ERROR or (
            binding and one.status in (Status.FAILED, Status.NOT_RUN)
        ):
            failed.append(one.test)
        elif one.status in (Status.FAILED, Status.NOT_RUN, Status.KNOWN_FAILURE):
            warned.append(one.test)
    good = "WARNED" if warned else "PASSED"
    predicate = {
        "result": good if summary.verdict.exit_code == 0 and not failed else "FAILED",
        "configuration": _configuration(start),
        "passedTests": passed,
        "warnedTests": warned,
        "failedTests": failed,
    }
    return wrap("statement", start.target, predicate)


def _configuration(start: Start) -> list[dict[str, Any]]:
    digests = {
        "pytest-meshnet": start.suite.digest,
        "requirements.toml": start.ledger.digest,
        "policy": start.policy_digest,
    }
    # Without the run's name a statement could be shown for any run that came to the same.
    run = {"name": "run", "uri": f"urn:pytest-meshnet:run:{start.run_id}"}
    found = [{"name": name, "digest": {"sha256": one}} for name, one in digests.items() if one]
    return [run, *found]
