"""`pytest-meshnet gpus`: for people and for programs."""

import json

import pytest
from click.testing import CliRunner

from pytest_meshnet.hardware.commands import gpus
from pytest_meshnet.tests.hardware.fakes import RTX3060, inventory, inventory_file, uuids


def shown(name, *arguments):
    result = CliRunner().invoke(gpus, ["--inventory", str(inventory_file(name)), *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_a_person_sees_identity_memory_and_lanes_of_a_device():
    output = shown("rtx3060")
    for text in (RTX3060, "0000:01:00.0", "12.0 GiB", "sm_86", "lanes   gpu, rtx3060", "visible"):
        assert text in output
    assert "SIMULATED: no proof of any hardware" in output


def test_a_person_sees_what_a_mask_hides_and_why(monkeypatch):
    first, second, *_ = uuids(inventory("four").devices)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"{second},x,{first}")
    output = shown("four")
    assert output.count("hidden by the environment") == 3
    assert f"CUDA_VISIBLE_DEVICES={second},x,{first}" in output
    assert "entry 2, 'x', is no visible device and ends the list" in output


def test_the_lane_table_says_what_is_ready():
    lines = shown("mig").splitlines()
    states = {line.split()[0]: line.split()[1] for line in lines if line.startswith("  ")}
    assert states["h200"] == "ready"
    assert states["rtx3060"] == "absent"
    assert "in MIG mode: use an instance" in shown("mig")


def test_unknown_memory_is_shown_as_unknown_with_the_raw_error():
    # faults row 44
    output = shown("memory-unknown")
    assert "memory  unknown" in output
    assert "unknown memory_bytes: NVMLError_NoPermission: Insufficient Permissions" in output
    assert "unmeasured" in output


@pytest.mark.parametrize(
    ("name", "text"), [("empty", "Shared Library Not Found"), ("broken-driver", "mismatch")]
)
def test_a_machine_without_a_gpu_says_why(name, text):
    output = shown(name)
    assert "no GPU" in output
    assert text in output


def test_json_holds_the_facts_of_every_device():
    told = json.loads(shown("both-vendors", "--json"))
    assert told["simulated"] is True
    assert [one["uuid"] for one in told["devices"]] == uuids(inventory("both-vendors").devices)
    assert told["devices"][0]["lanes"] == ["gpu", "rtx3060", "multi_gpu"]
    assert told["devices"][0]["memory_bytes"] == 12 * 1024**3
    assert {one["name"]: one["state"] for one in told["lanes"]}["rocm"] == "ready"


def test_a_selector_can_be_tried():
    assert json.loads(shown("both-vendors", "--json", "--select", "gpu-3060"))["usable"] == [
        RTX3060
    ]


@pytest.mark.parametrize(
    ("environment", "arguments", "message"),
    [
        ({}, ["--select", "9"], "there is no index 9"),
        ({"CUDA_VISIBLE_DEVICES": "1"}, [], "set CUDA_DEVICE_ORDER=PCI_BUS_ID, or give UUIDs"),
    ],
)
def test_what_cannot_be_followed_ends_with_exit_code_2(
    monkeypatch, environment, arguments, message
):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    result = CliRunner().invoke(
        gpus, ["--inventory", str(inventory_file("a6000-pair")), *arguments]
    )
    assert result.exit_code == 2
    assert message in result.output


def test_a_file_that_is_no_inventory_is_refused(tmp_path):
    path = tmp_path / "x.json"
    path.write_text("{}")
    result = CliRunner().invoke(gpus, ["--inventory", str(path)])
    assert (result.exit_code, "is no inventory" in result.output) == (2, True)
