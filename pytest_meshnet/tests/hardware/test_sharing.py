"""Workers of xdist share the devices of a machine and never the same one at once."""

import json
from collections import Counter
from pathlib import Path

import pytest

from pytest_meshnet.tests.hardware.fakes import inventory, uuids
from pytest_meshnet.tests.hardware.inner import journal, prepare, run

FOUR = uuids(inventory("four").devices)

SHARING = """
import json, os, signal, time
from pathlib import Path
import pytest

HERE = Path(__file__).parent


def note(what, gpu, number):
    line = json.dumps([what, time.monotonic_ns(), [one.uuid for one in gpu.devices], number])
    with open(HERE / "held.jsonl", "a") as file:
        file.write(line + "\\n")


@pytest.fixture
def held(gpu, here, request):
    number = request.node.callspec.params["number"]
    note("take", gpu, number)
    yield number
    note("give", gpu, number)


@pytest.mark.gpu
@pytest.mark.parametrize("number", range(SINGLES))
def test_one(gpu, held, number):
    if held in KILLED:
        os.kill(os.getpid(), signal.SIGKILL)
    assert len(gpu.devices) == 1


@pytest.mark.multi_gpu(3)
@pytest.mark.parametrize("number", range(1000, 1000 + SEVERAL))
def test_several(gpu, held, number):
    assert len(gpu.devices) == 3
"""


def share(pytester, name, *arguments, workers, singles, several=0, killed=()):
    prepare(pytester, name)
    body = SHARING.replace("SINGLES", str(singles)).replace("SEVERAL", str(several))
    Path(pytester.path, "test_sharing.py").write_text(body.replace("KILLED", repr(tuple(killed))))
    chosen = () if several else ("-k", "one")
    return run(
        pytester,
        "-n",
        str(workers),
        *chosen,
        *arguments,
        "--meshnet-gpu-wait",
        "90",
        subprocess=True,
    )


def overlaps(pytester, killed=()):
    """Return the holders that met on a device, and how many holds each device had.

    A killed holder has no end of its own: it held from its start until the next one began.
    """
    lines = Path(pytester.path, "held.jsonl").read_text().splitlines()
    events = sorted(
        (at, what, number, device)
        for what, at, devices, number in map(json.loads, lines)
        for device in devices
    )
    holders, met, holds = {}, [], Counter()
    for _, what, number, device in events:
        if what == "give":
            assert holders.pop(device) == number
            continue
        holds[device] += 1
        before = holders.get(device)
        if before is not None and before not in killed:
            met.append((device, before, number))
        holders[device] = number
    assert set(holders.values()) <= set(killed), f"never given back: {holders}"
    return met, holds


@pytest.mark.timeout(240)
def test_eight_workers_on_four_devices_never_meet_over_200_leases_even_when_killed(pytester):
    killed = (20, 90, 150)
    result = share(pytester, "four", workers=8, singles=190, several=12, killed=killed)
    result.assert_outcomes(passed=199, failed=len(killed))
    met, holds = overlaps(pytester, killed)
    assert met == []
    assert sum(holds.values()) == 190 + 12 * 3
    assert set(holds) == set(FOUR), "a device was never used"
    proven = [one for one in journal(pytester) if one["moment"] == "during"]
    assert len(proven) == 199
    assert {one["verdict"] for one in proven} == {"proven"}
    assert len({one["worker"] for one in proven}) >= 8


def test_a_session_on_one_device_runs_one_test_at_a_time(pytester):
    # faults row 132
    result = share(pytester, "rtx3060", "--maxfail", "1", workers=2, singles=6)
    result.assert_outcomes(passed=6)
    assert overlaps(pytester)[0] == []


def test_workers_that_lease_respect_an_outer_mask(pytester, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"{FOUR[3]},{FOUR[1]}")
    result = share(pytester, "four", workers=4, singles=12)
    result.assert_outcomes(passed=12)
    met, holds = overlaps(pytester)
    assert met == []
    assert set(holds) <= {FOUR[3], FOUR[1]}
