"""The streaming client: which events are tokens, what a stream must hold, and what follows."""

import hashlib
import json

import pytest

from pytest_meshnet.campaign.client.figures import figures, quantile
from pytest_meshnet.campaign.client.http import Unanswered, get_json
from pytest_meshnet.campaign.client.stream import GenerationFailed, Reply, generate
from pytest_meshnet.tests.campaign.streaming import answering

ROLE = {"role": "assistant", "content": ""}
USAGE = {"prompt_tokens": 7, "completion_tokens": 3}


def stream(*events, end=True):
    lines = [f"data: {json.dumps(one)}\n\n" for one in events]
    return ("".join(lines) + ("data: [DONE]\n\n" if end else "")).encode()


def delta(**told):
    return {"id": "chatcmpl-0", "choices": [{"index": 0, "delta": told}]}


def usage(**told):
    return {"id": "chatcmpl-0", "choices": [], "usage": USAGE | told}


def ask(body, **answer):
    with answering(body, **answer) as (origin, _):
        return generate(origin, {"stream": True}, 10)


def test_only_events_with_generated_content_move_the_clock():
    # faults.md 55, 170: a role chunk is no first token, and an empty one moves no clock.
    events = (delta(**ROLE), delta(reasoning_content="a"), delta(content=""), delta(content="b"))
    reply = ask(stream(*events, delta(content="c"), usage()))
    assert len(reply.stamps) == 3
    assert reply.text == "abc"
    assert sorted(reply.stamps) == list(reply.stamps)
    assert reply.sent_at < reply.stamps[0] <= reply.stamps[-1] <= reply.ended_at
    assert reply.response_id == "chatcmpl-0"
    assert reply.usage == USAGE


def test_comments_and_other_fields_of_a_stream_are_no_events():
    body = b": keep-alive\n\nevent: message\nid: 4\n" + stream(delta(content="a"), usage())
    assert ask(body).text == "a"


def test_the_times_of_a_llama_cpp_server_come_with_the_reply():
    last = usage() | {"timings": {"prompt_n": 3, "prompt_ms": 4.5}}
    assert ask(stream(delta(content="a"), last)).timings == {"prompt_n": 3, "prompt_ms": 4.5}


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b'{"error": "out of memory"}', 500, "answered 500: .*out of memory"),
        (stream(delta(content="a"), {"error": {"message": "OOM"}}), 200, "after 1 events.*OOM"),
        (stream(delta(content="a"), usage(), end=False), 200, r"after 1 events without \[DONE\]"),
        (stream(delta(content="a")), 200, "without usage"),
        (b"data: {not json}\n\n", 200, "event 0 is no JSON"),
        (b"data: [1]\n\n", 200, r"after 0 events: \[1\]"),
        (b"", 200, "after 0 events without"),
    ],
)
def test_a_stream_that_is_not_whole_is_a_failed_generation(body, status, message):
    with pytest.raises(GenerationFailed, match=message):
        ask(body, status=status)


def test_a_server_that_is_not_there_is_a_failed_generation():
    with answering(b"") as (origin, _):
        pass
    with pytest.raises(GenerationFailed, match="after 0 events"):
        generate(origin, {}, 5)


def reply(stamps, completion=None, prompt=7, text="abc"):
    told = {"completion_tokens": completion or len(stamps), "prompt_tokens": prompt}
    return Reply(10.0, 20.0, tuple(stamps), text, told, "chatcmpl-4", None)


def test_the_decode_rate_is_steps_over_the_window_of_tokens():
    found = figures(reply([11.0, 11.5, 12.0, 14.0]), 4)
    assert found["ttft_ms"] == 1000.0
    assert found["wall_total_ms"] == 10_000.0
    assert (found["decode_steps"], found["decode_window_s"]) == (3, 3.0)
    assert found["decode_tok_s"] == 1.0
    assert found["inter_token_ms"] == [500.0, 500.0, 2000.0]
    assert found["inter_token_ms_max"] == 2000.0
    assert found["output_sha256"] == hashlib.sha256(b"abc").hexdigest()
    assert found["completion_matches_request"] is True


def test_tokens_are_counted_by_the_server_and_not_by_events():
    # faults.md 62: the latency of a chunk is not that of its tokens.
    found = figures(reply([11.0, 12.0], completion=31), 31)
    assert found["decode_tok_s"] == 30.0
    assert (found["token_events"], found["completion_tokens"]) == (2, 31)
    assert found["ms_per_token_mean"] * 30 == pytest.approx(1000.0)


@pytest.mark.parametrize("stamps", [[], [11.0], [11.0, 11.0]])
def test_without_a_window_there_is_no_rate(stamps):
    with pytest.raises(GenerationFailed, match="a decode rate needs at least two"):
        figures(reply(stamps, completion=5), 5)


def test_a_count_that_the_server_does_not_tell_fails_the_generation():
    with pytest.raises(GenerationFailed, match=r"usage\.prompt_tokens is None"):
        figures(reply([11.0, 12.0], prompt=None), 2)


@pytest.mark.parametrize(
    ("count", "share", "index"),
    [(10, 0.5, 4), (11, 0.5, 5), (12, 0.5, 6), (10, 0.95, 9), (511, 0.95, 484), (1, 0.5, 0)],
)
def test_a_percentile_is_the_value_at_the_rounded_index(count, share, index):
    """Halves go to the even index, as round does: 4.5 is 4, and 5.5 is 6."""
    assert quantile(list(range(count)), share) == index


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [(b"{", 200, "no JSON"), (b"{}", 404, "answered 404"), (b'{"a": NaN}', 200, "no JSON")],
)
def test_a_route_without_a_usable_answer_is_named(body, status, message):
    with answering(body, status=status) as (origin, asked), pytest.raises(Unanswered) as found:
        get_json(origin, "/v1/stats")
    assert message in str(found.value)
    assert "/v1/stats" in str(found.value)
    assert asked == ["/v1/stats"]
