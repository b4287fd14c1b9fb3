"""The ten checks of the doctor: an honest runtime passes each, a bent one is told what is wrong."""

from __future__ import annotations

import math
import socket

import numpy as np
import pytest

from pytest_meshnet.authoring.doctor import CHECKS, examine
from pytest_meshnet.protocol.codec import encode_bundle
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.tests.authoring.bent import bent_runtime, descriptor_at


@pytest.fixture
def told(tmp_path):
    """Examine a runtime that answers through `bend`; returns the exit code and the lines."""

    def told(bend=lambda one: [one], without=""):
        with bent_runtime(bend, without) as address:
            lines = []
            path = descriptor_at(tmp_path, f'endpoint = "{address}"')
            return examine(str(path), None, lines.append), lines

    return told


def statuses(lines):
    """The status of each check, in order."""
    shown = [line for line in lines if line.startswith(("pass", "FAIL", "skipped", "not reached"))]
    return [line[:12].strip() for line in shown]


def failed_at(lines, number):
    """Require that check `number` failed, those before passed and those after were not reached."""
    after = len(CHECKS) - number
    assert statuses(lines) == ["pass"] * (number - 1) + ["FAIL"] + ["not reached"] * after
    assert any("fix: " in line for line in lines)
    return "\n".join(lines)


def kind(message):
    return message.WhichOneof("kind") if isinstance(message, pb.SessionResponse) else type(message)


def edit(which, change):
    """Bend answers of one kind by changing a field."""

    def bend(message):
        if kind(message) == which:
            change(message if isinstance(which, type) else getattr(message, which))
        return [message]

    return bend


def test_there_are_ten_checks_and_an_honest_runtime_passes_them_all(told):
    code, lines = told()
    assert (code, statuses(lines)) == (0, ["pass"] * 10)
    assert lines[-1].startswith("all 10 pass; next: pytest-meshnet certify --target ")


def test_a_descriptor_with_open_places_fails_the_first_check(tmp_path):
    path = descriptor_at(tmp_path, 'endpoint = "127.0.0.1:1"')
    path.write_text(path.read_text().replace("hidden_size = 16", "hidden_size = 0"))
    lines = []
    assert examine(str(path), None, lines.append) == 2
    assert "model.hidden_size: 0 is less than the minimum of 1" in failed_at(lines, 1)


