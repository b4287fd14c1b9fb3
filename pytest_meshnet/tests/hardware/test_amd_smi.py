"""AMD GPUs through amd-smi: joined by bus id, unknown kept unknown, words not guessed."""

import pytest

from pytest_meshnet.hardware.inventory import DriverError, read
from pytest_meshnet.hardware.inventory.amd_smi import AmdSmiDriver, AmdSmiMissing
from pytest_meshnet.tests.hardware.fakes import FakeAmdSmi, amd_listed, amd_row, failing

RADEON, INSTINCT = "GPU-73f8101733408480", "GPU-de8287300da37c72"


def amd(**more):
    rows = [amd_row(0, "0000:03:00.0"), amd_row(1, "0000:83:00.0", "AMD Instinct MI210", "gfx90a")]
    listed = [amd_listed(9, "0000:83:00.0", 0, INSTINCT), amd_listed(8, "0000:03:00.0", 1, RADEON)]
    return FakeAmdSmi(rows, listed, **more)


@pytest.mark.parametrize("wrapped", [True, False])
def test_two_answers_of_amd_smi_are_joined_by_bus_id_not_by_index(wrapped):
    # faults row 85
    found = read([AmdSmiDriver(amd(wrapped=wrapped))]).devices
    assert [(one.uuid, one.gfx, one.index, one.runtime_index) for one in found] == [
        (RADEON, "gfx1100", 0, 1),
        (INSTINCT, "gfx90a", 1, 0),
    ]
    assert found[0].memory_bytes == 24560 * 1024**2
    assert found[0].architecture == "gfx1100"


@pytest.mark.parametrize("told", ["N/A", "GPU-XX", "GPU-0000000000000000", None])
def test_a_radeon_without_a_uuid_of_its_own_has_none(told):
    listed = [amd_listed(0, "0000:03:00.0", 0, told)]
    (one,) = read([AmdSmiDriver(FakeAmdSmi([amd_row(0, "0000:03:00.0")], listed))]).devices
    assert one.uuid is None
    assert repr(told) in one.unknown["uuid"]
    assert one.label == "0000:03:00.0"


def test_an_unknown_value_of_amd_smi_stays_unknown():
    row = amd_row(0, "0000:03:00.0", gfx="N/A", memory="N/A")
    (one,) = read([AmdSmiDriver(FakeAmdSmi([row], []))]).devices
    assert (one.gfx, one.memory_bytes, one.runtime_index) == (None, None, None)


@pytest.mark.parametrize(
    ("kind", "kernel_driver", "is_problem"),
    [(AmdSmiMissing, False, False), (AmdSmiMissing, True, True), (DriverError, False, True)],
)
def test_a_missing_amd_smi_is_a_note_and_a_failing_one_a_problem(kind, kernel_driver, is_problem):
    found = read([AmdSmiDriver(failing("said no", kind), lambda: kernel_driver)])
    assert "said no" in (found.problems if is_problem else found.notes)[0]


def test_output_that_is_no_json_is_a_problem():
    found = read([AmdSmiDriver(lambda arguments: "WARNING: user is missing groups")])
    assert "no JSON" in found.problems[0]


def test_a_process_holds_a_radeon_only_with_memory_on_it():
    processes = {
        "0000:03:00.0": [
            {"pid": 41, "mem_usage": {"value": 0, "unit": "B"}},
            {"pid": 42, "mem_usage": {"value": 5, "unit": "B"}},
            {"pid": 43, "mem_usage": "N/A"},
        ],
        "0000:83:00.0": ["No running processes detected"],
    }
    driver = AmdSmiDriver(amd(processes=processes))
    radeon, instinct = read([driver]).devices
    assert driver.processes(radeon) == (42, 43), "unknown memory is not zero"
    assert driver.processes(instinct) == ()


def test_words_of_amd_smi_that_nobody_knows_are_not_taken_for_idle():
    driver = AmdSmiDriver(amd(processes={"0000:03:00.0": ["N/A"]}))
    with pytest.raises(DriverError, match="unknown words"):
        driver.processes(read([driver]).devices[0])
