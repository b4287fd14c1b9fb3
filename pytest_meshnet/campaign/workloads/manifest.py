"""The manifest of prompts: frozen by SHA-256, so that no run measures other words than another."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_meshnet.campaign.documents import loads
from pytest_meshnet.campaign.errors import CampaignRefused
from pytest_meshnet.campaign.workloads.classes import CLASSES

SCHEMA = "inferswarm.phase0.workload-manifest/1"
SAMPLING = ("temperature", "top_p", "top_k")
"""Exactly what a request says about sampling; a seed exists in no class."""

_TOP = {"schema", "manifest_id", "canonical", "workloads"}
_ENTRY = {
    "class_id",
    "content_sha256",
    "output_tokens",
    "sampling",
    "seed",
    "ignore_eos",
    "chat_template_kwargs",
    "role",
}
_SOURCES = {"content", "fixture_path"}


@dataclass(frozen=True, slots=True)
class Workload:
    """One prompt and how it is asked. `content` is the text whose UTF-8 bytes `sha256` is of."""

    class_id: str
    content: str
    sha256: str
    output_tokens: int
    sampling: Mapping[str, float]
    ignore_eos: bool
    chat_template_kwargs: Mapping[str, Any]
    role: str

    def body(self, model: str) -> dict[str, Any]:
        """Return the request: streamed, with usage in the last event, and no seed."""
        return {
            "model": model,
            "messages": [{"role": self.role, "content": self.content}],
            "max_tokens": self.output_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
            "ignore_eos": self.ignore_eos,
            "chat_template_kwargs": dict(self.chat_template_kwargs),
            **self.sampling,
        }


@dataclass(frozen=True, slots=True)
class Manifest:
    """A frozen set of workloads; `sha256` is of the manifest file's bytes.

    `declares_canonical` is what the file says of itself, and no verdict about any run.
    """

    manifest_id: str
    declares_canonical: bool
    sha256: str
    workloads: Mapping[str, Workload]

    def document(self) -> dict[str, Any]:
        """Return the manifest for run.json: digests and settings, never the words."""
        return {
            "manifest_id": self.manifest_id,
            "sha256": self.sha256,
            "workloads": [
                {
                    "class_id": one.class_id,
                    "content_sha256": one.sha256,
                    "output_tokens": one.output_tokens,
                    "sampling": dict(one.sampling),
                    "ignore_eos": one.ignore_eos,
                    "chat_template_kwargs": dict(one.chat_template_kwargs),
                    "role": one.role,
                }
                for one in self.workloads.values()
            ],
        }


def load(path: Path) -> Manifest:
    """Read a manifest and every prompt that it names. Raises CampaignRefused."""
    try:
        data = path.read_bytes()
        told = loads(data)
    except (OSError, ValueError) as error:
        raise CampaignRefused(f"the manifest {path} cannot be read: {error}") from None
    _keys(told, _TOP, "the manifest")
    if told["schema"] != SCHEMA:
        raise CampaignRefused(f"the manifest's schema is {told['schema']!r}: expected {SCHEMA}")
    if type(told["canonical"]) is not bool or not isinstance(told["workloads"], list):
        raise CampaignRefused(f"{path}: expected canonical true or false and a list of workloads")
    found = [_workload(entry, path.parent) for entry in told["workloads"]]
    by_class = {one.class_id: one for one in found}
    if len(by_class) != len(found) or not found:
        raise CampaignRefused(f"{path} names a class twice or none: expected each at most once")
    ordered = {name: by_class[name] for name in CLASSES if name in by_class}
    digest = hashlib.sha256(data).hexdigest()
    return Manifest(str(told["manifest_id"]), told["canonical"], digest, ordered)


def _workload(entry: Any, folder: Path) -> Workload:
    sources = _SOURCES & entry.keys() if isinstance(entry, dict) else set()
    if len(sources) != 1:
        raise CampaignRefused("a workload has neither or both of content and fixture_path")
    _keys(entry, _ENTRY | sources, f"workload {entry.get('class_id')}")
    name = entry["class_id"]
    if name not in CLASSES:
        raise CampaignRefused(f"class_id is {name!r}: expected one of {', '.join(CLASSES)}")
    _check(entry, name)
    content = _content(entry, folder, name)
    digest = hashlib.sha256(content.encode()).hexdigest()
    if digest != entry["content_sha256"]:
        raise CampaignRefused(
            f"the prompt of {name} has SHA-256 {digest}, the manifest says "
            f"{entry['content_sha256']}: a frozen prompt is never changed, freeze a new manifest"
        )
    return Workload(
        name,
        content,
        digest,
        entry["output_tokens"],
        entry["sampling"],
        entry["ignore_eos"],
        entry["chat_template_kwargs"],
        entry["role"],
    )


def _check(entry: Mapping[str, Any], name: str) -> None:
    expected = CLASSES[name].output_tokens
    if type(entry["output_tokens"]) is not int or entry["output_tokens"] != expected:
        raise CampaignRefused(f"{name}: output_tokens is {entry['output_tokens']!r}: {expected}")
    if entry["seed"] is not None:
        raise CampaignRefused(f"{name}: seed is {entry['seed']!r}: expected null, none exists")
    sampling = entry["sampling"]
    if not isinstance(sampling, dict) or sampling.keys() != set(SAMPLING):
        raise CampaignRefused(f"{name}: sampling is {sampling!r}: expected {', '.join(SAMPLING)}")
    if any(type(value) not in (int, float) for value in sampling.values()):
        raise CampaignRefused(f"{name}: sampling is {sampling!r}: expected numbers")
    kinds = {"ignore_eos": bool, "chat_template_kwargs": dict, "role": str}
    for key, kind in kinds.items():
        if type(entry[key]) is not kind:
            raise CampaignRefused(f"{name}: {key} is {entry[key]!r}: expected {kind.__name__}")


def _content(entry: Mapping[str, Any], folder: Path, name: str) -> str:
    if "content" in entry:
        if not isinstance(entry["content"], str):
            raise CampaignRefused(f"{name}: content is {entry['content']!r:.40}: expected a text")
        return entry["content"]
    path = (folder / str(entry["fixture_path"])).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise CampaignRefused(f"{name}: fixture_path {entry['fixture_path']!r} leaves {folder}")
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CampaignRefused(f"{name}: {path} cannot be read: {error}") from None


def _keys(told: Any, expected: set[str], what: str) -> None:
    if not isinstance(told, dict) or told.keys() != expected:
        found = sorted(told) if isinstance(told, dict) else repr(told)[:60]
        raise CampaignRefused(f"{what} has {found}: expected exactly {sorted(expected)}")
