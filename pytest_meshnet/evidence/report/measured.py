"""The section of measured numbers: one chart for each unit that a test measured in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_meshnet.evidence import metrics
from pytest_meshnet.evidence.metrics import Metric
from pytest_meshnet.evidence.report.sections import (
    Attached,
    Bar,
    Bars,
    Block,
    Section,
    SectionError,
    Table,
)
from pytest_meshnet.evidence.strict import StrictError


class Measured:
    """Shows the metrics that tests attached."""

    media_type = metrics.MEDIA_TYPE

    def sections(self, attachments: Sequence[Attached]) -> Iterator[Section]:
        """Yield one section with all metrics, by test and unit."""
        blocks = [block for one in attachments for block in _blocks(one)]
        yield Section("measured", "Measured", tuple(blocks))


def _blocks(attached: Attached) -> Iterator[Block]:
    where = attached.test or "the whole run"
    try:
        found = metrics.decode(attached.data)
    except StrictError as error:
        raise SectionError(f"{attached.name} of {where}: {error}") from error
    units: dict[str, list[Metric]] = {}
    for one in found:
        units.setdefault(one.unit, []).append(one)
    for unit, members in units.items():
        if all(one.number >= 0 for one in members):
            bars = (Bar(one.name, float(one.number), f"{one.value} {unit}") for one in members)
            yield Bars(f"{where}, in {unit}", tuple(bars))
        else:
            rows = tuple((one.name, one.value) for one in members)
            yield Table(f"{where}, in {unit}", ("Metric", unit), rows)
