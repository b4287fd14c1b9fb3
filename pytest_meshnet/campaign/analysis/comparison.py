"""Candidate against baseline, session by session, in the shape of the published statistics."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_meshnet.campaign.analysis.statistics import (
    CV_LIMIT_PERCENT,
    RESAMPLES,
    SEED,
    Interval,
    Spread,
    TokenLatency,
    compare,
    prefill_rate,
    spread,
    token_latency,
)
from pytest_meshnet.campaign.errors import CampaignRefused
from pytest_meshnet.campaign.records import CLASSES, Repetition, measured

Blocks = Mapping[str, Sequence[Repetition]]


@dataclass(frozen=True, slots=True)
class ArmFigures:
    """One block of one arm; `prefill_tok_s` is None unless every repetition was attributed."""

    decode: Spread
    ttft_ms: float
    prefill_tok_s: float | None
    latency: TokenLatency


@dataclass(frozen=True, slots=True)
class ClassComparison:
    """Two blocks of one class and session, and the ratio of their median decode rates."""

    class_id: str
    baseline: ArmFigures
    candidate: ArmFigures
    ratio: Interval

    def document(self) -> dict[str, Any]:
        """Return the comparison under the published names."""
        old, new = self.baseline, self.candidate
        return {
            "baseline_decode_tok_s": old.decode.document(),
            "baseline_prefill_tok_s_median": old.prefill_tok_s,
            "baseline_ttft_ms_median": old.ttft_ms,
            "candidate_decode_tok_s": new.decode.document(),
            "candidate_prefill_tok_s_median": new.prefill_tok_s,
            "candidate_ttft_ms_median": new.ttft_ms,
            "prefill_ratio": self._prefill_ratio(),
            "r_c": self.ratio.ratio,
            "r_c_ci95": [self.ratio.low, self.ratio.high],
            "significant": self.ratio.significant,
            "token_latency_ms": {
                "baseline": old.latency.document(),
                "candidate": new.latency.document(),
            },
            "ttft_ratio": new.ttft_ms / old.ttft_ms,
        }

    def _prefill_ratio(self) -> float | None:
        old, new = self.baseline.prefill_tok_s, self.candidate.prefill_tok_s
        return None if old is None or new is None else new / old


@dataclass(frozen=True, slots=True)
class SessionComparison:
    """All classes of one session, and the geometric mean of their ratios."""

    session: int
    classes: tuple[ClassComparison, ...]
    aggregate: Interval

    @property
    def rerun(self) -> tuple[str, ...]:
        """Classes whose baseline varies too much to stand."""
        return tuple(
            one.class_id
            for one in self.classes
            if one.baseline.decode.cv_percent > CV_LIMIT_PERCENT
        )

    def document(self) -> dict[str, Any]:
        """Return the session under the published names."""
        return {
            "classes": {one.class_id: one.document() for one in self.classes},
            "r_agg": self.aggregate.ratio,
            "r_agg_ci95": [self.aggregate.low, self.aggregate.high],
            "r_agg_significant": self.aggregate.significant,
        }


@dataclass(frozen=True, slots=True)
class Analysis:
    """Every session by itself; they are never pooled."""

    sessions: tuple[SessionComparison, ...]

    @property
    def standing(self) -> SessionComparison:
        """The session that stands: the worse one."""
        return min(self.sessions, key=lambda one: one.aggregate.ratio)

    def document(self) -> dict[str, Any]:
        """Return the analysis as the published statistics are laid out."""
        return {
            "bootstrap": {
                "arms": "unpaired",
                "resamples": RESAMPLES,
                "seed": SEED,
                "session_seed_rule": f"independent numpy Generator(seed={SEED}) per session",
            },
            "performance": {str(one.session): one.document() for one in self.sessions},
        }


def analyse(baseline: Blocks, candidate: Blocks) -> Analysis:
    """Compare two arms, class by class and session by session.

    Raises CampaignRefused when the arms do not hold the same classes and sessions.
    """
    if baseline.keys() != candidate.keys():
        raise CampaignRefused(
            f"the baseline has {', '.join(baseline)}, the candidate {', '.join(candidate)}: "
            "expected the same classes"
        )
    sessions = _sessions(baseline)
    if sessions != _sessions(candidate):
        raise CampaignRefused(
            f"the baseline has sessions {sessions}, the candidate {_sessions(candidate)}: "
            "expected the same"
        )
    return Analysis(tuple(_session(baseline, candidate, one) for one in sessions))


def _sessions(blocks: Blocks) -> list[int]:
    found = [sorted({one.session for one in block}) for block in blocks.values()]
    if any(one != found[0] for one in found):
        raise CampaignRefused(f"the classes have the sessions {found}: expected the same in each")
    return found[0]


def _session(baseline: Blocks, candidate: Blocks, session: int) -> SessionComparison:
    names = [name for name in CLASSES if name in baseline]
    pairs = [
        (measured(baseline[name], session), measured(candidate[name], session)) for name in names
    ]
    figures = [(_figures(old), _figures(new)) for old, new in pairs]
    ratios, aggregate = compare(pairs)
    classes = (
        ClassComparison(name, old, new, ratio)
        for name, (old, new), ratio in zip(names, figures, ratios, strict=True)
    )
    return SessionComparison(session, tuple(classes), aggregate)


def _figures(block: Sequence[Repetition]) -> ArmFigures:
    return ArmFigures(
        decode=spread([one.decode_tok_s for one in block]),
        ttft_ms=statistics.median(one.ttft_ms for one in block),
        prefill_tok_s=prefill_rate(block),
        latency=token_latency(block),
    )
