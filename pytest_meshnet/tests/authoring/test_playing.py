"""What a player of exchanges must notice, shown on the reference with exchanges that are wrong."""

from __future__ import annotations

import pytest

from pytest_meshnet.authoring.exchange.notation import BadExchange, parse
from pytest_meshnet.authoring.exchange.playing import DoesNotFit, play
from pytest_meshnet.reference.catalogue import build_small
from pytest_meshnet.runtime.descriptor import load
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.in_process import InProcessTransport
from pytest_meshnet.runtime.shard import ShardUnderTest
from pytest_meshnet.runtime.target import Target

SMALL = load("reference", small=True)
BEGIN = """
-> open session=s epoch=1
<- accepted
-> chunk PREFILL work=w1 step=1 tokens=0+2
<- ack work=w1 past_len=2
<- chunk work=w1
"""


def played(text: str) -> list[str]:
    """Play an exchange on the reference; returns what was told of each line."""
    transport = InProcessTransport(*build_small("", SMALL))
    target = Target(SMALL, SMALL.shards[0], in_process=lambda: transport)
    target.connect()
    told: list[str] = []
    play(parse(text), ShardUnderTest(target, "p", 1), lambda line, said: told.append(said))
    return told


def test_an_exchange_as_it_is_passes_and_tells_of_every_line() -> None:
    told = played(BEGIN)
    assert told[0] == told[2] == "sent"
    assert told[1].startswith("accepted session='p-1'")
    assert told[3] == "ack work='w1' step=1 past_len=2 mode=PREFILL hit=False"
    assert told[4] == "chunk rows=2"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-> open\n<- status EPOCH_STALE terminal", "<- status EPOCH_STALE terminal"),
        (BEGIN + "-> open session=other epoch=1", "0 status.es. that name no unit"),
        (BEGIN + "<- status *", "1 status.es. that name no unit"),
        (BEGIN + "-> open session=t epoch=1\n<- status CANCELLED", "<- status CANCELLED"),
        (BEGIN.replace("<- chunk work=w1\n", ""), "no result for w1"),
        (BEGIN.replace("<- chunk work=w1", "<- chunk work=w1 rows=3"), "<- chunk work=w1 rows=3"),
        (BEGIN + "-> decode work=w2 position=9\n<- ack work=w2", "<- ack work=w2"),
        (BEGIN + "-> half-close\n<- end INTERNAL", "<- end INTERNAL"),
        (BEGIN + "-> half-close\n<- status * terminal", r"<- status \* terminal"),
        (BEGIN + "-> Release session=s epoch=1\n<- Release released=False", "released=False"),
        (BEGIN + "-> Health\n<- Release released=False", "<- Release released=False"),
        ("-> Health\n<- Health state=DRAINING", "<- Health state=DRAINING"),
        ("<- Health state=SERVING", "<- Health state=SERVING"),
    ],
)
def test_an_answer_that_is_not_as_written_is_a_finding(text: str, expected: str) -> None:
    with pytest.raises(Nonconformance, match=expected):
        played(text)


SECOND = "-> chunk PREFILL work=w2 step=2 tokens=0+2 inputs={}\n<- ack work=w2\n<- chunk work=w2 {}"


def test_results_are_compared_as_they_are_written() -> None:
    played(BEGIN + SECOND.format(0, "same-as=w1"))
    played(BEGIN + SECOND.format(1, "unlike=w1"))
    with pytest.raises(Nonconformance, match="the result of w2 and w1: equal within"):
        played(BEGIN + SECOND.format(1, "same-as=w1"))
    with pytest.raises(Nonconformance, match="another result of w2 than of w1"):
        played(BEGIN + SECOND.format(0, "unlike=w1"))


def test_an_answer_that_may_come_need_not() -> None:
    told = played(BEGIN + "-> again work=w1\n<- ack duplicate work=w1\n<- ? chunk work=w1")
    assert told[-1] == "did not come"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<- accepted", "line 1 awaits an answer on a stream that is not open"),
        (BEGIN + "<- chunk work=w9", "awaits a result of work that was never sent"),
        (BEGIN + "-> again work=w9", "repeats work that was never sent"),
        (BEGIN + SECOND.format(0, "same-as=w9"), "there is no result 'w9' before it"),
        (BEGIN + "-> decode work=w2 step=two", "has 'two' where a whole number is expected"),
    ],
)
def test_an_exchange_that_makes_no_sense_is_refused(text: str, said: str) -> None:
    with pytest.raises(BadExchange, match=said):
        played(text)


def test_an_exchange_beyond_the_context_does_not_fit() -> None:
    with pytest.raises(DoesNotFit, match="it needs 40 tokens of context"):
        played("-> open\n<- accepted\n-> chunk PREFILL work=w1 tokens=0+40")
