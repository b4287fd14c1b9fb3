"""The command: its one line, its signals, and what it refuses."""

from __future__ import annotations

import importlib
import signal
import socket
import time
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.tensors import DType
from pytest_meshnet.reference.seeded_weights import SMALL
from pytest_meshnet.reference.serve import serve
from pytest_meshnet.reference.tiny_llama import served_shard
from pytest_meshnet.tests.reference.running import LIMIT_SECONDS, Client, server_process
from pytest_meshnet.tests.reference.works import random_tokens


def test_it_serves_what_its_options_say(tmp_path: Path) -> None:
    port_file = tmp_path / "port"
    options = ["--model", "tiny-llama-small", "--range", "1:2", "--boundary", "float32"]
    options += ["--max-sessions", "3", "--max-context", "77", "--port-file", str(port_file)]
    with server_process(*options) as (_, address), Client(address) as client:
        assert port_file.read_text() == address
        report = client.stub.GetCapability(pb.CapabilityRequest(schema_version=1))
    assert report.fingerprint == served_shard(SMALL, 1, 2, DType.FLOAT32).fingerprint
    assert (report.shard_range.start_layer, report.shard_range.end_layer) == (1, 2)
    assert (report.max_concurrent_sessions, report.max_context_tokens) == (3, 77)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_within_a_second_even_with_stalled_work(number: signal.Signals) -> None:
    stall = {"MESHNET_TEST_STALL_MS": "60000"}
    with server_process(environment=stall) as (process, address), Client(address) as client:
        session = client.session()
        session.send(session.seam.chunk([random_tokens(4)]))
        client.wait_for(lambda report: report.batch_occupancy == 1)
        before = time.monotonic()
        process.send_signal(number)
        assert process.wait(LIMIT_SECONDS) == 0
        assert time.monotonic() - before < 1.5  # A second, and the machine's own noise.
        with pytest.raises(grpc.RpcError) as ended:
            session.receive()
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
        assert ended.value.details() == "the worker is stopping"
        session.half_close()
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_sigusr1_drains_new_sessions_are_refused_and_running_ones_go_on() -> None:
    with server_process() as (process, address), Client(address) as client:
        running = client.session("running")
        process.send_signal(signal.SIGUSR1)
        client.wait_for(lambda report: report.state == pb.SERVING_STATE_DRAINING)
        refused = client.session("refused")
        assert refused.seam.ended is not None
        assert refused.seam.ended.error.code == pb.ERROR_CODE_RESOURCE_EXHAUSTED
        assert running.result(running.seam.chunk([random_tokens(4)])).applied
        running.half_close()
        refused.half_close()


def test_logs_hold_one_line_and_no_payload() -> None:
    with server_process() as (process, address):
        with Client(address) as client:
            session = client.session("secret-session")
            session.result(session.seam.chunk([random_tokens(4)]))
            session.result(session.seam.chunk([random_tokens(4)], fresh=True, tokens=999))
            session.half_close()
            list(session.call)
        process.terminate()
        process.wait(LIMIT_SECONDS)
        assert process.stderr is not None
        assert process.stderr.read() == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--listen", "localhost"], "is not HOST:PORT: write"),
        (["--listen", "127.0.0.1:70000"], "is not HOST:PORT: write"),
        (["--range", "4"], "is not A:B with A < B: write"),
        (["--range", "4:4"], "is not A:B with A < B: write"),
        (["--range", "4:9"], "tiny-llama has 8 layers, --range asks for 4:9: use at most 0:8"),
        (["--model", "llama-70b"], "'tiny-llama', 'tiny-llama-small'"),
        (["--mutant", "nonesuch"], "no mutant or variant is named 'nonesuch'"),
    ],
)
def test_wrong_options_are_refused_with_what_to_write_instead(
    options: list[str], message: str, tmp_path: Path
) -> None:
    # Should it serve after all, it ends at once, unable to write this.
    unwritable = ["--port-file", str(tmp_path / "missing" / "port")]
    result = CliRunner().invoke(serve, [*options, *unwritable])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def test_a_stall_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESHNET_TEST_STALL_MS", "1s")
    result = CliRunner().invoke(serve, ["--listen", "127.0.0.1:0"])
    assert result.exit_code == 2
    assert "MESHNET_TEST_STALL_MS is '1s', expected whole milliseconds" in result.output


def test_a_port_that_is_taken_is_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = CliRunner().invoke(serve, ["--listen", f"127.0.0.1:{port}"])
    assert result.exit_code == 1
    assert result.output == (
        f"Error: cannot listen on 127.0.0.1:{port}: pass a free --listen HOST:PORT\n"
    )


def test_it_keeps_its_heap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What that is worth is measured in the tests of the heap."""
    module, kept = importlib.import_module("pytest_meshnet.reference.serve"), []
    monkeypatch.setattr(module, "keep_heap", lambda: kept.append(True))
    options = ["--listen", "127.0.0.1:0", "--port-file", str(tmp_path / "missing" / "port")]
    CliRunner().invoke(serve, options)
    assert kept == [True]


def test_a_port_file_that_cannot_be_written_ends_it(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "port"
    options = ["--listen", "127.0.0.1:0", "--port-file", str(path)]
    result = CliRunner().invoke(serve, options)
    assert result.exit_code == 1
    assert result.output == (
        f"Error: cannot write {path} (No such file or directory): pass another --port-file\n"
    )
