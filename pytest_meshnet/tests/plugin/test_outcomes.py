"""What could make a result look better than it is shows in statuses, evidence and exit codes."""

import base64
import json

import pytest

from pytest_meshnet.tests.plugin.test_evidence_of_a_run import MIXED, bundle_of, records, verified

__all__ = ["verified"]

PASSING = MIXED.replace('raise Nonconformance("four", "three")', "pass")
FLAKY = """
attempts = []

@requirement("DECODE-02")
def test_flaky():
    attempts.append(1)
    assert len(attempts) == 2
"""
RERUNS = ("-p", "rerunfailures", "--reruns", "2")


def statuses(bundle):
    """The status of each test by the sealed statement."""
    payload = json.loads((bundle / "run.dsse.json").read_bytes())["payload"]
    found = json.loads(base64.b64decode(payload))["predicate"]["tests"]
    return {one["test"].partition("::")[2] or one["test"]: one["status"] for one in found}


@pytest.mark.parametrize("processes", [0, 2])
def test_a_rerun_keeps_every_attempt_and_the_worst_counts(suite, verified, processes):
    suite.module(FLAKY)
    args = ["-n", "2"] if processes else []
    result = suite.run_apart("--meshnet-out", "out", *RERUNS, *args)
    bundle = bundle_of(suite)
    attempts = [one for path in (bundle / "journal").iterdir()
                for one in records(bundle, "attempt", path.stem)]  # fmt: skip
    assert [one["attempt"] for one in attempts] == [1, 2]
    assert statuses(bundle) == {"test_flaky": "failed"}
    _, code = verified(bundle)
    assert (result.ret, code) == (1, 1)


def test_a_rerun_is_refused_in_a_certificate_run(suite):
    suite.module(PASSING)
    result = suite.certify(*RERUNS)
    assert "--reruns is refused in a certificate run" in result.stderr.str()
    assert "the plugin pytest-rerunfailures is refused" in result.stderr.str()
    assert result.ret == 2


def test_a_mark_that_reruns_is_seen_as_well(suite, verified):
    suite.module(FLAKY.replace("def test_flaky", "@pytest.mark.flaky(reruns=2)\ndef test_flaky"))
    suite.run_apart("--meshnet-out", "out", "-p", "rerunfailures")
    assert statuses(bundle_of(suite)) == {"test_flaky": "failed"}
    assert verified(bundle_of(suite))[1] == 1


def test_another_order_changes_no_status(suite, verified):
    suite.module(MIXED)
    suite.run("--meshnet-out", "plain")
    unquiet = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")
    suite.run("--meshnet-out", "out", "-p", "randomly", "-p", "no:xdist", quiet=unquiet)
    plain, other = bundle_of(suite, "plain"), bundle_of(suite)
    assert statuses(plain) == statuses(other)
    assert verified(plain)[1] == verified(other)[1] == 1


@pytest.mark.parametrize("args", [["-x"], ["--maxfail=1"], ["-x", "-n", "1"]])
def test_what_a_run_did_not_come_to_is_not_run_and_never_left_out(suite, verified, args):
    suite.module('@requirement("DECODE-02")\ndef test_wrong(): assert 1 == 2\n' + PASSING)
    suite.run_apart("--meshnet-out", "out", *args)
    bundle = bundle_of(suite)
    found = statuses(bundle)
    assert found.keys() == {"test_wrong", "test_wire", "test_good", "test_bad", "test_kv"}
    assert found["test_wrong"] == "failed"
    assert found["test_good"] == "not-run"
    document, code = verified(bundle)
    assert (document["sealed"], code) == (True, 1)


def test_a_run_of_the_last_failures_says_what_it_left_out(suite, verified):
    cached = ("-p", "no:randomly", "-p", "no:hypothesispytest")
    suite.module(MIXED)
    suite.run(quiet=cached)
    suite.module(PASSING)
    result = suite.run("--lf", "--meshnet-out", "out", quiet=cached)
    found = statuses(bundle_of(suite))
    assert found["test_bad"] == "passed"
    assert {found[one] for one in ("test_wire", "test_good", "test_kv")} <= {
        "not-run",
        "not-claimed",
    }
    document, code = verified(bundle_of(suite))
    assert (result.ret, document["verdict"]["word"], code) == (0, "INCOMPLETE", 3)


@pytest.mark.parametrize(
    ("mark", "body", "ret"),
    [
        ("xfail(strict=False)", "assert False", 1),
        ("xfail(strict=False)", "pass", 1),
        ("xfail(strict=True)", "pass", 1),
        ("xfail(condition=False, reason='x')", "pass", 0),
    ],
)
def test_xfail_and_xpass_are_no_pass(suite, verified, mark, body, ret):
    suite.module(f'@pytest.mark.{mark}\n@requirement("DECODE-02")\ndef test_a(): {body}\n')
    result = suite.run("--meshnet-out", "out")
    found = statuses(bundle_of(suite))["test_a"]
    assert (found, result.ret) == ("engine-error" if ret else "passed", ret)
    assert verified(bundle_of(suite))[1] == 3  # also for want of the other MUSTs


