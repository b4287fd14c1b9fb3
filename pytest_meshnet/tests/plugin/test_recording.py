"""How an exception becomes a kind, and when facts may be told."""

import pytest

from pytest_meshnet.ledger.applicability import Fact, FactError
from pytest_meshnet.ledger.expected import ExpectedFailures
from pytest_meshnet.ledger.requirements import Ledger
from pytest_meshnet.runtime.errors import Nonconformance, NotProvoked, Refusal, TargetLost
from pytest_meshnet.suite import recording
from pytest_meshnet.suite.recording import Ending, Excused, classify
from pytest_meshnet.suite.run import Run


def ending(error):
    with pytest.raises(type(error)) as caught:
        raise error
    return classify(caught)


def noted(error, *notes):
    for note in notes:
        error.add_note(note)
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            Nonconformance("four", "three", "count"),
            ("failed", "nonconformance", "expected: four",
             "expected: four\nactual:   three\ntry:      count"),
        ),
        (AssertionError("a == b\nlong"), ("failed", "nonconformance", "a == b", "a == b\nlong")),
        (AssertionError(), ("failed", "nonconformance", "AssertionError", "AssertionError")),
        (KeyError("x"), ("failed", "engine-error", "KeyError: 'x'", "KeyError: 'x'")),
        (SystemExit(1), ("failed", "engine-error", "SystemExit: 1", "SystemExit: 1")),
        (NotProvoked("no race"), ("skipped", "not-run", "not provoked: no race", "")),
        (TargetLost("killed"), ("skipped", "not-run", "killed", "")),
        (Refusal("gone\nlog"), ("skipped", "not-run", "refused: gone", "gone\nlog")),
        (Excused("not-claimed", "profile kv"), ("skipped", "not-claimed", "profile kv", "")),
        (pytest.skip.Exception("later"), ("skipped", "", "later", "")),
        (pytest.fail.Exception("Timeout"), ("failed", "nonconformance", "Timeout", "Timeout")),
        (
            ExceptionGroup("two", [NotProvoked("a"), ExceptionGroup("in", [AssertionError("b")])]),
            ("failed", "nonconformance", "b", "b"),
        ),
        (
            ExceptionGroup("two", [AssertionError("a"), ValueError("b")]),
            ("failed", "engine-error", "ValueError: b", "ValueError: b"),
        ),
        (
            noted(AssertionError("a"), "n=11", "seed 7"),
            ("failed", "nonconformance", "a", "a\nn=11\nseed 7"),
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)  # fmt: skip
def test_an_exception_says_whom_it_speaks_about(error, expected):
    assert ending(error) == Ending(*expected)


def test_no_exception_is_passed():
    assert classify(None) == Ending("passed", "", "", "")


def test_a_long_message_is_cut():
    assert len(ending(AssertionError("x" * 10**6)).message) == recording.MESSAGE_LIMIT


@pytest.fixture
def run():
    return Run(None, None, Ledger.load(), frozenset({"core"}), ExpectedFailures())


def test_the_first_to_tell_a_fact_wins(run):
    run.tell({"layers": Fact(4, "capability")})
    run.tell({"layers": Fact(5, "observed"), "tail": Fact(False, "descriptor")})
    assert run.facts == {"layers": Fact(4, "capability"), "tail": Fact(False, "descriptor")}


def test_a_fact_that_comes_after_the_first_test_is_refused(run):
    run.tell({"layers": Fact(4, "capability")})
    run.connected = True
    run.tell({"layers": Fact(4, "capability")})
    with pytest.raises(FactError, match="the fact grants came after the first test"):
        run.tell({"grants": Fact(True, "observed")})


def test_the_first_loss_and_the_first_refusal_count(run):
    run.lose("killed")
    run.lose("killed again")
    run.refuse("gone")
    run.refuse("gone again")
    assert (run.lost, run.losses, run.refusal) == ("killed", ["killed"], "gone")
