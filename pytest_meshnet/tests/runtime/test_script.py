"""Scripts survive a file, and the model tells an honest worker from one that is not."""

from __future__ import annotations

import json
import random

import pytest

from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.scripts.model import Answer, Model
from pytest_meshnet.runtime.scripts.playing import Values, play
from pytest_meshnet.runtime.scripts.script import (
    BadScript,
    Script,
    Step,
    from_json,
    render,
    to_json,
)
from pytest_meshnet.runtime.scripts.sequences import choices
from pytest_meshnet.runtime.shard import ShardUnderTest
from pytest_meshnet.tests.small import shard_of

SCRIPT = (
    Step("open", epoch=1),
    Step("fresh", tokens=2),
    Step("decode", key=1, at=1, full=True),
    Step("repeat"),
    Step("unary-release", session=0),
)

# Session mutants that random scripts find in process within a second or two each.
FOUND = (
    "misses-before-duplicates",
    "duplicate-tells-its-own-length",
    "duplicate-looks-new",
    "duplicate-moves-the-position",
    "chunks-are-never-duplicates",
    "repeated-first-chunk-restarts",
    "refuses-other-bytes",
    "applies-other-bytes",
    "demands-the-next-step",
    "spends-refused-steps",
    "answers-duplicates-with-their-input",
    "works-for-older-epochs",
    "new-epoch-inherits-the-state",
    "ignores-deadlines",
    "calls-expiry-a-cancel",
    "cancel-takes-a-last-token",
)


def random_scripts(count: int) -> list[Script]:
    """Scripts of 28 steps, the same in every run."""
    draw = random.Random(7)
    drawn = [draw.choices(choices(), k=28) for _ in range(count)]
    return [(Step("open", epoch=2), *filter(None, steps)) for steps in drawn]


def play_all(scripts: list[Script], shard: ShardUnderTest, values: Values) -> int:
    """Play one after the other and count the steps."""
    return sum(play(script, shard, values) for script in scripts)


def test_a_script_survives_its_file() -> None:
    for script in (SCRIPT, *random_scripts(20)):
        assert from_json(to_json(script)) == script


def test_a_script_reads_as_one_numbered_line_a_step() -> None:
    assert render(SCRIPT).splitlines() == [
        "  1. stream 0: open, session 0 epoch highest+1",
        "  2. stream 0: fresh, 2 token(s), inputs 0, final",
        "  3. stream 0: decode, inputs 1, expects held+1, full form",
        "  4. stream 0: repeat",
        "  5. unary-release, session 0 epoch highest",
    ]


@pytest.mark.parametrize(
    ("steps", "complaint"),
    [
        ([{"kind": "leap"}], "step 1 has kind 'leap'"),
        ([{}], "step 1 has kind None"),
        ([{"kind": "drop"}, {"kind": "decode", "flaw": "x"}], "step 2 has flaw 'x'"),
        ([{"kind": "drop", "stream": "0"}], "stream '0', which is of another type"),
        ([{"kind": "drop", "colour": 1}], "unknown field 'colour'"),
        ([{"kind": "fresh", "tokens": 0}], "tokens from 1"),
        ([{"kind": "fresh", "tokens": 10**9}], "at most 1000"),
        (["drop"], "step 1 is no object"),
    ],
)
def test_a_file_that_is_no_script_is_refused_with_its_place(
    steps: list[object], complaint: str
) -> None:
    with pytest.raises(BadScript, match=complaint):
        from_json(json.dumps({"format": "meshnet-script-1", "steps": steps}))


@pytest.mark.parametrize("text", ["", "[]", '{"format": "other"}', '{"steps": []}'])
def test_a_file_of_another_kind_is_refused(text: str) -> None:
    with pytest.raises(BadScript, match="failing"):
        from_json(text)


def moved(model: Model, step: Step, answer: Answer) -> tuple[Answer, ...]:
    """Take a step in the model and return what was allowed."""
    message = model.message(step)
    assert message is not None, step
    allowed = model.allowed(message)
    model.move(message, answer)
    return allowed


