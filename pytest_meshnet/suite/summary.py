"""What a person reads: the header before a run, and after it every failure and the verdict."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pytest_meshnet.ledger.requirements import Ledger, Requirement
from pytest_meshnet.ledger.status import Judgement, Status
from pytest_meshnet.ledger.verdict import NO_TEST_YET, by_requirement
from pytest_meshnet.options import DEFAULT_SEED, REFERENCE

if TYPE_CHECKING:
    import pytest

    from pytest_meshnet.suite.run import Finding, Outcome, Run

MOST_NAMED = 4
"""How many failures of the same requirements are named beside the one that is explained."""

_MOST_LISTED = 20
"""How many requirements and tests are named behind one reason; of more only their groups are."""

_EXPLAINED = (Status.ENGINE_ERROR, Status.FAILED, Status.KNOWN_FAILURE)
_LISTED = (Status.NOT_RUN, Status.NOT_APPLICABLE)


def header(run: Run) -> str:
    """Return the line that says what is examined, by which ledger, and with which inputs."""
    profiles = ", ".join(sorted(run.claimed))
    digest = run.ledger.digest[:12]
    return (
        f"meshnet: target {run.target.name}, ledger {run.ledger.version} ({digest}), "
        f"profiles {profiles}, seed {run.settings.seed}"
    )


def write(reporter: pytest.TerminalReporter, run: Run, outcome: Outcome) -> None:
    """Write the summary of a run: what failed and why, then requirements, then the verdict."""
    for first, *others in _alike(outcome.judgements):
        _write_failure(reporter, run, first, others)
    reporter.section("meshnet", "=", bold=True)
    reporter.write_line(header(run))
    if run.refusal is None:
        _write_requirements(reporter, run, outcome)
    _write_verdict(reporter, run, outcome)


def _write_requirements(reporter: pytest.TerminalReporter, run: Run, outcome: Outcome) -> None:
    _write_groups(reporter, run, outcome)
    _write_reasons(reporter, outcome.judgements)
    _write_losses(reporter, run.losses, outcome.judgements)
    if outcome.verdict.missing and run.whole and not run.errors:
        names = ", ".join(outcome.verdict.missing)
        reporter.write_line(f"{Status.NOT_RUN}: {NO_TEST_YET}: {names}", yellow=True)


# Failures --------------------------------------------------------------------------------------


def _alike(judgements: Iterable[Judgement]) -> Iterable[list[Judgement]]:
    """What is to be explained, by status and requirements; the rest of a list is like its first."""
    groups: dict[tuple[Status, tuple[str, ...]], list[Judgement]] = {}
    for one in judgements:
        if one.status in _EXPLAINED:
            # Tests of a project beside the suite share no requirement, and so no cause.
            named = one.requirements or (one.test,)
            groups.setdefault((one.status, tuple(named)), []).append(one)
    return groups.values()


def _write_failure(
    reporter: pytest.TerminalReporter, run: Run, judgement: Judgement, others: Sequence[Judgement]
) -> None:
    title = " ".join([judgement.status, *judgement.requirements])
    reporter.section(title, "_", red=True)
    lines = [*_explain(run, judgement), *_also(others)]
    for label, text in lines:
        first, *rest = text.splitlines() or [""]
        reporter.write_line(f"{label + ':':<10} {first}")
        for line in rest:
            reporter.write_line(f"{'':<11}{line}")


def _explain(run: Run, judgement: Judgement) -> Iterator[tuple[str, str]]:
    """Yield (label, text) for every line of a failure; a text may have several lines."""
    for name in judgement.requirements:
        requirement = run.ledger.get(name)
        yield requirement.id, f"{requirement.title}: {requirement.statement}"
    yield "test", judgement.test
    findings = run.findings.get(judgement.test, ())
    if not findings:
        yield "actual", judgement.reason
    for finding in findings:
        yield from _found(finding, judgement)
    yield "try", "\n".join(_hints(run, findings, judgement))


def _also(others: Sequence[Judgement]) -> Iterator[tuple[str, str]]:
    """Name other failures of the same requirements; pytest's own account has them in full."""
    if others:
        tests = [one.test for one in others[:MOST_NAMED]]
        left = len(others) - len(tests)
        yield "also", "\n".join([*tests, *([f"and {left} more"] if left else [])])


