"""The badge beside a bundle never says more than the verdict that a verifier comes to."""

import json

import pytest

from pytest_meshnet import layout
from pytest_meshnet.evidence.badge import NAME, badge, forget_badge
from pytest_meshnet.evidence.summary import Summary
from pytest_meshnet.evidence.verify import run_verify
from pytest_meshnet.ledger.applicability import Fact
from pytest_meshnet.ledger.status import Status
from pytest_meshnet.ledger.verdict import Verdict
from pytest_meshnet.suite.certify import Order, certify

BODIES = {
    "CERTIFIED": "pass",
    "NOT CONFORMANT": "raise Nonconformance('four', 'three')",
    "INCOMPLETE": "raise NotProvoked('it never arose')",
}
SUITE = """
@requirement("WIRE-01")
def test_wire(): pass

@requirement("DECODE-01", "DECODE-02")
def test_decode(): {body}
"""


def written(suite):
    return json.loads((suite.project / "meshnet-evidence" / NAME).read_text())


def verified(suite, monkeypatch):
    """The word that a verifier comes to, and its exit code."""
    (bundle,) = (one for one in (suite.project / "meshnet-evidence").iterdir() if one.is_dir())
    assert not (bundle / NAME).exists()
    monkeypatch.setattr(layout, "folder", suite.home.joinpath)
    text, code = run_verify(bundle, as_json=True)
    return json.loads(text)["verdict"]["word"], code


@pytest.mark.parametrize("word", BODIES)
def test_the_badge_says_what_a_verifier_says(suite, monkeypatch, word):
    suite.target(facts={"launch": [True, "descriptor"]})
    suite.module(SUITE.format(body=BODIES[word]))
    suite.certify()
    found = written(suite)
    assert verified(suite, monkeypatch)[0] == word
    assert found["label"] == "meshnet"
    assert found["message"] == ("certified core" if word == "CERTIFIED" else word.lower())
    assert found["schemaVersion"] == 1


def test_known_failures_are_counted_and_never_certified(suite, monkeypatch):
    suite.target(facts={"launch": [True, "descriptor"]})
    suite.module(SUITE.format(body=BODIES["NOT CONFORMANT"]))
    expected = suite.project / "expected.toml"
    expected.write_text(
        '[[failure]]\ntest = "conformance/test_sample.py::test_decode"\n'
        'reason = "bug 7"\nmessage = "three"\n'
    )
    assert suite.certify("--meshnet-expect", expected).ret == 0
    found = written(suite)
    assert verified(suite, monkeypatch)[0] == "NOT CERTIFIED"
    assert (found["message"], found["color"]) == ("not certified, 1 known failures", "orange")


def test_a_normal_run_leaves_no_badge(suite):
    suite.module(SUITE.format(body="pass"))
    suite.run("--meshnet-out", "meshnet-evidence")
    assert not (suite.project / "meshnet-evidence" / NAME).exists()


def test_a_run_that_is_refused_takes_the_words_of_the_former_away(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    (out / NAME).write_text('{"message": "certified core"}')
    assert certify(Order("nothing.toml", out=out)) == 2
    assert not (out / NAME).exists()


def test_there_may_be_nothing_to_forget(tmp_path):
    forget_badge(tmp_path / "never-made")


def summary(word, facts=()):
    counts = dict.fromkeys(Status, 3)
    return Summary((), Verdict(word, 0, counts, {}, (), ()), dict(facts))


LAUNCHED = {"launch": Fact(True, "descriptor")}


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("CERTIFIED", "certified core, kv"),
        ("NOT CERTIFIED", "not certified, 3 known failures"),
        ("NOT CONFORMANT", "not conformant"),
        ("INCOMPLETE", "incomplete"),
        ("REFUSED", "refused"),
    ],
)
def test_only_a_certificate_names_profiles_and_is_green(word, message):
    found = badge(summary(word, LAUNCHED), ("kv", "core"))
    assert found["message"] == message
    assert (found["color"] == "brightgreen") == (word == "CERTIFIED")


@pytest.mark.parametrize("facts", [{}, {"launch": Fact(False, "descriptor")}])
def test_a_target_that_nobody_saw_start_is_labelled_so(facts):
    assert badge(summary("CERTIFIED", facts), ("core",))["label"] == "meshnet endpoint-only"
    assert badge(summary("CERTIFIED", LAUNCHED), ("core",))["label"] == "meshnet"
