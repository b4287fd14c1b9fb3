"""Strict JSON: nothing inexact, ambiguous or unexpected is read or written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import pytest

from pytest_meshnet.evidence import strict
from pytest_meshnet.evidence.strict import StrictError


@dataclass(frozen=True)
class Inner:
    count: int


@dataclass(frozen=True)
class Outer:
    name: str
    sure: bool
    note: str | None
    way: Literal["up", "down"]
    inner: Inner
    many: tuple[Inner, ...]
    table: Mapping[str, int]
    rate: float
    more: Inner | None
    odd: Any


OUTER = Outer("n", True, None, "up", Inner(1), (Inner(2), Inner(3)), {"a": 4}, 2.5, Inner(4), [{}])


def code_of(action: Any, *arguments: Any) -> str:
    with pytest.raises(StrictError) as refused:
        action(*arguments)
    return refused.value.code


def test_what_is_written_is_read_back_the_same():
    value = {"b": [1, -2, "é\ud800", True, None], "a": {"z": 2**53 - 1}}
    assert strict.loads(strict.dumps(value)) == value


def test_a_refusal_names_its_reason_and_what_was_found():
    with pytest.raises(StrictError) as refused:
        strict.loads(b'{"x":1,"b":2,"b":3}')
    assert str(refused.value) == "the key 'b' appears twice"


def test_a_tuple_is_written_as_a_list():
    assert strict.dumps((1, ("a",))) == b'[1,["a"]]'


def test_writing_sorts_keys_and_stays_ascii():
    assert strict.dumps({"b": 1, "a": "é"}) == b'{"a":"\\u00e9","b":1}'


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b'{"a":1,"a":1}', "json-duplicate-key"),
        (b'{"x":{"a":1,"b":2,"a":3}}', "json-duplicate-key"),
        (b'{"a":1.0}', "json-number"),
        (b'{"a":1e3}', "json-number"),
        (b'{"a":NaN}', "json-number"),
        (b'{"a":-Infinity}', "json-number"),
        (b'{"a":9007199254740992}', "json-number"),
        (b'{"a":-9007199254740992}', "json-number"),
        (b'{"a":' + b"9" * 5000 + b"}", "json-number"),
        (b'{"a":"\xff"}', "json-not-utf8"),
        (b"\xef\xbb\xbf{}", "json-malformed"),
        (b"{}{}", "json-malformed"),
        (b'{"a":"\n"}', "json-malformed"),
        (b"", "json-malformed"),
        (b"[" * 100_000, "json-too-deep"),
    ],
)
def test_ambiguous_or_inexact_json_is_refused_with_its_code(text: bytes, code: str):
    assert code_of(strict.loads, text) == code


def test_fractions_are_read_only_where_they_are_asked_for():
    text = '{"a": [0.5, 1e3, 18446744073709551615, -9223372036854775808]}'
    assert strict.loads(text, fractions=True) == {"a": [0.5, 1000.0, 2**64 - 1, -(2**63)]}
    assert code_of(strict.loads, text) == "json-number"


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999", str(2**64), str(-(2**63) - 1)])
def test_a_number_that_nobody_can_measure_is_refused(number: str):
    with pytest.raises(StrictError) as refused:
        strict.loads(number, fractions=True)
    assert refused.value.code == "json-number"


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ({"a": [0.5]}, "json-number"),
        ({"a": float("nan")}, "json-number"),
        (2**53, "json-number"),
        ({"a": b"bytes"}, "json-type"),
        ({1: "a"}, "json-type"),
    ],
)
def test_inexact_values_are_not_written(value: Any, code: str):
    assert code_of(strict.dumps, value) == code


def test_a_document_survives_encode_and_decode():
    assert strict.decode(Outer, strict.encode(OUTER)) == OUTER
    none = replace(OUTER, more=None, rate=3)
    assert strict.decode(Outer, strict.loads(strict.dumps(strict.encode(none)))) == none


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"extra": 1}, "field-unknown"),
        ({"name": None}, "field-type"),
        ({"sure": 1}, "field-type"),
        ({"note": 1}, "field-type"),
        ({"way": "left"}, "field-type"),
        ({"way": []}, "field-type"),
        ({"inner": {"count": True}}, "field-type"),
        ({"inner": {}}, "field-missing"),
        ({"many": {}}, "field-type"),
        ({"many": [{"count": 1, "critical": 2}]}, "field-unknown"),
        ({"table": []}, "field-type"),
        ({"table": {"a": "4"}}, "field-type"),
        ({"rate": "2.5"}, "field-type"),
        ({"rate": True}, "field-type"),
        ({"more": {}}, "field-missing"),
        ({"more": 4}, "field-type"),
    ],
)
def test_a_document_with_any_other_field_or_type_is_refused(change: dict[str, Any], code: str):
    assert code_of(strict.decode, Outer, strict.encode(OUTER) | change) == code


def test_a_document_that_is_no_object_is_refused():
    assert code_of(strict.decode, Outer, []) == "field-type"


def test_true_is_not_the_same_as_one():
    assert strict.same({"a": [1, "x"]}, {"a": [1, "x"]})
    assert not strict.same({"a": True}, {"a": 1})
