"""Every criterion of the contract can fail, in each listed way, with a reason of its own."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from typing import Any

import pytest

from pytest_meshnet.alpha.judge import MET, NO_EVIDENCE, every_criterion, judge
from pytest_meshnet.target.documents import LockedTarget

from .breaking import Break, broken, everything
from .breaks import LISTED
from .complete import complete


@cache
def locked() -> LockedTarget:
    return LockedTarget.load()


@cache
def whole() -> dict[str, Any]:
    record = complete(locked())
    record["synthetic"] = False
    return record


@cache
def text() -> str:
    return json.dumps(whole())


ALL = tuple(everything(whole()))


def test_a_key_of_the_contract_without_a_break_fails_here() -> None:
    assert {one.id for one in every_criterion(locked().contract)} == set(LISTED)


def test_there_are_many_breaks_and_every_criterion_has_several() -> None:
    counts = Counter(one.criterion for one in ALL)
    assert len(ALL) >= 120
    assert min(counts.values()) >= 2, min(counts, key=counts.__getitem__)


def test_the_complete_record_is_alpha_once_it_is_not_synthetic() -> None:
    verdict = judge(locked(), whole())
    assert [line.reasons for line in verdict.lines if line.status != MET] == []
    assert (verdict.word, verdict.bottleneck, verdict.action) == ("alpha", "", "")
    assert {line.source for line in verdict.lines} == {"measured"}


def test_the_complete_record_is_stop_for_the_single_reason_that_it_is_synthetic() -> None:
    verdict = judge(locked(), complete(locked()))
    codes = [code for line in verdict.lines for code, _ in line.reasons]
    assert verdict.word == "stop"
    assert codes == ["reliability.synthetic_workers_satisfy_alpha.synthetic"]


@pytest.mark.parametrize("count", ["files_scanned", "lines_scanned", "prompts_searched"])
def test_a_scan_of_nothing_or_for_nothing_is_no_evidence(count: str) -> None:
    record = json.loads(text())
    record["storage"]["log_scans"]["bob"][count]["value"] = 0
    lines = {line.id: line for line in judge(locked(), record).lines}
    found = lines["storage.forbid_unrestricted_prompt_payloads_in_logs"]
    assert found.status == NO_EVIDENCE, found


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.id)
def test_a_break_turns_the_verdict_with_its_own_reason(one: Break) -> None:
    verdict = judge(locked(), broken(json.loads(text()), one))
    (line,) = (line for line in verdict.lines if line.id == one.criterion)
    assert verdict.word == "stop"
    assert line.status != MET
    assert f"{one.criterion}.{one.code}" in [code for code, _ in line.reasons]
