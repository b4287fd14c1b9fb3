"""PARITY-05: every Shard computes its layers, and says so."""

from __future__ import annotations

import pytest

from pytest_meshnet.parity.bench import ParityBench
from pytest_meshnet.runtime.errors import NotProvoked

from .judging import check

pytestmark = pytest.mark.timeout(900)


@pytest.mark.requirement("PARITY-05")
def test_every_shard_reports_execution_time_for_every_unit(parity: ParityBench) -> None:
    """The execution times of all acks of the lane: an idle Shard has none."""
    records = parity.usual_records()
    found = [
        f"{record.label}: layers {work.start_layer}:{work.end_layer} took {work.least_nanos} ns "
        f"for one of {work.units} units"
        for record in records
        for work in record.work
        if work.units == 0 or work.least_nanos <= 0
    ]
    missing = [f"{record.label}: no Shard reported work" for record in records if not record.work]
    check(found + missing, "execution time above zero for every unit", "is execution_nanos filled?")


@pytest.mark.requirement("PARITY-05")
def test_no_shard_passes_its_input_on(parity: ParityBench) -> None:
    """A Shard of no layers gives the bytes that it was given."""
    if parity.is_whole:
        raise NotProvoked("a whole model has no hidden states to pass on")
    found = [
        f"{record.label}: layers {work.start_layer}:{work.end_layer} gave {work.unchanged} of "
        f"{work.units} results with the bytes of their input"
        for record in parity.usual_records()
        for work in record.work
        if work.unchanged
    ]
    check(found, "results that differ from their input")


@pytest.mark.requirement("PARITY-05")
def test_the_result_of_a_row_depends_on_the_rows_before_it(parity: ParityBench) -> None:
    """Two prompts that end alike: without a layer of its own a Shard gives both the same.

    So a head that only embeds and a tail that only projects are found too.
    """
    if parity.is_whole:
        raise NotProvoked("a whole model has no Shard to ask")
    found = [
        f"{record.label}: layers {start}:{end}"
        for record in parity.usual_records()
        for start, end in record.blind
    ]
    check(found, "a last row that depends on those before it", "does the Shard run its layers?")
