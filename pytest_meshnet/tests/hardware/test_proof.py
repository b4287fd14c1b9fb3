"""A hardware test passes only with the proof that it ran on its devices."""

import json
from pathlib import Path

import pytest

from pytest_meshnet.tests.hardware.fakes import inventory, uuids
from pytest_meshnet.tests.hardware.inner import journal, prepare, run

FOUR = uuids(inventory("four").devices)


def one_test(pytester, body, mark="gpu", before=""):
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    pytester.makepyfile(
        f"import os, pytest\n{before}\n@pytest.mark.{mark}\ndef test_one(gpu, runtime):\n{lines}\n"
    )


def test_a_runtime_on_its_device_passes_and_is_journalled_three_times(pytester):
    prepare(pytester, "four")
    one_test(pytester, "runtime(gpu)")
    run(pytester).assert_outcomes(passed=1)
    told = journal(pytester)
    assert [(one["moment"], one["verdict"]) for one in told] == [
        ("before", "proven"),
        ("during", "proven"),
        ("after", "proven"),
    ]
    for one in told:
        assert one["requested"] == one["observed"] == FOUR[:1]
        assert one["environment"]["CUDA_VISIBLE_DEVICES"] == FOUR[0]
        assert one["environment"]["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
        assert one["simulated"] is True


def test_a_runtime_that_lands_on_the_wrong_device_fails_as_contradicted(pytester):
    # faults row 83
    prepare(pytester, "four")
    one_test(pytester, f"runtime(gpu, {FOUR[2]!r})")
    result = run(pytester)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*Misplaced: placement during: contradicted: *", f"*{FOUR[2]}*"])
    assert journal(pytester)[1]["observed"] == [FOUR[2]]


def test_a_runtime_that_cannot_be_observed_fails_as_unobservable(pytester):
    prepare(pytester, "four")
    one_test(pytester, "runtime(gpu, 'hidden')")
    result = run(pytester)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*Misplaced: placement during: unobservable: *"])


def test_a_refused_process_list_fails_as_unobservable_with_the_raw_error(pytester):
    # faults row 45
    prepare(
        pytester, "four", process_error="nvml: NVMLError_NoPermission: Insufficient Permissions"
    )
    one_test(pytester, "runtime(gpu)")
    result = run(pytester)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*unobservable: *NVMLError_NoPermission: Insufficient Permissions*"]
    )


@pytest.mark.parametrize("body", ["pass", "return", "gpu.claim(gpu.device.uuid)"])
def test_a_bare_return_or_the_runtimes_own_word_is_no_pass(pytester, body):
    # faults row 133
    prepare(pytester, "four")
    one_test(pytester, body)
    result = run(pytester)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*unobservable: no process of the test was seen on a device*"])


def test_a_lane_without_the_fixture_owes_the_same_proof(pytester):
    # faults row 133
    prepare(pytester, "four")
    pytester.makepyfile("import pytest\n@pytest.mark.gpu\ndef test_one(): pass\n")
    run(pytester).assert_outcomes(failed=1)


def test_the_fixture_without_a_lane_is_an_error(pytester):
    prepare(pytester, "four")
    pytester.makepyfile("def test_one(gpu): pass\n")
    result = run(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["*the fixture gpu needs a lane with a device, e.g. @pytest.mark.gpu*"]
    )


