"""The plan of a run as a person reads it: every command, and everything that refuses it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from pytest_meshnet.campaign.plan.arms import SERVER_ENVIRONMENT, Runtime
from pytest_meshnet.campaign.plan.refusals import Preparation

PORT = 0
"""Stands in a plan for the port that a server gets when it is started."""


def as_text(prepared: Preparation) -> Iterator[str]:
    """Yield the lines of the plan and its refusals."""
    orders, told = prepared.orders, prepared.provenance
    arms, classes = orders.traversal
    requests = len(arms) * len(classes) * (orders.warmups + orders.repetitions)
    kind = "developer run, never canonical" if orders.developer else "canonical run"
    synthetic = ", synthetic" if prepared.synthetic else ""
    yield f"{kind}{synthetic}: {orders.session_id} into {orders.folder}"
    yield f"  model     {told.model_repository} at {told.model_revision}, {told.model_path}"
    yield f"  GPU       {prepared.machine.device or 'unresolved'}"
    yield f"  runtime   {told.runtime_version or 'unknown'}"
    yield f"  checkout  {told.checkout_commit or 'unknown'}"
    yield (
        f"  protocol  {len(arms)} arms x {len(classes)} classes x ({orders.warmups} + "
        f"{orders.repetitions}) = {requests} requests"
    )
    yield from _commands(prepared)
    if prepared.refusals:
        yield f"\n{len(prepared.refusals)} refusals"
        yield from (f"  refused: {one}" for one in prepared.refusals)


def _commands(prepared: Preparation) -> Iterator[str]:
    orders, device = prepared.orders, prepared.machine.device
    gpu = (device and device.uuid) or "UNRESOLVED-GPU"
    runtime = Runtime(orders.runtime, orders.model or "MODEL", orders.settings)
    yield "\ncommands"
    if orders.bench_bw:
        yield f"  {shlex.join(runtime.bandwidth(gpu))}"
    environment = " ".join(f"{name}={value}" for name, value in SERVER_ENVIRONMENT.items())
    arms, _ = orders.traversal
    for arm in arms:
        yield f"  {arm.arm_id}: {environment} {shlex.join(runtime.serve(arm, gpu, PORT))}"
