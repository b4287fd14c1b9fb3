"""Pages about one run, and about two arms: answers first, reasons, and plots of every block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_meshnet.campaign.analysis.advisories import Advisory, advise
from pytest_meshnet.campaign.analysis.comparison import Analysis, Blocks
from pytest_meshnet.campaign.analysis.statistics import CV_LIMIT_PERCENT, RESAMPLES
from pytest_meshnet.campaign.errors import CampaignRefused
from pytest_meshnet.campaign.judging.codes import WHAT_TO_DO
from pytest_meshnet.campaign.judging.facts import CampaignRecord
from pytest_meshnet.campaign.judging.judge import Judgement
from pytest_meshnet.campaign.records import Repetition, read_block
from pytest_meshnet.campaign.report.charts import Chart, histogram, plain, scatter
from pytest_meshnet.campaign.runner.folder import RunFolder
from pytest_meshnet.evidence.report.html import page_of

_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True, slots=True)
class Plots:
    """The three charts of one block; a chart without data is left out."""

    arm_id: str
    class_id: str
    charts: tuple[Chart, ...]


def page(folder: RunFolder, record: CampaignRecord, judgement: Judgement) -> bytes:
    """Return a self-contained page as UTF-8: nothing from a network, every text escaped."""
    blocks = list(_blocks(folder, record))
    return page_of(
        _TEMPLATES,
        "run.html.j2",
        record=record,
        judgement=judgement,
        advice=WHAT_TO_DO,
        plots=[_plots(*one) for one in blocks],
        advisories=_advisories(blocks),
    )


def analysis_page(found: Analysis, arms: Sequence[Blocks], remarks: Sequence[Advisory]) -> bytes:
    """Return a page about two arms as UTF-8: ratios with intervals, advisories, every plot."""
    blocks = [(block[0].arm_id, name, block) for arm in arms for name, block in arm.items()]
    return page_of(
        _TEMPLATES,
        "analysis.html.j2",
        sessions=found.sessions,
        standing=found.standing,
        resamples=RESAMPLES,
        cv_limit=CV_LIMIT_PERCENT,
        plots=[_plots(*one) for one in blocks],
        advisories=remarks,
    )


def _blocks(
    folder: RunFolder, record: CampaignRecord
) -> Iterator[tuple[str, str, tuple[Repetition, ...]]]:
    for arm in record.protocol.arms:
        for name in record.protocol.classes:
            try:
                yield arm, name, read_block(folder.block(arm, name))
            except CampaignRefused:
                # A block with a failed request, or none at all, is named by the judgement.
                continue


def _advisories(blocks: list[tuple[str, str, tuple[Repetition, ...]]]) -> list[Advisory]:
    arms: dict[str, dict[str, tuple[Repetition, ...]]] = {}
    for arm, name, block in blocks:
        arms.setdefault(arm, {})[name] = block
    return [remark for by_class in arms.values() for remark in advise(by_class)]


def _plots(arm_id: str, class_id: str, block: Sequence[Repetition]) -> Plots:
    measured = [one for one in block if one.measured]
    rates = [(float(one.repetition), one.decode_tok_s) for one in measured]
    gaps = [gap for one in measured for gap in one.gaps_ms or ()]
    prefill = [
        (float(one.prefill.cached_tokens), one.prefill.tokens_per_s)
        for one in block
        if one.prefill is not None and one.prefill.cached_tokens is not None
    ]
    charts = (
        scatter(
            "Decode per repetition",
            ("repetition", "tok/s"),
            rates,
            f"{len(rates)} measured repetitions from {_span([rate for _, rate in rates])} tok/s",
        ),
        histogram(
            "Gaps between events",
            ("ms", "count, logarithmic"),
            gaps,
            f"{len(gaps)} gaps from {_span(gaps)} ms",
        ),
        scatter(
            "Prefill by cached tokens",
            ("cached tokens", "computed tok/s"),
            prefill,
            f"{len(prefill)} prefills; right of 0 it is uncached-suffix work",
        ),
    )
    return Plots(arm_id, class_id, tuple(one for one in charts if one is not None))


def _span(values: list[float]) -> str:
    return f"{plain(min(values))} to {plain(max(values))}" if values else "none"
