"""Lanes and options of a project: marks, ini file, hooks, selector."""

import pytest

from pytest_meshnet.tests.hardware.fakes import RTX3060
from pytest_meshnet.tests.hardware.inner import QUIET, prepare, run


def test_the_lane_table_is_in_pytest_markers(pytester):
    result = run(pytester, "--markers", inventory=False)
    result.stdout.fnmatch_lines(
        ["@pytest.mark.rtx3060: needs one GeForce RTX 3060 12 GB, sm_86; implies hardware."]
    )


def test_a_lane_of_the_ini_file_is_a_lane_like_any_other(pytester):
    prepare(pytester, "a6000-pair")
    pytester.makeini(
        "[pytest]\nmeshnet_lanes =\n    a6000: name~RTX A6000, count=2\n    far: sm>=12.0\n"
    )
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.a6000
        def test_two(gpu, here): assert {one.name for one in gpu.devices} == {"NVIDIA RTX A6000"}

        @pytest.mark.far
        def test_far(gpu): pass
        """
    )
    run(pytester, "-m", "a6000").assert_outcomes(passed=1, deselected=1)
    run(pytester, "-m", "not hardware").assert_outcomes(deselected=2)
    assert run(pytester, "-m", "far").ret == pytest.ExitCode.USAGE_ERROR
    run(pytester, "--markers").stdout.fnmatch_lines(["@pytest.mark.a6000: needs name~RTX A6000*"])


def test_a_lane_of_a_hook_is_a_lane_like_any_other(pytester):
    more = """
from pytest_meshnet.hardware.lanes import Lane, Want

def pytest_meshnet_lanes(config):
    return [Lane("big", "16 GiB at least", Want(memory_from=16 * 1024**3))]
"""
    prepare(pytester, "both-vendors", more)
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.big
        def test_big(gpu, here): assert gpu.device.vendor == "amd"
        """
    )
    run(pytester, "-m", "big").assert_outcomes(passed=1)


@pytest.mark.parametrize("line", ["a6000", "gpu: sm=8.6", "x: colour=red"])
def test_a_bad_lane_in_the_ini_file_stops_the_run(pytester, line):
    prepare(pytester, "empty")
    pytester.makeini(f"[pytest]\nmeshnet_lanes = {line}\n")
    assert run(pytester).ret == pytest.ExitCode.USAGE_ERROR


def test_facts_about_the_host_come_from_options_and_hooks(pytester):
    hook = "\ndef pytest_meshnet_present(config): return ['real_runtime:freetoken']\n"
    prepare(pytester, "empty", hook)
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.real_target
        def test_target(): pass

        @pytest.mark.real_runtime("freetoken")
        def test_runtime(): pass

        @pytest.mark.multi_machine(2)
        def test_machines(): pass
        """
    )
    run(pytester).assert_outcomes(passed=1, skipped=2)
    run(pytester, "--meshnet-present", "real_target").assert_outcomes(passed=2, skipped=1)
    assert run(pytester, "-m", "multi_machine").ret == pytest.ExitCode.USAGE_ERROR
    run(pytester, "-m", "multi_machine", "--meshnet-present", "machines:2").assert_outcomes(
        passed=1, deselected=2
    )


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ("multi_gpu", "n a whole number from 2"),
        ("gpu(0)", "without arguments"),
        ("hardware", "names no device"),
    ],
)
def test_a_mark_that_says_nothing_is_an_error(pytester, mark, said):
    prepare(pytester, "four")
    pytester.makepyfile(f"import pytest\n@pytest.mark.{mark}\ndef test_x(): pass\n")
    result = run(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*LaneError*{said}*"])


def test_a_selector_chooses_the_device_of_every_lane(pytester):
    # faults row 83
    prepare(pytester, "four")
    pytester.makepyfile(
        "import pytest\n@pytest.mark.gpu\ndef test_x(gpu, here): print('got', gpu.device.uuid)\n"
    )
    result = run(pytester, "-s", "--meshnet-gpu", "GPU-3")
    result.stdout.fnmatch_lines(["*got GPU-33333333-*"])


@pytest.mark.parametrize("arguments", [("--meshnet-gpu", "cuda:0"), ("--meshnet-gpu-wait", "soon")])
def test_an_option_that_cannot_be_followed_is_an_error(pytester, arguments):
    prepare(pytester, "four")
    pytester.makepyfile("import pytest\n@pytest.mark.gpu\ndef test_x(here): pass\n")
    result = run(pytester, *arguments)
    assert result.ret not in (0, 5)
    assert arguments[1] in result.stdout.str() + result.stderr.str()


def test_options_may_stand_in_the_ini_file(pytester):
    prepare(pytester, "four")
    pytester.mkdir("below")
    pytester.makeini("[pytest]\nmeshnet_inventory = machine.json\nmeshnet_gpu = 2\n")
    pytester.makepyfile(
        "import pytest\n@pytest.mark.gpu\ndef test_x(gpu, here): assert gpu.device.index == 2\n"
    )
    run(pytester, inventory=False).assert_outcomes(passed=1)


def test_the_rig_has_its_card(pytester):
    prepare(pytester, "both-vendors")
    pytester.makepyfile(
        f"""
        import pytest

        @pytest.mark.rtx3060
        def test_x(gpu, here): assert gpu.device.uuid == {RTX3060!r}
        """
    )
    run(pytester, "-m", "rtx3060").assert_outcomes(passed=1)


def test_only_a_lane_with_a_device_owes_a_proof(pytester):
    more = """
from pytest_meshnet.hardware import fixtures

def pytest_collection_finish(session):
    print("lanes:", [fixtures.device_lane(item) for item in session.items])
"""
    prepare(pytester, "four", more)
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.real_target
        def test_target(): pass

        @pytest.mark.real_target
        @pytest.mark.multi_gpu(2)
        def test_both(here): pass

        def test_none(): pass
        """
    )
    result = run(pytester, "-s", "--meshnet-present", "real_target")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*lanes: [[]None, 'multi_gpu', None[]]"])


def test_the_lanes_work_alone_without_the_options_of_the_whole_plugin(pytester):
    pytester.makepyfile("import pytest\n@pytest.mark.real_target\ndef test_x(): pass\n")
    alone = ("-p", "pytest_meshnet.hardware.fixtures", *QUIET)
    pytester.runpytest_inprocess(*alone).assert_outcomes(skipped=1)
