"""run.json and SUMMARY.md: the headline first, then the reasons, then everything else."""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_meshnet.campaign.errors import CampaignRefused
from pytest_meshnet.campaign.judging.codes import WHAT_TO_DO
from pytest_meshnet.campaign.judging.configuration import cross_arm
from pytest_meshnet.campaign.judging.facts import CampaignRecord
from pytest_meshnet.campaign.judging.judge import Judgement
from pytest_meshnet.campaign.judging.rules import Invalidation
from pytest_meshnet.campaign.plan.arms import SERVER_ENVIRONMENT, ServeSettings
from pytest_meshnet.campaign.records import read_block
from pytest_meshnet.campaign.runner.folder import RunFolder
from pytest_meshnet.campaign.workloads.manifest import Manifest
from pytest_meshnet.evidence.shown import md_code, md_prose
from pytest_meshnet.evidence.strict import encode

RUN_SCHEMA = "inferswarm.phase0.run/2"
SHOWN = 20
"""Most invalidations that the summary lists one by one."""


@dataclass(frozen=True, slots=True)
class RunDocument:
    """Everything that run.json is made of."""

    record: CampaignRecord
    judgement: Judgement
    manifest: Manifest
    settings: ServeSettings

    def text(self, folder: RunFolder) -> str:
        """Return run.json; the four keys that answer come first."""
        record, judged = self.record, self.judgement.document()
        document = {
            "schema": RUN_SCHEMA,
            "headline": judged["headline"],
            "execution_status": judged["execution_status"],
            "validity": judged["validity"],
            "intent": encode(record.intent),
            "blockers": judged["blockers"],
            "campaign_invalidations": judged["campaign_invalidations"],
            "codes": judged["codes"],
            "protocol": encode(record.protocol)
            | {"expected": self.judgement.expected, "observed": self.judgement.observed},
            "workloads": self.manifest.document(),
            "serve_settings": encode(self.settings) | {"environment": dict(SERVER_ENVIRONMENT)},
            "bench_bw": encode(record.bandwidth),
            "provenance": encode(record.provenance),
            "resolved_configuration": {one.arm_id: encode(one) for one in record.arms},
            "cross_arm": cross_arm(record.arms),
            "blocks": [_block(record, folder, *block) for block in _blocks(record)],
        }
        return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _blocks(record: CampaignRecord) -> Iterator[tuple[str, str]]:
    for arm in record.protocol.arms:
        for name in record.protocol.classes:
            yield arm, name


def _block(record: CampaignRecord, folder: RunFolder, arm_id: str, class_id: str) -> dict[str, Any]:
    seen = [one for one in record.observations if (one.arm_id, one.class_id) == (arm_id, class_id)]
    path = folder.block(arm_id, class_id)
    data = path.read_bytes() if path.exists() else b""
    return {
        "arm_id": arm_id,
        "class_id": class_id,
        "expected": record.protocol.per_block,
        "observed": sum(1 for one in seen if not one.failed),
        "failed": sum(1 for one in seen if one.failed),
        "file": path.relative_to(folder.root).as_posix(),
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "decode_tok_s": decode_rates(path),
    }


def decode_rates(block: Path) -> dict[str, Any] | None:
    """Return extremes and median of a block in tok/s, None where it has no sound statistics."""
    try:
        rates = [one.decode_tok_s for one in read_block(block) if one.measured]
    except CampaignRefused:
        return None
    if not rates:
        return None
    return {
        "n": len(rates),
        "min": min(rates),
        "median": statistics.median(rates),
        "max": max(rates),
    }


def summary(record: CampaignRecord, judgement: Judgement) -> str:
    """Return SUMMARY.md: the headline, then why, then what was run."""
    return "\n".join(_summary(record, judgement)) + "\n"


def _summary(record: CampaignRecord, judgement: Judgement) -> Iterator[str]:
    yield f"# {judgement.headline}\n"
    yield f"- execution_status: {judgement.execution_status}"
    yield f"  ({judgement.observed} of {judgement.expected} requests)"
    yield f"- validity: {judgement.validity}"
    yield from (f"- not canonical: {md_prose(blocker)}" for blocker in judgement.blockers)
    if judgement.invalidations:
        yield "\n## Invalidations\n"
        for code, count in judgement.codes.items():
            yield f"- `{code}` x {count}: {_to_do(code)}"
        yield ""
        yield from (f"  - {_line(one)}" for one in judgement.invalidations[:SHOWN])
        if (more := len(judgement.invalidations) - SHOWN) > 0:
            yield f"  - and {more} more, all of them in run.json"
    told, intent = record.provenance, record.intent
    yield "\n## What was run\n"
    order = "reversed" if intent.reversed_order else "forward"
    yield f"- session {md_code(intent.session_id)}, {order}"
    arms, classes = record.protocol.arms, record.protocol.classes
    yield f"- arms {md_prose(' '.join(arms))}, classes {md_prose(' '.join(classes))}"
    yield f"- {record.protocol.warmups} warm-ups and {record.protocol.repetitions} a block"
    yield f"- model {_code(told.model_repository)} at {_code(told.model_revision)}"
    yield f"- GPU {_code(told.gpu_name)} {_code(told.gpu_uuid)}, driver {_code(told.driver)}"
    yield f"- runtime {_code(told.runtime_version)}, checkout {_code(told.checkout_commit)}"
    yield "\nEvery figure is MEASURED; none is compared with another here, see `campaign analyse`."


def _code(told: str | None) -> str:
    return "unknown" if told is None else md_code(told)


def _to_do(code: str) -> str:
    return next(advice for known, advice in WHAT_TO_DO.items() if known == code)


def _line(one: Invalidation) -> str:
    where = " ".join(str(part) for part in (one.arm_id, one.class_id) if part is not None)
    index = "" if one.execution_index is None else f" #{one.execution_index}"
    message = md_prose(one.message.partition("\n")[0])
    return f"`{one.code}` {md_prose(where)}{index}: {message}".replace(" : ", ": ")
