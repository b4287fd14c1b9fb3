"""The lease: one holder a device, locks that die with their holder, and bounded waits."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace

import pytest

from pytest_meshnet.hardware.pinning.lease import QUEUE, Desk, LeaseError
from pytest_meshnet.tests.hardware.fakes import inventory, uuids

FOUR = inventory("four").devices
SOON = 0.2
"""Seconds that a wait in vain takes."""

LONG = 30.0
"""Seconds within which a wait that must succeed has always succeeded."""

HOLDER = """
import json, os, sys
from pathlib import Path
from pytest_meshnet.hardware.pinning.lease import Desk
from pytest_meshnet.tests.hardware.fakes import inventory

desk = Desk(Path(sys.argv[1]))
places = json.loads(sys.argv[2])
devices = [inventory("four").devices[place] for place in places]
with desk.lease(devices, len(devices), timeout_s=30, holder="another run"):
    if sys.argv[3] == "fork" and os.fork() == 0:
        os.execvp("sleep", ["sleep", "60"]) if sys.argv[4] == "exec" else sys.stdin.read()
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def hold(tmp_path):
    """Starts other processes that hold devices, and ends them."""
    started = []

    def start(places, *how):
        command = [sys.executable, "-c", HOLDER, str(tmp_path / "leases"), json.dumps(places)]
        child = subprocess.Popen(
            [*command, *(how or ("-",))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(child)
        assert child.stdout.readline() == "held\n"
        return child

    yield start
    for child in started:
        # The group, because a forked child of a killed holder outlives it.
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        child.stdin.close()
        child.stdout.close()


@pytest.fixture
def later():
    """Calls a function in another thread, so many times SOON from now."""
    timers = []

    def start(function, times=1):
        timers.append(threading.Timer(SOON * times, function))
        timers[-1].start()

    yield start
    for timer in timers:
        timer.join()


@pytest.fixture
def desk(tmp_path):
    return Desk(tmp_path / "leases")


def take(desk, devices=FOUR, count=1, timeout_s=LONG):
    return desk.lease(devices, count, timeout_s=timeout_s, holder="this test")


def test_devices_come_in_the_order_of_the_candidates(desk):
    # faults row 175
    turned = list(reversed(FOUR))
    with take(desk, turned, 3) as lease:
        assert uuids(lease.devices) == uuids(turned[:3])


def test_a_device_that_another_process_holds_is_not_given(desk, hold):
    hold([0, 1])
    with take(desk) as lease:
        assert lease.devices == (FOUR[2],)


def test_a_wait_ends_at_its_bound_and_names_the_holder(desk, hold):
    # faults row 114
    child = hold([0])
    started = time.monotonic()
    with pytest.raises(LeaseError, match=f"is held by process {child.pid}: another run"):
        take(desk, FOUR[:1], timeout_s=SOON).__enter__()
    assert time.monotonic() - started < LONG


def test_a_wait_ends_when_the_holder_gives_the_device_back(desk, hold, later):
    child = hold([0])
    later(child.stdin.close)
    with take(desk, FOUR[:1]) as lease:
        assert lease.waited_s >= SOON / 2


def test_a_killed_holder_holds_nothing(desk, hold, later):
    # faults row 115
    child = hold([0])
    later(child.kill)
    with take(desk, FOUR[:1]) as lease:
        assert lease.devices == (FOUR[0],)


@pytest.mark.parametrize("how", ["exec", "stay"])
def test_the_lock_of_a_killed_holder_does_not_live_on_in_its_child(desk, hold, how):
    child = hold([0], "fork", how)
    child.kill()
    with take(desk, FOUR[:1]) as lease:
        assert lease.devices == (FOUR[0],)


def test_a_device_that_was_given_back_is_free_whoever_still_has_the_open_file(desk, tmp_path):
    with take(desk, FOUR[:1]):
        copy = os.dup(next(iter(desk._held.values())))
    try:
        with take(Desk(tmp_path / "leases"), FOUR[:1], timeout_s=SOON):
            pass
    finally:
        os.close(copy)


def test_whichever_device_becomes_free_first_is_given(desk, hold, later):
    hold([0])
    child = hold([1])
    later(child.kill)
    with take(desk, FOUR[:2]) as lease:
        assert lease.devices == (FOUR[1],)


def test_a_wait_for_several_takes_them_one_after_the_other(desk, hold, later):
    children = [hold([0]), hold([1])]
    for place, child in enumerate(children):
        later(child.kill, 1 + place)
    with take(desk, FOUR[:2], 2) as lease:
        assert lease.devices == FOUR[:2]


def test_two_who_want_several_do_not_wait_for_each_other_for_ever(desk, hold, tmp_path):
    with take(desk, FOUR[:2], 2):
        other = Desk(tmp_path / "leases")
        with pytest.raises(LeaseError, match="waited"):
            take(other, list(reversed(FOUR[:2])), 2, timeout_s=SOON).__enter__()
    with take(other, FOUR[:2], 2) as lease:
        assert len(lease.devices) == 2


def test_a_wait_in_vain_gives_back_what_it_had_taken(desk, hold, tmp_path):
    hold([1])
    with pytest.raises(LeaseError):
        take(desk, FOUR[:2], 2, timeout_s=SOON).__enter__()
    with take(Desk(tmp_path / "leases"), FOUR[:1], timeout_s=SOON) as lease:
        assert lease.devices == (FOUR[0],)


def test_who_waited_in_vain_takes_no_device_when_it_becomes_free_later(desk, hold, tmp_path, later):
    child = hold([0])
    with pytest.raises(LeaseError):
        take(desk, FOUR[:1], timeout_s=SOON).__enter__()
    child.kill()
    child.wait()
    for _ in range(3):
        with take(Desk(tmp_path / "leases"), FOUR[:1]) as lease:
            assert lease.devices == (FOUR[0],)


def test_waiting_again_for_the_same_device_needs_no_second_thread(desk, hold):
    hold([0])
    before = threading.active_count()
    for _ in range(5):
        with pytest.raises(LeaseError):
            take(desk, FOUR[:1], timeout_s=0.01).__enter__()
    assert threading.active_count() == before + 1


def test_a_process_that_holds_devices_cannot_take_more(desk):
    with take(desk), pytest.raises(LeaseError, match="give them back first"):
        take(desk).__enter__()


def test_a_lease_ends_when_the_test_fails(desk, tmp_path):
    with pytest.raises(ZeroDivisionError), take(desk, FOUR[:1]):
        raise ZeroDivisionError
    with take(Desk(tmp_path / "leases"), FOUR[:1], timeout_s=SOON):
        pass


@pytest.mark.parametrize(("devices", "count"), [([], 1), (FOUR[:1], 2)])
def test_more_than_there_is_is_refused_at_once(desk, devices, count):
    # faults row 114
    with pytest.raises(LeaseError, match="can be had"):
        take(desk, devices, count).__enter__()


def test_a_device_without_uuid_cannot_be_leased(desk):
    with pytest.raises(LeaseError, match="has no UUID"):
        take(desk, [replace(FOUR[0], uuid=None)]).__enter__()


def test_a_lock_file_that_was_cleaned_away_is_not_believed(desk, hold, tmp_path):
    child = hold([0])
    path = tmp_path / "leases" / f"{FOUR[0].uuid.lower()}.lock"
    granted = []

    def wait():
        with take(desk, FOUR[:1]):
            granted.append(os.path.exists(path))

    waiter = threading.Thread(target=wait)
    waiter.start()
    _until_asleep(desk)
    path.unlink()
    child.kill()
    waiter.join(LONG)
    assert granted == [True], "the lock that was granted is on a file that nobody else would open"


def _until_asleep(desk):
    """Return when a thread of the desk has opened its file and is about to sleep in flock."""
    deadline = time.monotonic() + LONG
    while not (desk._waiters._asleep and desk._locks._open) and time.monotonic() < deadline:
        os.sched_yield()


@pytest.mark.parametrize("spoil", ["mode", "link"])
def test_a_folder_that_others_could_write_is_refused(tmp_path, spoil):
    folder = tmp_path / "leases"
    if spoil == "mode":
        folder.mkdir()
        folder.chmod(0o777)
    else:
        (tmp_path / "elsewhere").mkdir()
        folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LeaseError, match="not this user's own folder"):
        Desk(folder)


def test_the_queue_is_free_while_several_are_held(desk, tmp_path):
    with (
        take(desk, FOUR[:2], 2),
        take(Desk(tmp_path / "leases"), FOUR[2:], 2, timeout_s=SOON) as more,
    ):
        assert more.devices == FOUR[2:]
    assert (tmp_path / "leases" / QUEUE).exists()
