"""The two answers about a campaign: did it run to its end, and may its figures be believed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from pytest_meshnet.campaign.judging import coverage, rules
from pytest_meshnet.campaign.judging.canonical import departures
from pytest_meshnet.campaign.judging.codes import Code
from pytest_meshnet.campaign.judging.facts import CampaignRecord
from pytest_meshnet.campaign.judging.rules import Invalidation

ExecutionStatus = Literal["COMPLETE", "INCOMPLETE"]
Validity = Literal["VALID", "INVALID", "NON_CANONICAL"]
Headline = Literal[
    "VALID CANONICAL CAMPAIGN",
    "INVALID CANONICAL ATTEMPT",
    "NON-CANONICAL DEVELOPER RUN",
    "INCOMPLETE RUN",
]

EXIT_VALID, EXIT_INVALID, EXIT_REFUSED, EXIT_INCOMPLETE, EXIT_NON_CANONICAL = 0, 1, 2, 3, 4
"""Only a valid canonical campaign ends with 0; 4 is a developer run with nothing against it."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Both answers with their reasons; `codes` counts the invalidations of each code."""

    execution_status: ExecutionStatus
    validity: Validity
    headline: Headline
    expected: int
    observed: int
    blockers: tuple[str, ...]
    invalidations: tuple[Invalidation, ...]

    @property
    def codes(self) -> dict[str, int]:
        """Return how often each code was given, in the order of the codes."""
        counted = Counter(one.code for one in self.invalidations)
        return {str(code): counted[code] for code in Code if counted[code]}

    @property
    def exit_code(self) -> int:
        """The exit code of a command that ends with this judgement."""
        if self.execution_status == "INCOMPLETE":
            return EXIT_INCOMPLETE
        if self.invalidations:
            return EXIT_INVALID
        return EXIT_VALID if self.validity == "VALID" else EXIT_NON_CANONICAL

    def document(self) -> dict[str, Any]:
        """Return the answers for run.json, in its order of keys."""
        return {
            "headline": self.headline,
            "execution_status": self.execution_status,
            "validity": self.validity,
            "blockers": list(self.blockers),
            "campaign_invalidations": [one.document() for one in self.invalidations],
            "codes": self.codes,
        }


def judge(record: CampaignRecord) -> Judgement:
    """Judge a campaign from its record alone.

    Incomplete wins over every other headline. A developer run is NON_CANONICAL whatever holds,
    and so is a run on an invented machine or runtime against which nothing else stands.
    """
    invalidations = tuple(rules.invalidations(record))
    status: ExecutionStatus = "COMPLETE" if _complete(record) else "INCOMPLETE"
    validity = _validity(record, bool(invalidations))
    good = [one for one in record.observations if not one.failed]
    return Judgement(
        execution_status=status,
        validity=validity,
        headline=_headline(status, validity),
        expected=record.protocol.expected,
        observed=len(good),
        blockers=tuple(_blockers(record)),
        invalidations=invalidations,
    )


def _validity(record: CampaignRecord, invalidated: bool) -> Validity:
    if record.intent.developer:
        return "NON_CANONICAL"
    if invalidated:
        return "INVALID"
    return "NON_CANONICAL" if any(_blockers(record)) else "VALID"


def _headline(status: ExecutionStatus, validity: Validity) -> Headline:
    if status == "INCOMPLETE":
        return "INCOMPLETE RUN"
    if validity == "VALID":
        return "VALID CANONICAL CAMPAIGN"
    if validity == "INVALID":
        return "INVALID CANONICAL ATTEMPT"
    return "NON-CANONICAL DEVELOPER RUN"


def _blockers(record: CampaignRecord) -> Iterator[str]:
    """What keeps the run from being canonical, whatever it measured."""
    intent = record.intent
    if intent.dev_smoke:
        yield "--dev-smoke was given"
    if intent.allow_missing_provenance:
        yield "--allow-missing-provenance was given"
    if intent.synthetic:
        yield "the runtime or the machine is simulated: its evidence is synthetic"
    said = [one.arm_id for one in record.arms if (one.configuration or {}).get("simulated")]
    if said and not intent.synthetic:
        yield f"the servers of {', '.join(said)} say that they are simulated"
    for arm in record.arms:
        if arm.placement is not None and arm.placement.foreign:
            yield f"others computed on the GPU of {arm.arm_id}: {', '.join(arm.placement.foreign)}"
    yield from departures(record.protocol, record.provenance)


def _complete(record: CampaignRecord) -> bool:
    """Whether every expected request was observed exactly once, and nothing failed."""
    failed = any(one.failed for one in record.observations) or any(
        one.failure is not None for one in record.arms
    )
    return record.protocol.expected > 0 and not failed and not any(coverage.gaps(record))
