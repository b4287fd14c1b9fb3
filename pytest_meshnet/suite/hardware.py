"""What the suites give to the hardware room, and what they keep of what it saw."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pytest_meshnet.hardware import fixtures
from pytest_meshnet.suite import collection

if TYPE_CHECKING:
    from pytest_meshnet.hardware.placement.gpu import Placement
    from pytest_meshnet.suite.run import Run


def register(config: pytest.Config) -> None:
    """Register the lanes' hooks and the fixture `gpu`; a second call does nothing."""
    if not config.pluginmanager.is_registered(fixtures):
        config.pluginmanager.register(fixtures, "meshnet-hardware")


def note_placement(item: pytest.Item, placement: Placement, run: Run) -> None:
    """Keep every look at the devices of a test, and record the device that the runtime used."""
    if run.feed is None or not collection.contains(item):
        return
    recorder, test = run.feed.recorder, collection.test_id(item)
    text = json.dumps(placement.document(), indent=1)
    recorder.attach_text(test, f"placement {placement.moment}", text)
    if placement.moment == "during":
        for requested, observed in placement.records():
            recorder.device(test, requested, observed)
        if placement.verdict == "unobservable":
            recorder.warning(test, str(placement))