def test_a_pin_without_effect_is_an_error_before_the_test(pytester):
    # faults row 86
    ignored = """
from pytest_meshnet.hardware.placement.judge import Seen
from pytest_meshnet.hardware.placement import senses

def pytest_sessionstart(session):
    real = senses.simulated
    def cdi(path):
        found = real(path)
        every = tuple(Seen(one.uuid) for one in found.drivers[0].read().devices)
        return senses.Senses(found.drivers, lambda environment, vendor: (1, every), found.procfs)
    senses.simulated = cdi
    session.config.add_cleanup(lambda: setattr(senses, "simulated", real))
"""
    prepare(pytester, "four", ignored)
    one_test(pytester, "runtime(gpu)")
    result = run(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*placement before: contradicted: *the pin has no effect*"])


@pytest.mark.parametrize(
    "failure", ["assert 1 == 2", "pytest.fail('1 == 2')", "raise OSError('1 == 2')"]
)
def test_a_failing_test_keeps_its_own_failure_and_tells_its_placement(pytester, failure):
    prepare(pytester, "four")
    one_test(pytester, f"runtime(gpu)\n{failure}")
    result = run(pytester)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*1 == 2*", "*placement during: proven*"])
    assert [one["moment"] for one in journal(pytester)] == ["before", "during", "after"]


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("how", ["'hidden'", repr(FOUR[2])])
def test_an_xfail_mark_hides_no_missing_proof(pytester, strict, how):
    # faults row 140
    prepare(pytester, "four")
    one_test(pytester, f"runtime(gpu, {how})", before=f"@pytest.mark.xfail(strict={strict})")
    result = run(pytester)
    result.assert_outcomes(failed=1)
    assert result.ret == 1


def test_every_attempt_leaves_its_own_placements(pytester):
    # faults row 134
    again = """
def pytest_runtest_protocol(item, nextitem):
    from _pytest.runner import runtestprotocol
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for _ in range(2):
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    return True
"""
    prepare(pytester, "four", again)
    body = f"""
first = not os.path.exists('flag')
open('flag', 'w').close()
runtime(gpu, {FOUR[2]!r} if first else 'honest')"""
    one_test(pytester, body)
    run(pytester).assert_outcomes(passed=1)
    verdicts = [one["verdict"] for one in journal(pytester) if one["moment"] == "during"]
    assert verdicts == ["contradicted", "proven"]


def test_several_devices_are_each_proven(pytester):
    # faults row 41
    prepare(pytester, "four")
    one_test(pytester, "runtime(gpu)", mark="multi_gpu(3)")
    run(pytester).assert_outcomes(passed=1)
    assert journal(pytester)[1]["observed"] == FOUR[:3]
    one_test(pytester, f"runtime(gpu, {FOUR[0]!r})", mark="multi_gpu(2)")
    result = run(pytester)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*unobservable: *nothing was seen on {FOUR[1]}*"])


def test_a_stranger_is_recorded_and_voids_only_a_timing(pytester):
    prepare(pytester, "four")
    stranger = Path(pytester.path, "processes", "1")
    stranger.parent.mkdir()
    stranger.write_text(FOUR[0])
    one_test(pytester, "runtime(gpu)")
    run(pytester).assert_outcomes(passed=1)
    assert journal(pytester)[0]["foreign"] == [{"device": FOUR[0], "pid": 1}]
    one_test(pytester, "gpu.must_be_alone = True\nruntime(gpu)")
    result = run(pytester)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*the timing is void, others computed on the device: process 1 on*"]
    )


def test_a_stranger_that_comes_during_the_teardown_voids_a_timing_too(pytester):
    prepare(pytester, "four")
    late = """
import pytest

@pytest.fixture
def guest(gpu):
    yield
    (HERE / "processes" / "1").write_text(gpu.device.uuid)
"""
    Path(pytester.path, "conftest.py").write_text(
        Path(pytester.path, "conftest.py").read_text() + late
    )
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.gpu
        def test_one(gpu, guest, runtime):
            gpu.must_be_alone = True
            runtime(gpu)
        """
    )
    result = run(pytester)
    result.assert_outcomes(passed=1, errors=1)


def test_a_device_that_changed_during_the_test_fails_the_teardown(pytester):
    # faults row 64
    prepare(pytester, "four")
    path = Path(pytester.path, "machine.json")
    told = json.loads(path.read_text())
    told["devices"][0]["driver"] = "590.1"
    body = f"""
runtime(gpu)
with open("machine.json", "w") as file:
    file.write({json.dumps(told)!r})"""
    one_test(pytester, body)
    result = run(pytester)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(
        ["*placement after: contradicted: *driver was 580.159.04 and is 590.1*"]
    )


def test_a_test_of_native_kernels_is_left_out_on_a_fallback(pytester):
    prepare(pytester, "rtx3060")
    one_test(pytester, "runtime(gpu)\ngpu.require_native('nvfp4', 'weights')")
    result = run(pytester, "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED *fallback on GPU-3060*"])
    result = run(pytester, "-m", "gpu")
    assert result.ret == 1


def test_the_device_is_free_again_after_a_failure_in_any_phase(pytester):
    prepare(pytester, "rtx3060")
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture
        def broken_start(gpu): raise RuntimeError("start")

        @pytest.fixture
        def broken_end(gpu):
            yield
            raise RuntimeError("end")

        @pytest.mark.gpu
        def test_start(broken_start): pass

        @pytest.mark.gpu
        def test_body(gpu): raise RuntimeError("body")

        @pytest.mark.gpu
        def test_end(broken_end, here): pass

        @pytest.mark.gpu
        def test_good(here): pass
        """
    )
    run(pytester, "--meshnet-gpu-wait", "5").assert_outcomes(passed=2, failed=1, errors=2)
