"""Each advisory is given where it is deserved, and not where it is not."""

import json

import pytest
from click.testing import CliRunner

from pytest_meshnet import cli
from pytest_meshnet.campaign.analysis.advisories import advise
from pytest_meshnet.campaign.documents import Fields
from pytest_meshnet.campaign.records import repetition
from pytest_meshnet.tests.campaign.samples import record, write_block


def remarks(records):
    block = tuple(repetition(Fields(one, "a record"), "W1") for one in records)
    return {one.code: one for one in advise({"W1": block})}


def series(name, values, **common):
    return [record(n, **{name: value}, **common) for n, value in enumerate(values)]


CALM = [50.0, 51.0, 50.5, 49.5, 50.2, 50.8, 49.9, 50.4, 50.1, 50.3]
GAPS = [20.0] * 9


def suffix(cached):
    return {"gpu_ms": 10.0, "new_tokens": 5, "cached_tokens": cached, "prefill_tok_s": 500.0}


def late(ttft, window):
    return {"ttft_ms": ttft, "decode_window_s": window}


@pytest.mark.parametrize(
    ("code", "deserved", "undeserved"),
    [
        (
            "inflated-first-repetition",
            series("ttft_ms", [1120.0, 1000.0, 1000.0]),
            series("ttft_ms", [1090.0, 1000.0, 1000.0]),
        ),
        ("drift", series("decode_tok_s", range(50, 60)), series("decode_tok_s", CALM)),
        (
            "last-gap-shortening",
            series("inter_token_ms", [[*GAPS, 0.2]] * 3),
            series("inter_token_ms", [[*GAPS, 18.0]] * 3),
        ),
        (
            "long-stalls",
            series("inter_token_ms_max", [40.0, 61.0, 40.0]),
            series("inter_token_ms_max", [40.0, 59.0, 40.0]),
        ),
        (
            "events-are-not-tokens",
            series("token_events", [101, 34, 101]),
            series("token_events", [101, None, 101]),
        ),
        (
            "cached-suffix-prefill",
            series("prefill", [suffix(0), suffix(512)]),
            series("prefill", [suffix(0), suffix(0)]),
        ),
        (
            "vram-steps",
            series("vram_bytes", [10, 10, 12]),
            series("vram_bytes", [10, 10, 10]),
        ),
        (
            "kv-counters-unused",
            series("kv", [{"used_pages": 0}] * 3),
            series("kv", [{"used_pages": 0}, {"used_pages": 4}, {"used_pages": 0}]),
        ),
    ],
)
def test_an_advisory_is_given_where_it_is_deserved_only(code, deserved, undeserved):
    assert code in remarks(deserved)
    assert code not in remarks(undeserved)


@pytest.mark.parametrize(
    ("ttft", "window", "given"),
    [(1015.0, 1.97, True), (1015.0, 2.0, False), (1000.0, 1.97, False)],
)
def test_without_gaps_a_short_last_gap_is_inferred_from_window_and_delay(ttft, window, given):
    """The window is 1.5 gaps short, and the first event comes more than a gap after the prefill."""
    told = [record(number, **late(ttft, window)) for number in range(3)]
    assert ("last-gap-shortening" in remarks(told)) is given


def test_a_short_last_gap_is_not_inferred_for_a_stage_that_was_not_measured():
    told = [record(number, prefill=None, **late(1015.0, 1.97)) for number in range(3)]
    assert "last-gap-shortening" not in remarks(told)


def test_unknown_counters_are_not_unused_ones():
    assert "kv-counters-unused" not in remarks(series("kv", [None, None]))


@pytest.mark.parametrize(("second", "given"), [(CALM, True), (CALM[5:] + CALM[:5], False)])
def test_repetitions_that_repeat_across_sessions_are_named(second, given):
    first = series("decode_tok_s", CALM)
    again = series("decode_tok_s", second, session_number=2)
    assert ("repetition-effects" in remarks(first + again)) is given


def test_warm_ups_deserve_no_remark():
    cold = record(0, measured=False, ttft_ms=9000.0, inter_token_ms_max=900.0)
    assert {"inflated-first-repetition", "long-stalls"}.isdisjoint(
        remarks([cold, *series("ttft_ms", [1000.0] * 3)])
    )


def analyse(*arguments):
    return CliRunner().invoke(cli.main, ["campaign", "analyse", *map(str, arguments)])


def test_a_person_reads_the_ratio_of_each_class_and_the_advisories(tmp_path):
    old = write_block(tmp_path / "old", series("decode_tok_s", CALM))
    new = write_block(tmp_path / "new", series("decode_tok_s", range(50, 60)))
    done = analyse("--baseline", old, "--candidate", new)
    assert done.exit_code == 0
    assert "R_agg" in done.output
    assert "drift (one W1, session 1): the decode rate rises" in done.output


def test_two_sessions_are_compared_each_by_itself(tmp_path):
    arms = []
    for session in (1, 2):
        told = series("decode_tok_s", CALM, session_number=session)
        arms += ["--baseline", write_block(tmp_path / f"{session}", told)]
        arms += ["--candidate", write_block(tmp_path / f"{session}", told)]
    told = json.loads(analyse(*arms, "--json").stdout)
    assert list(told["performance"]) == ["1", "2"]
    assert "repetition-effects" in {one["code"] for one in told["advisories"]}
    assert "the worse session stands" in analyse(*arms).output


def test_a_page_shows_ratios_advisories_and_a_plot_of_every_block(tmp_path):
    gaps = {"inter_token_ms": [*GAPS, 300.0]}
    old = write_block(tmp_path / "old", series("decode_tok_s", CALM, arm_id="<old>", **gaps))
    new = write_block(tmp_path / "new", series("decode_tok_s", range(50, 60), **gaps))
    page = tmp_path / "page.html"
    done = analyse("--baseline", old, "--candidate", new, "--html", page)
    assert done.exit_code == 0, done.output
    text = page.read_text()
    assert "<h1>Candidate against baseline</h1>" in text
    assert "54.50 (CV " in text
    assert "<strong>drift</strong>, one W1: the decode rate rises" in text
    assert text.count("<figure>") == 6
    assert "&lt;old&gt; W1" in text
    assert "<old>" not in text


def test_a_session_that_cannot_be_analysed_ends_with_one_line_and_exit_2(tmp_path):
    old = write_block(tmp_path / "old", series("decode_tok_s", CALM))
    broken = write_block(tmp_path / "new", [record(), record(1, failed=True)])
    done = analyse("--baseline", old, "--candidate", broken, "--json")
    assert done.exit_code == 2
    assert done.stderr.startswith("refused: arm one, W1, repetition 1 failed")
    assert len(done.stderr.splitlines()) == 1


def test_the_json_of_an_analysis_holds_the_published_keys_and_the_advisories(tmp_path):
    old = write_block(tmp_path / "old", series("decode_tok_s", CALM))
    done = analyse("--baseline", old, "--candidate", old, "--json")
    told = json.loads(done.stdout)
    assert told.keys() == {"bootstrap", "performance", "advisories"}
    assert told["performance"]["1"]["r_agg"] == 1.0
    assert told["performance"]["1"]["r_agg_significant"] is False
