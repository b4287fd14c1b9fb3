"""One machine of the real target is measured; the parts of all machines make a record.

    export MESHNET_ALPHA_HOST=/etc/meshnet/host.toml
    pytest -m real_target acceptance/alpha --meshnet-present real_target --meshnet-out evidence

From one place, over several machines: `--dist=each --tx ssh=rig-a --tx ssh=rig-b`. Each leaves its
part in the evidence of the run and, with MESHNET_ALPHA_PARTS set, in a folder on that machine.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from pytest_meshnet.alpha.collectors.host import collect_host
from pytest_meshnet.alpha.collectors.storage import objections
from pytest_meshnet.alpha.record import RecordRefused
from pytest_meshnet.hardware.inventory import read
from pytest_meshnet.hardware.placement.senses import real
from pytest_meshnet.runtime.errors import Refusal
from pytest_meshnet.suite.evidence import Attachments
from pytest_meshnet.target.documents import LockedTarget

HOST = "MESHNET_ALPHA_HOST"
PARTS = "MESHNET_ALPHA_PARTS"
MEDIA_TYPE = "application/vnd.pytest-meshnet.alpha-part+json"
DAY = 24 * 3600.0


@pytest.mark.real_target
@pytest.mark.timeout(DAY)
def test_this_machine_holds_its_verified_part_of_the_target(attachments: Attachments) -> None:
    """Memory of the worker, every byte of the artifact, its paths and its logs are looked at."""
    if HOST not in os.environ:
        raise Refusal(f"{HOST} does not name this machine's file; see docs/alpha.md")
    try:
        manifest, inventory = LockedTarget.load().manifest, read(real().drivers)
        part = collect_host(Path(os.environ[HOST]), manifest, inventory)
    except RecordRefused as refused:
        raise Refusal(refused.message) from refused
    text = json.dumps(part, indent=1)
    attachments.data("alpha part", text.encode(), MEDIA_TYPE)
    if PARTS in os.environ:
        name = f"{part['node']['host']['value']}.json"
        (Path(os.environ[PARTS]) / name).write_text(text, encoding="utf-8")
    assert part["node"]["files"]["value"], "expected verified files of the artifact, found none"
    against = objections(part["log_scan"])
    assert not against, f"expected logs that were scanned and give nothing away, found {against}"