def _found(finding: Finding, judgement: Judgement) -> Iterator[tuple[str, str]]:
    told = bool(finding.expected)
    broken = judgement.status is Status.ENGINE_ERROR
    lines = {
        "expected": finding.expected,
        "actual": finding.actual if told else judgement.reason,
        "reason": judgement.reason if told and judgement.status is not Status.FAILED else "",
        "inputs": finding.inputs,
        "frames": finding.frames,
        "details": finding.details if broken else "",
    }
    yield from ((label, text) for label, text in lines.items() if text)


def _hints(run: Run, findings: Iterable[Finding], judgement: Judgement) -> Iterator[str]:
    yield from (one.hint for one in findings if one.hint)
    if judgement.status is Status.ENGINE_ERROR:
        yield "the suite itself broke: report it with these lines"
    if "::" in judgement.test:
        yield f"this test alone: {_command(run, judgement.test)}"


def _command(run: Run, test: str) -> str:
    settings = run.settings
    words = ["pytest", "--meshnet-suite", test.partition("/")[0]]
    if settings.target != REFERENCE:
        words += ["--meshnet-target", settings.target]
    if settings.seed != DEFAULT_SEED:
        words += ["--meshnet-seed", str(settings.seed)]
    words += [word for one in settings.profiles for word in ("--meshnet-profile", one)]
    return shlex.join([*words, test])


# Requirements ----------------------------------------------------------------------------------


def _write_groups(reporter: pytest.TerminalReporter, run: Run, outcome: Outcome) -> None:
    for title, statuses in _sections(run, outcome):
        lines = list(_group_lines(statuses))
        if lines:
            reporter.write_line(f"{title}:", bold=True)
        for line, good in lines:
            reporter.write_line(f"  {line}", red=not good)
    unclaimed = _unclaimed(run.ledger, run.claimed)
    if unclaimed:
        reporter.write_line(f"{Status.NOT_CLAIMED}: {', '.join(unclaimed)}")


def _sections(run: Run, outcome: Outcome) -> Iterator[tuple[str, Mapping[Requirement, Status]]]:
    """Yield each section's title and the status of its requirements.

    What the suite checks of itself stands apart from what the same tests say of a runtime's codec.
    """
    claims = run.ledger.claims(run.claimed)
    on_testee = [one for one in outcome.judgements if one.testee]
    others = [one for one in outcome.judgements if not one.testee]
    applied = [one for one in on_testee if one.status is not Status.NOT_APPLICABLE]
    own = [one for one in claims if one.subject == "suite"]
    theirs = [one for one in claims if one.subject != "suite"]
    for title, requirements, judged, whole in (
        ("self-checks of the suite", own, others, run.whole),
        ("requirements", theirs, others, run.whole),
        ("on the runtime's own codec", claims, applied, False),
    ):
        tested = {name for one in judged for name in one.requirements}
        shown = [one for one in requirements if whole or one.id in tested]
        severest = by_requirement(judged, shown)
        yield title, {one: severest[one.id] for one in shown}


def _group_lines(statuses: Mapping[Requirement, Status]) -> Iterator[tuple[str, bool]]:
    groups: dict[str, dict[str, Status]] = {}
    for one, status in statuses.items():
        groups.setdefault(one.group, {})[one.id] = status
    for group, found in groups.items():
        bad = [name for name, status in found.items() if status in _EXPLAINED]
        text = _counted(found.values()) + (f" ({', '.join(bad)})" if bad else "")
        yield f"{group:<9}{text}", not bad


def _counted(statuses: Iterable[Status]) -> str:
    counts = Counter(statuses)
    return ", ".join(f"{counts[one]} {one}" for one in Status if counts[one])