SUBTESTS = """
@requirement("DECODE-02")
def test_parts(subtests):
    for n in range(3):
        with subtests.test(n=n):
            {body}
"""


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("pass", "passed"),
        ("assert n != 1", "failed"),
        ("if n == 1: raise KeyError(n)", "engine-error"),
        ("if n == 1: pytest.skip('not this one')", "not-run"),
    ],
)
@pytest.mark.parametrize("processes", [0, 1])
def test_a_test_is_as_bad_as_the_worst_of_its_subtests(suite, verified, body, status, processes):
    suite.module(PASSING.replace("DECODE-02", "DECODE-01"))
    suite.module(SUBTESTS.format(body=body), name="test_sub")
    args = ["-n", "1"] if processes else []
    result = suite.run_apart("--meshnet-out", "out", *args)
    assert statuses(bundle_of(suite))["test_parts"] == status
    expected = {"passed": (0, 4), "failed": (1, 1), "engine-error": (1, 3), "not-run": (0, 3)}
    assert (int(result.ret), verified(bundle_of(suite))[1]) == expected[status]


ODD = {
    "newline": "a\nb",
    "nul": "a\x00b",
    "quotes": "a'b\"c`",
    "surrogate": "a\ud800b",
    "markup": "<script>alert(1)</script>",
    "escape": "\x1b[31mred",
    "slash": "../../etc/passwd",
    "colons": "a::b[c]",
    "emoji": "\U0001f600",
    "long": "x" * 10_000,
}


@pytest.mark.parametrize("name", ODD)
def test_an_id_with_odd_characters_is_one_test_with_its_own_result(suite, verified, name):
    suite.module(
        f"""
        @requirement("DECODE-02")
        @pytest.mark.parametrize("value", ["plain", "odd"], ids=["plain", {ODD[name]!a}])
        def test_a(value): assert value == "odd"
        """
    )
    result = suite.run("--meshnet-out", "out")
    found = statuses(bundle_of(suite))
    assert sorted(found.values()) == ["failed", "passed"]
    assert found["test_a[plain]"] == "failed"
    document, code = verified(bundle_of(suite))
    assert (int(result.ret), document["sealed"], code) == (1, True, 1)


@pytest.mark.parametrize("processes", [0, 1])
def test_a_module_that_cannot_be_collected_is_an_engine_error_of_the_run(
    suite, verified, processes
):
    suite.module(PASSING)
    suite.module("import no_such_module", name="test_broken")
    args = ["-n", "1"] if processes else []
    result = suite.run_apart("--meshnet-out", "out", "--continue-on-collection-errors", *args)
    found = statuses(bundle_of(suite))
    assert found["conformance/test_broken.py"] == "engine-error"
    document, code = verified(bundle_of(suite))
    assert (document["verdict"]["word"], code) == ("INCOMPLETE", 3)
    assert result.ret != 0


REWRITING = """
import pytest

@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item, call):
    report = yield
    report.outcome, report.longrepr = "passed", None
    return report
"""


@pytest.mark.parametrize("processes", [0, 1])
def test_a_conftest_that_rewrites_reports_rewrites_no_evidence(suite, verified, processes):
    (suite.project / "conftest.py").write_text(REWRITING)
    suite.module(MIXED)
    args = ["-n", "1"] if processes else []
    result = suite.run_apart("--meshnet-out", "out", *args)
    bundle = bundle_of(suite)
    assert statuses(bundle)["test_bad"] == "failed"
    assert "conftest.py" in str(records(bundle, "plugins"))
    assert (int(result.ret), verified(bundle)[1]) == (1, 1)


SOME_NOT_PROVOKED = """
from pytest_meshnet.runtime.errors import NotProvoked

@requirement("DECODE-02")
def test_passes():
    pass

@requirement("DECODE-02")
def test_is_not_provoked():
    raise NotProvoked("it never arose")
"""

ALL_RAN = SOME_NOT_PROVOKED.replace("raise NotProvoked", "assert NotProvoked")


@pytest.mark.parametrize("processes", [0, 2])
def test_a_run_that_is_to_be_complete_ends_with_three_when_a_test_did_not_run(suite, processes):
    suite.module(SOME_NOT_PROVOKED)
    args = ["-n", "2"] if processes else []
    assert suite.run_apart(*args).ret == 0
    result = suite.run_apart("--meshnet-complete", *args)
    assert result.ret == 3
    result.stdout.fnmatch_lines(["INCOMPLETE: tests are not-run, *--meshnet-complete asks for all"])


@pytest.mark.parametrize("selection", [("-k", "passes"), ()])
def test_what_is_deselected_or_skipped_did_not_run_either(suite, selection):
    mark = "" if selection else 'import pytest\n\n@pytest.mark.skip(reason="not today")'
    suite.module(
        ALL_RAN
        + f"""
{mark}
@requirement("DECODE-02")
def test_last():
    pass
"""
    )
    assert suite.run_apart("--meshnet-complete", *selection).ret == 3
    assert suite.run_apart(*selection).ret == 0


def test_a_complete_run_ends_with_zero_and_a_failure_with_one(suite):
    suite.module(ALL_RAN)
    assert suite.run_apart("--meshnet-complete").ret == 0
    suite.module(SOME_NOT_PROVOKED.replace("    pass", "    assert False"))
    assert suite.run_apart("--meshnet-complete").ret == 1
