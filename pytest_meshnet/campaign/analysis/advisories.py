"""What records deserve to have said about them; an advisory is never a verdict.

Each rule looks at the measured repetitions of one block, or of one arm over its whole session, and
says what it saw with the figures that show it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pytest_meshnet.campaign.analysis.ranks import rank_correlation, trend
from pytest_meshnet.campaign.records import Repetition, measured

Block = Sequence[Repetition]
Blocks = Mapping[str, Block]

INFLATED = 1.10
"""A first TTFT this many times the median of the others is named."""

SHORT_LAST_GAP = 0.5
"""A last gap below this share of the median gap is named."""

MISSING_GAPS = 0.75
"""From records without gaps: how many median gaps the window must fall short of its steps."""

LATE_FIRST_EVENT = 0.9
"""From records without gaps: how many median gaps the first event must follow its prefill."""

STALL = 2.0
"""A longest gap above this many times the 95th percentile is a stall, not the tail."""

SIGNIFICANT = 1.96
"""Two-sided 5 % point of the normal distribution."""


@dataclass(frozen=True, slots=True)
class Advisory:
    """One remark: a stable code, where it was seen, and the sentence for a reader."""

    code: str
    arm_id: str
    class_id: str | None
    session: int | None
    message: str

    def document(self) -> dict[str, Any]:
        """Return the advisory as plain JSON values."""
        return {
            "code": self.code,
            "arm_id": self.arm_id,
            "class_id": self.class_id,
            "session": self.session,
            "message": self.message,
        }


def advise(blocks: Blocks) -> tuple[Advisory, ...]:
    """Return every advisory about one arm, block by block and then over the arm."""
    return tuple(_all(blocks))


def _all(blocks: Blocks) -> Iterator[Advisory]:
    for class_id, block in blocks.items():
        sessions = sorted({one.session for one in block})
        parts = {one: part for one in sessions if (part := measured(block, one))}
        for session, part in parts.items():
            for code, rule in _OF_A_BLOCK.items():
                if (message := rule(part)) is not None:
                    yield Advisory(code, part[0].arm_id, class_id, session, message)
        if (message := _repeated_effects(list(parts.values()))) is not None:
            yield Advisory("repetition-effects", block[0].arm_id, class_id, None, message)
    yield from _over_the_arm(blocks)


def _inflated_first(block: Block) -> str | None:
    first, others = block[0], block[1:]
    if len(others) < 2:
        return None
    usual = statistics.median(one.ttft_ms for one in others)
    if first.ttft_ms <= INFLATED * usual:
        return None
    return (
        f"the first measured repetition has a TTFT of {first.ttft_ms:.0f} ms, "
        f"{first.ttft_ms / usual:.2f} times the median of the others ({usual:.0f} ms): the "
        "warm-ups did not warm what it needed"
    )


def _drift(block: Block) -> str | None:
    rates = [one.decode_tok_s for one in block]
    score = trend(rates)
    if score is None or abs(score) <= SIGNIFICANT:
        return None
    way = "rises" if score > 0 else "falls"
    return (
        f"the decode rate {way} within the block, {rates[0]:.2f} to {rates[-1]:.2f} tok/s "
        f"(Mann-Kendall z = {score:.2f}): the repetitions are not drawn from one state"
    )


def _short_last_gap(block: Block) -> str | None:
    known = [one.gaps_ms for one in block if one.gaps_ms]
    if len(known) < len(block):
        return _inferred_short_gap(block)
    medians = [statistics.median(gaps) for gaps in known]
    shares = [gaps[-1] / middle for gaps, middle in zip(known, medians, strict=True) if middle]
    if not shares or statistics.median(shares) >= SHORT_LAST_GAP:
        return None
    return (
        f"the last gap is {statistics.median(shares):.2f} of the median gap: the final two events "
        f"arrive together, which shortens the window by up to {_bias(block):.2f} %"
    )


def _inferred_short_gap(block: Block) -> str | None:
    """The same from three figures: the sum of the gaps, their median, and the first event's delay.

    The window is the sum of all gaps. Where it falls short of steps times the median although the
    first event came a whole gap after the prefill, one step was waited for before the stream
    began and none at its end.
    """
    missing = [one.decode_steps - one.decode_window_ms / one.gap_p50_ms for one in block]
    delays = [
        (one.ttft_ms - one.prefill.gpu_ms) / one.gap_p50_ms
        for one in block
        if one.prefill is not None
    ]
    if len(delays) < len(block):
        return None
    short, late = statistics.median(missing), statistics.median(delays)
    if short < MISSING_GAPS or late < LATE_FIRST_EVENT:
        return None
    return (
        f"the decode window is {short:.1f} median gaps shorter than its steps and the first event "
        f"comes {late:.1f} gaps after its prefill: inferred, for the records hold no gaps, that a "
        "last gap far below the median (final two events arriving together) shortens the window "
        f"by up to {_bias(block):.2f} %"
    )


def _bias(block: Block) -> float:
    """The share of one gap in the window, in percent."""
    return 100 / min(one.decode_steps for one in block)


def _stalls(block: Block) -> str | None:
    stalled = [one for one in block if one.gap_max_ms > STALL * one.gap_p95_ms]
    if not stalled:
        return None
    longest = max(stalled, key=lambda one: one.gap_max_ms)
    return (
        f"{len(stalled)} of {len(block)} repetitions hold a single stall far above their 95th "
        f"percentile, the longest {longest.gap_max_ms:.0f} ms where the median gap is "
        f"{longest.gap_p50_ms:.1f} ms (repetition {longest.repetition}): rare long stalls, "
        "which no median shows"
    )


def _coalesced(block: Block) -> str | None:
    off = [one for one in block if one.token_events not in (None, one.decode_steps + 1)]
    if not off:
        return None
    return (
        f"{len(off)} of {len(block)} repetitions have other events than tokens "
        f"({off[0].token_events} for {off[0].decode_steps + 1}): their gaps are between events, "
        "and no latency of a token"
    )


def _cached_suffix(block: Block) -> str | None:
    warm = [one.prefill for one in block if one.prefill and one.prefill.cached_tokens]
    if not warm:
        return None
    new = statistics.median(one.new_tokens for one in warm)
    cached = statistics.median(one.cached_tokens or 0 for one in warm)
    return (
        f"{len(warm)} of {len(block)} prefill rates are over a cached suffix: {new:.0f} new tokens "
        f"on {cached:.0f} cached ones, which is uncached-suffix work and no prompt throughput"
    )


def _repeated_effects(sessions: Sequence[Block]) -> str | None:
    """Whether the n-th repetition of one session foretells the n-th of another."""
    found = []
    for number, one in enumerate(sessions):
        for other in sessions[number + 1 :]:
            if len(one) == len(other) > 2:
                rho = rank_correlation(
                    [each.decode_tok_s for each in one], [each.decode_tok_s for each in other]
                )
                if rho is not None and rho * (len(one) - 1) ** 0.5 > SIGNIFICANT:
                    found.append(rho)
    if not found:
        return None
    return (
        f"decode rates by repetition repeat across sessions (Spearman {max(found):.2f}): "
        "repetitions are not interchangeable, and resampling them understates the interval"
    )


def _over_the_arm(blocks: Blocks) -> Iterator[Advisory]:
    every = [one for block in blocks.values() for one in block]
    for session in sorted({one.session for one in every}):
        arm = sorted(
            (one for one in every if one.session == session), key=lambda one: one.execution_index
        )
        for code, rule in _OF_AN_ARM.items():
            if (message := rule(arm)) is not None:
                yield Advisory(code, arm[0].arm_id, None, session, message)


def _stepping_vram(arm: Block) -> str | None:
    known = [one.vram_bytes for one in arm if one.vram_bytes is not None]
    steps = sum(1 for one, other in pairwise(known) if one != other)
    if not steps:
        return None
    return (
        f"device memory moves in {steps} steps between {min(known)} and {max(known)} bytes over "
        "the session: blocks do not run in the same memory state"
    )


def _unused_counters(arm: Block) -> str | None:
    used = [one.kv_used_pages for one in arm]
    if any(one is None or one > 0 for one in used):
        return None
    return (
        f"the KV counter says 0 used pages in all {len(used)} records: it is sampled when nothing "
        "is held, and says nothing about the requests"
    )


_Rule = Callable[[Block], str | None]
_OF_A_BLOCK: Mapping[str, _Rule] = {
    "inflated-first-repetition": _inflated_first,
    "drift": _drift,
    "last-gap-shortening": _short_last_gap,
    "long-stalls": _stalls,
    "events-are-not-tokens": _coalesced,
    "cached-suffix-prefill": _cached_suffix,
}
_OF_AN_ARM: Mapping[str, _Rule] = {
    "vram-steps": _stepping_vram,
    "kv-counters-unused": _unused_counters,
}