def test_an_endpoint_where_nothing_listens_fails_the_second_check(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{free.getsockname()[1]}"
    lines = []
    path = descriptor_at(tmp_path, f'endpoint = "{endpoint}"')
    assert examine(str(path), None, lines.append) == 2
    assert f"nothing answers at {endpoint}" in failed_at(lines, 2)


def test_a_start_command_that_ends_is_shown_with_its_last_lines(tmp_path):
    command = '["{python}", "-c", "print(\'no such model\'); raise SystemExit(7)"]'
    lines = []
    path = descriptor_at(tmp_path, f"start = {command}")
    assert examine(str(path), None, lines.append) == 2
    shown = failed_at(lines, 2)
    assert "ended with 7 before it listened" in shown
    assert "| no such model" in shown


def test_a_started_runtime_is_examined_and_ended(tmp_path):
    start = (
        'start = ["{python}", "-m", "pytest_meshnet", "serve", "--listen", "{listen}", '
        '"--model", "tiny-llama-small", "--range", "1:3"]'
    )
    path = descriptor_at(tmp_path, start)
    path.write_text(path.read_text().replace("start = 5", "start = 30"))
    lines = []
    assert examine(str(path), None, lines.append) == 0, lines
    address = lines[1].split(": ")[1].split()[0]
    with socket.socket() as after:
        assert after.connect_ex(("127.0.0.1", int(address.rpartition(":")[2]))) != 0


@pytest.mark.parametrize(("without", "number"), [("Health", 3), ("GetCapability", 4)])
def test_a_call_that_is_not_implemented_is_named_with_what_to_implement(told, without, number):
    code, lines = told(without=without)
    assert code == 2
    shown = failed_at(lines, number)
    assert f"{without} ends with UNIMPLEMENTED" in shown
    assert f"implement {without}" in shown


def test_a_runtime_that_does_not_serve_fails_the_third_check(told):
    code, lines = told(edit(pb.HealthReport, lambda one: setattr(one, "state", 3)))
    assert code == 2
    assert "Health says SERVING_STATE_NOT_SERVING" in failed_at(lines, 3)


def test_another_range_than_the_descriptor_says_fails_the_fourth_check(told):
    code, lines = told(
        edit(pb.CapabilityReport, lambda one: setattr(one.shard_range, "end_layer", 4))
    )
    assert code == 2
    assert "serves layers 1:4, the descriptor says 1:3" in failed_at(lines, 4)


def test_a_report_with_holes_names_them(told):
    def poor(report):
        report.ClearField("flow_control")
        report.device = ""

    code, lines = told(edit(pb.CapabilityReport, poor))
    assert code == 1
    shown = failed_at(lines, 5)
    assert "lacks device, flow_control.max_inflight_chunks, flow_control.max_chunk_bytes" in shown


def refused_open(message):
    if kind(message) != "accepted":
        return [message]
    status = pb.ShardStatus(terminal=True)
    status.error.code = pb.ERROR_CODE_FINGERPRINT_MISMATCH
    status.error.detail = "not ours"
    return [pb.SessionResponse(status=status)]


def test_a_refused_open_is_shown_with_its_code_and_frames(told):
    code, lines = told(refused_open)
    assert code == 1
    shown = failed_at(lines, 6)
    assert "status FINGERPRINT_MISMATCH" in shown
    assert "-> open session=" in shown
    assert "more: pytest-meshnet explain OPEN-02" in shown


def test_an_acceptance_of_another_session_fails_the_sixth_check(told):
    code, lines = told(edit("accepted", lambda one: setattr(one, "route_session_id", "mine")))
    assert code == 1
    assert "accepted says session 'mine'" in failed_at(lines, 6)


def test_limits_of_zero_fail_the_seventh_check(told):
    code, lines = told(edit("accepted", lambda one: one.ClearField("flow_control")))
    assert code == 1
    assert "has no max_inflight_chunks, max_chunk_bytes" in failed_at(lines, 7)


def without_kind(which):
    return lambda message: [] if kind(message) == which else [message]


def test_a_missing_ack_fails_the_eighth_check(told):
    code, lines = told(without_kind("ack"))
    assert code == 1
    assert "the answer to work 'w1' step 1" in failed_at(lines, 8)


def test_a_wrong_past_len_fails_the_eighth_check(told):
    code, lines = told(edit("ack", lambda one: setattr(one.cache_result, "past_len", 2)))
    assert code == 1
    assert "says past_len 2, expected 3" in failed_at(lines, 8)


def test_a_missing_result_fails_the_ninth_check(told):
    code, lines = told(without_kind("chunk"))
    assert code == 1
    shown = failed_at(lines, 9)
    assert "expected the answer to work 'w1' step 1; found nothing arrived within" in shown
    assert "<- nothing, where the answer to work 'w1' step 1 was due   <== HERE" in shown


def replaced(values):
    tensor = Tensor.from_float32("hidden_states", values, DType.BFLOAT16)
    return edit("chunk", lambda one: one.bundle.CopyFrom(encode_bundle([tensor])))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (np.ones((1, 3, 8), np.float32), "has shape [1, 3, 8], expected [1, 3, 16]"),
        (np.full((1, 3, 16), math.nan, np.float32), "holds NaN or infinity"),
    ],
    ids=["width", "nan"],
)
def test_a_result_of_another_kind_fails_the_ninth_check(told, values, said):
    code, lines = told(replaced(values))
    assert code == 1
    assert said in failed_at(lines, 9)


def test_a_decode_for_which_there_is_no_room_is_skipped_and_no_pass(told):
    code, lines = told(edit(pb.CapabilityReport, lambda one: setattr(one, "max_context_tokens", 3)))
    assert statuses(lines) == ["pass"] * 9 + ["skipped"]
    assert "3 token(s) fill the context" in lines[9]
    assert code == 3
    assert lines[-1].startswith("9 of 10 pass, 1 skipped; next: ")


def test_a_decode_that_does_not_advance_fails_the_tenth_check(told):
    def stuck(ack):
        if ack.cache_result.mode == pb.CACHE_MODE_DECODE:
            ack.cache_result.past_len = 3

    code, lines = told(edit("ack", stuck))
    assert code == 1
    assert "says past_len 3, expected 4" in failed_at(lines, 10)
