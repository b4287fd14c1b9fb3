"""Where a server computes, as a driver's list shows it, and not as the server says."""

import json
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from pytest_meshnet.campaign.plan.orders import Orders
from pytest_meshnet.campaign.plan.surroundings import Machine, machine
from pytest_meshnet.campaign.runner.evidence import Evidence
from pytest_meshnet.campaign.runner.placing import place
from pytest_meshnet.campaign.simulated.rig import smoke_manifest
from pytest_meshnet.tests.campaign.whole import campaign

INVENTORY = smoke_manifest().parents[1] / "inventories" / "four.json"


@pytest.fixture
def server():
    """A process that waits until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
    )
    yield process
    process.communicate()


@pytest.fixture
def rig(tmp_path):
    """Four invented GPUs, and a folder in which processes are noted on them."""
    told = json.loads(INVENTORY.read_text())
    (tmp_path / "noted").mkdir()
    path = tmp_path / "inventory.json"
    path.write_text(json.dumps(told | {"processes": "noted"}))
    return machine(Orders(gpu="0", inventory=path)), tmp_path / "noted"


def other(found):
    return next(one for one in found.inventory.devices if one != found.device)


def test_a_server_in_the_list_of_its_gpu_is_proven(rig, server):
    found, noted = rig
    (noted / str(server.pid)).write_text(found.device.uuid)
    seen = place(found, server.pid, (found.device.uuid,))
    assert (seen.verdict, seen.foreign, seen.simulated) == ("proven", (), True)
    assert seen.claimed == (found.device.uuid,)


def test_a_server_in_the_list_of_another_gpu_is_contradicted_whatever_it_says(rig, server):
    found, noted = rig
    (noted / str(server.pid)).write_text(other(found).uuid)
    seen = place(found, server.pid, (found.device.uuid,))
    assert seen.verdict == "contradicted"
    assert seen.observed == (other(found).uuid,)


def test_the_word_of_a_server_alone_proves_nothing(rig, server):
    found, _ = rig
    assert place(found, server.pid, (found.device.uuid,)).verdict == "unobservable"


def test_another_process_on_the_gpu_is_a_stranger(rig, server):
    found, noted = rig
    for pid in (server.pid, 1):
        (noted / str(pid)).write_text(found.device.uuid)
    (stranger,) = place(found, server.pid, None).foreign
    assert stranger.pid == 1


def test_a_server_that_is_gone_was_not_looked_at(rig, server):
    found, _ = rig
    server.communicate()
    assert place(found, server.pid, None) is None
    assert place(Machine(None, "none", found.inventory), 1, None) is None


@pytest.mark.parametrize(
    ("told", "recorded"),
    [({}, 1), ({"gpu_uuids": None}, 0), ({"ready": False}, 0)],
    ids=["of its GPU", "of no GPU", "nothing"],
)
def test_a_driver_proves_the_device_of_no_server_that_says_nothing_of_itself(told, recorded):
    devices = []
    recorder = SimpleNamespace(device=lambda *words: devices.append(words))
    seen = SimpleNamespace(verdict="proven", simulated=False, records=lambda: [({}, {})])
    evidence = Evidence(SimpleNamespace(recorder=recorder), _claims_canonical=False)
    evidence.placed(seen, replace(campaign().arms[0], **told))
    assert len(devices) == recorded
