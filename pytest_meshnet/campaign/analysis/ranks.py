"""Two rank statistics: a trend within one series, and the agreement of two."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import combinations


def trend(values: Sequence[float]) -> float | None:
    """Return the z score of the Mann-Kendall trend test, None below four different values.

    H. B. Mann, Econometrica 13 (1945) 245; the variance with ties and the continuity correction
    as in M. G. Kendall, Rank Correlation Methods. Positive for a rising series.
    """
    if len(set(values)) < 4:
        return None
    score = sum((later > one) - (later < one) for one, later in combinations(values, 2))
    ties = sum(_pairs(count) for count in Counter(values).values())
    variance = (_pairs(len(values)) - ties) / 18
    if score == 0:
        return 0.0
    return (score - math.copysign(1, score)) / math.sqrt(variance)


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Return Spearman's rho of two series of one length, None where one of them is constant."""
    middle = (len(one) + 1) / 2
    left, right = ([rank - middle for rank in _ranks(each)] for each in (one, other))
    size = sum(value * value for value in left) * sum(value * value for value in right)
    if not size:
        return None
    return sum(a * b for a, b in zip(left, right, strict=True)) / math.sqrt(size)


def _pairs(count: int) -> int:
    return count * (count - 1) * (2 * count + 5)


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1; equal values share the mean of theirs."""
    ordered = sorted(values)
    first = {value: ordered.index(value) for value in set(values)}
    return [first[value] + (ordered.count(value) + 1) / 2 for value in values]
