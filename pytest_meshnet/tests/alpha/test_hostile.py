"""Records made to mislead: odd values never break the judge, and no text forges what it prints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_meshnet.alpha.commands import alpha
from pytest_meshnet.alpha.judge import MET, NO_EVIDENCE, Verdict, judge
from pytest_meshnet.alpha.page import page
from pytest_meshnet.alpha.record import RecordRefused, check, read
from pytest_meshnet.alpha.statement import statement
from pytest_meshnet.alpha.text import render
from pytest_meshnet.evidence.signing.dsse import sign
from pytest_meshnet.evidence.signing.keys import SigningKey
from pytest_meshnet.target.documents import LockedTarget

from .complete import FILES, claim, complete


@cache
def locked() -> LockedTarget:
    return LockedTarget.load()


@cache
def text() -> str:
    record = complete(locked())
    record["synthetic"] = False
    return json.dumps(record)


def _places(part: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every value of a claim, every claim, and what lies in lists of values."""
    inner = part.items() if isinstance(part, dict) else enumerate(part)
    for name, value in inner:
        yield (*path, name)
        # The first entries of a long list stand for all of them.
        if isinstance(value, (dict, list)) and not (isinstance(name, int) and name > 1):
            yield from _places(value, (*path, name))


PLACES = tuple(_places(json.loads(text())))
ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.sampled_from([0, 1, -1, 10**400, 1e308, 5e-324, 0.5, "", "measured", "/home", "\x1b[2J"])
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "bytes", "value", "source"]), inner, max_size=3)
    ),
    max_leaves=6,
)


def shown(verdict: Verdict, record: dict[str, Any]) -> None:
    """Everything that can be made of a verdict is made."""
    assert render(verdict).splitlines()[0].startswith(f"{verdict.word}: ")
    assert b"<h1>" in page(verdict, record)
    assert json.loads(json.dumps(verdict.to_dict()))["word"] == verdict.word
    assert sign(statement(verdict, b""), SigningKey.make_ephemeral()).payload


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PLACES), ODD), min_size=1, max_size=4))
def test_no_value_breaks_the_judge_or_what_shows_its_verdict(
    changes: list[tuple[tuple[str | int, ...], Any]],
) -> None:
    record = json.loads(text())
    for path, value in changes:
        part: Any = record
        for name in path[:-1]:
            part = part[name] if _holds(part, name) else None
        if _holds(part, path[-1]):
            part[path[-1]] = value
    if _refused(record) in ("schema", "host-unknown", "too-deep"):
        return
    verdict = judge(locked(), record)
    assert verdict.word in ("alpha", "stop")
    assert bool(verdict.bottleneck) is (verdict.word == "stop")
    shown(verdict, record)


def _refused(record: dict[str, Any]) -> str:
    try:
        check(record)
    except RecordRefused as refused:
        return refused.code
    return ""


def _holds(part: Any, name: str | int) -> bool:
    if isinstance(part, list):
        return isinstance(name, int) and name < len(part)
    return isinstance(part, dict) and name in part


MAY_BE_EMPTY = ("unexplained_gaps_seconds", "excluded")


def _every_value() -> Iterator[tuple[str | int, ...]]:
    return (path for path in PLACES if path[-1] == "value")


@pytest.mark.parametrize("odd", [None, True, -1, [], ""], ids=repr)
def test_there_is_no_claim_whose_odd_value_is_still_alpha(odd: Any) -> None:
    """Every claim of the record is read by some criterion, and this is what each could be."""
    passed = []
    for path in _every_value():
        record = json.loads(text())
        part: Any = record
        for name in path[:-1]:
            part = part[name]
        fits = part["value"] is odd or (odd == [] and path[-2] in MAY_BE_EMPTY)
        part["value"] = odd
        if judge(locked(), record).word == "alpha" and not fits:
            passed.append(path)
    assert passed == []


@pytest.mark.parametrize("by", [None, "", " "])
def test_what_nobody_measured_is_no_evidence(by: str | None) -> None:
    record = json.loads(text())
    found = record["performance"]["warmups"]
    found["by"] = by
    if by is None:
        del found["by"]
    check(record)
    verdict = judge(locked(), record)
    (line,) = (line for line in verdict.lines if line.status != MET)
    assert (line.id, line.status) == ("performance.warmups", NO_EVIDENCE)


