"""The marks of the suites: known to pytest, and refused when they make no sense."""

import pytest

GOOD = """
@requirement("DECODE-01")
def test_good():
    pass
"""


def test_every_mark_is_explained_by_the_markers_option(pytester):
    result = pytester.runpytest_inprocess("--markers")
    result.stdout.fnmatch_lines(
        [
            "@pytest.mark.requirement(*ids): *ledger*",
            "@pytest.mark.profile(name): *profile is claimed.",
            "@pytest.mark.hardware: *not hardware*",
        ]
    )


def test_the_marks_pass_strict_markers_in_any_project(pytester):
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.requirement("their own meaning", 7)
        @pytest.mark.profile("fast", "slow")
        @pytest.mark.hardware(count=2)
        def test_of_a_stranger():
            pass
        """
    )
    pytester.runpytest_inprocess("--strict-markers").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("mark", "complaint"),
    [
        ('requirement("DECODE-09")', "unknown requirement 'DECODE-09'*did you mean DECODE-0*"),
        ('requirement("DECODE-01", "DECODE-01")', "*names an id twice*"),
        ("requirement()", "*expected the ids of the ledger*"),
        ("requirement(1)", "*expected the ids of the ledger*"),
        ('requirement(id="DECODE-01")', "*expected the ids of the ledger*"),
        ('requirement("DECODE-01", level=1)', "*expected the ids of the ledger*"),
        ('profile("fast")', "*unknown profile 'fast': choose from core-wire, core, kv"),
        ('profile("core", "kv")', "*expected one profile of the ledger"),
        ("hardware(1)", "*takes no arguments*"),
    ],
)
def test_a_mark_that_makes_no_sense_fails_the_collection(suite, mark, complaint):
    suite.module(f"{GOOD}\n@pytest.mark.{mark}\n{GOOD.replace('good', 'bad')}")
    result = suite.run()
    result.stdout.fnmatch_lines([f"*test_bad: *{complaint}"])
    result.assert_outcomes(errors=1)
    assert result.ret != 0


def test_every_wrong_mark_of_a_module_is_named_at_once(suite):
    suite.module(
        '@requirement("A-01")\ndef test_a(): pass\n@requirement("B-01")\ndef test_b(): pass'
    )
    suite.run().stdout.fnmatch_lines(["*test_a: *'A-01'*", "*test_b: *'B-01'*"])


def test_a_conformance_test_without_a_requirement_fails_the_collection(suite):
    suite.module(f"{GOOD}\ndef test_aimless():\n    pass")
    result = suite.run()
    result.stdout.fnmatch_lines(["*test_aimless: no requirement: add *"])
    result.assert_outcomes(errors=1)


@pytest.mark.parametrize("mark", ['profile("core")', 'requirement("DECODE-01")'])
def test_any_mark_of_the_suites_is_enough(suite, mark):
    suite.module(f"@pytest.mark.{mark}\ndef test_marked(): pass")
    suite.run().assert_outcomes(passed=1)


def test_an_acceptance_test_needs_no_requirement(suite):
    suite.module("def test_plain(): pass", suite="acceptance")
    suite.run(suite="acceptance").assert_outcomes(passed=1)


def test_a_mark_of_the_module_counts_for_its_tests(suite):
    suite.module('pytestmark = requirement("DECODE-01")\ndef test_a(): pass')
    suite.run("-v").stdout.fnmatch_lines(["*test_a PASSED DECODE-01*"])


def test_a_class_in_a_suite_fails_the_collection(suite):
    suite.module("class TestGroup:\n    def test_inside(self): pass")
    suite.run().stdout.fnmatch_lines(["*TestGroup: tests of a suite are plain functions*"])


def test_a_test_of_an_unclaimed_profile_alone_is_not_claimed(suite):
    suite.module('@pytest.mark.profile("kv")\ndef test_kv(): pass')
    result = suite.run("-v")
    result.stdout.fnmatch_lines(["*test_kv NOT-CLAIMED*"])
    assert suite.calls == []


def test_hardware_tests_can_be_left_out(suite):
    suite.module(f"{GOOD}\n@pytest.mark.hardware\n{GOOD.replace('good', 'gpu')}")
    suite.run("-m", "not hardware").assert_outcomes(passed=1, deselected=1)
