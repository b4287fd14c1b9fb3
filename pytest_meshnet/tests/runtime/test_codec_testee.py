"""The driver of a codec testee: every way a program can fail to answer is a finding, in time."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pytest_meshnet.protocol.generated import codec_testee_pb2 as testee
from pytest_meshnet.runtime import codec_testee
from pytest_meshnet.runtime.codec_testee import CodecTestee, shown
from pytest_meshnet.runtime.descriptor import Launch, TimeLimits
from pytest_meshnet.runtime.errors import Nonconformance, NotProvoked, Refusal

Make = Callable[..., CodecTestee]

RIGHT = testee.CodecAnswer(result=testee.Result(data=b"right")).SerializeToString()
ASK = testee.CodecRequest(task=testee.TASK_RESERIALIZE, message="HealthRequest", data=b"\x08\x01")

# Answers every request rightly; the second request of a process is where a test bends it.
PROGRAM = """
import os, sys, time
source, sink = sys.stdin.buffer, sys.stdout.buffer
right = bytes.fromhex("{right}")
def framed(data):
    return len(data).to_bytes(4, "little") + data
def answer(data):
    sink.write(framed(data))
    sink.flush()
asked = 0
while prefix := source.read(4):
    request = source.read(int.from_bytes(prefix, "little"))
    asked += 1
    if asked == 2:
{second}
    else:
        answer(right)
{end}
"""


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Make a testee from what it does at its second request and at the end of its input."""
    made = []

    def build(
        second: str = "answer(right)", end: str = "", answer: float = 5.0, stop: float = 2.0
    ) -> CodecTestee:
        text = PROGRAM.format(
            right=RIGHT.hex(), second=textwrap.indent(second, " " * 8), end=textwrap.dedent(end)
        )
        (tmp_path / "program.py").write_text(text)
        launch = Launch(("{python}", "{folder}/program.py"))
        made.append(CodecTestee(launch, tmp_path, TimeLimits(10.0, answer, 5.0, stop)))
        return made[-1]

    yield build
    for one in made:
        one.dispose()


def test_an_answer_is_handed_over_and_the_program_ends_with_its_input(make: Make) -> None:
    program = make()
    assert [program.ask(ASK).result.data for _ in range(3)] == [b"right"] * 3
    assert program.close() == 0


def test_only_the_start_is_what_the_suite_gives_time_of_its_own(make: Make) -> None:
    program, entered = make(), []

    @contextmanager
    def noted() -> Iterator[None]:
        entered.append("in")
        yield
        entered.append("out")

    program.while_starting = noted
    for _ in range(2):
        program.ask(ASK)
        assert entered == ["in", "out"]


@pytest.mark.parametrize(
    ("second", "found"),
    [
        ("os._exit(3)", "its process ended with 3"),
        ("os.kill(os.getpid(), 11)", "its process ended with -11"),
        ("sink.write(bytes([255] * 8)); sink.flush()", "it wrote what is no frame: ff ff"),
        # Both in one write: what comes later is met by whoever asks next.
        ("sink.write(framed(right) * 2); sink.flush()", "it wrote what is no frame"),
        ("answer(bytes([255] * 8))", "bytes that are no CodecAnswer"),
        ("answer(b'')", "an empty CodecAnswer"),
        ("print('Segmentation', file=sys.stderr); os._exit(1)", "| Segmentation"),
    ],
)
def test_a_program_that_breaks_is_a_finding_and_is_asked_something_known(
    make: Make, second: str, found: str
) -> None:
    program = make(second)
    with pytest.raises(Nonconformance) as caught:
        program.ask(ASK)
    assert found in caught.value.actual
    assert "started once more it answers a known request" in caught.value.actual
    assert caught.value.expected == "an answer to TASK_RESERIALIZE of HealthRequest (2 bytes)"


def test_silence_is_a_finding_after_the_limit(make: Make) -> None:
    program = make("time.sleep(60)", answer=0.3)
    with pytest.raises(Nonconformance, match=r"silence for 0\.3 s"):
        program.ask(ASK)


def test_a_program_that_closes_its_output_is_a_finding(make: Make) -> None:
    program = make("os.close(1); time.sleep(60)", stop=0.3)
    with pytest.raises(Nonconformance, match="it closed its output"):
        program.ask(ASK)


def test_a_program_that_does_not_start_again_is_said_to_be_broken(
    make: Make, tmp_path: Path
) -> None:
    program = make("open('program.py', 'w').write('raise SystemExit(9)'); os._exit(9)")
    with pytest.raises(Nonconformance, match="it does not even answer a known request"):
        program.ask(ASK)


