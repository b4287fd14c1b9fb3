"""Offline verification: independent named checks over one bundle, and what they come to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_meshnet.evidence.signing.trust import Trust, TrustError
from pytest_meshnet.evidence.verify import conduct, integrity, question
from pytest_meshnet.evidence.verify.finding import Finding, Result, Severity, conclude
from pytest_meshnet.evidence.verify.material import Material, read_material
from pytest_meshnet.evidence.verify.policy import Policy, PolicyError
from pytest_meshnet.evidence.verify.question import Question

Check = Callable[[Material, Question], Iterable[Finding]]


def _of_material(check: Callable[[Material], Iterable[Finding]]) -> Check:
    def run(material: Material, _: Question) -> Iterable[Finding]:
        return check(material)

    run.__doc__ = check.__doc__
    return run


CHECKS: Mapping[str, Check] = {
    "layout": _of_material(integrity.layout),
    "documents": _of_material(integrity.documents_read),
    "signatures": _of_material(integrity.signatures),
    "signer": question.signer,
    "binding": _of_material(integrity.binding),
    "files": _of_material(integrity.files),
    "anchors": _of_material(integrity.anchors),
    "chains": _of_material(integrity.chains),
    "attachments": _of_material(integrity.attachments),
    "plan": _of_material(conduct.plan),
    "certificate": _of_material(conduct.certificate),
    "ledger": _of_material(conduct.ledger),
    "results": _of_material(conduct.results),
    "devices": _of_material(conduct.devices),
    "challenge": question.challenge,
    "history": _of_material(integrity.history),
    "clock": _of_material(integrity.clock),
    "completeness": _of_material(conduct.completeness),
    "verdict": _of_material(conduct.verdict),
    "policy": question.policy,
}
"""Every check by name, in the order of the specification's steps. None relies on another."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one check found; `ok` when nothing of it is worse than a note."""

    name: str
    title: str
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether the check found nothing against the bundle."""
        return all(one.severity is Severity.NOTE for one in self.findings)


@dataclass(frozen=True, slots=True)
class Report:
    """The answer about one bundle, with the material it was made from."""

    result: Result
    checks: tuple[CheckResult, ...]
    material: Material
    signer_name: str | None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Every finding of every check."""
        return tuple(one for check in self.checks for one in check.findings)

    @property
    def codes(self) -> frozenset[str]:
        """The reason codes of every finding."""
        return frozenset(one.code for one in self.findings)

    @property
    def endpoint_only(self) -> bool:
        """Whether the target was only an endpoint, so that nobody saw it start."""
        launched = self.material.recorded.facts().get("launch")
        return launched is not None and launched.value is False


def verify(bundle: Path, asked: Question, checks: Mapping[str, Check] = CHECKS) -> Report:
    """Verify a bundle folder. Raises OSError when it is no readable folder."""
    material = read_material(bundle, asked.policy.ledgers)
    results = tuple(
        CheckResult(name, (check.__doc__ or "").partition("\n")[0], tuple(check(material, asked)))
        for name, check in checks.items()
    )
    judged = material.sealed and material.summary is not None
    findings = [one for check in results for one in check.findings]
    entry = asked.trust.keys.get(material.key.keyid) if material.key is not None else None
    return Report(
        conclude(findings, judged=judged), results, material, entry.name if entry else None
    )


def run_verify(
    bundle: Path,
    trust: Path | None = None,
    policy: Path | None = None,
    challenge: str | None = None,
    as_json: bool = False,
    *,
    now_ns: int | None = None,
) -> tuple[str, int]:
    """Verify a bundle for the command line: return (text or JSON, exit code).

    Exit codes: 0 VALID-PASS, 1 VALID-FAIL, 2 INVALID, 3 INCOMPLETE, 4 UNTRUSTED. A bundle, trust
    file or policy file that cannot be read ends with 2 and one line: nothing was verified.
    """
    from pytest_meshnet.evidence.verify import text

    try:
        asked = Question(
            trust=Trust.load(trust) if trust else Trust({}),
            policy=Policy.load(policy) if policy else Policy(),
            challenge=challenge,
            now_ns=time.time_ns() if now_ns is None else now_ns,
        )
        report = verify(bundle, asked)
    except (TrustError, PolicyError) as error:
        return text.refused(f"{error}", as_json), Result.INVALID.exit_code
    except OSError as error:
        message = f"{bundle} cannot be read as a bundle folder: {error.strerror}"
        return text.refused(message, as_json), Result.INVALID.exit_code
    written = text.as_json(report) if as_json else text.as_text(report)
    return written, report.result.exit_code
