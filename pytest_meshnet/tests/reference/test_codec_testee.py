"""The reference's codec testee answers as docs/codec-testee.md says, byte for byte."""

from __future__ import annotations

import io
import re
import subprocess
import sys

import pytest

from pytest_meshnet.layout import folder
from pytest_meshnet.protocol import malformed
from pytest_meshnet.protocol.generated import codec_testee_pb2 as testee
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.reference import codec_testee
from pytest_meshnet.reference.catalogue import entries

PAGE = folder("conformance").parent / "docs" / "codec-testee.md"
BLOCK = re.compile(r"```hex\n-> (.*?)<- (.*?)```", re.DOTALL)


def _examples() -> list[tuple[bytes, bytes]]:
    blocks = BLOCK.findall(PAGE.read_text())
    return [(bytes.fromhex(asked), bytes.fromhex(answered)) for asked, answered in blocks]


def test_every_worked_example_of_the_page_is_what_the_testee_answers() -> None:
    examples = _examples()
    assert len(examples) == 4
    for asked, answered in examples:
        assert _told(_answers(asked)) == _told(answered)


def _answers(frames: bytes) -> bytes:
    sink = io.BytesIO()
    assert codec_testee.serve(io.BytesIO(frames), sink) == 0
    return sink.getvalue()


def _told(frame: bytes) -> testee.CodecAnswer:
    """An answer without its detail, which is free."""
    assert int.from_bytes(frame[:4], "little") == len(frame) - 4
    answer = testee.CodecAnswer.FromString(frame[4:])
    if answer.HasField("refused"):
        answer.refused.ClearField("detail")
    return answer


def test_the_page_names_every_rule_of_the_corpus_and_of_the_tests() -> None:
    from conformance.testee_asking import FIELDS, SIZES

    named = set(re.findall(r"`([a-z]+(?:-[a-z0-9]+)*)`", PAGE.read_text()))
    assert FIELDS | SIZES | {"parse"} <= named
    assert {case.rule for case in malformed.cases()} <= FIELDS | SIZES


def test_an_input_that_ends_in_a_frame_is_an_error_and_at_its_end_is_none() -> None:
    asked, answered = _examples()[0]
    command = [sys.executable, "-m", "pytest_meshnet.reference.codec_testee"]
    whole = subprocess.run(command, input=asked, capture_output=True)
    assert (whole.returncode, whole.stdout) == (0, answered)
    for cut in (2, len(asked) - 1):
        sink = io.BytesIO()
        assert codec_testee.serve(io.BytesIO(asked[:cut]), sink) == 1
        assert sink.getvalue() == b""


@pytest.mark.parametrize(
    ("request_", "kind", "rule"),
    [
        (testee.CodecRequest(task=testee.TASK_UNSPECIFIED), "unsupported", ""),
        (testee.CodecRequest(task=testee.TASK_TO_JSON, message="NoSuch"), "unsupported", ""),
        (testee.CodecRequest(task=testee.TASK_TO_JSON, message="Ack", data=b"\xff"), "refused", ""),
        (testee.CodecRequest(task=testee.TASK_FROM_JSON, message="Ack", json="{"), "refused", ""),
    ],
)
def test_what_cannot_be_done_or_read_is_said(
    request_: testee.CodecRequest, kind: str, rule: str
) -> None:
    answer = codec_testee.answer(request_)
    assert answer.WhichOneof("kind") == kind
    assert answer.refused.rule == ("parse" if kind == "refused" else rule)


def test_a_scrambled_message_is_the_same_in_other_bytes() -> None:
    from conformance.scrambling import scrambled

    for name, kind in (
        ("session_request.binpb", pb.SessionRequest),
        ("capability_report.binpb", pb.CapabilityReport),
    ):
        data = (folder("goldens") / name).read_bytes()
        message = kind.FromString(data)
        assert scrambled(message) != data
        assert kind.FromString(scrambled(message)) == message


def test_every_requirement_that_runs_on_a_testee_has_a_mutant_of_it() -> None:
    broken = {one.requirement for one in entries() if one.kind == "testee-mutant"}
    codec = {f"CODEC-{number:02}" for number in range(1, 12)}
    assert broken == codec | {"WIRE-03", "WIRE-04", "WIRE-05", "WIRE-07"}


def _frame(request: testee.CodecRequest) -> bytes:
    data = request.SerializeToString()
    return len(data).to_bytes(4, "little") + data


def _probes() -> bytes:
    """A refusal, a value told as JSON, a compressed tensor, and a bundle at its payload's size."""
    wrong = (malformed.corpus_folder() / "zstd-frame-cut-short.binpb").read_bytes()
    right = (malformed.corpus_folder() / "correct.binpb").read_bytes()
    report = (folder("goldens") / "capability_report.binpb").read_bytes()
    plain = testee.PlainTensor(name="t", dtype=6, shape=[900], data=b"abc" * 300)
    encoding = testee.Encoding(
        tensors=[plain], compression=2, checksum_algorithm=2, fragment_bytes=1000
    )
    bundle, whole = "TensorBundle", 4 << 20
    requests = (
        testee.CodecRequest(task=4, message=bundle, data=wrong, max_chunk_bytes=whole),
        testee.CodecRequest(task=2, message="CapabilityReport", data=report),
        testee.CodecRequest(task=5, encoding=encoding, max_chunk_bytes=whole),
        testee.CodecRequest(task=4, message=bundle, data=right, max_chunk_bytes=2048),
    )
    return b"".join(map(_frame, requests))


VARIANTS = [one.name for one in entries() if one.kind == "testee-variant"]


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_of_the_testee_answers_otherwise_or_writes_otherwise(name: str) -> None:
    command = [sys.executable, "-m", "pytest_meshnet.reference.codec_testee", "--mutant", name]
    bent = subprocess.run(command, input=_probes(), capture_output=True)
    assert (bent.returncode, bent.stderr) == (0, b"")
    assert (bent.stdout == _answers(_probes())) == (name == "testee-that-writes-byte-by-byte")
