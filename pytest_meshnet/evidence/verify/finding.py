"""What a check finds, how bad that is, and how findings add up to one result."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """What a finding means for the result, worst first.

    INVALID: the evidence contradicts itself or its question. INCOMPLETE: it does not say enough.
    FAIL: it is sound, and says no. UNTRUSTED: it is sound, and nobody known says so. NOTE: worth
    reading, changes nothing.
    """

    INVALID = "invalid"
    INCOMPLETE = "incomplete"
    FAIL = "fail"
    UNTRUSTED = "untrusted"
    NOTE = "note"


class Result(StrEnum):
    """The word of a verification."""

    VALID_PASS = "VALID-PASS"
    VALID_FAIL = "VALID-FAIL"
    INVALID = "INVALID"
    INCOMPLETE = "INCOMPLETE"
    UNTRUSTED = "UNTRUSTED"

    @property
    def exit_code(self) -> int:
        """0 VALID-PASS, 1 VALID-FAIL, 2 INVALID, 3 INCOMPLETE, 4 UNTRUSTED."""
        return list(Result).index(self)


@dataclass(frozen=True, slots=True)
class Finding:
    """One observation: a stable reason code, what was found, and what to do about it."""

    code: str
    severity: Severity
    message: str
    hint: str = ""


_DISTRUST = "do not use this bundle; ask its maker for an untouched one"


def invalid(code: str, message: str, hint: str = _DISTRUST) -> Finding:
    """Return a finding that makes the bundle invalid."""
    return Finding(code, Severity.INVALID, message, hint)


def incomplete(code: str, message: str, hint: str) -> Finding:
    """Return a finding that leaves the question open."""
    return Finding(code, Severity.INCOMPLETE, message, hint)


def fail(code: str, message: str, hint: str) -> Finding:
    """Return a finding that says no, soundly."""
    return Finding(code, Severity.FAIL, message, hint)


_RESULT = {
    Severity.INVALID: Result.INVALID,
    Severity.INCOMPLETE: Result.INCOMPLETE,
    Severity.FAIL: Result.VALID_FAIL,
    Severity.UNTRUSTED: Result.UNTRUSTED,
}


def conclude(findings: Iterable[Finding], *, judged: bool) -> Result:
    """Return the result of all findings; the worst severity decides.

    INVALID beats all: nothing in a contradictory bundle can be believed. INCOMPLETE comes next: a
    failure in a run that was cut short may be the cutting. A sound failure stays VALID-FAIL
    whoever signed it, for nobody needs trust to be believed when the answer is no; so UNTRUSTED
    is only ever a pass by a stranger. Without a recomputed verdict (`judged` false) nothing
    passes, whatever the checks say.
    """
    severities = {one.severity for one in findings}
    if not judged:
        severities.add(Severity.INCOMPLETE)
    for severity, result in _RESULT.items():
        if severity in severities:
            return result
    return Result.VALID_PASS
