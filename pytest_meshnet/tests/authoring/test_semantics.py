"""The sequences of docs/semantics.md are played on the reference, so that they cannot drift."""

from __future__ import annotations

import re

import pytest

from pytest_meshnet.authoring.exchange.notation import Line, parse
from pytest_meshnet.authoring.exchange.playing import play
from pytest_meshnet.reference.catalogue import build_small
from pytest_meshnet.runtime.descriptor import load
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.in_process import InProcessTransport
from pytest_meshnet.runtime.shard import ShardUnderTest
from pytest_meshnet.runtime.target import Target
from pytest_meshnet.suite.pages import docs_folder

SMALL = load("reference", small=True)
TEXT = (docs_folder() / "semantics.md").read_text()


def sequences() -> dict[str, str]:
    """Each block of frames by the heading above it."""
    found = {}
    for section in TEXT.split("\n## ")[1:]:
        heading, _, body = section.partition("\n")
        for text in re.findall(r"```frames\n(.*?)```", body, re.DOTALL):
            assert heading not in found, f"{heading} has two sequences"
            found[heading] = text
    return found


def played(text: str) -> None:
    transport = InProcessTransport(*build_small("", SMALL))
    target = Target(SMALL, SMALL.shards[0], in_process=lambda: transport)
    target.connect()
    play(parse(text), ShardUnderTest(target, "guide", 1))


@pytest.mark.parametrize("heading", sequences())
def test_a_sequence_of_the_guide_is_what_the_reference_answers(heading: str) -> None:
    played(sequences()[heading])


@pytest.mark.parametrize("heading", sequences())
def test_a_wrong_number_in_a_sequence_would_be_noticed(heading: str) -> None:
    """Every answer that tells a length is changed in turn, and the reference disagrees."""
    text = sequences()[heading]
    lines = text.splitlines()
    # Of several right answers the reference gives one; the others cannot be seen to be wrong.
    certain = {n: line for n, line in enumerate(lines) if " or " not in line}
    places = [n for n, line in certain.items() if re.search(r"past_len=\d+", line)]
    for place in places:
        edited = list(lines)
        edited[place] = re.sub(r"past_len=\d+", "past_len=77", lines[place])
        with pytest.raises(Nonconformance, match="past_len=77"):
            played("\n".join(edited))
    assert places or heading == "Opening"


def test_every_situation_has_a_sequence() -> None:
    assert set(sequences()) == {
        "Opening",
        "Units and their answers",
        "What is held",
        "Steps and duplicates",
        "Credits",
        "Cancel",
        "Release",
        "Epochs",
        "The end of a stream",
        "Errors",
        "Deadlines",
    }


def test_the_words_that_the_page_explains_are_those_of_the_notation() -> None:
    kinds = {line.frame.kind for text in sequences().values() for line in parse(text)
             if isinstance(line, Line)}  # fmt: skip
    assert {"open", "chunk", "decode", "again", "cancel", "release", "half-close"} <= kinds