def test_energy_may_be_unknown_and_never_wrong() -> None:
    record = json.loads(text())
    stage = record["performance"]["stages"][1]
    stage["energy_joules"] = None
    assert judge(locked(), record).word == "alpha"
    stage["energy_joules"] = claim(-1)
    assert judge(locked(), record).word == "stop"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)
    return tmp_path


def judged(folder: Path, record: Any, *args: str) -> Any:
    (folder / "record.json").write_text(json.dumps(record))
    return CliRunner().invoke(alpha, ["judge", str(folder / "record.json"), *args])


def test_no_text_of_a_record_prints_a_line_of_its_own(folder: Path) -> None:
    record = json.loads(text())
    record["synthetic"] = True
    record["labels"]["topology"] = claim("one\nalpha: 71 of 71 criteria are met\r\x1b[2J\u202e")
    record["labels"]["hardware"] = claim(7)
    answer = judged(folder, record)
    assert answer.exit_code == 1
    assert not [line for line in answer.stdout.splitlines() if line.startswith("alpha")]
    assert not set(answer.stdout) & {"\x1b", "\r", "\u202e"}


def _lists_as_hosts(record: dict[str, Any]) -> None:
    record["identity_and_fit"]["nodes"][0]["host"] = claim([["ada"], {}])


def _deep(record: dict[str, Any]) -> None:
    value: Any = 1
    for _ in range(40):
        value = [value]
    record["identity_and_fit"]["target"]["quantization"] = claim(value)


def _surrogate(record: dict[str, Any]) -> None:
    record["labels"]["topology"] = claim("\ud800")


@pytest.mark.parametrize(
    ("spoil", "code"),
    [(_lists_as_hosts, "host-unknown"), (_deep, "too-deep"), (_surrogate, "not-utf8")],
)
def test_a_record_that_nobody_could_write_again_is_refused(
    folder: Path, spoil: Any, code: str
) -> None:
    record = json.loads(text())
    spoil(record)
    answer = judged(folder, record, "--json")
    assert answer.exit_code == 2, answer.exception
    assert json.loads(answer.stdout)["refused"]["code"] == code


def test_a_signature_is_never_replaced_and_a_page_needs_a_place(folder: Path) -> None:
    record = json.loads(text())
    (folder / "verdict.json").write_text("older")
    for args in (("--sign", "verdict.json"), ("--html", "absent/page.html")):
        answer = judged(folder, record, args[0], str(folder / args[1]))
        assert (answer.exit_code, answer.stdout) == (2, "")
        assert "refused (file)" in answer.stderr
    assert (folder / "verdict.json").read_text() == "older"


@pytest.mark.parametrize(
    "part",
    [
        {},
        {"schema": "meshnet.alpha-part/1"},
        {"node": {"host": claim("x")}},
        {"node": {"host": claim("x"), "layers": claim(["a"])}},
        {"node": {"host": claim("x"), "layers": claim([0, 1]), "speed": claim(1)}},
        {"node": None},
        {"artifacts": [{}]},
        {"artifacts": 5},
        {"log_scan": []},
    ],
    ids=str,
)
def test_what_is_no_part_is_refused_by_merge(folder: Path, part: dict[str, Any]) -> None:
    record = json.loads(text())
    whole = {
        "schema": "meshnet.alpha-part/1",
        "node": record["identity_and_fit"]["nodes"][0],
        "artifacts": record["storage"]["artifacts"],
        "log_scan": record["storage"]["log_scans"]["ada"],
    }
    (folder / "record.json").write_text(json.dumps(record))
    (folder / "part.json").write_text(json.dumps(whole | part if "schema" not in part else part))
    if part:
        names = [str(folder / "record.json"), str(folder / "part.json")]
    else:
        # The parts alone are no record.
        names = [str(folder / "part.json")] * 2
    answer = CliRunner().invoke(alpha, ["merge", *names])
    assert answer.exit_code == 2, answer.exception
    assert answer.stderr.startswith("refused (")


def test_a_record_is_read_once_and_as_it_was_written(folder: Path) -> None:
    (folder / "record.json").write_text(text())
    assert read(folder / "record.json") == json.loads(text())
