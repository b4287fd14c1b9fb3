"""The figures of a block by hand, and the rules of a comparison."""

import math
import statistics

import numpy as np
import pytest

from pytest_meshnet.campaign.analysis.comparison import analyse
from pytest_meshnet.campaign.analysis.ranks import rank_correlation, trend
from pytest_meshnet.campaign.analysis.statistics import Interval, spread
from pytest_meshnet.campaign.documents import Fields
from pytest_meshnet.campaign.errors import CampaignRefused
from pytest_meshnet.campaign.records import read_blocks, repetition
from pytest_meshnet.tests.campaign.samples import record, write_block

OLD = [50.0, 52.0, 51.0, 49.0]
NEW = [60.0, 58.0, 61.0, 59.0]


def block(rates, class_id="W1", **changes):
    told = [
        record(n, decode_tok_s=rate, class_id=class_id, **changes) for n, rate in enumerate(rates)
    ]
    return tuple(repetition(Fields(one, "a record"), class_id) for one in told)


def test_a_spread_is_linear_percentiles_and_the_sample_deviation():
    found = spread([1.0, 2.0, 4.0, 8.0])
    assert (found.n, found.minimum, found.median, found.maximum) == (4, 1.0, 3.0, 8.0)
    assert found.iqr == 5.0 - 1.75
    assert found.cv_percent == statistics.stdev([1, 2, 4, 8]) / 3.75 * 100


def test_the_interval_comes_from_one_generator_in_the_order_of_the_classes():
    pairs = {"W1": (OLD, NEW), "W2": (NEW, OLD)}
    found = analyse(
        {name: block(old, name) for name, (old, _) in pairs.items()},
        {name: block(new, name) for name, (_, new) in pairs.items()},
    ).sessions[0]
    rng = np.random.default_rng(0)
    ratios = []
    for old, new in pairs.values():
        below = np.median(rng.choice(old, size=(10_000, 4)), axis=1)
        ratios.append(np.median(rng.choice(new, size=(10_000, 4)), axis=1) / below)
    expected = [np.percentile(each, [2.5, 97.5]).tolist() for each in ratios]
    assert [[one.ratio.low, one.ratio.high] for one in found.classes] == expected
    assert [one.ratio.ratio for one in found.classes] == [59.5 / 50.5, 50.5 / 59.5]
    together = np.percentile(np.exp(np.mean(np.log(ratios), axis=0)), [2.5, 97.5])
    assert [found.aggregate.low, found.aggregate.high] == together.tolist()
    assert found.aggregate.ratio == pytest.approx(1.0)
    assert not found.aggregate.significant


@pytest.mark.parametrize(
    ("low", "high", "significant"),
    [(1.01, 1.2, True), (0.8, 0.99, True), (0.9, 1.1, False), (1.0, 1.1, False)],
)
def test_a_ratio_is_significant_when_its_interval_excludes_one(low, high, significant):
    assert Interval(1.0, low, high).significant is significant


def test_warm_ups_count_for_nothing():
    cold = block([1.0], measured=False) + block(OLD)
    found = analyse({"W1": cold}, {"W1": block(NEW)}).sessions[0].classes[0]
    assert found.baseline.decode.n == 4
    assert found.baseline.decode.minimum == 49.0


def test_sessions_are_never_pooled_and_the_worse_one_stands():
    old = block(OLD) + block(OLD, session_number=2)
    new = block(NEW) + block([one - 5 for one in NEW], session_number=2)
    found = analyse({"W1": old}, {"W1": new})
    assert [one.session for one in found.sessions] == [1, 2]
    assert [one.classes[0].candidate.decode.n for one in found.sessions] == [4, 4]
    assert found.standing.session == 2


def test_a_baseline_that_varies_by_more_than_five_percent_asks_for_another_run():
    # faults.md 63
    wild = analyse({"W1": block([40.0, 60.0, 50.0])}, {"W1": block(NEW[:3])})
    calm = analyse({"W1": block(OLD)}, {"W1": block([30.0, 60.0, 90.0, 60.0])})
    assert wild.sessions[0].rerun == ("W1",)
    assert calm.sessions[0].rerun == ()


