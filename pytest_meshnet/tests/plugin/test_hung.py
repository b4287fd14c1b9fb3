"""A hung test ends by its own limit, shows the frames so far, and takes no other result along.

The start of the runtime has a limit of its own and takes nothing off that of a test.
"""

import pytest

SUITE = """
import signal

@requirement("DECODE-01")
def test_before(): pass

@requirement("DECODE-02")
@pytest.mark.timeout(1, method="signal")
def test_hung():
    signal.pause()

@requirement("DECODE-03")
def test_after(): pass
"""


@pytest.mark.parametrize("args", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_a_hung_test_fails_alone_with_its_last_frames(suite, args):
    suite.target(frames="-> decode work='w7' step=7")
    suite.module(SUITE)
    result = suite.run_apart(*args)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        ["DECODE-02: *", "test:*test_hung", "*Timeout*", "frames: *-> decode work='w7' step=7"]
    )


@pytest.mark.parametrize("method", ["signal", "thread"])
def test_a_runtime_that_takes_long_to_start_does_not_use_up_the_limit_of_a_test(suite, method):
    suite.target(starts_in=1.0)
    suite.module(f"""
        @requirement("DECODE-01")
        @pytest.mark.timeout(0.5, method="{method}")
        def test_first(): pass
    """)
    suite.run_apart().assert_outcomes(passed=1)


def test_behind_the_start_of_the_runtime_the_limit_holds(suite):
    suite.target(starts_in=1.0)
    suite.module("""
        import signal

        @requirement("DECODE-01")
        @pytest.mark.timeout(0.5, method="signal")
        def test_hung():
            signal.pause()
    """)
    result = suite.run_apart()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["DECODE-01: *", "*Timeout*"])


def test_a_refused_start_is_no_matter_of_limits(suite):
    suite.target(starts_in=1.0, refusal="the command ended with status 1")
    suite.module("""
        @requirement("DECODE-01")
        @pytest.mark.timeout(0.5, method="signal")
        def test_first(): pass
    """)
    result = suite.run_apart()
    assert result.ret == 2
    result.stdout.fnmatch_lines(["*refused: the command ended with status 1*"])
