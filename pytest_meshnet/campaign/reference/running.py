"""One run of the reference: every workload once, greedily, with its whole output."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any

from pytest_meshnet.campaign.client.figures import figures
from pytest_meshnet.campaign.client.stream import GenerationFailed, generate
from pytest_meshnet.campaign.errors import CampaignRefused
from pytest_meshnet.campaign.judging.configuration import BACKEND, NVFP4, look_up
from pytest_meshnet.campaign.judging.facts import ArmFacts
from pytest_meshnet.campaign.plan.arms import SERVER_ENVIRONMENT, Runtime
from pytest_meshnet.campaign.plan.orders import Orders
from pytest_meshnet.campaign.plan.refusals import Preparation
from pytest_meshnet.campaign.runner.arm import proven
from pytest_meshnet.campaign.runner.folder import RunFolder
from pytest_meshnet.campaign.runner.server import Server
from pytest_meshnet.campaign.workloads.manifest import Workload
from pytest_meshnet.evidence.strict import encode
from pytest_meshnet.runtime.ports import free_port

SCHEMA = "inferswarm.phase0.reference/1"
ARM = "CORRECTNESS_REFERENCE"
DOCUMENT = "reference.json"

GREEDY = {"temperature": 0.0}
"""In every request body: a value of a request beats any default of a server."""

_CPU_LAYERS = "moe.cpu_layers_resolved"


@dataclass(frozen=True, slots=True)
class Wish:
    """What the reference fixes by itself: the number of expert slots and the NVFP4 backend."""

    slots: int | str
    nvfp4: str


def where(orders: Orders) -> Orders:
    """Return the orders with the folder of references, which no campaign shares."""
    return replace(orders, out=orders.out / "references")


def run_reference(prepared: Preparation, wish: Wish) -> tuple[RunFolder, tuple[str, ...]]:
    """Run the reference once; return its folder and what stands against it, line by line.

    Raises CampaignRefused before anything starts, ServerFailed when the server did not serve.
    """
    orders, device = prepared.orders, prepared.machine.device
    if prepared.refusals or prepared.manifest is None or device is None:
        raise CampaignRefused("; ".join(prepared.refusals) or "nothing is prepared")
    runtime, port = Runtime(orders.runtime, orders.model or "", orders.settings), free_port()
    command = runtime.reference(device.uuid or "", port, wish.slots, wish.nvfp4)
    folder = RunFolder(orders.folder)
    folder.make()
    log = folder.logs / f"{ARM}.log"
    facts = ArmFacts(
        ARM, tuple(command), dict(SERVER_ENVIRONMENT), True, None, None, None, None, None, log.name
    )
    with Server(command, SERVER_ENVIRONMENT, port, log) as server:
        server.wait_until_serving(orders.start_s)
        facts = proven(server.origin, facts)
        outputs = [
            _output(one, orders, server.origin) for one in prepared.manifest.workloads.values()
        ]
    against = (*_against(facts, wish, device.uuid or ""), *_failures(outputs))
    document = {
        "schema": SCHEMA,
        "session_id": orders.session_id,
        "against": list(against),
        "server": encode(facts),
        "provenance": encode(prepared.provenance),
        "outputs": outputs,
    }
    folder.write(DOCUMENT, (json.dumps(document, indent=2, allow_nan=False) + "\n").encode())
    return folder, against


def _output(workload: Workload, orders: Orders, origin: str) -> dict[str, Any]:
    body = workload.body(orders.repository or orders.model or "") | GREEDY
    told: dict[str, Any] = {"class_id": workload.class_id, "prompt_sha256": workload.sha256}
    try:
        reply = generate(origin, body, orders.request_s)
        seen = figures(reply, workload.output_tokens)
    except GenerationFailed as failed:
        return told | {"failed": str(failed), "output": None, "output_sha256": None}
    return told | {
        "failed": None,
        "output": reply.text,
        "output_sha256": hashlib.sha256(reply.text.encode()).hexdigest(),
        "completion_tokens": seen["completion_tokens"],
    }


def _against(facts: ArmFacts, wish: Wish, gpu_uuid: str) -> list[str]:
    """What the server resolved to otherwise than it was told; a flag is no proof of itself."""
    if {one.lower() for one in facts.gpu_uuids or ()} != {gpu_uuid.lower()}:
        return [f"the server reports the GPUs {facts.gpu_uuids}, the reference's is {gpu_uuid}"]
    if facts.configuration is None:
        return [facts.instrumentation or "the server reports no resolved configuration"]
    expected = {BACKEND: "offload", NVFP4: wish.nvfp4, "cache.resolved_slots": wish.slots}
    found = {path: look_up(facts.configuration, path) for path in (*expected, _CPU_LAYERS)}
    lines = [
        f"{path} is {found[path]!r}: expected {value!r}"
        for path, value in expected.items()
        if found[path] != value
    ]
    if found[_CPU_LAYERS] != []:
        lines.append(f"{_CPU_LAYERS} is {found[_CPU_LAYERS]!r}: expected none")
    return lines


def _failures(outputs: list[dict[str, Any]]) -> list[str]:
    return [f"{one['class_id']}: {one['failed']}" for one in outputs if one["failed"]]