def test_a_rate_that_one_repetition_lacks_is_unknown_for_the_block():
    halved = block(OLD[:3]) + block(OLD[3:], prefill=None)
    found = analyse({"W1": halved}, {"W1": block(NEW)}).document()["performance"]["1"]
    assert found["classes"]["W1"]["baseline_prefill_tok_s_median"] is None
    assert found["classes"]["W1"]["prefill_ratio"] is None


@pytest.mark.parametrize(
    ("baseline", "candidate", "message"),
    [
        ({"W1": OLD}, {"W1": NEW, "W2": NEW}, "the same classes"),
        ({"W1": OLD[:1]}, {"W1": NEW}, "at least 2"),
    ],
)
def test_blocks_that_do_not_compare_are_refused(baseline, candidate, message):
    arms = [
        {name: block(rates, name) for name, rates in arm.items()} for arm in (baseline, candidate)
    ]
    with pytest.raises(CampaignRefused, match=message):
        analyse(*arms)


def test_other_sessions_on_one_side_are_refused():
    with pytest.raises(CampaignRefused, match="expected the same"):
        analyse({"W1": block(OLD)}, {"W1": block(NEW, session_number=2)})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"failed": True}, "repetition 0 failed"),
        ({"decode_tok_s": None}, "decode_tok_s is None: expected a number"),
        ({"measured": 1}, "measured is 1: expected true or false"),
        ({"decode_steps": True}, "decode_steps is True: expected a whole number"),
        ({"prefill": {"gpu_ms": 1.0}}, "new_tokens is absent"),
    ],
)
def test_a_broken_record_is_refused_with_its_line(tmp_path, change, message):
    with pytest.raises(CampaignRefused, match=message):
        read_blocks(write_block(tmp_path, [record(**change)]))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"a": 1, "a": 2}', "'a' appears twice"),
        ('{"a": 1e999}', "1e999 is no finite number"),
        ('{"a": 1' + "0" * 400 + "}", "beyond 64 bits"),
        ("[" * 100_000, "nested too deep"),
        ('{"a": NaN}', "NaN"),
        ('{"failed": fal', "no JSON"),
    ],
)
def test_a_line_that_is_no_honest_json_is_refused(tmp_path, line, message):
    (tmp_path / "W1.jsonl").write_text(line)
    with pytest.raises(CampaignRefused, match=message):
        read_blocks(tmp_path)


def test_a_folder_of_two_arms_and_one_of_none_are_refused(tmp_path):
    write_block(tmp_path / "both", [record(), record(1, arm_id="other")])
    with pytest.raises(CampaignRefused, match="the arms one, other are mixed"):
        read_blocks(tmp_path / "both")
    with pytest.raises(CampaignRefused, match="holds no block"):
        read_blocks(tmp_path)


def test_several_folders_are_several_sessions_and_never_one_twice(tmp_path):
    first = write_block(tmp_path / "1", [record(), record(1)])
    second = write_block(tmp_path / "2", [record(session_number=2), record(1, session_number=2)])
    assert [one.session for one in read_blocks(first, second)["W1"]] == [1, 1, 2, 2]
    with pytest.raises(CampaignRefused, match="repetition 0 of session 1 stands 2 times"):
        read_blocks(first, first)


def test_the_trend_of_ten_rising_values_is_that_of_kendalls_table():
    assert trend(range(10)) == pytest.approx(44 / math.sqrt(125))
    assert trend(range(10, 0, -1)) == pytest.approx(-44 / math.sqrt(125))
    assert trend([3.0] * 10) is None


def test_ranks_agree_fully_oppose_fully_and_share_the_ranks_of_ties():
    assert rank_correlation([1, 2, 3], [10, 20, 90]) == pytest.approx(1.0)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1.0)
    assert rank_correlation([1, 1, 2], [1, 1, 2]) == pytest.approx(1.0)
    assert rank_correlation([1, 1, 1], [1, 2, 3]) is None
