"""The checks from the descriptor to a runtime that answers; without them there is none to judge."""

from __future__ import annotations

import secrets
import time

from pytest_meshnet.authoring.doctor.patient import Patient, Problem
from pytest_meshnet.options import DEFAULT_SEED
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.runtime.descriptor import load
from pytest_meshnet.runtime.errors import Refusal
from pytest_meshnet.runtime.grpc_transport import GrpcTransport
from pytest_meshnet.runtime.launch import RunningShard
from pytest_meshnet.runtime.shard import ShardUnderTest
from pytest_meshnet.runtime.target import Target, choose_shard
from pytest_meshnet.runtime.transport import UnaryFailed

_LOOK = 0.5  # seconds of one try to connect, before the process is looked at again


def descriptor(patient: Patient) -> str:
    """The descriptor can be read, and names one Shard to examine."""
    try:
        patient.descriptor = load(patient.name)
        patient.spec = choose_shard(patient.descriptor, patient.shard_name)
    except Refusal as refusal:
        raise Problem(
            refusal.message,
            "correct that place; `pytest-meshnet init HOST:PORT` writes a descriptor to start from",
        ) from None
    spec = patient.spec
    way = "started by us" if spec.launch else "at " + ", ".join(spec.endpoints)
    return f"{patient.descriptor.name}, layers {spec.start_layer}:{spec.end_layer}, {way}"


def connect(patient: Patient) -> str:
    """Something at the address speaks gRPC; a start command is started first."""
    launch, limits = patient.spec.launch, patient.descriptor.time
    if launch is None:
        address, limit = patient.spec.endpoints[0], limits.answer
    else:
        patient.running = RunningShard(launch, patient.descriptor.folder, {})
        address, limit = patient.running.address, limits.start
    patient.transport = GrpcTransport(address)
    _reach(patient, address, time.monotonic() + limit)
    return f"{address} speaks gRPC"


_START = (
    "correct shards.start: program and arguments, no shell; {listen} is replaced by HOST:PORT, and "
    "relative paths count from the folder of the descriptor"
)


def _reach(patient: Patient, address: str, until: float) -> None:
    """Wait until any call is answered, be it with an error of the runtime."""
    request = pb.HealthRequest(schema_version=pb.SCHEMA_VERSION_1)
    while True:
        left = until - time.monotonic()
        try:
            patient.transport.health(request, max(0.05, min(left, _LOOK)), wait_for_ready=True)
        except UnaryFailed as failed:
            if failed.code not in ("UNAVAILABLE", "DEADLINE_EXCEEDED"):
                return
            why = str(failed)
        else:
            return
        running = patient.running
        if running is not None and running.exit_code is not None:
            raise Problem(
                f"{running.command[0]} ended with {running.exit_code} before it listened", _START
            )
        if left <= 0:
            where = _ENDPOINT if running is None else _LISTEN + patient.log()
            raise Problem(f"nothing answers at {address} ({why})", where)


_ENDPOINT = "start the runtime, without TLS, and check shards.endpoint"
_LISTEN = (
    "the process runs, but not on that address: it must take HOST:PORT from {listen} and serve"
)


def health(patient: Patient) -> str:
    """Health says SERVING, in time where the runtime was started by us."""
    request = pb.HealthRequest(schema_version=pb.SCHEMA_VERSION_1)
    try:
        report = patient.transport.health(request, patient.descriptor.time.answer)
        if patient.running is not None and report.state != pb.SERVING_STATE_SERVING:
            patient.running.wait_until_serving(patient.transport, patient.descriptor.time.start)
            report = patient.transport.health(request, patient.descriptor.time.answer)
    except UnaryFailed as failed:
        raise Problem(
            f"Health ends with {failed}",
            "implement Health of meshnet.shard.v1.ShardRuntime: state SERVING is enough to begin",
        ) from None
    if report.state != pb.SERVING_STATE_SERVING:
        state = pb.ServingState.Name(report.state)
        raise Problem(f"Health says {state}", "answer SERVING_STATE_SERVING (1) once you can serve")
    return f"{report.active_sessions} active session(s)"


def capability(patient: Patient) -> str:
    """GetCapability answers, with the range of the descriptor."""
    target = Target(patient.descriptor, patient.spec, in_process=lambda: patient.transport)
    try:
        report = patient.transport.capability(
            pb.CapabilityRequest(schema_version=pb.SCHEMA_VERSION_1),
            patient.descriptor.time.answer,
        )
    except UnaryFailed as failed:
        raise Problem(
            f"GetCapability ends with {failed}", "implement GetCapability: see the next check"
        ) from None
    target.connect()
    patient.shard = ShardUnderTest(target, f"doctor-{secrets.token_hex(4)}", DEFAULT_SEED)
    return f"backend {report.backend!r}, device {report.device!r}"
