"""The seven statuses, from what a test did to what a person and an exit code are told."""

import pytest

BAD = """
@requirement("DECODE-01")
def test_bad():
    raise Nonconformance("past_len 4", "past_len 3", "count the prefill once")
"""


def shown(result, *words):
    result.stdout.fnmatch_lines([f"conformance/test_sample.py::{one} *" for one in words])


def test_a_test_that_passes_is_passed_and_names_its_requirement(suite):
    suite.module('@requirement("DECODE-02", "DECODE-01")\ndef test_good(target): pass')
    result = suite.run("-v")
    shown(result, "test_good PASSED DECODE-01 DECODE-02")
    assert result.ret == 0


def test_a_nonconformance_is_failed(suite):
    suite.module(BAD)
    result = suite.run("-v")
    shown(result, "test_bad FAILED DECODE-01")
    assert result.ret == 1


@pytest.mark.parametrize(
    "line",
    [
        "assert 1 == 2",
        'pytest.fail("slow")',
        "raise AssertionError",
        "pytest.raises(OSError, len, '')",
    ],
)
def test_every_failed_assertion_is_failed(suite, line):
    suite.module(f'@requirement("DECODE-01")\ndef test_bad():\n    {line}')
    shown(suite.run("-v"), "test_bad FAILED DECODE-01")


def test_a_timeout_is_failed(suite):
    suite.module(
        """
        import threading

        @requirement("DECODE-01")
        @pytest.mark.timeout(0.2)
        def test_bad():
            threading.Event().wait()
        """
    )
    suite.run().stdout.fnmatch_lines(["*_ failed DECODE-01 _*", "actual:    Timeout *"])


@pytest.mark.parametrize("line", ["raise KeyError('x')", "1 / 0", "import no_such_module"])
def test_any_other_exception_is_an_engine_error(suite, line):
    suite.module(f'@requirement("DECODE-01")\ndef test_bad():\n    {line}')
    result = suite.run("-v")
    shown(result, "test_bad ENGINE-ERROR DECODE-01")
    assert result.ret == 1


def test_an_exception_in_teardown_is_an_engine_error_beside_the_result(suite):
    suite.module(
        """
        @pytest.fixture
        def untidy():
            yield
            raise OSError("port still open")

        @requirement("DECODE-01")
        def test_good(untidy): pass
        """
    )
    result = suite.run("-v")
    shown(result, "test_good PASSED DECODE-01", "test_good ENGINE-ERROR DECODE-01")
    result.stdout.fnmatch_lines(["*DECODE *1 engine-error*"])
    assert result.ret == 1


def test_a_failed_self_check_of_the_suite_is_an_engine_error(suite):
    suite.module(BAD.replace("DECODE-01", "WIRE-01"))
    shown(suite.run("-v"), "test_bad ENGINE-ERROR WIRE-01")


def test_a_group_of_exceptions_is_as_bad_as_the_worst_of_it(suite):
    suite.module(
        """
        @requirement("DECODE-01")
        def test_bad():
            raise ExceptionGroup("two", [Nonconformance("a", "b"), NotProvoked("c")])

        @requirement("DECODE-01")
        def test_broken():
            raise ExceptionGroup("two", [Nonconformance("a", "b"), KeyError("c")])
        """
    )
    shown(suite.run("-v"), "test_bad FAILED DECODE-01", "test_broken ENGINE-ERROR DECODE-01")


def test_an_unclaimed_test_is_not_run_and_needs_no_target(suite):
    suite.module('@requirement("KV-02")\ndef test_kv(): 1 / 0')
    result = suite.run("-v")
    shown(result, "test_kv NOT-CLAIMED KV-02")
    assert (result.ret, suite.calls) == (0, [])


def test_a_profile_of_the_command_line_takes_the_place_of_those_of_the_descriptor(suite):
    suite.module('@requirement("KV-02")\ndef test_kv(): pass\n' + BAD)
    result = suite.run("-v", "--meshnet-profile", "kv")
    shown(result, "test_kv PASSED KV-02", "test_bad NOT-CLAIMED DECODE-01")


def test_a_need_that_the_facts_contradict_is_not_applicable(suite):
    suite.target(profiles=["kv"], facts={"max_concurrent_sessions": [1, "capability"]})
    suite.module('@requirement("KV-01")\ndef test_two(): 1 / 0')
    result = suite.run("-v")
    shown(result, "test_two NOT-APPLICABLE KV-01")
    result.stdout.fnmatch_lines(["not-applicable: needs sessions>=2: *: KV-01"])
    assert result.ret == 0


def test_a_need_that_nobody_can_judge_excuses_nothing(suite):
    suite.target(profiles=["kv"])
    suite.module('@requirement("KV-01")\ndef test_two(): pass')
    shown(suite.run("-v"), "test_two PASSED KV-01")


