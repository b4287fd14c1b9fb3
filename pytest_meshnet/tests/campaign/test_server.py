"""A server of an arm: bounded in its start, gone with all its children, and missed when it dies."""

import os
import signal
import sys
from pathlib import Path

import pytest

from pytest_meshnet.campaign.client.http import Unanswered, get_json
from pytest_meshnet.campaign.plan.arms import ARMS, SERVER_ENVIRONMENT, Runtime, ServeSettings
from pytest_meshnet.campaign.runner.arm import Task, not_started, run_arm
from pytest_meshnet.campaign.runner.server import Server, ServerFailed
from pytest_meshnet.campaign.simulated.rig import RUNTIME, smoke_manifest
from pytest_meshnet.campaign.workloads.manifest import load
from pytest_meshnet.runtime.ports import free_port
from pytest_meshnet.tests.campaign.whole import UUID

HEALTH = """
import json, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        data = sys.argv[2].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
ThreadingHTTPServer.server_bind = TCPServer.server_bind
print("loading", flush=True)
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def python(text, *arguments):
    return [sys.executable, "-c", text, *map(str, arguments)]


def answers(server):
    try:
        get_json(server.origin, "/health")
    except Unanswered:
        return False
    return True


def start(tmp_path, command, limit):
    with Server(command, {}, free_port(), tmp_path / "log") as server:
        server.wait_until_serving(limit)


def test_a_server_that_ends_before_it_serves_is_failed_with_the_end_of_its_log(tmp_path):
    command = python("print('no kernel image', flush=True); raise SystemExit(7)")
    with pytest.raises(ServerFailed, match=r"the server ended with 7\n  \| no kernel image"):
        start(tmp_path, command, 30)


def test_a_server_that_never_answers_is_given_up_in_time(tmp_path):
    command = python("import threading; threading.Event().wait()")
    with pytest.raises(ServerFailed, match=r"not serving after 0.3 s \(no answer\)"):
        start(tmp_path, command, 0.3)


@pytest.mark.parametrize(
    ("health", "message"),
    [
        ('{"status": "loading", "maintenance": "loading"}', "not serving after 0.3 s .*loading"),
        ('{"status": "error", "detail": "OOM"}', "reports an error.*OOM"),
        ('["serving"]', "not serving after 0.3 s .*serving"),
    ],
)
def test_only_a_server_that_says_so_serves(tmp_path, health, message):
    port = free_port()
    with Server(python(HEALTH, port, health), {}, port, tmp_path / "log") as server:
        while not answers(server):
            assert server.death() is None, "expected a process that will answer"
        with pytest.raises(ServerFailed, match=message):
            server.wait_until_serving(0.3)
    assert "loading" in (tmp_path / "log").read_text()


def test_a_command_that_does_not_exist_is_a_failed_server(tmp_path):
    with pytest.raises(ServerFailed, match="ended with 127"):
        start(tmp_path, [str(tmp_path / "absent")], 30)


FAMILY = """
import pathlib, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import threading; threading.Event().wait()"])
pathlib.Path(sys.argv[1]).write_text(str(child.pid))
child.wait()
"""


def test_a_stopped_server_leaves_no_child(tmp_path):
    """A frontend that is ended alone would leave workers that hold the GPU."""
    told = tmp_path / "child"
    server = Server(python(FAMILY, told), {}, free_port(), tmp_path / "log")
    while not (told.exists() and told.read_text()):
        with pytest.raises(ServerFailed):
            server.wait_until_serving(0.2)
    server.stop()
    child = int(told.read_text())
    assert server.death() is not None
    assert not _runs(child)


def _runs(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_server_that_dies_ends_its_arm_and_says_so(tmp_path):
    """It is killed after its first answer; nothing is asked of it again."""
    runtime, port = Runtime(RUNTIME, "/m", ServeSettings()), free_port()
    task = Task(
        arm=ARMS["B1"],
        workloads=(load(smoke_manifest()).workloads["W4"],),
        model="m",
        warmups=1,
        repetitions=2,
        first_index=0,
        stamp={"session_id": "session-1", "session_number": 1},
        start_s=60,
        request_s=60,
    )
    command = runtime.serve(task.arm, UUID, port)
    kept = []
    with Server(command, SERVER_ENVIRONMENT, port, tmp_path / "log") as server:

        def keep(record):
            kept.append(record)
            os.kill(server.pid, signal.SIGKILL)
            os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOWAIT)

        facts = run_arm(task, not_started(task, command, "log"), server, keep)
    assert facts.ready is True
    assert facts.failure.startswith("the server ended with -9")
    assert [(one["failed"], one["label"]) for one in kept] == [(False, "MEASURED")]
