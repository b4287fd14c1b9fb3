"""Expected against observed requests, block by block."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from pytest_meshnet.campaign.judging.facts import CampaignRecord, Observation


@dataclass(frozen=True, slots=True)
class Gap:
    """A block whose requests are not those that were expected of it."""

    arm_id: str
    class_id: str
    message: str


def gaps(record: CampaignRecord) -> Iterator[Gap]:
    """Yield every block with requests that are missing, doubled or of no known number.

    A failed request was observed; it is counted here and judged elsewhere.
    """
    protocol = record.protocol
    planned = {(arm, name) for arm in protocol.arms for name in protocol.classes}
    expected = {(True, number) for number in range(protocol.repetitions)}
    expected |= {(False, number) for number in range(protocol.warmups)}
    found: dict[tuple[str, str], Counter[tuple[bool, int]]] = {one: Counter() for one in planned}
    for one in record.observations:
        found.setdefault(_block(one), Counter())[one.measured, one.repetition] += 1
    for block, seen in sorted(found.items()):
        wanted = expected if block in planned else set()
        if missing := len(wanted - seen.keys()):
            message = f"{missing} of {len(wanted)} requests were never made"
            yield Gap(*block, message)
        elif seen != Counter(wanted):
            message = f"{seen.total()} requests were made where {len(wanted)} were planned"
            yield Gap(*block, message)


def _block(one: Observation) -> tuple[str, str]:
    return one.arm_id, one.class_id
