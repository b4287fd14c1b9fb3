"""Two runs compared: refused when they are not alike, then what changed between them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pytest_meshnet.evidence.compare.changes import Change, Changes, Ratio, changes
from pytest_meshnet.evidence.compare.likeness import KINDS, Unlike, unlike
from pytest_meshnet.evidence.judged import Judged
from pytest_meshnet.evidence.shown import printable
from pytest_meshnet.evidence.strict import StrictError

PASSING = frozenset({"CERTIFIED", "NOT CERTIFIED"})
"""Verdicts with nothing against a run but what was expected."""

SAME, WORSE, REFUSED = 0, 1, 2
"""Exit codes: nothing got worse; something passed before and does not now; not compared."""

SHOWN = 40
"""Most changed tests that the text lists; JSON has all."""


class CompareError(ValueError):
    """The runs cannot be compared; the message says why and what to do."""


def run_compare(
    before: Path, after: Path, *, allow: Sequence[str] = (), as_json: bool = False
) -> tuple[str, int]:
    """Compare two bundles for the command line: return (text or JSON, exit code).

    Exit code 0: nothing got worse; 1: the run, a test or a requirement passed in the first and does
    not in the second, or is not there any more; 2: the runs are not alike, cannot be read, or are
    invalid. `allow` names kinds of `KINDS` that may differ.
    """
    try:
        first, second = _read(before), _read(after)
        differing = _check_alike(first.run, second.run, allow)
        found = changes(first.run, second.run)
    except OSError as error:
        return _refused(f"{error.filename} cannot be read: {error.strerror}", as_json), REFUSED
    except (CompareError, StrictError) as error:
        return _refused(str(error), as_json), REFUSED
    code = WORSE if found.worse or _fell(first, second) else SAME
    if as_json:
        return json.dumps(_document(first, second, differing, found, code), indent=2) + "\n", code
    lines = _lines(first, second, differing, found)
    return "".join(f"{printable(line)}\n" for line in lines), code


@dataclass(frozen=True, slots=True)
class _Side:
    """A run with the word that it came to, for whoever reads its bundle now."""

    run: Judged
    verdict: str

    @property
    def passed(self) -> bool:
        """Whether nothing stands against it but known failures."""
        return self.verdict in PASSING


def _fell(before: _Side, after: _Side) -> bool:
    """Whether a run that passed does so no more: nobody may take its statuses for the whole."""
    return before.passed and not after.passed


def _read(bundle: Path) -> _Side:
    from pytest_meshnet.evidence.verify import verify
    from pytest_meshnet.evidence.verify.finding import Result
    from pytest_meshnet.evidence.verify.question import Question

    report = verify(bundle, Question())
    run = Judged.of(report.material)
    if report.result is Result.INVALID or run is None:
        why = "is invalid" if report.result is Result.INVALID else "cannot be judged"
        raise CompareError(f"{bundle} {why}: see `pytest-meshnet verify {bundle}`")
    whole = run.sealed and report.result is not Result.INCOMPLETE
    return _Side(run, run.summary.verdict.word if whole else "INCOMPLETE")


def _check_alike(before: Judged, after: Judged, allow: Sequence[str]) -> tuple[Unlike, ...]:
    unknown = sorted(set(allow) - KINDS.keys())
    if unknown:
        raise CompareError(f"--allow {unknown[0]}: expected one of {', '.join(KINDS)}")
    found = tuple(unlike(before, after))
    barred = [one for one in found if one.kind not in allow]
    if barred:
        told = "; ".join(f"{one.kind} is {one.before} and {one.after}" for one in barred)
        flags = " ".join(f"--allow {one.kind}" for one in barred)
        raise CompareError(f"the runs are not alike: {told}; compare all the same with {flags}")
    return found


def _refused(message: str, as_json: bool) -> str:
    if as_json:
        return json.dumps({"schema": 1, "exit_code": REFUSED, "message": message}) + "\n"
    return printable(f"not compared: {message}") + "\n"


def _document(
    before: _Side, after: _Side, differing: Iterable[Unlike], found: Changes, code: int
) -> dict[str, Any]:
    return {
        "schema": 1,
        "exit_code": code,
        "before": _run(before),
        "after": _run(after),
        "verdict_worse": _fell(before, after),
        "allowed_differences": [asdict(one) for one in differing],
        "requirements": [_change(one) for one in found.requirements],
        "tests": [_change(one) for one in found.tests],
        "durations": [asdict(one) for one in found.durations],
        "metrics": [asdict(one) for one in found.metrics],
    }


def _run(side: _Side) -> dict[str, Any]:
    start = side.run.start
    return {"run_id": start.run_id, "target": start.target.name, "verdict": side.verdict}


def _change(one: Change) -> dict[str, Any]:
    return asdict(one) | {"worse": one.worse}


def _lines(
    before: _Side, after: _Side, differing: Iterable[Unlike], found: Changes
) -> Iterator[str]:
    for name, run in (("A", before), ("B", after)):
        told = _run(run)
        yield f"{name}  {told['target']}: {told['verdict']}  ({told['run_id']})"
    for one in differing:
        yield f"allowed: {one.kind} is {one.before} in A, {one.after} in B"
    if _fell(before, after):
        yield f"the verdict got worse: {before.verdict} -> {after.verdict}"
    yield ""
    if not found.requirements and not found.tests:
        yield "no status changed"
    yield from _status_lines("requirements", found.requirements)
    yield from _status_lines("tests", found.tests)
    yield from _ratio_lines("duration of passed tests, B/A (the clock of the run)", found.durations)
    yield from _ratio_lines("metrics, B/A", found.metrics)


def _status_lines(title: str, found: Sequence[Change]) -> Iterator[str]:
    if not found:
        return
    worse = sum(1 for one in found if one.worse)
    yield f"{title}: {len(found)} changed, {worse} got worse"
    worst_first = sorted(found, key=lambda one: not one.worse)
    for one in worst_first[:SHOWN]:
        yield f"  {one.id}: {one.before or 'absent'} -> {one.after or 'absent'}"
    if len(found) > SHOWN:
        yield f"  and {len(found) - SHOWN} more; --json has all"


def _ratio_lines(title: str, found: Sequence[Ratio]) -> Iterator[str]:
    if found:
        yield f"{title}:"
    for one in found:
        ratio = "no ratio" if one.ratio is None else f"{one.ratio:.3f}"
        better = f", {one.better} is better" if one.unit != "s" else ""
        yield f"  {one.name}: {one.before} -> {one.after} {one.unit}, {ratio}{better}"
