"""Reading one object field by field: every type its own refusal, booleans never numbers."""

import math

import pytest

from pytest_meshnet.target.fields import Fields, TargetRefused


@pytest.mark.parametrize(
    ("reader", "values"),
    [
        ("text", [None, 1, True, "", "  ", ["x"]]),
        ("integer", [None, "1", True, 1.0]),
        ("number", [None, "1", True, math.nan, math.inf, -math.inf]),
        ("boolean", [None, 0, 1, "true"]),
        ("list", [None, "abc", {}, 1]),
        ("texts", [None, "abc", [1], [""], ["a", None]]),
        ("object", [None, [], "x", 1]),
    ],
)
def test_a_value_of_another_type_is_refused_and_named(reader, values):
    for value in values:
        with pytest.raises(TargetRefused, match=r"doc\.key") as refused:
            getattr(Fields("doc", {"key": value}), reader)("key")
        assert refused.value.code == "wrong-type", value


@pytest.mark.parametrize(
    ("reader", "value", "found"),
    [
        ("text", "x", "x"),
        ("integer", 0, 0),
        ("number", 0.5, 0.5),
        ("boolean", False, False),
        ("list", [1, "a"], (1, "a")),
        ("texts", ["a"], ("a",)),
    ],
)
def test_a_value_of_its_type_is_returned(reader, value, found):
    assert getattr(Fields("doc", {"key": value}), reader)("key") == found
