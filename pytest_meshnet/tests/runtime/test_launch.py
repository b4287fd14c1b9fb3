"""Starting a runtime, refusing what does not start, telling a crash from an end from outside."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.runtime.descriptor import Descriptor, Launch, ShardSpec, load
from pytest_meshnet.runtime.errors import Nonconformance, Refusal, TargetLost
from pytest_meshnet.runtime.launch import fill
from pytest_meshnet.runtime.ports import HOST, free_port
from pytest_meshnet.runtime.target import Target, choose_shard

ASK = pb.HealthRequest(schema_version=pb.SCHEMA_VERSION_1)


def reference(**changes: object) -> Descriptor:
    descriptor = load("reference")
    shard = replace(descriptor.shards[0], **changes)  # type: ignore[arg-type]
    return replace(descriptor, shards=(shard,), time=replace(descriptor.time, start=20.0))


def target_of(descriptor: Descriptor, place: int = 0) -> Target:
    return Target(descriptor, choose_shard(descriptor, None), place=place)


@pytest.fixture
def running() -> Iterator[Target]:
    target = target_of(reference())
    target.connect()
    yield target
    target.close()


def python(code: str) -> Launch:
    return Launch(("{python}", "-c", code))


def gone(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return False
    return True


def test_a_started_runtime_serves_and_leaves_no_process_behind() -> None:
    target = target_of(reference())
    target.connect()
    pid = target.pid
    assert pid is not None
    assert target.transport.health(ASK, 5).state == pb.SERVING_STATE_SERVING
    assert target.report.shard_range.start_layer == 2
    target.close()
    assert gone(pid)


def test_a_command_that_ends_at_once_is_refused_with_its_last_lines() -> None:
    broken = reference(launch=python("print('no weights here'); raise SystemExit(3)"))
    with pytest.raises(Refusal) as refusal:
        target_of(broken).connect()
    assert "ended with 3 before it served" in refusal.value.message
    assert "no weights here" in refusal.value.message


def test_a_program_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(Refusal, match="no-such-program"):
        target_of(reference(launch=Launch(("no-such-program",)))).connect()


def test_a_runtime_that_never_serves_is_refused_and_ended() -> None:
    descriptor = reference(
        launch=python("print('thinking', flush=True); import signal; signal.pause()")
    )
    descriptor = replace(descriptor, time=replace(descriptor.time, start=2.0, stop=1.0))
    with pytest.raises(Refusal, match=r"did not serve within 2 s(.|\n)*thinking"):
        target_of(descriptor).connect()


def test_an_endpoint_where_nobody_listens_is_refused_and_never_skipped() -> None:
    # faults.md 183
    descriptor = reference(launch=None, endpoints=(f"{HOST}:{free_port()}",))
    with pytest.raises(Refusal, match="does not answer GetCapability"):
        target_of(descriptor).connect()


def test_an_unknown_word_in_a_command_is_refused() -> None:
    with pytest.raises(Refusal, match="'gpu'"):
        fill(("{python}", "{gpu}"), {"python": "p"})


def test_a_shard_that_serves_another_range_is_refused() -> None:
    with pytest.raises(Refusal, match="serves layers 2:6, the descriptor says 2:5"):
        target_of(reference(end_layer=5)).connect()


def test_more_processes_than_endpoints_are_refused() -> None:
    descriptor = reference(launch=None, endpoints=(f"{HOST}:1",))
    with pytest.raises(Refusal, match="one endpoint each"):
        target_of(descriptor, place=1).connect()


def test_several_shards_need_a_name() -> None:
    descriptor = load("reference")
    shard = descriptor.shards[0]
    two = replace(descriptor, shards=(shard, replace(shard, name="tail")))
    with pytest.raises(Refusal, match=r"several Shards \(middle, tail\)"):
        choose_shard(two, None)
    assert choose_shard(two, "tail").name == "tail"
    with pytest.raises(Refusal, match="no Shard 'head'"):
        choose_shard(two, "head")


def test_an_end_from_outside_is_a_loss_and_not_a_finding(running: Target) -> None:
    assert running.pid is not None
    assert running.loss("an answer") is None
    os.kill(running.pid, signal.SIGKILL)
    with pytest.raises(Exception, match="UNAVAILABLE"):
        running.transport.health(ASK, 5)
    lost = running.loss("an answer")
    assert isinstance(lost, TargetLost)
    assert "signal 9" in lost.reason
    with pytest.raises(TargetLost):
        running.ensure_alive()


def crashing() -> ShardSpec:
    """The reference worker, made to end by itself with code 7 on SIGUSR2."""
    code = (
        "import signal, os, sys; signal.signal(signal.SIGUSR2, lambda *_: os._exit(7)); "
        "from pytest_meshnet.reference.serve import serve; "
        "serve(['--listen', sys.argv[1], '--range', '2:6'])"
    )
    return replace(load("reference").shards[0], launch=Launch(("{python}", "-c", code, "{listen}")))


def test_a_crash_is_a_finding_and_the_runtime_is_started_again() -> None:
    descriptor = replace(load("reference"), shards=(crashing(),))
    target = target_of(descriptor)
    target.connect()
    try:
        first = target.pid
        assert first is not None
        os.kill(first, signal.SIGUSR2)
        with pytest.raises(Exception, match="UNAVAILABLE"):
            target.transport.health(ASK, 5)
        finding = target.loss("an answer")
        assert isinstance(finding, Nonconformance)
        assert "ended with 7" in finding.actual
        target.ensure_alive()
        assert target.pid != first
        assert target.transport.health(ASK, 5).state == pb.SERVING_STATE_SERVING
    finally:
        target.close()


def test_a_crash_that_no_test_saw_is_a_finding_of_the_next_one() -> None:
    target = target_of(replace(load("reference"), shards=(crashing(),)))
    target.connect()
    try:
        assert target.pid is not None
        process = os.pidfd_open(target.pid)
        os.kill(target.pid, signal.SIGUSR2)
        ended, _, _ = select.select([process], [], [], 10)
        os.close(process)
        assert ended, "the runtime did not end"
        assert "ended with 7" in target.unseen_crash()
        with pytest.raises(Nonconformance, match="ended with 7"):
            target.ensure_alive()
        target.ensure_alive()
        assert target.unseen_crash() == ""
        assert target.transport.health(ASK, 5).state == pb.SERVING_STATE_SERVING
    finally:
        target.close()


def test_a_guarded_command_dies_with_the_process_that_started_it() -> None:
    # faults.md 130
    inner = "import os, signal; print(os.getpid(), flush=True); signal.pause()"
    outer = (
        "import os, subprocess, sys; subprocess.Popen([sys.executable, '-m', "
        "'pytest_meshnet.runtime.guard', str(os.getpid()), sys.executable, '-c', "
        f"{inner!r}]).wait()"
    )
    with subprocess.Popen([sys.executable, "-c", outer], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        descriptor = os.pidfd_open(child)
        parent.kill()
        parent.wait()
        ended, _, _ = select.select([descriptor], [], [], 10)
        os.close(descriptor)
    assert ended, "the guarded process outlived its parent"


def test_a_free_port_can_be_bound() -> None:
    with socket.socket() as probe:
        probe.bind((HOST, free_port()))
