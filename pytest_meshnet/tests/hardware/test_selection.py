"""Which hardware tests run: by name, by lane, and never by accident."""

import subprocess
import sys

import pytest

from pytest_meshnet.hardware.fixtures import NotRun
from pytest_meshnet.ledger.expected import ExpectedFailures
from pytest_meshnet.ledger.status import PhaseRecord, PlannedTest, Status, judge
from pytest_meshnet.tests.hardware.fakes import RTX3060
from pytest_meshnet.tests.hardware.inner import MACHINE, PLUGIN, QUIET, prepare, run
from pytest_meshnet.tests.ledger.samples import LEDGER

LANES = """
    import pytest

    @pytest.mark.rtx3060
    def test_of_the_rig(here): pass

    @pytest.mark.multi_gpu(2)
    def test_of_two(here): pass

    def test_of_no_lane(): pass
"""


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "xdist"])
@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("empty", "no GPU; nvml: NVMLError_LibraryNotFound"),
        ("four", "4 devices (GPU-11111111-0001-4000-8000-000101010101, NVIDIA A100"),
        ("broken-driver", "NVMLError_LibRmVersionMismatch"),
        ("memory-unknown", "NVMLError_NoPermission: Insufficient Permissions"),
    ],
)
def test_a_lane_asked_for_by_name_without_its_device_is_one_clear_refusal(
    pytester, name, found, workers
):
    # faults rows 133 and 183
    prepare(pytester, name)
    pytester.makepyfile(LANES)
    result = run(pytester, "-m", "rtx3060", *workers, subprocess=True)
    text = result.stdout.str() + result.stderr.str()
    assert result.ret == pytest.ExitCode.USAGE_ERROR, text
    (line,) = [line for line in text.splitlines() if line.strip()]
    assert line.startswith(
        "ERROR: refused: -m 'rtx3060' asks for hardware that is not here: rtx3060:"
    )
    assert found in line


def test_an_asked_lane_is_refused_where_a_mask_hides_its_device(pytester, monkeypatch):
    # faults row 133
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    prepare(pytester, "rtx3060")
    pytester.makepyfile(LANES)
    result = run(pytester, "-m", "rtx3060")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*CUDA_VISIBLE_DEVICES is empty and hides every device*"])


def test_a_lane_asked_for_by_name_runs_where_its_device_is(pytester):
    prepare(pytester, "rtx3060")
    pytester.makepyfile(LANES)
    result = run(pytester, "-m", "rtx3060")
    result.assert_outcomes(passed=1, deselected=2)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["meshnet: SIMULATED GPUs from *: no proof of any hardware"])


def test_a_plain_run_leaves_the_tests_out_with_the_inventory_in_the_reason(pytester):
    # faults row 45
    prepare(pytester, "look-alikes")
    pytester.makepyfile(LANES)
    result = run(pytester, "-rs")
    result.assert_outcomes(skipped=1, passed=2)
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["SKIPPED *rtx3060: 1 device wanted, 0 fit; found 4 devices (*3060 Ti*its memory_bytes is*"]
    )


def test_a_test_that_was_left_out_is_not_run_and_never_passed(pytester):
    prepare(pytester, "empty")
    pytester.makepyfile(LANES)
    inner = pytester.inline_run(*PLUGIN, *QUIET, *MACHINE, "-k", "rig")
    (report,) = [one for one in inner.getreports("pytest_runtest_logreport") if one.skipped]
    phases = [
        PhaseRecord("t", 1, report.when, "skipped", NotRun.kind, report.longrepr[2], "", None, 1),
        PhaseRecord("t", 1, "teardown", "passed", "", "", "", None, 1),
    ]
    judged = judge(
        PlannedTest("t", ("DECODE-01",)),
        phases,
        ledger=LEDGER,
        claimed=frozenset({"core"}),
        facts={},
        expected=ExpectedFailures(),
        lost=None,
    )
    assert judged.status is Status.NOT_RUN
    assert "found no GPU" in judged.reason


def test_what_cannot_be_measured_is_an_error_and_not_left_out(pytester):
    # faults row 45
    prepare(pytester, "memory-unknown")
    pytester.makepyfile(LANES)
    result = run(pytester, "-k", "rig")
    result.assert_outcomes(errors=1, deselected=2)
    result.stdout.fnmatch_lines(["*Unmeasured: *NVMLError_NoPermission: Insufficient Permissions*"])


def test_a_broken_driver_is_an_error_in_a_plain_run(pytester):
    # faults row 183
    prepare(pytester, "broken-driver")
    pytester.makepyfile(LANES)
    run(pytester, "-k", "rig").assert_outcomes(errors=1, deselected=2)


# -m ---------------------------------------------------------------------------------------------


def test_every_lane_implies_hardware(pytester):
    prepare(pytester, "four")
    pytester.makepyfile(LANES)
    run(pytester, "-m", "not hardware").assert_outcomes(passed=1, deselected=2)
    run(pytester, "-m", "hardware", "-k", "two").assert_outcomes(passed=1, deselected=2)


