"""One arm: its server, what the server proves of itself, and every request of its blocks."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pytest_meshnet.campaign.attribution.freetoken import problem_of
from pytest_meshnet.campaign.attribution.source import FreeToken, PrefillSource
from pytest_meshnet.campaign.client.figures import figures
from pytest_meshnet.campaign.client.http import Unanswered, get_json
from pytest_meshnet.campaign.client.stream import GenerationFailed, generate
from pytest_meshnet.campaign.judging.facts import ArmFacts
from pytest_meshnet.campaign.plan.arms import SERVER_ENVIRONMENT, Arm
from pytest_meshnet.campaign.runner.server import Server, ServerFailed
from pytest_meshnet.campaign.workloads.manifest import Workload

REPETITION_SCHEMA = "inferswarm.phase0.repetition/1"

MEASURED = "MEASURED"
"""Labels an observation; no label of a part promotes the campaign that it is a part of."""

Record = dict[str, Any]
Keep = Callable[[Record], None]


@dataclass(frozen=True, slots=True)
class Task:
    """One arm with the workloads that it serves, and where the run stands.

    `first_index` is the execution index of its first request; `stamp` are the fields that every
    record of the run begins with.
    """

    arm: Arm
    workloads: tuple[Workload, ...]
    model: str
    warmups: int
    repetitions: int
    first_index: int
    stamp: Mapping[str, Any]
    start_s: float
    request_s: float


def not_started(task: Task, command: list[str], log: str) -> ArmFacts:
    """Return what is known of an arm before its server runs."""
    return ArmFacts(
        arm_id=task.arm.arm_id,
        command=tuple(command),
        environment=dict(SERVER_ENVIRONMENT),
        ready=False,
        failure=None,
        instrumentation=None,
        configuration=None,
        gpu_uuids=None,
        placement=None,
        log=log,
    )


def run_arm(task: Task, facts: ArmFacts, server: Server, keep: Keep) -> ArmFacts:
    """Wait for the server, read what it says of itself, and make every request.

    Each finished request goes to `keep` at once. A server that dies ends the arm; a request that
    fails is kept as failed, and the next one is made.
    """
    try:
        server.wait_until_serving(task.start_s)
    except ServerFailed as failed:
        return replace(facts, failure=str(failed))
    facts = proven(server.origin, replace(facts, ready=True))
    source = FreeToken(server.origin)
    for request in _order(task):
        keep(_made(task, request, server.origin, source))
        if (death := server.death()) is not None:
            return replace(facts, failure=death)
    return facts


@dataclass(frozen=True, slots=True)
class _Request:
    """The `number`-th request of a block, warm-ups included, and its place in the whole run."""

    workload: Workload
    number: int
    index: int


def _order(task: Task) -> list[_Request]:
    every = [
        (workload, number)
        for workload in task.workloads
        for number in range(task.warmups + task.repetitions)
    ]
    return [_Request(*one, task.first_index + place) for place, one in enumerate(every)]


def proven(origin: str, facts: ArmFacts) -> ArmFacts:
    """Read the GPU and the resolved configuration back from the server itself."""
    facts = replace(facts, gpu_uuids=_gpu_uuids(_stats(origin)))
    try:
        document = get_json(origin, "/v1/instrumentation?limit=0")
    except Unanswered as error:
        return replace(facts, instrumentation=str(error))
    if (problem := problem_of(document)) is not None:
        return replace(facts, instrumentation=problem)
    configuration = document.get("runtime_config")
    return replace(facts, configuration=configuration if isinstance(configuration, dict) else None)


def _stats(origin: str) -> Mapping[str, Any]:
    try:
        told = get_json(origin, "/v1/stats")
    except Unanswered:
        return {}
    return told if isinstance(told, Mapping) else {}


def _gpu_uuids(stats: Mapping[str, Any]) -> tuple[str, ...] | None:
    listed = stats.get("gpus")
    if not isinstance(listed, list):
        return None
    uuids = [one.get("uuid") for one in listed if isinstance(one, Mapping)]
    known = tuple(one for one in uuids if isinstance(one, str) and one)
    return known if known and len(known) == len(listed) else None


def _made(task: Task, request: _Request, origin: str, source: PrefillSource) -> Record:
    """Make one request and return its record, whatever came of it."""
    workload, measured = request.workload, request.number >= task.warmups
    record: Record = {
        "schema": REPETITION_SCHEMA,
        **task.stamp,
        "execution_index": request.index,
        "arm_id": task.arm.arm_id,
        "class_id": workload.class_id,
        "phase": "measured" if measured else "warmup",
        "measured": measured,
        "repetition": request.number - task.warmups if measured else request.number,
        "started_at_unix": time.time(),
        "failed": False,
        "error": None,
        "prompt_sha256": workload.sha256,
        "sampling": dict(workload.sampling),
        "ignore_eos": workload.ignore_eos,
        "batch_size": 1,
        "requested_max_tokens": workload.output_tokens,
    }
    mark = source.before()
    try:
        reply = generate(origin, workload.body(task.model), task.request_s)
        record |= figures(reply, workload.output_tokens)
    except GenerationFailed as failed:
        return record | {"failed": True, "error": str(failed), "finished_at_unix": time.time()}
    attribution = source.after(reply, mark)
    stats = _stats(origin)
    return record | {
        "label": MEASURED,
        "finished_at_unix": time.time(),
        "request_uid": attribution.request_uid,
        "prefill": attribution.document(),
        "prefill_status": attribution.status(),
        "vram_bytes": stats.get("vram_bytes"),
        "kv": stats.get("kv"),
    }
