"""Whose prefill a record is: by request id, by being the single fresh one, or nobody's."""

import pytest

from pytest_meshnet.campaign.attribution import freetoken, llama_cpp


def entry(seq, uid, **changes):
    told = {
        "seq": seq,
        "uid": uid,
        "wall_monotonic": 1.0,
        "gpu_ms": 2000.0,
        "new_tokens": 500,
        "cached_tokens": 0,
        "chunks": 1,
        "shared_batch": False,
    }
    return told | changes


def document(*records, enabled=True, **changes):
    told = {
        "schema": "freetoken.instrumentation/1",
        "prefill": {"enabled": enabled, "observed": len(records), "records": list(records)},
    }
    return told | changes


def attribute(told, response_id="chatcmpl-0", floor=0, problem=None):
    return freetoken.attribute(told, problem, response_id, floor)


@pytest.mark.parametrize(
    ("text", "uid"),
    [
        ("chatcmpl-0", 0),
        ("chatcmpl-17", 17),
        ("chatcmpl-", None),
        ("chatcmpl--1", None),
        ("chatcmpl-1a", None),
        ("chatcmpl-١", None),
        ("cmpl-3", None),
        ("chatcmpl-3\n", None),
        (None, None),
    ],
)
def test_a_uid_counts_from_zero_and_zero_is_one(text, uid):
    assert freetoken.request_uid(text) == uid


def test_the_first_request_of_a_server_gets_its_own_record():
    found = attribute(document(entry(1, 0)))
    assert (found.code, found.route, found.request_uid) == ("ok", "uid", 0)
    assert found.tokens_per_s == 250.0


def test_a_request_id_picks_its_record_among_newer_ones():
    """A concurrent request leaves the newest record; the id still tells whose is whose."""
    told = document(entry(1, 7, gpu_ms=100.0), entry(2, 8), entry(3, 9, gpu_ms=900.0))
    assert attribute(told, "chatcmpl-7").gpu_ms == 100.0


def test_another_requests_record_is_never_taken():
    assert attribute(document(entry(5, 8)), "chatcmpl-7").code == "no_fresh_record"


def test_a_record_from_before_the_request_is_not_its_own():
    assert attribute(document(entry(3, 7)), "chatcmpl-7", floor=3).code == "no_fresh_record"


def test_two_records_of_one_request_are_ambiguous():
    told = document(entry(1, 7), entry(2, 7))
    assert attribute(told, "chatcmpl-7").code == "ambiguous_records"


@pytest.mark.parametrize(
    ("records", "floor", "code"),
    [
        ([entry(4, 0)], 3, "ok"),
        ([entry(3, 0)], 3, "no_fresh_record"),
        ([entry(4, 0), entry(5, 1)], 3, "ambiguous_records"),
        ([entry(4, 0)], None, "no_fresh_record"),
    ],
)
def test_without_a_uid_only_a_single_fresh_record_is_taken(records, floor, code):
    found = attribute(document(*records), "cmpl-other-shape", floor)
    assert (found.code, found.route) == (code, "sequence")


@pytest.mark.parametrize("shared", [True, None, 1])
def test_a_batch_that_may_be_shared_belongs_to_nobody(shared):
    found = attribute(document(entry(1, 0, shared_batch=shared)))
    assert found.code == "shared_batch"
    assert found.tokens_per_s is None


@pytest.mark.parametrize(
    "changes",
    [
        {"gpu_ms": 0.0},
        {"gpu_ms": -1.0},
        {"gpu_ms": None},
        {"gpu_ms": float("nan")},
        {"gpu_ms": "20"},
        {"new_tokens": 0},
        {"new_tokens": None},
        {"new_tokens": True},
    ],
)
def test_a_time_that_is_no_time_gives_no_rate(changes):
    found = attribute(document(entry(1, 0, **changes)))
    assert (found.code, found.tokens_per_s, found.document()) == ("unusable_timing", None, None)


@pytest.mark.parametrize(
    ("told", "problem", "code"),
    [
        (None, "GET answered 404", "unavailable"),
        (document(prefill=None), None, "unavailable"),
        (document(schema="freetoken.instrumentation/2"), None, "unavailable"),
        ([], None, "unavailable"),
        (document(entry(1, 0), enabled=False), None, "instrumentation_disabled"),
        (document(entry(1, 0), enabled=1), None, "instrumentation_disabled"),
    ],
)
def test_a_server_that_does_not_tell_has_no_prefill(told, problem, code):
    found = attribute(told, problem=problem)
    assert found.code == code
    assert found.reason


@pytest.mark.parametrize(
    ("cached", "label"),
    [
        (0, "prompt throughput"),
        (512, "uncached-suffix work"),
        (None, "cached tokens unknown: no prompt throughput"),
    ],
)
def test_a_rate_is_labelled_by_what_was_cached(cached, label):
    # faults.md 58: 42 new tokens over 114,600 cached ones are no prompt throughput.
    found = attribute(document(entry(1, 0, new_tokens=42, cached_tokens=cached)))
    assert found.label == label
    assert found.document()["label"] == label


def test_the_status_of_an_attribution_says_how_it_was_made():
    assert attribute(document(entry(1, 0))).status() == {
        "ok": True,
        "code": "ok",
        "reason": None,
        "attribution": "uid",
        "request_uid": 0,
    }


def test_llama_cpp_tells_its_own_time_in_the_response():
    told = {"prompt_n": 40, "prompt_ms": 80.0, "cache_n": 8, "predicted_n": 5, "predicted_ms": 100}
    found = llama_cpp.attribute(told)
    assert (found.code, found.route, found.tokens_per_s) == ("ok", "response", 500.0)
    assert (found.cached_tokens, found.label) == (8, "uncached-suffix work")
    assert llama_cpp.decode_rate(told) == 40.0


@pytest.mark.parametrize("told", [None, [], "timings"])
def test_a_response_without_timings_has_no_prefill(told):
    assert llama_cpp.attribute(told).code == "unavailable"


def test_a_whole_prompt_from_the_cache_gives_no_rate():
    found = llama_cpp.attribute({"prompt_n": 0, "prompt_ms": 0.0, "cache_n": 40})
    assert found.code == "unusable_timing"
