"""What a campaign must have been to be the canonical baseline: whole, of one model, on one card."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pytest_meshnet.campaign.judging.facts import Protocol, Provenance
from pytest_meshnet.campaign.plan.arms import ARMS
from pytest_meshnet.campaign.workloads.classes import CLASSES
from pytest_meshnet.hardware.inventory.device import GIB

MODEL = "nvidia/Qwen3.6-35B-A3B-NVFP4"
GPU = "RTX 3060"
GPU_GIB = (11, 13)
"""The card with 12 GB, told from those with 6 and 8; drivers round in both directions."""

WARMUPS = 2
REPETITIONS = 10

_CARD = re.compile(r"\bRTX[ -]3060\b(?! (?:Ti|Laptop))")


def departures(protocol: Protocol, provenance: Provenance) -> Iterator[str]:
    """Yield everything in which a run is, or would be, another one than the canonical."""
    yield from _reductions(protocol)
    if provenance.model_repository not in (None, MODEL):
        yield f"the repository is {provenance.model_repository}: a canonical run is of {MODEL}"
    if provenance.gpu_uuid is not None:
        yield from _card(provenance)


def _reductions(protocol: Protocol) -> Iterator[str]:
    for what, found, whole in (
        ("arms", protocol.arms, tuple(ARMS)),
        ("classes", protocol.classes, tuple(CLASSES)),
    ):
        if set(found) != set(whole):
            yield f"only the {what} {', '.join(found)} of {', '.join(whole)}"
        elif found not in (whole, whole[::-1]):
            yield f"the {what} in the order {', '.join(found)}: expected forward or reversed"
    if (protocol.warmups, protocol.repetitions) != (WARMUPS, REPETITIONS):
        told = f"{protocol.warmups} + {protocol.repetitions}"
        yield f"{told} requests a block instead of {WARMUPS} + {REPETITIONS}"
    if not protocol.baseline_prompts:
        yield "the manifest is not meant for a canonical run: freeze one that is"


def _card(provenance: Provenance) -> Iterator[str]:
    low, high = GPU_GIB
    memory = provenance.gpu_memory_bytes
    if not _CARD.search(provenance.gpu_name or ""):
        name = provenance.gpu_name or "of unknown name"
        yield f"the GPU is {name}: a canonical run is on an {GPU}"
    elif memory is None or not low * GIB <= memory <= high * GIB:
        told = "unknown" if memory is None else f"{memory / GIB:.1f} GiB"
        yield f"the GPU's memory is {told}: a canonical run is on the {GPU} with 12 GB"
