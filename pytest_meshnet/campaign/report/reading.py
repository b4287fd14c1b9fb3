"""Reading a finished or broken run back: its record from run.json and the blocks, judged again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pytest_meshnet.campaign.documents import decode, loads
from pytest_meshnet.campaign.errors import CampaignRefused
from pytest_meshnet.campaign.judging.facts import (
    ArmFacts,
    Bandwidth,
    CampaignRecord,
    Intent,
    Observation,
    Protocol,
    Provenance,
)
from pytest_meshnet.campaign.judging.judge import Judgement, judge
from pytest_meshnet.campaign.report.documents import RUN_SCHEMA
from pytest_meshnet.campaign.runner.folder import RUN, RunFolder
from pytest_meshnet.campaign.runner.observing import observations

_ANSWERS = (
    "headline",
    "execution_status",
    "validity",
    "blockers",
    "campaign_invalidations",
    "codes",
)


def read_run(root: Path) -> tuple[CampaignRecord, Judgement]:
    """Return the record of a run and its judgement, made anew from the record alone.

    Raises CampaignRefused when run.json cannot be read, when a block is not the file that run.json
    names, and when run.json says something else than its own records.
    """
    try:
        told = loads((root / RUN).read_bytes())
    except (OSError, ValueError) as error:
        raise CampaignRefused(f"{root / RUN} cannot be read: {error}") from None
    if not isinstance(told, dict) or told.get("schema") != RUN_SCHEMA:
        raise CampaignRefused(f"{root / RUN} is no run: expected schema {RUN_SCHEMA}")
    try:
        record = _record(told, RunFolder(root))
    except KeyError as error:
        raise CampaignRefused(f"{root / RUN} has no {error}: it was not written by a run") from None
    judged = judge(record)
    found = judged.document()
    for name in _ANSWERS:
        if told.get(name) != found[name]:
            raise CampaignRefused(
                f"run.json says {name} {told.get(name)!r:.80}, its records say {found[name]!r:.80}"
            )
    return record, judged


def _record(told: Mapping[str, Any], folder: RunFolder) -> CampaignRecord:
    protocol = {
        name: value
        for name, value in told["protocol"].items()
        if name not in ("expected", "observed")
    }
    return CampaignRecord(
        intent=decode(Intent, told["intent"], "intent"),
        protocol=decode(Protocol, protocol, "protocol"),
        bandwidth=decode(Bandwidth, told["bench_bw"], "bench_bw"),
        provenance=decode(Provenance, told["provenance"], "provenance"),
        arms=tuple(
            decode(ArmFacts, one, name) for name, one in told["resolved_configuration"].items()
        ),
        observations=tuple(_observations(told, folder)),
    )


def _observations(told: Mapping[str, Any], folder: RunFolder) -> Iterator[Observation]:
    for block in told["blocks"]:
        path = folder.block(block["arm_id"], block["class_id"])
        try:
            data = path.read_bytes() if path.exists() else b""
        except OSError as error:
            raise CampaignRefused(f"{path} cannot be read: {error.strerror}") from None
        # A killed run leaves requests that it had no time to write about; no other run does.
        known = data[: block["bytes"]] if told["execution_status"] == "INCOMPLETE" else data
        if hashlib.sha256(known).hexdigest() != block["sha256"]:
            raise CampaignRefused(f"{path} is not the file that run.json was written about")
        yield from observations(known, path.name)