def test_hardware_asked_for_by_name_needs_some_lane_that_can_run(pytester):
    prepare(pytester, "empty")
    pytester.makepyfile(LANES)
    result = run(pytester, "-m", "hardware")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*no lane has what it needs: found no GPU*"])


def test_one_absent_lane_of_two_that_were_asked_for_is_a_refusal(pytester):
    prepare(pytester, "four")
    pytester.makepyfile(LANES)
    assert run(pytester, "-m", "multi_gpu or rtx3060").ret == pytest.ExitCode.USAGE_ERROR
    assert run(pytester, "-m", "multi_gpu and not rtx3060").ret == 0


def test_a_test_that_asks_for_more_than_its_lane_has_fails_when_asked_for_by_name(pytester):
    prepare(pytester, "four")
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.multi_gpu(8)
        def test_of_eight(here): pass
        """
    )
    run(pytester).assert_outcomes(skipped=1)
    result = run(pytester, "-m", "multi_gpu")
    result.assert_outcomes(errors=1)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*multi_gpu: 8 devices wanted, 4 fit*"])


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "xdist"])
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("pytest.skip('not today')", "no test of rtx3060 was executed, and -m asks for them"),
        ("pass", "1 tests that -m asks for did not run"),
    ],
)
def test_a_skip_of_what_was_asked_for_is_never_green(pytester, body, said, workers):
    # faults row 133
    prepare(pytester, "rtx3060")
    pytester.makepyfile(
        f"""
        import pytest

        @pytest.mark.rtx3060
        def test_one(here): {body}

        @pytest.mark.rtx3060
        def test_two(): pytest.skip('never')
        """
    )
    result = run(pytester, "-m", "rtx3060", *workers, subprocess=bool(workers))
    assert result.ret == 1
    result.stdout.fnmatch_lines([f"FAILED hardware lanes: *{said}*"])


def test_collecting_only_needs_no_device(pytester):
    prepare(pytester, "empty")
    pytester.makepyfile(LANES)
    assert run(pytester, "-m", "rtx3060", "--collect-only").ret == 0


GUARD = """
import sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pynvml", "torch", "amdsmi", "cuda", "cupy"):
            raise RuntimeError(f"a driver was touched: import {name}")

def watch(event, arguments):
    if event in ("ctypes.dlopen", "subprocess.Popen"):
        told = str(arguments[0])
        if any(name in told for name in ("amd-smi", "nvidia", "cuda", "hip")):
            raise RuntimeError(f"a driver was touched: {told}")

sys.meta_path.insert(0, Finder())
sys.addaudithook(watch)
"""


def test_without_hardware_tests_no_driver_is_touched(pytester):
    pytester.makeconftest(GUARD + "import pytest\n@pytest.fixture\ndef here(): pass\n")
    pytester.makepyfile(LANES)
    result = run(pytester, "-m", "not hardware", inventory=False, subprocess=True)
    result.assert_outcomes(passed=1, deselected=2)


@pytest.mark.parametrize("arguments", [("-m", "rtx3060"), ()])
def test_the_guard_sees_a_driver_that_is_touched(pytester, arguments):
    pytester.makeconftest(GUARD + "import pytest\n@pytest.fixture\ndef here(): pass\n")
    pytester.makepyfile(LANES)
    result = run(pytester, *arguments, inventory=False, subprocess=True)
    assert "a driver was touched: import pynvml" in result.stdout.str() + result.stderr.str()


def test_the_plugin_imports_nothing_heavy():
    heavy = "'numpy', 'torch', 'grpc', 'pynvml', 'click', 'hypothesis'"
    code = f"""
import sys, pytest_meshnet.hardware.fixtures, pytest_meshnet.hardware.lanes
print([name for name in ({heavy}) if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


EVIDENCE = """
from pytest_meshnet.hardware import fixtures

def pytest_report_header(config):
    how, devices = fixtures.evidence(config)
    return [f"how: {how}", *(f"device: {one['provider']} {one['uuid']}" for one in devices)]
"""


def test_the_inventory_of_the_evidence_is_taken_unless_hardware_is_left_out(pytester):
    prepare(pytester, "rtx3060", EVIDENCE)
    result = run(pytester)
    result.stdout.fnmatch_lines(["how: asked file", f"device: file {RTX3060}"])
    result = run(pytester, "-m", "not hardware")
    result.stdout.fnmatch_lines(["how: not collected: -m 'not hardware' leaves out hardware"])
    result.stdout.no_fnmatch_line("device: *")


def test_the_inventory_of_the_evidence_says_what_could_not_be_read(pytester):
    # faults row 44
    prepare(pytester, "broken-driver", EVIDENCE)
    run(pytester).stdout.fnmatch_lines(["how: asked file; nvml: NVMLError_LibRmVersionMismatch*"])
