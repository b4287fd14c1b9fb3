"""What a person reads: the header, each failure with all that is needed, and the verdict."""

import pytest

SUITE = """
@requirement("WIRE-01")
def test_wire(): pass

@requirement("DECODE-01")
def test_good(): pass

@requirement("DECODE-02", "DECODE-03")
def test_bad():
    raise Nonconformance("past_len 4", "past_len 3\\nand no result", "count the prefill once")
"""


def section(result, title):
    """The lines of the section with this title."""
    lines = result.stdout.lines
    start = next(n for n, line in enumerate(lines) if line.strip("_= ") == title)
    rest = lines[start + 1 :]
    end = next((n for n, line in enumerate(rest) if line[:1] in "_=" and line), len(rest))
    return rest[:end]


def test_the_header_names_target_ledger_profiles_and_seed(suite):
    suite.module(SUITE)
    result = suite.run("--meshnet-seed", "7", "--meshnet-profile=kv", "--meshnet-profile=core")
    header = "meshnet: target fake, ledger 9.9.9 (????????????), profiles core, kv, seed 7"
    result.stdout.fnmatch_lines([header, "collected 3 items", "*= meshnet =*", header])


def test_an_unrelated_run_has_no_header_and_no_summary(suite):
    (suite.project / "test_own.py").write_text("def test_own(): pass")
    result = suite.run(suite=None)
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("meshnet: *")
    result.stdout.no_fnmatch_line("*= meshnet =*")


def test_a_failure_shows_requirement_statement_expected_actual_frames_and_what_to_try(suite):
    suite.target(frames="-> open\n<- accepted")
    suite.module(SUITE)
    assert section(suite.run(), "failed DECODE-02 DECODE-03") == [
        "DECODE-02: Title of DECODE-02: Statement of DECODE-02.",
        "DECODE-03: Title of DECODE-03: Statement of DECODE-03.",
        "test:      conformance/test_sample.py::test_bad",
        "expected:  past_len 4",
        "actual:    past_len 3",
        "           and no result",
        "frames:    -> open",
        "           <- accepted",
        "try:       count the prefill once",
        "           this test alone: pytest --meshnet-suite conformance "
        "conformance/test_sample.py::test_bad",
    ]


def test_the_frames_stand_below_pytests_own_account_too(suite):
    suite.target(frames="-> open\n<- accepted")
    suite.module(SUITE)
    suite.run().stdout.fnmatch_lines(["*- meshnet frames -*", "-> open", "<- accepted"])


def test_the_line_for_one_test_repeats_what_was_chosen(suite):
    suite.module(SUITE)
    result = suite.run(
        "--meshnet-seed", "7", "--meshnet-target", "reference:odd", "--meshnet-profile", "core"
    )
    result.stdout.fnmatch_lines(
        [
            "*this test alone: pytest --meshnet-suite conformance --meshnet-target reference:odd "
            "--meshnet-seed 7 --meshnet-profile core conformance/test_sample.py::test_bad"
        ]
    )


def test_the_test_alone_runs_by_the_line_that_is_shown(suite):
    suite.module(SUITE)
    result = suite.run("conformance/test_sample.py::test_bad")
    result.assert_outcomes(failed=1)


def test_a_plain_assertion_shows_what_pytest_found(suite):
    suite.module('@requirement("DECODE-01")\ndef test_bad():\n    assert [1, 2] == [1, 3]')
    shown = section(suite.run("--tb=no"), "failed DECODE-01")
    assert "actual:    assert [1, 2] == [1, 3]" in shown


def test_an_engine_error_shows_its_traceback_even_without_pytests_own(suite):
    suite.module('@requirement("DECODE-01")\ndef test_bad():\n    raise KeyError("lost")')
    shown = section(suite.run("--tb=short"), "engine-error DECODE-01")
    assert "actual:    call: KeyError: 'lost'" in shown
    assert any('raise KeyError("lost")' in line for line in shown)
    assert "try:       the suite itself broke: report it with these lines" in shown


@pytest.mark.parametrize(
    "call", ['raise Nonconformance("four", "three")', 'raise KeyError("lost")']
)
def test_a_failure_in_teardown_is_shown_beside_the_one_before_it(suite, call):
    suite.module(
        f"""
        @pytest.fixture
        def untidy():
            yield
            raise OSError("port still open")

        @requirement("DECODE-01")
        def test_bad(untidy):
            {call}
        """
    )
    shown = "\n".join(section(suite.run("--tb=short"), "engine-error DECODE-01"))
    assert "port still open" in shown
    assert call in shown


