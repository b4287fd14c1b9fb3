"""What a page tells of single tests: failures with their frames, devices, attachments."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_meshnet.evidence import judged
from pytest_meshnet.evidence.report.findings import frames, told
from pytest_meshnet.evidence.report.page import duration
from pytest_meshnet.evidence.report.results import SHOWN_TRACES
from pytest_meshnet.evidence.signing.keys import SigningKey
from pytest_meshnet.tests.evidence import making
from pytest_meshnet.tests.evidence.report import samples, structure
from pytest_meshnet.tests.evidence.report.samples import page_of, text_of


def test_a_failure_shows_expected_actual_and_the_frames_of_both_sides(
    tmp_path: Path, key: SigningKey
):
    page = (samples.mixed(tmp_path, key) / "report.html").read_text()
    entry = page[page.index('id="DECODE-02"') : page.index('id="DECODE-03"')]
    text = structure.words(f"<p {entry}")
    for one in (
        making.LEDGER.get("DECODE-02").statement,
        "Expected a refusal",
        "row 59 of a long account",
        "... 3 earlier frames",
        "→ sent 0.003 s stream 1 decode work='w2'",
        "← received 0.008 s stream 1 here it broke ack work='w2' step=2 past_len=2",
    ):
        assert one in text
    assert entry.count('<li class="sent">') == 1
    assert entry.count('<li class="received broken">') == 1


@pytest.mark.parametrize(
    ("message", "parts"),
    [
        ("expected: a\nactual:   b", ("a", "b", "", "")),
        ("expected: a\nactual:   b\ntry:      c", ("a", "b", "c", "")),
        ("expected: a\nb\nactual:   b\nc\ntry:      d\ne\nf", ("a\nb", "b\nc", "d", "e\nf")),
        ("assert 1 == 2", ("", "assert 1 == 2", "", "")),
        ("", ("", "no message was recorded", "", "")),
    ],
)
def test_a_message_is_taken_apart(message: str, parts: tuple[str, ...]):
    phase = next(making.phases("t"))
    found = told(replace(phase, message=message))
    assert (found.expected, found.actual, found.hint, found.inputs) == parts


def test_a_line_that_is_no_frame_is_a_note():
    assert [one.way for one in frames(samples.TRACE)] == ["note", "sent", "received"]
    assert [one.broken for one in frames(samples.TRACE)] == [False, False, True]
    assert frames(" \n\n") == ()


def test_devices_and_claims_are_told_apart_by_what_they_prove(tmp_path: Path, key: SigningKey):
    text = text_of(samples.mixed(tmp_path, key))
    assert (
        "GPU-7 GPU-7 NVIDIA GeForce RTX 3060, driver 560.35 the device that was asked for" in text
    )
    assert "during proven seen in-process GPU-7 GPU-7 GPU-9" in text
    assert "pytest plugins pytest-timeout 2.0" in text
    assert "log of shard xxx" in text
    assert "xxx the last line" in text
    assert "x" * 19_900 in text
    assert "x" * 20_001 not in text
    assert "grants True proven: measured in this run" in text
    assert "layers 8 told by the runtime" in text
    assert "decode 14.91 tokens/s" in text
    assert "warning : the card was warm" in text


@pytest.mark.parametrize(
    ("observed", "proof"),
    [
        ({"uuid": "GPU-8"}, "another device than asked for"),
        ({"uuid": "GPU-7", "provider": "file"}, "simulated: proves nothing"),
        ({"uuid": None}, "another device than asked for"),
    ],
)
def test_a_device_that_was_not_asked_for_or_not_real_is_no_proof(
    tmp_path: Path, key: SigningKey, observed: dict[str, str | None], proof: str
):
    def extra(writer):
        writer.recorder.device("t", {"uuid": "GPU-7"}, observed)

    path = samples.make(tmp_path, key, extra=extra)
    assert f"GPU-7 {observed['uuid'] or 'unknown'} unknown, driver unknown {proof}" in text_of(path)
    page = (path / "report.html").read_text()
    assert f'<use href="#i-failed"/></svg>{proof}' in page


def test_a_look_at_the_devices_that_cannot_be_read_says_so(tmp_path: Path, key: SigningKey):
    def extra(writer):
        writer.recorder.attach_text("t", "placement during", "[]")
        writer.recorder.attach("t", "placement after", b"{}", "text/plain", store=False)

    text = text_of(samples.make(tmp_path, key, extra=extra))
    assert "during unknown the attachment cannot be read" in text
    assert "after unknown the attachment cannot be read" in text


def test_a_test_of_two_requirements_is_explained_once_and_counted_once(
    tmp_path: Path, key: SigningKey
):
    both = making.PlannedTest("conformance/test_decode.py::test_both", ("DECODE-02", "DECODE-03"))
    collection = making.Collection((*making.planned(), both))
    calls = {both.test: {**samples.FAILED, "message": "no"}}
    path = samples.make(tmp_path, key, collection=collection, calls=calls, exit_status=1)
    page = page_of(path, key)
    assert page.results is not None
    (decode,) = (one for one in page.results.runtime if one.name == "DECODE")
    assert decode.seconds == pytest.approx(1.5, abs=0.01)
    assert [one.label.partition(":")[0] for one in page.against] == ["DECODE-02", "DECODE-03"]
    text = (path / "report.html").read_text()
    assert text.count('class="failure failed"') == 1
    assert (
        structure.words(text).count("Also against it: conformance/test_decode.py::test_both") == 1
    )


def test_markdown_tells_one_failure_of_a_requirement_and_names_the_others(
    tmp_path: Path, key: SigningKey
):
    tests = [f"conformance/test_decode.py::test_x[{n}]" for n in range(14)]
    planned = tuple(making.PlannedTest(one, ("DECODE-02",)) for one in tests)
    calls = {one: {**samples.FAILED, "message": f"no in {one}"} for one in tests}
    collection = making.Collection((*making.planned(), *planned))
    path = samples.make(tmp_path, key, collection=collection, calls=calls, exit_status=1)
    page = (path / "report.md").read_text()
    assert page.count("### ❌ DECODE-02") == 1
    assert page.count("actual:   no in ") == 1
    assert page.count("- ❌ `conformance/test_decode.py::test_x[") == 10
    assert "- and 3 more\n" in page


def test_failures_of_one_function_name_it_once(tmp_path: Path, key: SigningKey):
    name = "conformance/test_decode.py::test_x"
    tests = [f"{name}[a]", f"{name}[b]", f"{name}_y[b]"]
    planned = tuple(making.PlannedTest(one, ("DECODE-02",)) for one in tests)
    calls = {one: {**samples.FAILED, "message": "no"} for one in tests}
    collection = making.Collection((*making.planned(), *planned))
    path = samples.make(tmp_path, key, collection=collection, calls=calls, exit_status=1)
    text = text_of(path)
    assert text.count("the same with b") == 1
    assert "test_ x_ y[b]" in text


@pytest.mark.parametrize("fault", ["link", "too long", "not stored", "gone"])
def test_an_attachment_that_is_not_there_is_not_read(
    tmp_path: Path, key: SigningKey, fault: str, monkeypatch: pytest.MonkeyPatch
):
    def extra(writer):
        stored = fault != "not stored"
        digest = writer.recorder.attach("t", "x", b"0123456789", "text/plain", store=stored)
        file = writer.path / "artifacts" / "sha256" / digest
        if fault in ("link", "gone"):
            file.rename(tmp_path / "elsewhere")
        if fault == "link":
            file.symlink_to(tmp_path / "elsewhere")
        if fault == "not stored":
            file.write_bytes(b"0123456789")

    seen = []

    def look(run):
        monkeypatch.setattr(judged, "READ_LIMIT", 9 if fault == "too long" else 10)
        seen.append(run.read(run.recorded.attachments[-1]))
        return {}

    making.make(tmp_path / "out", key, extra=extra, derive=look)
    assert seen == [None]


def test_frames_of_very_many_failures_stay_in_the_bundle(tmp_path: Path, key: SigningKey):
    tests = [f"conformance/test_decode.py::test_x[{n}]" for n in range(SHOWN_TRACES + 5)]
    planned = tuple(making.PlannedTest(one, ("DECODE-02",)) for one in tests)

    def extra(writer):
        for one in tests:
            writer.recorder.attach_text(one, "frames", samples.TRACE)

    path = samples.make(
        tmp_path,
        key,
        collection=making.Collection(planned),
        calls={one: {**samples.FAILED, "message": "no"} for one in tests},
        extra=extra,
        exit_status=1,
    )
    page = (path / "report.html").read_text()
    assert page.count('class="trace"') == SHOWN_TRACES
    assert page.count("Its frames are kept in the bundle") == 5


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0.00 s"), (9.994, "9.99 s"), (12.34, "12.3 s"), (125, "2 min 5 s")]
)
def test_durations_are_written_for_people(seconds: float, shown: str):
    assert duration(seconds) == shown