def test_the_model_wants_a_duplicate_for_an_old_step_and_a_miss_for_a_wrong_length() -> None:
    model = Model(room=20)
    moved(model, Step("open", epoch=1), Answer("accepted"))
    applied = Answer("applied", past_len=2, hit=False)
    assert moved(model, Step("fresh", tokens=2), applied) == (applied,)
    miss = Answer("refused", "CACHE_MISS", past_len=2)
    assert moved(model, Step("decode", at=1), miss) == (miss,)
    duplicate = Answer("duplicate", past_len=2)
    assert moved(model, Step("decode", ahead=0), duplicate) == (duplicate,)


CANCELLED = (Step("open", epoch=1), Step("fresh", tokens=2, final=False), Step("cancel"))
IN_MID_PREFILL = (
    Answer("accepted"),
    Answer("applied", past_len=2, hit=False),
    Answer("nothing"),
)


@pytest.mark.parametrize("unary", [False, True])
@pytest.mark.parametrize("held", [0, 2])
def test_after_a_cancel_in_mid_prefill_either_length_is_right_until_one_is_told(
    held: int, unary: bool
) -> None:
    model = Model(room=20)
    for step, answer in zip(CANCELLED[:2], IN_MID_PREFILL, strict=False):
        moved(model, step, answer)
    cancel = Step("unary-cancel" if unary else "cancel")
    moved(model, cancel, Answer("told" if unary else "nothing"))
    miss = Answer("refused", "CACHE_MISS", past_len=held)
    both = {Answer("refused", "CACHE_MISS", past_len=one) for one in (0, 2)}
    assert set(moved(model, Step("decode", at=1), miss)) == both
    assert moved(model, Step("decode", at=1), miss) == (miss,)


def test_a_cancel_behind_a_finished_prefill_leaves_no_doubt() -> None:
    model = Model(room=20)
    moved(model, Step("open", epoch=1), Answer("accepted"))
    moved(model, Step("fresh", tokens=2), Answer("applied", past_len=2, hit=False))
    moved(model, Step("cancel"), Answer("nothing"))
    applied = Answer("applied", past_len=3, hit=True)
    assert moved(model, Step("decode"), applied) == (applied,)


@pytest.mark.parametrize("held", [0, 2])
def test_what_is_applied_after_a_cancel_tells_which_length_it_was(held: int) -> None:
    model = Model(room=20)
    for step, answer in zip(CANCELLED, IN_MID_PREFILL, strict=True):
        moved(model, step, answer)
    goes_on = Answer("applied", past_len=3, hit=True)
    afresh = Answer("applied", past_len=1, hit=False)
    step, applied = (Step("append"), goes_on) if held else (Step("fresh"), afresh)
    assert applied in moved(model, step, applied)
    duplicate = Answer("duplicate", past_len=applied.past_len)
    assert moved(model, Step("decode", ahead=0), duplicate) == (duplicate,)


@pytest.mark.parametrize("honest", ["", "cancel-gives-up-the-prefill"])
def test_an_honest_worker_answers_every_random_script_as_the_model_allows(honest: str) -> None:
    shard = shard_of(honest)
    values = Values(shard)
    played = play_all(random_scripts(60), shard, values)
    assert played > 1000, f"only {played} steps had a meaning"


@pytest.mark.parametrize("mutant", FOUND)
def test_random_scripts_find_a_session_mutant_and_tell_how(mutant: str) -> None:
    shard = shard_of(mutant)
    values = Values(shard)
    with pytest.raises(Nonconformance) as finding:
        play_all(random_scripts(200), shard, values)
    assert "after this script:\n  1. stream 0: open" in finding.value.actual
    again = from_json(finding.value.hint.partition("\n")[2])
    with pytest.raises(Nonconformance):
        play(again, shard_of(mutant))


def test_each_step_is_told_with_its_answer() -> None:
    told: list[str] = []
    play(SCRIPT, shard_of(""), told=lambda number, _, said: told.append(f"{number} {said}"))
    assert told[:3] == [
        "1 accepted",
        "2 applied past_len 2 no cache hit",
        "3 refused CACHE_MISS past_len 2",
    ]
