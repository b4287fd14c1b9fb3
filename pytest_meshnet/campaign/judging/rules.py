"""Every rule that invalidates a campaign, each a pure function from the record to its findings."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from pytest_meshnet.campaign.judging import configuration as resolved
from pytest_meshnet.campaign.judging import coverage
from pytest_meshnet.campaign.judging.codes import Code
from pytest_meshnet.campaign.judging.facts import ArmFacts, CampaignRecord, Observation, Provenance
from pytest_meshnet.campaign.workloads.classes import CLASSES

_REVISION = re.compile(r"[0-9a-f]{40}")
_SNAPSHOT = re.compile(r"snapshots/([^/]+)")
_REPOSITORY = re.compile(r"models--([^/]+?)--([^/]+)")

NVFP4_FIGURES = ("cpu_moe_gbs", "pcie_gather_gbs")
"""What a usable profile tells of NVFP4, in GB/s: experts on the CPU, and their way over PCIe."""

PREFILL_CODES: Mapping[str, Code] = {
    code.rpartition(".")[2]: code for code in Code if code.startswith("prefill.")
}
"""The prefill codes by their last part, which is what an observation carries."""


@dataclass(frozen=True, slots=True)
class Invalidation:
    """One reason against a campaign, and where it was seen; None where it is about no one place."""

    code: Code
    message: str
    arm_id: str | None = None
    class_id: str | None = None
    execution_index: int | None = None

    def document(self) -> dict[str, Any]:
        """Return the invalidation for run.json."""
        return {
            "code": str(self.code),
            "message": self.message,
            "arm_id": self.arm_id,
            "class_id": self.class_id,
            "execution_index": self.execution_index,
        }


def invalidations(record: CampaignRecord) -> Iterator[Invalidation]:
    """Yield every invalidation, campaign first, then arm by arm, then request by request."""
    for rule in _RULES:
        yield from rule(record)


def _bandwidth(record: CampaignRecord) -> Iterator[Invalidation]:
    told = record.bandwidth
    if told.skipped:
        yield Invalidation(Code.BENCH_BW_SKIPPED, "`ft bench bw` was not run in this session")
    elif told.returncode != 0:
        how = "did not end" if told.returncode is None else f"ended with {told.returncode}"
        why = f": {told.problem}" if told.problem else ""
        yield Invalidation(Code.BENCH_BW_FAILED, f"`ft bench bw` {how}{why}")
    elif told.problem is not None or not isinstance(told.contents, Mapping):
        why = told.problem or "it holds no object"
        yield Invalidation(Code.BENCH_BW_PROFILE_UNREADABLE, f"the bandwidth profile: {why}")
    else:
        yield from _profile(told.contents, record.provenance.gpu_uuid)


def _profile(contents: Mapping[str, Any], expected: str | None) -> Iterator[Invalidation]:
    uuid = resolved.look_up(contents, "gpu.uuid")
    if not isinstance(uuid, str) or not uuid or expected is None:
        message = f"the profile says it is of GPU {uuid!r}, the campaign's is {expected!r}"
        yield Invalidation(Code.BENCH_BW_PROFILE_GPU_UNVERIFIED, message)
    elif uuid.lower() != expected.lower():
        message = f"the profile is of GPU {uuid}, the campaign runs on {expected}"
        yield Invalidation(Code.BENCH_BW_PROFILE_GPU_MISMATCH, message)
    figures = resolved.look_up(contents, "dtype_kernels.nvfp4")
    told = figures if isinstance(figures, Mapping) else {}
    for name in NVFP4_FIGURES:
        value = told.get(name)
        if not _is_rate(value):
            message = f"the profile's NVFP4 figure {name} is {value!r}: expected GB/s above 0"
            yield Invalidation(Code.BENCH_BW_CALIBRATION_UNUSABLE, message)
            return


def _is_rate(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value > 0


def _provenance(record: CampaignRecord) -> Iterator[Invalidation]:
    told = record.provenance
    if (message := revision_problem(told.model_revision, told.model_path)) is not None:
        yield Invalidation(Code.MODEL_REVISION_MISMATCH, message)
    if (message := repository_problem(told.model_repository, told.model_path)) is not None:
        yield Invalidation(Code.MODEL_REPOSITORY_MISMATCH, message)
    if told.dirty_paths:
        message = f"the checkout has uncommitted changes: {', '.join(told.dirty_paths)}"
        yield Invalidation(Code.DIRTY_WORKING_TREE, message)
    first, last = told.checkout_commit, told.checkout_commit_last
    if first is not None and last is not None and first != last:
        message = f"the checkout was at {first} before the run and at {last} after it"
        yield Invalidation(Code.DIRTY_WORKING_TREE, message)
    if missing := missing_provenance(told):
        yield Invalidation(Code.MISSING_REQUIRED, f"unknown provenance: {', '.join(missing)}")


def revision_problem(revision: str | None, path: str | None) -> str | None:
    """Say how a revision is no commit, or contradicts the snapshot folder of the model's path."""
    if revision is None:
        return None
    if not _REVISION.fullmatch(revision):
        return f"the revision is {revision!r}: expected 40 hexadecimal digits of a commit"
    found = _SNAPSHOT.search(path or "")
    if found and found[1] != revision:
        return f"the model's path holds snapshot {found[1]}, the revision is {revision}"
    return None


