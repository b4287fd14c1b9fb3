"""The digest convention, its stability across processes, and strict reading."""

import hashlib
import math
import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_meshnet.identity.canonical import DocumentRefused, canonical_bytes, digest, load_strict


def test_the_canonical_form_is_sorted_compact_and_keeps_unicode():
    value = {"b": [1, True, None], "a": {"ü": "é\n", "A": 1.5}}
    expected = '{"a":{"A":1.5,"ü":"é\\n"},"b":[1,true,null]}'.encode()
    assert canonical_bytes(value) == expected
    assert digest(value) == hashlib.sha256(expected).hexdigest()


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ({1: "a"}, "key-type"),
        ({"a": {None: 1}}, "key-type"),
        (math.nan, "non-finite"),
        ([math.inf], "non-finite"),
        ({"a": b"bytes"}, "not-json"),
        ({"a": {1, 2}}, "not-json"),
        ("\ud800", "not-utf8"),
        ({"\udfff": 1}, "not-utf8"),
    ],
)
def test_what_json_cannot_say_in_one_way_is_refused(value, code):
    with pytest.raises(DocumentRefused) as refused:
        digest(value)
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b'{"a": 1, "a": 2}', "duplicate-key"),
        (b'{"a": {"b": 1, "b": 1}}', "duplicate-key"),
        (b'{"a": NaN}', "non-finite"),
        (b'{"a": -Infinity}', "non-finite"),
        (b'{"a": 1e999}', "non-finite"),
        (b'{"a": "\xff"}', "not-utf8"),
        (b'{"a": 1', "not-json"),
        (b"", "not-json"),
        (b"1" * 10_000, "not-json"),
        (b"[" * 200_000, "too-deep"),
    ],
)
def test_a_document_that_could_be_read_in_two_ways_is_refused(data, code):
    with pytest.raises(DocumentRefused, match=r"^doc: ") as refused:
        load_strict(data, "doc")
    assert refused.value.code == code


def test_an_absurdly_nested_value_is_refused_and_not_a_crash():
    value: list[object] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(DocumentRefused) as refused:
        digest(value)
    assert refused.value.code == "too-deep"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(json_values)
@settings(deadline=None)
def test_reading_back_the_canonical_form_gives_the_same_digest(value):
    assert digest(load_strict(canonical_bytes(value), "round trip")) == digest(value)


# faults.md 50: a key that depends on the process is no key.
def test_a_digest_is_equal_in_processes_with_other_hash_seeds():
    code = (
        "from pytest_meshnet.identity.canonical import digest;"
        "import sys; sys.stdout.write(digest({k: [k] for k in {'a', 'b', 'c', 'd'}}))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2")
    }
    assert found == {digest({key: [key] for key in "abcd"})}
