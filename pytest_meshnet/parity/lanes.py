"""The three lanes of parity, each a judgement over comparisons: what must hold, and the figures.

Judges are pure. They return what is wrong, one line a finding, so that a negative control can ask
whether a lane finds it and a test can ask whether a route is free of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isnan
from typing import Any

from pytest_meshnet.parity.metrics import Comparison, Share

EXACT_TOKENS = 32
"""Greedy tokens that the float32 lane compares."""

EXACT_ERROR = 1e-3
"""Largest logit error on the float32 lane, in logits."""

LEAST_AGREEMENT = 0.90
LEAST_MEAN_COSINE = 0.999
"""What the production lane asks for, over the corpus."""

FIRST_LOG_PROB_ERROR = 0.02
"""What another engine may differ by at step 0, in log-probability over the oracle's five best:
about three times what llama.cpp was seen to differ by on float32 weights (0.006)."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What a lane measured over its comparisons; units are those of `Comparison`.

    `agreement`, `before` and `after` are sums over all prompts, cosines are over all positions.
    `margins` are the oracle's margins at each divergence.
    """

    prompts: int
    agreement: Share
    before: Share
    after: Share
    divergences: tuple[int, ...]
    mean_cosine: float
    least_cosine: float
    max_error: float
    max_relative_error: float
    first_log_prob_error: float
    argmax_first: int
    top5_first: int
    identical: int
    margins: tuple[float, ...]

    def as_document(self) -> dict[str, Any]:
        """The figures as JSON takes them, the ratios beside the counts."""
        document = asdict(self)
        for name in ("agreement", "before", "after"):
            share: Share = getattr(self, name)
            document[name] = {**asdict(share), "ratio": share.ratio if share.compared else None}
        return document


def figures(comparisons: Sequence[Comparison]) -> Figures:
    """Sum up comparisons. Raises ValueError when there is none: nothing compared is no figure."""
    if not comparisons:
        raise ValueError("no comparison: there are no figures of nothing")
    cosines = [value for one in comparisons for value in one.cosines]
    found = [one for one in comparisons if one.divergence is not None]
    return Figures(
        prompts=len(comparisons),
        agreement=_sum(one.agreement for one in comparisons),
        before=_sum(one.before for one in comparisons),
        after=_sum(one.after for one in comparisons),
        divergences=tuple(one.divergence for one in found if one.divergence is not None),
        mean_cosine=sum(cosines) / len(cosines),
        least_cosine=_least(cosines),
        max_error=max(one.max_error for one in comparisons),
        max_relative_error=max(one.max_relative_error for one in comparisons),
        first_log_prob_error=max(one.first_log_prob_error for one in comparisons),
        argmax_first=sum(one.argmax_first for one in comparisons),
        top5_first=sum(one.top5_first for one in comparisons),
        identical=sum(one.identical for one in comparisons),
        margins=tuple(one.margin for one in found if one.margin is not None),
    )


def exact(comparisons: Mapping[str, Comparison], *, bits: bool = False) -> list[str]:
    """Judge the float32 lane: the oracle's tokens, and logits within EXACT_ERROR of its.

    `bits` asks for logits bit for bit, where the oracle shares kernels and chunking. Keys of
    `comparisons` name the prompt.
    """
    found = flips(comparisons)
    for name, one in comparisons.items():
        if not one.max_error <= EXACT_ERROR:
            found.append(
                f"{name}: largest logit error {one.max_error:.3g}, expected at most {EXACT_ERROR:g}"
            )
        if bits and not one.identical:
            found.append(
                f"{name}: logits bit for bit were expected, they differ by {one.max_error:.3g}"
            )
    return found


def production(comparisons: Mapping[str, Comparison]) -> list[str]:
    """Judge the production lane: agreement, mean cosine, finite values.

    The calibrated bound is judged by `within`.
    """
    sums = figures(list(comparisons.values()))
    found = []
    if not sums.agreement.ratio >= LEAST_AGREEMENT:
        found.append(
            f"greedy agreement {sums.agreement.equal} of {sums.agreement.compared} tokens, "
            f"expected at least {LEAST_AGREEMENT:.0%} ({'; '.join(flips(comparisons))})"
        )
    # Written so that a NaN, which is below nothing, is a finding.
    if not sums.mean_cosine >= LEAST_MEAN_COSINE:
        found.append(
            f"mean cosine similarity {sums.mean_cosine:.6f}, expected at least {LEAST_MEAN_COSINE}"
        )
    return found


def cross_engine(comparisons: Mapping[str, Comparison]) -> list[str]:
    """Judge another engine on near-lossless weights: tokens, and log-probabilities at step 0.

    Both round in their own way, so a flip at a tie is allowed for: agreement decides, not equality.
    """
    sums = figures(list(comparisons.values()))
    found = []
    if not sums.agreement.ratio >= LEAST_AGREEMENT:
        found.append(
            f"greedy agreement {sums.agreement.equal} of {sums.agreement.compared} tokens, "
            f"expected at least {LEAST_AGREEMENT:.0%}"
        )
    if not sums.first_log_prob_error <= FIRST_LOG_PROB_ERROR:
        found.append(
            f"log-probability error {sums.first_log_prob_error:.4g} at step 0, expected at most "
            f"{FIRST_LOG_PROB_ERROR:g}"
        )
    return found


def flips(comparisons: Mapping[str, Comparison]) -> list[str]:
    """Say which comparisons have a token that differs."""
    return [
        f"{name}: {_flip(one)}" for name, one in comparisons.items() if one.divergence is not None
    ]


def within(comparisons: Mapping[str, Comparison], bound: float) -> list[str]:
    """Judge the largest logit error of each comparison against a calibrated bound, in logits."""
    return [
        f"{name}: largest logit error {one.max_error:.4g} up to the divergence, calibrated bound "
        f"{bound:.4g}"
        for name, one in comparisons.items()
        if not one.max_error <= bound
    ]


def _flip(one: Comparison) -> str:
    tie = f"margin there {one.margin:.3g}" if one.margin is not None else "no margin known"
    share = one.agreement
    return f"token {one.divergence} differs, {share.equal} of {share.compared} agree, {tie}"


def _sum(shares: Any) -> Share:
    every = list(shares)
    return Share(sum(one.equal for one in every), sum(one.compared for one in every))


def _least(values: Sequence[float]) -> float:
    """The smallest value; NaN when one is NaN, which `min` could overlook."""
    return float("nan") if any(isnan(value) for value in values) else min(values)
