"""Attacks on devices, on time and on the end of the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytest_meshnet.tests.evidence.attacks.base import (
    Attack,
    body,
    insert,
    insider,
    judged_insider,
    sealer,
    shift,
    times,
)
from pytest_meshnet.tests.evidence.making import RUNTIME_TEST, Forger

DEVICE = {"uuid": "GPU-1", "name": "RTX", "provider": "nvml"}


def device(requested: dict[str, Any], **observed: Any) -> Callable[[Forger], None]:
    def act(forger: Forger) -> None:
        listed = [{"uuid": "GPU-1", "name": "RTX"}, {"uuid": None, "name": "unreadable"}]
        forger.document("start", lambda start: start.update(gpus=listed))
        what = {"test": RUNTIME_TEST, "requested": requested, "observed": DEVICE | observed}
        forger.journal(insert("device", what))

    return act


def hardware(forger: Forger) -> None:
    lane = {RUNTIME_TEST: "rtx3060"}
    forger.document("plan", lambda plan: plan["collection"].update(hardware=lane))
    forger.journal(body("collected", hardware=lane))


def after_the_seal(records: list[dict[str, Any]]) -> None:
    """Let the last record come a second after all others."""
    records[-1]["t_mono"] = str(int(records[-1]["t_mono"]) + 10**9)


def early_tests(forger: Forger) -> None:
    """Sign the plan after the tests."""
    late: list[str] = []
    forger.journal(lambda records: late.append(records[-1]["t_mono"]))
    forger.document("plan", lambda plan: plan.update(t_mono=late[0]))


ON_DEVICES_AND_TIME = (
    # devices
    Attack(
        "a device that is not listed",
        judged_insider(device({}, uuid="GPU-2")),
        2,
        "device-unlisted",
        "devices",
    ),
    Attack(
        "a device without a name",
        judged_insider(device({}, uuid=None)),
        2,
        "device-unlisted",
        "devices",
    ),
    Attack(
        "another device than asked for",
        judged_insider(device({"name": "RTX 2"})),
        2,
        "device-differs",
        "devices",
    ),
    Attack(
        "a simulated device",
        judged_insider(device({}, provider="file")),
        1,
        "device-simulated",
        "devices",
    ),
    Attack(
        "a hardware test without a device",
        judged_insider(hardware),
        3,
        "device-unproven",
        "devices",
    ),
    # time
    Attack(
        "a record before its time",
        insider(lambda f: f.journal(times(shift("t_mono", -1)))),
        2,
        "clock-order",
        "clock",
    ),
    Attack(
        "the clock set back",
        insider(lambda f: f.journal(times(shift("t_wall", -6)))),
        2,
        "clock-set-back",
        "clock",
    ),
    Attack(
        "a seal before the run",
        sealer(lambda seal: seal.update(t_mono="5")),
        2,
        "clock-order",
        "clock",
    ),
    Attack(
        "a journal that began before the run",
        insider(lambda f: f.journal(times(shift("t_mono", -1, at=0)))),
        2,
        "clock-order",
        "clock",
    ),
    Attack(
        "a journal that went on after the seal",
        insider(lambda f: f.journal(after_the_seal)),
        2,
        "clock-order",
        "clock",
    ),
    Attack(
        "a plan before the start",
        insider(lambda f: f.document("plan", lambda plan: plan.update(t_mono="5"))),
        2,
        "clock-order",
        "clock",
    ),
    Attack(
        "a seal with the clock set back",
        sealer(lambda seal: seal.update(t_wall=str(int(seal["t_wall"]) - 6 * 10**9))),
        2,
        "clock-set-back",
        "clock",
    ),
    Attack("tests before the plan", insider(early_tests), 2, "clock-plan", "clock"),
    # end
    Attack(
        "a suite that changed during the run",
        sealer(lambda seal: seal.update(suite_digest="ab" * 32)),
        3,
        "suite-changed",
        "completeness",
    ),
)
