import pytest

from pytest_meshnet.ledger.expected import ExpectedFailures, ExpectedFailuresError

GOOD = '[[failure]]\ntest = "conformance/test_a.py::test"\nreason = "bug 7"\nmessage = "past_len"\n'


@pytest.fixture
def load(tmp_path):
    def load(text):
        path = tmp_path / "expected.toml"
        path.write_text(text)
        return ExpectedFailures.load(path)

    return load


def test_an_entry_is_found_by_the_id_of_its_test(load):
    entry = load(GOOD).get("conformance/test_a.py::test")
    assert (entry.reason, entry.message) == ("bug 7", "past_len")
    assert load(GOOD).get("conformance/test_b.py::test") is None


def test_without_a_list_nothing_is_expected():
    assert ExpectedFailures().get("conformance/test_a.py::test") is None


def test_an_entry_for_a_test_that_does_not_exist_is_refused(load):
    load(GOOD).check(["conformance/test_a.py::test", "conformance/test_b.py::test"])
    with pytest.raises(ExpectedFailuresError, match=r"unknown tests conformance/test_a\.py::test"):
        load(GOOD).check(["conformance/test_b.py::test"])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (GOOD.replace('"bug 7"', '" "'), "reason of"),
        (GOOD.replace('"past_len"', '""'), "message of"),
        (GOOD.replace('"past_len"', "7"), "message of"),
        (GOOD.replace('reason = "bug 7"\n', ""), "expected exactly"),
        (GOOD + "colour = 1\n", "expected exactly"),
        (GOOD + GOOD, "listed twice"),
        ("failures = 1\n" + GOOD, "unknown keys"),
        ("failure = [1]\n", "expected exactly"),
        ("[[failure", "expected a TOML list"),
    ],
)
def test_a_malformed_list_is_refused_by_name(load, text, complaint):
    with pytest.raises(ExpectedFailuresError, match=complaint):
        load(text)
