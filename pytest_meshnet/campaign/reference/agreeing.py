"""Two runs of the reference: the same words, or where they part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytest_meshnet.campaign.documents import loads
from pytest_meshnet.campaign.errors import CampaignRefused
from pytest_meshnet.campaign.reference.running import DOCUMENT, SCHEMA

_SAME = ("model_repository", "model_revision", "manifest_sha256", "gpu_uuid")


def differences(one: Path, other: Path) -> list[str]:
    """Return the classes whose output digests differ; none is self-consistency.

    Raises CampaignRefused for runs that cannot show it: one session twice, another model, prompts
    or device, or a run that something stands against.
    """
    told = [_read(folder) for folder in (one, other)]
    if told[0]["session_id"] == told[1]["session_id"]:
        raise CampaignRefused(
            f"both are {told[0]['session_id']}: self-consistency is shown by two sessions"
        )
    for name in _SAME:
        found = [each["provenance"][name] for each in told]
        if found[0] != found[1]:
            raise CampaignRefused(f"{name} is {found[0]} and {found[1]}: expected the same")
    digests = [
        {output["class_id"]: output["output_sha256"] for output in each["outputs"]} for each in told
    ]
    if digests[0].keys() != digests[1].keys() or not digests[0]:
        raise CampaignRefused(f"the classes are {[list(each) for each in digests]}")
    return [name for name in digests[0] if digests[0][name] != digests[1][name]]


def _read(folder: Path) -> dict[str, Any]:
    path = folder / DOCUMENT
    try:
        told = loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise CampaignRefused(f"{path} cannot be read: {error}") from None
    if not isinstance(told, dict) or told.get("schema") != SCHEMA:
        raise CampaignRefused(f"{path} is no reference: expected schema {SCHEMA}")
    if told["against"]:
        raise CampaignRefused(f"{path}: {told['against'][0]}; a broken reference shows nothing")
    return told
