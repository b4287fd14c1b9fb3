"""What changed between two runs: statuses by test and requirement, durations, metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from pytest_meshnet.evidence import metrics
from pytest_meshnet.evidence.judged import Judged
from pytest_meshnet.evidence.metrics import Metric
from pytest_meshnet.evidence.strict import StrictError
from pytest_meshnet.ledger.status import Status

NOISE_SECONDS = 0.5
"""A group that took less in both runs has no ratio: it would be one of the machine's moods."""


@dataclass(frozen=True, slots=True)
class Change:
    """A test or a requirement whose status differs; None where the run did not have it."""

    id: str
    before: Status | None
    after: Status | None

    @property
    def worse(self) -> bool:
        """Whether it passed before and does not now; not to be asked any more is worse too."""
        return self.before is Status.PASSED and self.after is not Status.PASSED


@dataclass(frozen=True, slots=True)
class Ratio:
    """A number in both runs; `ratio` is after / before, None when that has no meaning."""

    name: str
    unit: str
    before: str
    after: str
    ratio: float | None
    better: Literal["higher", "lower"]


@dataclass(frozen=True, slots=True)
class Changes:
    """Everything that differs between two runs."""

    requirements: tuple[Change, ...]
    tests: tuple[Change, ...]
    durations: tuple[Ratio, ...]
    metrics: tuple[Ratio, ...]

    @property
    def worse(self) -> bool:
        """Whether any test or requirement got worse."""
        return any(one.worse for one in (*self.requirements, *self.tests))


def changes(before: Judged, after: Judged) -> Changes:
    """Compare two runs. Raises StrictError for attached metrics that cannot be read."""
    return Changes(
        requirements=tuple(_changes(_requirements(before), _requirements(after))),
        tests=tuple(_changes(_statuses(before), _statuses(after))),
        durations=tuple(_durations(before, after)),
        metrics=tuple(_metrics(before, after)),
    )


def _requirements(run: Judged) -> dict[str, Status]:
    judged = run.summary.verdict.by_requirement
    return {one.id: judged.get(one.id, Status.NOT_CLAIMED) for one in run.ledger.requirements}


def _statuses(run: Judged) -> dict[str, Status]:
    return {one.test: one.status for one in run.summary.judgements}


def _changes(before: Mapping[str, Status], after: Mapping[str, Status]) -> Iterator[Change]:
    for name in dict.fromkeys((*before, *after)):
        one, other = before.get(name), after.get(name)
        if one is not other:
            yield Change(name, one, other)


def _durations(before: Judged, after: Judged) -> Iterator[Ratio]:
    one, other = _seconds(before), _seconds(after)
    for group in one:
        if group in other and max(one[group], other[group]) >= NOISE_SECONDS:
            ratio = other[group] / one[group] if one[group] > 0 else None
            shown = (f"{one[group]:.2f}", f"{other[group]:.2f}")
            yield Ratio(group, "s", *shown, ratio, "lower")


def _seconds(run: Judged) -> dict[str, float]:
    """The duration of the tests that passed, by the group of their first requirement."""
    spent: dict[str, float] = {}
    for one in run.summary.judgements:
        if one.status is Status.PASSED and one.requirements:
            group = run.ledger.get(one.requirements[0]).group
            phases = run.recorded.phases.get(one.test, ())
            spent[group] = spent.get(group, 0.0) + sum(p.duration_ns for p in phases) / 1e9
    return spent


def _metrics(before: Judged, after: Judged) -> Iterator[Ratio]:
    one, other = _measured(before), _measured(after)
    for key, old in one.items():
        new = other.get(key)
        if new is not None:
            ratio = _ratio(old.number, new.number)
            name = f"{key[0]}, {old.name}" if key[0] else old.name
            yield Ratio(name, old.unit, old.value, new.value, ratio, old.better)


def _measured(run: Judged) -> dict[tuple[str, str, str], Metric]:
    found = {}
    for one in run.recorded.attachments:
        if one["media_type"] != metrics.MEDIA_TYPE:
            continue
        data = run.read(one)
        if data is None:
            raise StrictError("metric-missing", f"{one['name']} of {one['test']} is not there")
        for metric in metrics.decode(data):
            found[one["test"] or "", metric.name, metric.unit] = metric
    return found


def _ratio(before: Decimal, after: Decimal) -> float | None:
    return float(after / before) if before > 0 and after > 0 else None
