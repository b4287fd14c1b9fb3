"""The notation of exchanges: what can be written, what is refused, how it is compared and drawn."""

from __future__ import annotations

import pytest

from pytest_meshnet.authoring.exchange.answers import differs, facts, fits
from pytest_meshnet.authoring.exchange.diagram import draw
from pytest_meshnet.authoring.exchange.messages import set_field
from pytest_meshnet.authoring.exchange.notation import BadExchange, Line, Remark, parse
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb

TEXT = """
a -> open session=s epoch=2
a <- accepted epoch=2
# One of two.
a <- ack duplicate work=w1 past_len=3 or status CANCELLED work=w1
<- ? chunk work=w1
"""


def test_an_exchange_reads_back_as_it_was_written():
    script = parse(TEXT)
    assert "\n".join(map(str, script)) == TEXT.strip()
    assert isinstance(script[2], Remark)
    answer = script[3]
    assert isinstance(answer, Line)
    assert (answer.label, answer.direction, answer.may) == ("a", "<-", False)
    assert [frame.kind for frame in answer.frames] == ["ack", "status"]
    assert answer.frames[0].words == ("duplicate",)
    assert answer.frames[0].values == {"work": "w1", "past_len": "3"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no frame in it"),
        ("# only talk", "no frame in it"),
        ("=> open", "line 1 is '=> open': expected"),
        ("-> accepted", "line 1 has kind 'accepted': expected open, chunk"),
        ("<- open", "line 1 has kind 'open': expected accepted, ack"),
        ("-> open\n-> open or release", "line 2 sends one of several frames"),
        ("-> ? open", "line 1 sends one of several frames"),
        ("-> open epoch=", "line 1: epoch needs exactly one value"),
        ("-> open epoch=1 epoch=2", "line 1: epoch needs exactly one value"),
    ],
)
def test_what_is_no_exchange_is_refused_with_its_line(text, said):
    with pytest.raises(BadExchange, match=said.replace("?", r"\?")):
        parse(text)


@pytest.mark.parametrize(
    ("path", "value", "found"),
    [
        ("fingerprint.recipe_id", "other", "other"),
        ("shard_range.end_layer", "+2", 6),
        ("shard_range.end_layer", "-1", 3),
        ("shard_range.end_layer", "9", 9),
        ("schema_version", "0", 0),
        ("schema_version", "SCHEMA_VERSION_1", 1),
    ],
)
def test_any_field_can_be_set_by_its_path(path, value, found):
    message = pb.Envelope(schema_version=1, shard_range=pb.ShardRange(end_layer=4))
    set_field(message, path, value)
    for part in path.split("."):
        message = getattr(message, part)
    assert message == found


def test_fields_can_be_cleared_flipped_and_chosen_by_number():
    message = pb.ActivationChunk()
    message.bundle.tensors.add(name="x").checksum.value = b"\x00\xf0"
    set_field(message, "bundle.tensors.0.checksum.value", "flipped")
    assert message.bundle.tensors[0].checksum.value == b"\xff\x0f"
    set_field(message, "bundle.tensors", "absent")
    assert not message.bundle.tensors


@pytest.mark.parametrize("path", ["nothing", "fingerprint.nothing", "nothing.recipe_id"])
def test_an_unknown_field_is_refused(path):
    with pytest.raises(BadExchange, match="has no field 'nothing'"):
        set_field(pb.Envelope(), path, "1")


def status(code, **told):
    message = pb.ShardStatus(work_id="w1", **told)
    message.error.code = code
    message.error.actual_past_len = 4
    return facts(message)


def written(text):
    line = parse(f"<- {text}")[0]
    assert isinstance(line, Line)
    return line.frame


MISS = status(pb.ERROR_CODE_CACHE_MISS)


@pytest.mark.parametrize(
    ("text", "found", "difference"),
    [
        ("status CACHE_MISS work=w1 actual_past_len=4", MISS, ""),
        ("status CACHE_MISS actual_past_len=3", MISS, "actual_past_len=4"),
        ("status CACHE_MISS actual_past_len=3..4", MISS, ""),
        ("status CACHE_MISS actual_past_len=5..", MISS, "actual_past_len=4"),
        ("status PAYLOAD_CORRUPT|CACHE_MISS", MISS, ""),
        ("status PAYLOAD_CORRUPT", MISS, "code CACHE_MISS"),
        ("status *", MISS, ""),
        ("status *", status(pb.ERROR_CODE_INTERNAL), "code INTERNAL"),
        ("status *", status(0), "code UNSPECIFIED"),
        ("status *", status(5, terminal=True), "terminal=True"),
        ("status * terminal", MISS, "terminal=False"),
        ("status * work=w2", MISS, "work=w1"),
        ("status * nonsense=1", MISS, "nonsense=absent"),
        ("ack work=w1", MISS, "status instead of ack"),
    ],
)
def test_an_answer_is_held_against_every_word_that_is_written(text, found, difference):
    assert differs(written(text), "status", found) == difference


def test_a_duplicate_is_none_unless_it_says_so():
    plain, duplicate = facts(pb.Ack()), facts(pb.Ack(duplicate=True))
    assert differs(written("ack"), "ack", duplicate) == "duplicate=True"
    assert differs(written("ack duplicate"), "ack", plain) == "duplicate=False"
    assert differs(written("ack duplicate"), "ack", duplicate) == ""


def test_a_range_holds_numbers_only():
    assert fits("1..", "7")
    assert not fits("1..", "absent")
    assert not fits("1..3", "4")


@pytest.mark.parametrize(("found", "there"), [("x", True), ("7", True), ("", False), ("0", False)])
def test_what_must_be_present_is_neither_empty_nor_zero(found, there):
    assert fits("present", found) is there
    assert not fits("present", "absent")


def test_the_picture_has_an_arrow_for_every_frame_between_two_straight_lines():
    rows = draw(parse(TEXT)).splitlines()
    assert len({len(row) for row in rows[1:]}) == 1
    assert [row[1:3] for row in rows if ">|" in row or "|<" in row] == ["--", "<-", "<-", "<."]
    assert any("a: ack duplicate work=w1 past_len=3 or status CANCELLED" in row for row in rows)
