"""Figures of one block, and of two arms against each other, exactly as they were published."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_meshnet.campaign.errors import CampaignRefused
from pytest_meshnet.campaign.records import Repetition

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

RESAMPLES = 10_000
SEED = 0
CV_LIMIT_PERCENT = 5.0
"""A baseline whose decode rate varies more than this asks for another run."""

_INTERVAL = (2.5, 97.5)


@dataclass(frozen=True, slots=True)
class Spread:
    """n values: extremes, median, p75 - p25 by linear percentiles, stdev(ddof 1)/mean in %."""

    n: int
    minimum: float
    median: float
    maximum: float
    iqr: float
    cv_percent: float

    def document(self) -> dict[str, Any]:
        """Return the block under the published names."""
        return {
            "cv_percent": self.cv_percent,
            "iqr": self.iqr,
            "max": self.maximum,
            "median": self.median,
            "min": self.minimum,
            "n": self.n,
        }


def spread(values: Sequence[float]) -> Spread:
    """Summarize at least two values. Raises CampaignRefused for fewer."""
    import numpy as np

    if len(values) < 2:
        raise CampaignRefused(f"{len(values)} measured repetitions: expected at least 2")
    low, high = np.percentile(values, [25, 75])
    return Spread(
        n=len(values),
        minimum=min(values),
        median=statistics.median(values),
        maximum=max(values),
        iqr=float(high - low),
        cv_percent=statistics.stdev(values) / statistics.mean(values) * 100,
    )


@dataclass(frozen=True, slots=True)
class TokenLatency:
    """Milliseconds. Both percentiles are medians over repetitions, the second by name only too."""

    p50_of_p50: float
    p95_of_p95: float
    maximum: float

    def document(self) -> dict[str, float]:
        """Return the latencies under the published names."""
        return {
            "max": self.maximum,
            "p50_of_p50": self.p50_of_p50,
            "p95_of_p95": self.p95_of_p95,
        }


def token_latency(block: Sequence[Repetition]) -> TokenLatency:
    """Summarize the gaps of a block from the three figures of each repetition."""
    return TokenLatency(
        p50_of_p50=statistics.median(one.gap_p50_ms for one in block),
        p95_of_p95=statistics.median(one.gap_p95_ms for one in block),
        maximum=max(one.gap_max_ms for one in block),
    )


@dataclass(frozen=True, slots=True)
class Interval:
    """A ratio with its 95 % interval; significant when the interval leaves 1 out."""

    ratio: float
    low: float
    high: float

    @property
    def significant(self) -> bool:
        """Whether 1 lies outside the interval."""
        return self.low > 1.0 or self.high < 1.0


def prefill_rate(block: Sequence[Repetition]) -> float | None:
    """Return the median of the server's own rates, None when any repetition has none."""
    rates = [one.prefill.tokens_per_s for one in block if one.prefill is not None]
    return statistics.median(rates) if len(rates) == len(block) else None


def compare(
    pairs: Sequence[tuple[Sequence[Repetition], Sequence[Repetition]]],
) -> tuple[tuple[Interval, ...], Interval]:
    """Return R_c of every class and R_agg of one session, candidate against baseline.

    `pairs` are (baseline, candidate) in the order W1 to W4: one generator serves the session and
    the order of its draws is part of the result.
    """
    import numpy as np

    generator = np.random.default_rng(SEED)
    ratios, resampled = [], []
    for baseline, candidate in pairs:
        old = [one.decode_tok_s for one in baseline]
        new = [one.decode_tok_s for one in candidate]
        below = _medians(generator, old)
        resampled.append(_medians(generator, new) / below)
        ratios.append(statistics.median(new) / statistics.median(old))
    together = np.exp(np.mean(np.log(resampled), axis=0))
    aggregate = math.exp(statistics.fmean(map(math.log, ratios)))
    classes = tuple(
        _interval(ratio, values) for ratio, values in zip(ratios, resampled, strict=True)
    )
    return classes, _interval(aggregate, together)


def _medians(generator: np.random.Generator, values: Sequence[float]) -> NDArray[np.float64]:
    """Medians of unpaired resamples, float64 of shape (RESAMPLES,)."""
    import numpy as np

    drawn = generator.choice(values, size=(RESAMPLES, len(values)))
    return np.asarray(np.median(drawn, axis=1), dtype=np.float64)


def _interval(ratio: float, values: NDArray[np.float64]) -> Interval:
    import numpy as np

    low, high = np.percentile(values, _INTERVAL)
    return Interval(ratio, float(low), float(high))
