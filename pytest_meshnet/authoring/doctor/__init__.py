"""`pytest-meshnet doctor`: ten checks on the way to a first result, and a cure for each."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass

from pytest_meshnet.authoring.doctor import first_result, reaching
from pytest_meshnet.authoring.doctor.patient import Patient, Problem, Skipped
from pytest_meshnet.runtime.errors import Nonconformance, Refusal, TargetLost

PASS, FAIL, SKIPPED, NOT_REACHED = "pass", "FAIL", "skipped", "not reached"


@dataclass(frozen=True, slots=True)
class Check:
    """One check: what must hold, how to see it, and the requirement that says more.

    `refuses` means that without it there is no runtime to judge. `look` returns what it saw.
    """

    title: str
    look: Callable[[Patient], str]
    explain: str = ""
    refuses: bool = False


def examine(target: str, shard: str | None, tell: Callable[[str], object]) -> int:
    """Make the checks in order, stop at the first that fails, and tell a line for each.

    Returns 0 when all pass, 1 when the runtime answers wrongly, 2 when there is none to ask, and 3
    when a check could not be made.
    """
    patient = Patient(target, shard)
    words: list[str] = []
    try:
        for number, check in enumerate(CHECKS, 1):
            if FAIL in words:
                tell(f"{NOT_REACHED:<12}{number:>2} {check.title}")
            else:
                words.append(_look(check, patient, number, tell))
    finally:
        patient.leave()
    if FAIL in words:
        return 2 if CHECKS[words.index(FAIL)].refuses else 1
    skipped = words.count(SKIPPED)
    found = f"{words.count(PASS)} of {len(CHECKS)} pass, {skipped} skipped"
    said = found if skipped else f"all {len(CHECKS)} pass"
    tell(f"{said}; next: pytest-meshnet certify --target {target}")
    return 3 if skipped else 0


def _look(check: Check, patient: Patient, number: int, tell: Callable[[str], object]) -> str:
    """Make one check, tell what it found, and return the word for it."""
    try:
        seen = check.look(patient)
    except Skipped as why:
        tell(f"{SKIPPED:<12}{number:>2} {check.title}: {why}")
        return SKIPPED
    except Problem as problem:
        found = problem
    except Refusal as refusal:
        found = Problem(refusal.message, "correct what the line says and run doctor again")
    except TargetLost as lost:
        found = Problem(lost.reason, "find out who ended the runtime; nothing was wrong before")
    except Nonconformance as finding:
        found = Problem(
            f"expected {finding.expected}; found {finding.actual}",
            finding.hint or _BY_FRAMES,
            finding.broken,
        )
    else:
        tell(f"{PASS:<12}{number:>2} {check.title}: {seen}")
        return PASS
    tell(f"{FAIL:<12}{number:>2} {check.title}: {found.found}")
    _tell_problem(check, found, patient, tell)
    return FAIL


_BY_FRAMES = "compare the marked frame below with what was expected"


def _tell_problem(
    check: Check, problem: Problem, patient: Patient, tell: Callable[[str], object]
) -> None:
    said = [f"fix: {problem.cure}"]
    if check.explain:
        said.append(f"more: pytest-meshnet explain {check.explain}")
    if patient.shard is not None and (frames := patient.shard.trace.text(broken=problem.frame)):
        said.append(f"frames:\n{frames}")
    if patient.running is not None and patient.running.exit_code is not None:
        code = patient.running.exit_code
        said.append(f"the process ended with {code}{patient.log()}")
    for one in said:
        tell(textwrap.indent(one, " " * 15))


CHECKS = (
    Check("the descriptor is complete", reaching.descriptor, refuses=True),
    Check("the runtime can be reached", reaching.connect, refuses=True),
    Check("Health says SERVING", reaching.health, "HEALTH-04", refuses=True),
    Check("GetCapability answers", reaching.capability, "CAP-01", refuses=True),
    Check("the capability report is complete", first_result.report, "CAP-01"),
    Check("an open is accepted", first_result.open, "OPEN-02"),
    Check("the settled limits can be used", first_result.limits, "OPEN-08"),
    Check("a prefill chunk is acked", first_result.prefill, "PREFILL-03"),
    Check("its result is complete", first_result.result, "PREFILL-02"),
    Check("a decode step continues it", first_result.decode, "DECODE-01"),
)