def repository_problem(repository: str | None, path: str | None) -> str | None:
    """Say how a repository contradicts the model's path."""
    found = _REPOSITORY.search(path or "")
    if repository is None or not found or f"{found[1]}/{found[2]}" == repository:
        return None
    return f"the model's path is of {found[1]}/{found[2]}, the repository is {repository}"


def missing_provenance(told: Provenance) -> list[str]:
    """Return the names of what is unknown."""
    return [one.name for one in fields(told) if getattr(told, one.name) is None]


def _servers(record: CampaignRecord) -> Iterator[Invalidation]:
    for arm in record.arms:
        if arm.failure is not None:
            yield Invalidation(Code.SERVER_FAILED, arm.failure, arm.arm_id)
        if arm.ready:
            yield from _gpu(arm, record.provenance.gpu_uuid)
            yield from _configuration(arm)
    told = {arm.arm_id for arm in record.arms if arm.ready or arm.failure is not None}
    for arm_id in dict.fromkeys(one.arm_id for one in record.observations):
        if arm_id not in told:
            message = "requests were made, and there are no facts of a server that served them"
            yield Invalidation(Code.GPU_UNPROVEN, message, arm_id)
            yield Invalidation(Code.CONFIG_MISSING, message, arm_id)


def _gpu(arm: ArmFacts, expected: str | None) -> Iterator[Invalidation]:
    if not arm.gpu_uuids or expected is None:
        message = f"the server reports no GPU UUID to compare with {expected}"
        yield Invalidation(Code.GPU_UNPROVEN, message, arm.arm_id)
    elif {one.lower() for one in arm.gpu_uuids} != {expected.lower()}:
        message = f"the server reports {', '.join(arm.gpu_uuids)}, the campaign's is {expected}"
        yield Invalidation(Code.GPU_MISMATCH, message, arm.arm_id)
    if arm.placement is not None and arm.placement.verdict == "contradicted":
        message = f"the driver shows the server elsewhere: {'; '.join(arm.placement.reasons)}"
        yield Invalidation(Code.GPU_MISMATCH, message, arm.arm_id)


def _configuration(arm: ArmFacts) -> Iterator[Invalidation]:
    if arm.instrumentation is not None:
        yield Invalidation(Code.INSTRUMENTATION_UNAVAILABLE, arm.instrumentation, arm.arm_id)
    elif arm.configuration is None:
        message = "the server reports no resolved configuration"
        yield Invalidation(Code.CONFIG_MISSING, message, arm.arm_id)
    else:
        for message in resolved.problems(arm.configuration):
            yield Invalidation(Code.CONFIG_MISSING_FIELD, message, arm.arm_id)


def _across_arms(record: CampaignRecord) -> Iterator[Invalidation]:
    for message in resolved.unexpected_b3(record.arms):
        yield Invalidation(Code.B3_RESOLUTION_UNEXPECTED, message, "B3")
    for path in (resolved.EXPERT_QUANT, *resolved.HELD_CONSTANT):
        if found := resolved.differences(record.arms, path):
            told = ", ".join(f"{arm} {value!r}" for arm, value in found.items())
            quant = path == resolved.EXPERT_QUANT
            code = Code.EXPERT_QUANT_MISMATCH if quant else Code.HELD_CONSTANT_MISMATCH
            yield Invalidation(code, f"{path} differs between arms: {told}")


def _coverage(record: CampaignRecord) -> Iterator[Invalidation]:
    for gap in coverage.gaps(record):
        yield Invalidation(Code.GENERATION_FAILED, gap.message, gap.arm_id, gap.class_id)


def _requests(record: CampaignRecord) -> Iterator[Invalidation]:
    for one in record.observations:
        for code, message in _request(one):
            yield Invalidation(code, message, one.arm_id, one.class_id, one.execution_index)


def _request(one: Observation) -> Iterator[tuple[Code, str]]:
    if one.failed:
        yield Code.GENERATION_FAILED, one.error or "the request failed"
        return
    shape = CLASSES[one.class_id]
    if one.prompt_tokens is None or not shape.fits(one.prompt_tokens):
        yield (
            Code.PROMPT_SHAPE_VIOLATION,
            f"the prompt has {one.prompt_tokens} tokens: {one.class_id} is {shape.prompt}",
        )
    if not one.completion_tokens == one.requested_tokens == shape.output_tokens:
        yield (
            Code.COMPLETION_LENGTH_MISMATCH,
            f"{one.completion_tokens} completion tokens, {one.requested_tokens} were requested: "
            f"{one.class_id} is {shape.output_tokens}",
        )
    if one.measured and one.prefill != "ok":
        code = PREFILL_CODES.get(one.prefill, Code.PREFILL_UNAVAILABLE)
        yield code, one.prefill_reason or f"the prefill is {one.prefill}"


_RULES: tuple[Callable[[CampaignRecord], Iterator[Invalidation]], ...] = (
    _bandwidth,
    _provenance,
    _servers,
    _across_arms,
    _coverage,
    _requests,
)