def test_a_program_that_breaks_at_every_request_is_left_alone_in_the_end(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codec_testee, "MAX_STARTS", 2)
    program = make("os._exit(1)")
    for _ in range(2):
        with pytest.raises(Nonconformance, match="ended with 1"):
            program.ask(ASK)
    with pytest.raises(Nonconformance, match="it broke 3 times and is left alone"):
        program.ask(ASK)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("{python}", "-c", "import sys; print('no codec', file=sys.stderr)"), "  | no codec"),
        (("./no-such-program",), "  | ./no-such-program: No such file or directory"),
    ],
)
def test_a_program_that_never_answers_is_refused_with_what_it_said(
    tmp_path: Path, command: tuple[str, ...], told: str
) -> None:
    program = CodecTestee(Launch(command), tmp_path, TimeLimits(5.0, 1.0, 1.0, 1.0))
    with pytest.raises(Refusal, match=r"does not answer .*: correct codec\.command") as caught:
        program.ask(ASK)
    assert caught.value.message.endswith(f"the end of its standard error:\n{told}")
    program.dispose()


def test_what_is_unsupported_did_not_run_and_did_not_pass(make: Make) -> None:
    told = testee.CodecAnswer(unsupported="no zstd here").SerializeToString().hex()
    with pytest.raises(NotProvoked, match="does not support TASK_RESERIALIZE: no zstd here"):
        make(f"answer(bytes.fromhex('{told}'))").ask(ASK)


def test_a_program_that_writes_while_it_reads_does_not_block_the_suite(
    tmp_path: Path,
) -> None:
    """Each direction is larger than a pipe holds: whoever waits for one alone waits for ever."""
    size = 3_000_000
    source = f"""
        import os
        def take(count):
            data = b""
            while len(data) < count:
                data += os.read(0, min(65536, count - len(data)))
            return data
        def put(data):
            view = memoryview(data)
            while view:
                view = view[os.write(1, view):]
        take(int.from_bytes(take(4), "little"))
        put(bytes([2, 0, 0, 0, 10, 0]))
        length = int.from_bytes(take(4), "little")
        head = bytes.fromhex("0a{_varint(size + 5)}0a{_varint(size)}")
        put((len(head) + {size}).to_bytes(4, "little") + head)
        for start in range(0, {size}, 60000):
            part = min(60000, {size} - start)
            take(part)
            put(bytes(part))
        take(length - {size})
    """
    (tmp_path / "program.py").write_text(textwrap.dedent(source))
    limits = TimeLimits(10.0, 20.0, 5.0, 2.0)
    program = CodecTestee(Launch(("{python}", "{folder}/program.py")), tmp_path, limits)
    request = testee.CodecRequest(task=testee.TASK_RESERIALIZE, data=bytes(size))
    assert program.ask(request).result.data == bytes(size)
    program.dispose()


def _varint(number: int) -> str:
    groups = []
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*groups, number]).hex()


def test_a_program_that_does_not_end_with_its_input_is_killed(make: Make) -> None:
    program = make(end="time.sleep(60)", stop=0.3)
    program.ask(ASK)
    assert program.close() == -9


@pytest.mark.skipif(sys.platform != "linux", reason="NOT EXAMINED: peaks are read from /proc")
def test_the_peak_of_memory_is_that_of_the_program(make: Make) -> None:
    program = make("block = bytearray(b'x') * 90_000_000; del block; answer(right)")
    before = program.reset_peak()
    program.ask(ASK)
    after = program.peak()
    assert before is not None
    assert after is not None
    assert 80_000_000 < after - before < 200_000_000


@pytest.mark.skipif(sys.platform != "linux", reason="NOT EXAMINED: peaks are read from /proc")
def test_a_peak_that_cannot_be_reset_is_not_known(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = make()
    assert program.reset_peak() is not None
    written = Path.write_text

    def forbidden(path: Path, text: str) -> int:
        if path.name == "clear_refs":
            raise PermissionError(path)
        return written(path, text)

    monkeypatch.setattr(Path, "write_text", forbidden)
    assert program.reset_peak() is None


@pytest.mark.parametrize("known", ["before", "after", "neither"])
def test_memory_that_was_not_measured_was_within_no_bound(
    make: Make, monkeypatch: pytest.MonkeyPatch, known: str
) -> None:
    from conformance.testee_memory import peak_within

    program = make()
    monkeypatch.setattr(program, "reset_peak", lambda: 10 if known == "before" else None)
    monkeypatch.setattr(program, "peak", lambda: 20 if known == "after" else None)
    with pytest.raises(NotProvoked, match="cannot be measured"), peak_within(program, 100):
        program.ask(ASK)
    with pytest.raises(Nonconformance, match="refused"), peak_within(program, 100):
        raise Nonconformance("refused", "decoded")


def test_a_request_is_shown_as_the_frame_to_pipe_into_the_program() -> None:
    data = ASK.SerializeToString()
    assert f"echo {(len(data).to_bytes(4, 'little') + data).hex()} | xxd -r -p" in shown(ASK)
    assert "the test writes it again" in shown(testee.CodecRequest(data=bytes(5000)))