def test_what_was_not_provoked_is_not_run_and_no_failure(suite):
    suite.module('@requirement("DECODE-01")\ndef test_race(): raise NotProvoked("no race arose")')
    result = suite.run("-v")
    shown(result, "test_race NOT-RUN DECODE-01")
    result.stdout.fnmatch_lines(["not-run: not provoked: no race arose: DECODE-01"])
    assert result.ret == 0


@pytest.mark.parametrize(
    "how", ["@pytest.mark.skip('later')", "@pytest.mark.skipif(True, reason='later')"]
)
def test_a_skipped_test_is_not_run_and_never_passed(suite, how):
    suite.module(f'{how}\n@requirement("DECODE-01")\ndef test_skipped(): pass')
    result = suite.run("-v")
    shown(result, "test_skipped NOT-RUN DECODE-01")
    result.stdout.fnmatch_lines(["not-run: skipped: later: DECODE-01"])


def test_a_skip_inside_a_test_is_not_run(suite):
    suite.module('@requirement("DECODE-01")\ndef test_skipped(): pytest.skip("later")')
    shown(suite.run("-v"), "test_skipped NOT-RUN DECODE-01")


@pytest.mark.parametrize("body", ["pass", "assert False", "pytest.xfail('known')"])
@pytest.mark.parametrize("strict", [True, False])
def test_xfail_is_no_verdict(suite, body, strict):
    suite.module(
        f"""
        @pytest.mark.xfail(strict={strict}, reason="known")
        @requirement("DECODE-01")
        def test_hidden(): {body}
        """
    )
    result = suite.run("-v")
    shown(result, "test_hidden ENGINE-ERROR DECODE-01")
    assert result.ret == 1


def test_a_lost_target_leaves_the_rest_not_run_with_the_reason_and_ends_with_three(suite):
    suite.module(
        """
        @requirement("DECODE-01")
        def test_first(): raise TargetLost("killed by signal 9")

        @requirement("DECODE-02")
        def test_second(): pass
        """
    )
    result = suite.run("-v")
    shown(result, "test_first NOT-RUN DECODE-01", "test_second NOT-RUN DECODE-02")
    result.stdout.fnmatch_lines(["not-run: killed by signal 9: DECODE-01, DECODE-02"])
    assert result.ret == 3


def test_a_target_that_cannot_be_reached_ends_the_run_with_two_and_never_with_a_skip(suite):
    suite.target(refusal="no answer from 127.0.0.1:1\nlast lines of its log:\nbind failed")
    suite.module(BAD + BAD.replace("bad", "never"))
    result = suite.run("-v")
    shown(result, "test_bad NOT-RUN DECODE-01")
    result.stdout.no_fnmatch_line("*test_never*")
    result.stdout.no_fnmatch_line("*skipped*")
    result.stdout.fnmatch_lines(["REFUSED: no answer from 127.0.0.1:1", "*", "bind failed"])
    assert result.ret == 2


def test_a_target_that_is_lost_while_it_is_reached_leaves_everything_not_run(suite):
    suite.target(lost="it crashed six times")
    suite.module(BAD + BAD.replace("bad", "other"))
    result = suite.run("-v")
    shown(result, "test_bad NOT-RUN DECODE-01", "test_other NOT-RUN DECODE-01")
    result.stdout.fnmatch_lines(["not-run: it crashed six times: DECODE-01"])
    assert (result.ret, len(suite.calls)) == (3, 2)


def test_a_refusal_in_the_middle_ends_the_run_too(suite):
    suite.module('@requirement("DECODE-01")\ndef test_a(): raise Refusal("gone")\n' + BAD)
    result = suite.run()
    result.stdout.no_fnmatch_line("*test_bad*")
    assert result.ret == 2


def test_a_descriptor_that_cannot_be_read_ends_the_run_before_anything_is_collected(suite):
    suite.target(descriptor_refusal="mine.toml: profiles is missing: add it")
    suite.module(BAD)
    result = suite.run()
    result.stderr.fnmatch_lines(["*refused: mine.toml: profiles is missing: add it"])
    assert result.ret == 2


def test_the_target_is_reached_once_and_left_at_the_end(suite):
    suite.module(
        '@requirement("DECODE-01")\n@pytest.mark.parametrize("n", [1, 2])\ndef test_a(n): pass'
    )
    suite.run()
    assert [line.split()[0] for line in suite.calls] == ["connect", "disconnect"]


def test_an_unknown_fact_is_an_engine_error_and_not_ignored(suite):
    suite.target(facts={"max_sessions": [1, "capability"]})
    suite.module('@requirement("DECODE-01")\ndef test_a(): pass')
    shown(suite.run("-v"), "test_a ENGINE-ERROR DECODE-01")


@pytest.fixture
def listed(suite):
    """List test_bad as a known failure with this message."""

    def listed(message, test="conformance/test_sample.py::test_bad"):
        path = suite.project / "expected.toml"
        path.write_text(f'[[failure]]\ntest = "{test}"\nreason = "bug 7"\nmessage = "{message}"\n')
        return ["--meshnet-expect", path]

    return listed