def test_what_hypothesis_found_is_shown_with_the_failure(suite):
    suite.module(
        """
        from hypothesis import given, strategies as st, settings

        @requirement("DECODE-01")
        @settings(database=None, derandomize=True)
        @given(st.integers())
        def test_bad(n):
            if n > 10:
                raise Nonconformance("at most 10", str(n))
        """
    )
    shown = section(suite.run(), "failed DECODE-01")
    assert "expected:  at most 10" in shown
    assert "actual:    11" in shown
    assert any(line.startswith("inputs:    ") and "test_bad(" in line for line in shown)
    assert any(line.strip() == "n=11," for line in shown)


def test_groups_are_counted_with_the_suites_own_checks_apart(suite):
    suite.module(SUITE)
    assert section(suite.run(), "meshnet")[1:6] == [
        "self-checks of the suite:",
        "  WIRE     1 passed",
        "requirements:",
        "  DECODE   1 passed, 2 failed (DECODE-02, DECODE-03)",
        "not-claimed: KV",
    ]


def test_a_must_without_a_test_is_named_only_when_the_whole_suite_was_asked_for(suite):
    suite.module(SUITE)
    ledger = '[[requirement]]\nid = "OPEN-01"\nlevel = "MUST"\nprofile = "core"\n'
    ledger += 'subject = "runtime"\ntitle = "t"\nstatement = "s"\n'
    path = suite.home / "conformance" / "requirements.toml"
    path.write_text(path.read_text() + ledger)
    suite.run().stdout.fnmatch_lines(["  OPEN     1 not-run", "not-run: no test yet: OPEN-01"])
    part = suite.run("conformance/test_sample.py::test_good")
    part.stdout.no_fnmatch_line("*no test yet*")
    part.stdout.no_fnmatch_line("*OPEN*")


def test_a_deselected_test_is_not_run_and_says_so(suite):
    suite.module(SUITE)
    suite.run("-k", "good").stdout.fnmatch_lines(
        ["not-run: deselected: DECODE-02, DECODE-03, WIRE-01", "1 passed, 2 not-run; *"]
    )


def test_behind_a_reason_of_many_their_groups_are_counted(suite):
    suite.module(SUITE)
    tests = "\n".join(f"def test_more_{number}(): pass" for number in range(18))
    suite.module(tests, "test_more", suite="acceptance")
    suite.run("-k", "good", "conformance", "acceptance").stdout.fnmatch_lines(
        ["not-run: deselected: DECODE (2), WIRE (1), acceptance/test_more.py (18)"]
    )


@pytest.mark.parametrize("option", ["-q", "-qq", "--tb=no", "-rA", "-v"])
def test_the_verdict_is_there_however_quiet_the_run_is(suite, option):
    suite.module(SUITE)
    suite.run(option).stdout.fnmatch_lines(["2 passed, 1 failed; no certificate: *"])


MANY = """
@pytest.mark.parametrize("n", range(7))
@requirement("DECODE-02")
def test_bad(n): raise Nonconformance("four", "three")

@requirement("DECODE-01")
def test_worse(): raise Nonconformance("five", "six")
"""


def test_failures_of_one_requirement_are_explained_once_and_the_others_named(suite):
    suite.module(MANY)
    result = suite.run()
    titles = [line.strip("_ ") for line in result.stdout.lines if line.startswith("____")]
    assert [one for one in titles if one.startswith("failed")] == [
        "failed DECODE-02",
        "failed DECODE-01",
    ]
    assert section(result, "failed DECODE-02")[-5:] == [
        "also:      conformance/test_sample.py::test_bad[1]",
        "           conformance/test_sample.py::test_bad[2]",
        "           conformance/test_sample.py::test_bad[3]",
        "           conformance/test_sample.py::test_bad[4]",
        "           and 2 more",
    ]
    assert not any(line.startswith("also:") for line in section(result, "failed DECODE-01"))


def test_the_failure_to_begin_with_is_the_first_of_the_ledger(suite):
    suite.module(MANY)
    assert "begin with: pytest-meshnet explain DECODE-01" in suite.run().stdout.lines


def test_a_run_without_a_failure_has_nothing_to_begin_with(suite):
    suite.module(SUITE.replace("raise Nonconformance", "print"))
    assert not any(line.startswith("begin with") for line in suite.run().stdout.lines)


def test_a_target_that_cannot_be_reached_is_a_case_for_the_doctor(suite):
    suite.target(refusal="nothing listens")
    suite.module(SUITE)
    result = suite.run("--meshnet-target", "reference:odd")
    result.stdout.fnmatch_lines(
        ["begin with: pytest-meshnet doctor --target reference:odd", "REFUSED: nothing listens"]
    )