def _unclaimed(ledger: Ledger, claimed: frozenset[str]) -> list[str]:
    groups = {one.group: False for one in ledger.requirements}
    for one in ledger.claims(claimed):
        groups[one.group] = True
    return [group for group, is_claimed in groups.items() if not is_claimed]


def _write_reasons(reporter: pytest.TerminalReporter, judged: Iterable[Judgement]) -> None:
    reasons: dict[tuple[Status, str], set[str]] = {}
    for one in judged:
        if one.status in _LISTED:
            reasons.setdefault((one.status, one.reason), set()).update(
                one.requirements or [one.test]
            )
    for (status, reason), names in reasons.items():
        first_line = reason.partition("\n")[0]
        told = ", ".join(_told(names))
        reporter.write_line(f"{status}: {first_line}: {told}", yellow=True)


def _told(names: Collection[str]) -> Iterable[str]:
    """Every name, or how many there are of each group and file when nobody would read them all."""
    if len(names) <= _MOST_LISTED:
        return sorted(names)
    counts = Counter(
        name.partition("::")[0] if "::" in name else name.rpartition("-")[0] for name in names
    )
    return [f"{place} ({count})" for place, count in sorted(counts.items())]


def _write_losses(
    reporter: pytest.TerminalReporter, losses: Iterable[str], judged: Iterable[Judgement]
) -> None:
    """Name what was lost and is no test's reason: it stands against the run all the same."""
    told = {one.reason for one in judged}
    for loss in dict.fromkeys(losses):
        if not any(loss in reason for reason in told):
            reporter.write_line(f"lost: {loss}", yellow=True)


# Verdict ---------------------------------------------------------------------------------------


def _write_begin(reporter: pytest.TerminalReporter, run: Run, outcome: Outcome) -> None:
    """Say which failure to look at first: the ledger begins with what the rest builds on."""
    from pytest_meshnet.authoring.exchange.canonical import exchanges

    target = shlex.join(["--target", run.settings.target])
    if run.refusal is not None:
        reporter.write_line(f"begin with: pytest-meshnet doctor {target}", bold=True)
        return
    found = outcome.verdict.by_requirement.items()
    failed = [name for name, status in found if status is Status.FAILED]
    if not failed:
        return
    shown = [name for name in failed if name in exchanges()]
    reporter.write_line(f"begin with: pytest-meshnet explain {(shown or failed)[0]}", bold=True)
    if shown:
        reporter.write_line(f"            pytest-meshnet replay {shown[0]} {target}", bold=True)


def _write_verdict(reporter: pytest.TerminalReporter, run: Run, outcome: Outcome) -> None:
    verdict = outcome.verdict
    _write_begin(reporter, run, outcome)
    counted = ", ".join(f"{n} {status}" for status, n in verdict.counts.items() if n) or "no test"
    if run.refusal is not None:
        reporter.write_line(f"REFUSED: {run.refusal}", red=True, bold=True)
    elif run.settings.certificate:
        good = verdict.exit_code == 0
        known = verdict.counts[Status.KNOWN_FAILURE]
        against = f"{known} known failures" if good else f"{len(verdict.blocking)} against it"
        counted += f"; {against}" if verdict.blocking else ""
        reporter.write_line(f"{verdict.word}: {counted}", green=good, red=not good, bold=True)
    else:
        reporter.write_line(f"{counted}; no certificate: `pytest-meshnet certify` makes one")
    if run.lacks_tests(outcome):
        line = "INCOMPLETE: tests are not-run, as told above, and --meshnet-complete asks for all"
        reporter.write_line(line, red=True, bold=True)
    if run.unsealed:
        reporter.write_line(f"the evidence is not sealed: {run.unsealed}", red=True)
    elif run.feed is not None and run.feed.bundle is not None:
        path = run.feed.bundle.path
        reporter.write_line(f"evidence: {path}\nverify it with: pytest-meshnet verify {path}")
        told = run.unreported or f"read it in: {path / 'report.html'}"
        reporter.write_line(told, yellow=bool(run.unreported))