def test_a_listed_failure_with_its_message_is_a_known_failure_and_ends_with_zero(suite, listed):
    suite.module(BAD)
    result = suite.run("-v", *listed("past_len 3"))
    shown(result, "test_bad KNOWN-FAILURE DECODE-01")
    assert result.ret == 0


def test_a_listed_failure_with_another_message_is_failed(suite, listed):
    suite.module(BAD)
    result = suite.run("-v", *listed("past_len 9"))
    shown(result, "test_bad FAILED DECODE-01")
    assert result.ret == 1


def test_a_listed_failure_that_passes_is_failed(suite, listed):
    suite.module('@requirement("DECODE-01")\ndef test_bad(): pass')
    result = suite.run("-v", *listed("past_len 3"))
    shown(result, "test_bad FAILED DECODE-01")
    result.stdout.fnmatch_lines(["*expected to fail, passed: remove the entry*"])
    assert result.ret == 1


def test_a_list_that_names_no_test_of_the_suite_is_refused(suite, listed):
    suite.module(BAD)
    result = suite.run(*listed("x", test="conformance/test_sample.py::test_gone"))
    assert result.ret == 2
    assert "unknown tests conformance/test_sample.py::test_gone" in result.stdout.str()


def test_a_malformed_list_is_a_usage_error(suite, listed):
    suite.module(BAD)
    result = suite.run(*listed(""))
    result.stderr.fnmatch_lines(["ERROR: --meshnet-expect: *write a non-empty text"])
    assert result.ret == 4


def test_an_unknown_profile_is_a_usage_error(suite):
    suite.module(BAD)
    result = suite.run("--meshnet-profile", "fast")
    result.stderr.fnmatch_lines(["ERROR: *unknown profile 'fast': choose from core-wire, core, kv"])
    assert result.ret == 4


def test_a_plugin_that_rewrites_a_report_does_not_rewrite_the_status(suite):
    suite.module(BAD)
    suite.stranger(
        """
        @pytest.hookimpl(wrapper=True)
        def pytest_runtest_makereport():
            report = yield
            report.outcome, report.longrepr = "passed", None
            return report
        """
    )
    result = suite.run("-v", "-p", "stranger")
    shown(result, "test_bad FAILED DECODE-01")
    assert result.ret == 1


def test_a_run_in_which_a_plugin_hides_every_failure_still_does_not_end_with_zero(suite):
    suite.module(BAD)
    suite.stranger(
        """
        @pytest.hookimpl(tryfirst=True)
        def pytest_runtest_logreport(report):
            report.outcome = "passed"

        def pytest_sessionfinish(session):
            session.testsfailed = 0
        """
    )
    result = suite.run("-p", "stranger")
    result.stdout.fnmatch_lines(["*_ failed DECODE-01 _*", "  DECODE   1 failed*"])
    assert result.ret == 1


def test_the_worst_attempt_of_a_rerun_test_counts(suite):
    suite.module(
        """
        attempts = []

        @requirement("DECODE-01")
        def test_flaky():
            attempts.append(1)
            assert len(attempts) == 2
        """
    )
    suite.stranger(
        """
        from _pytest.runner import runtestprotocol

        def pytest_runtest_protocol(item, nextitem):
            for _ in range(2):
                runtestprotocol(item, nextitem=nextitem)
            return True
        """
    )
    result = suite.run("-v", "-p", "stranger")
    shown(result, "test_flaky FAILED DECODE-01", "test_flaky PASSED DECODE-01")
    result.stdout.fnmatch_lines(["  DECODE   1 failed, 2 not-run (DECODE-01)"])


def test_tests_of_the_project_keep_their_own_words(suite):
    own = suite.project / "test_own.py"
    own.write_text("import pytest\ndef test_own(): pytest.skip('theirs')")
    suite.module(BAD)
    result = suite.run("-v", own)
    result.stdout.fnmatch_lines(["test_own.py::test_own SKIPPED (theirs)*"])
    result.assert_outcomes(failed=1, skipped=1)


def test_junit_files_show_what_was_not_run_as_skipped(suite):
    suite.module(BAD + '@requirement("KV-02")\ndef test_kv(): pass')
    suite.run("--junitxml=out.xml")
    text = (suite.project / "out.xml").read_text()
    assert 'failures="1" skipped="1"' in text
    assert "not-claimed: profile kv is not claimed" in text


def test_a_test_that_another_hook_ends_before_its_setup_still_has_an_attempt(suite):
    suite.module('@requirement("DECODE-01")\ndef test_a(): pass')
    suite.stranger(
        """
        @pytest.hookimpl(wrapper=True)
        def pytest_runtest_setup(item):
            pytest.skip("not today")
            yield
        """
    )
    shown(suite.run("-v", "-p", "stranger"), "test_a NOT-RUN DECODE-01")
