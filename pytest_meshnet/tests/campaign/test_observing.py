"""From a line of a block to what the judge sees: a word that says ok is not believed alone."""

import json

import pytest

from pytest_meshnet.campaign.errors import CampaignRefused
from pytest_meshnet.campaign.records import read_block
from pytest_meshnet.campaign.report.documents import decode_rates
from pytest_meshnet.campaign.runner.folder import RunFolder
from pytest_meshnet.campaign.runner.observing import observation, observations
from pytest_meshnet.tests.campaign.samples import record

GOOD = {"gpu_ms": 990.0, "new_tokens": 500, "cached_tokens": 0, "uid": 4}


def line(prefill=GOOD, code="ok", uid=4, **changes):
    status = {"ok": code == "ok", "code": code, "reason": None, "request_uid": uid}
    told = {"requested_max_tokens": 512, "prompt_tokens": 569, "completion_tokens": 512}
    return record(**told, prefill=prefill, prefill_status=status, **changes)


@pytest.mark.parametrize(
    ("prefill", "code", "uid", "seen"),
    [
        (GOOD, "ok", 4, "ok"),
        (GOOD, "ok", None, "ok"),
        (GOOD, "shared_batch", 4, "shared_batch"),
        (None, "ok", 4, "no_fresh_record"),
        (GOOD, "ok", 5, "no_fresh_record"),
        (GOOD | {"gpu_ms": 0.0}, "ok", 4, "unusable_timing"),
        (GOOD | {"gpu_ms": None}, "ok", 4, "unusable_timing"),
        (GOOD | {"new_tokens": 0}, "ok", 4, "unusable_timing"),
    ],
)
def test_a_prefill_is_ok_when_its_record_is(prefill, code, uid, seen):
    assert observation(line(prefill, code, uid), "a line").prefill == seen


def test_figures_of_a_server_that_make_no_sense_stop_no_run(tmp_path):
    """A list where counters are expected: the block has no statistics, and the run goes on."""
    folder = RunFolder(tmp_path)
    (tmp_path / "blocks").mkdir()
    folder.append("B1", "W1", line(kv=[1, 2]))
    assert observation(line(kv=[1, 2]), "a line").prefill == "ok"
    with pytest.raises(CampaignRefused, match="kv"):
        read_block(folder.block("B1", "W1"))
    assert decode_rates(folder.block("B1", "W1")) is None


def test_a_line_without_a_status_has_no_prefill():
    told = line()
    del told["prefill_status"]
    assert observation(told, "a line").prefill == "unavailable"


def test_a_failed_request_is_seen_with_its_error():
    told = line(failed=True, error="HTTP 500")
    seen = observation(told, "a line")
    assert (seen.failed, seen.error) == (True, "HTTP 500")


def test_a_block_with_a_broken_line_is_refused_with_its_place():
    data = (json.dumps(line()) + "\n{torn").encode()
    with pytest.raises(CampaignRefused, match=r"W1\.jsonl line 2 is no JSON"):
        list(observations(data, "W1.jsonl"))
