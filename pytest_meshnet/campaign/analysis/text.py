"""A comparison as a person reads it in a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_meshnet.campaign.analysis.advisories import Advisory
from pytest_meshnet.campaign.analysis.comparison import Analysis, ArmFigures, SessionComparison
from pytest_meshnet.campaign.analysis.statistics import CV_LIMIT_PERCENT, Interval


def as_text(analysis: Analysis, remarks: Sequence[Advisory]) -> Iterator[str]:
    """Yield the lines: each session by itself, which one stands, and the advisories."""
    for session in analysis.sessions:
        yield from _session(session)
    if len(analysis.sessions) > 1:
        yield f"the worse session stands: {analysis.standing.session}"
    yield "" if remarks else "no advisories"
    if remarks:
        yield "advisories (never verdicts)"
        yield from (_remark(one) for one in remarks)


def _session(session: SessionComparison) -> Iterator[str]:
    yield f"session {session.session}: candidate against baseline"
    yield f"  {'':5} {'baseline tok/s':>21} {'candidate tok/s':>21} {'R_c':>29}"
    for one in session.classes:
        old, new = _decode(one.baseline), _decode(one.candidate)
        yield f"  {one.class_id:5} {old:>21} {new:>21} {_ratio(one.ratio):>29}"
    yield f"  {'R_agg':5} {'':>21} {'':>21} {_ratio(session.aggregate):>29}"
    for name in session.rerun:
        yield f"  {name}: the baseline's CV is above {CV_LIMIT_PERCENT:g} %, run it again"


def _decode(arm: ArmFigures) -> str:
    return f"{arm.decode.median:.2f} (CV {arm.decode.cv_percent:.2f} %)"


def _ratio(ratio: Interval) -> str:
    star = "*" if ratio.significant else " "
    return f"{ratio.ratio:.4f} [{ratio.low:.4f}, {ratio.high:.4f}]{star}"


def _remark(one: Advisory) -> str:
    where = " ".join(part for part in (one.arm_id, one.class_id) if part)
    session = "" if one.session is None else f", session {one.session}"
    return f"  {one.code} ({where}{session}): {one.message}"
