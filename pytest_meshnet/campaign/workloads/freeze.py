"""Freezing a manifest: the digest of each prompt is computed once, by this, and then kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_meshnet.campaign.errors import CampaignRefused
from pytest_meshnet.campaign.workloads.classes import CLASSES
from pytest_meshnet.campaign.workloads.manifest import SCHEMA, Manifest, load


def freeze(
    out: Path,
    prompts: Mapping[str, Path],
    *,
    manifest_id: str,
    canonical: bool,
    sampling: Mapping[str, float],
    chat_template_kwargs: Mapping[str, Any],
) -> Manifest:
    """Write a manifest of prompt files, and read it back as a run would.

    `prompts` maps classes to files beside or below the manifest. Raises CampaignRefused when the
    manifest exists, since a frozen one is never overwritten, or a prompt lies elsewhere.
    """
    if out.exists():
        raise CampaignRefused(f"{out} exists and is never overwritten: choose another name")
    document = {
        "schema": SCHEMA,
        "manifest_id": manifest_id,
        "canonical": canonical,
        "workloads": [
            {
                "class_id": name,
                "fixture_path": _relative(prompts[name], out.parent),
                "content_sha256": _digest(prompts[name]),
                "output_tokens": CLASSES[name].output_tokens,
                "sampling": dict(sampling),
                "seed": None,
                "ignore_eos": True,
                "chat_template_kwargs": dict(chat_template_kwargs),
                "role": "user",
            }
            for name in CLASSES
            if name in prompts
        ],
    }
    out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return load(out)


def _relative(prompt: Path, folder: Path) -> str:
    try:
        return prompt.resolve().relative_to(folder.resolve()).as_posix()
    except ValueError:
        raise CampaignRefused(
            f"the prompt {prompt} is not below {folder}: put it beside the manifest"
        ) from None


def _digest(prompt: Path) -> str:
    try:
        return hashlib.sha256(prompt.read_bytes()).hexdigest()
    except OSError as error:
        raise CampaignRefused(f"the prompt {prompt} cannot be read: {error}") from None
