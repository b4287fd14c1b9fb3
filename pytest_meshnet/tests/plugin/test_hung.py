"""A hung test ends by its own limit, shows the frames so far, and takes no other result along."""

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
