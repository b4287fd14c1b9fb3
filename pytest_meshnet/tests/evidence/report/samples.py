"""Runs for the tests of reports: one of everything that a page can show, and a hostile one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pytest_meshnet.evidence import metrics
from pytest_meshnet.evidence.bundle import BundleWriter
from pytest_meshnet.evidence.documents import Named, Plugin
from pytest_meshnet.evidence.journal import Collection
from pytest_meshnet.evidence.metrics import Metric
from pytest_meshnet.evidence.report import derive
from pytest_meshnet.evidence.report.findings import FRAMES
from pytest_meshnet.evidence.report.measured import Measured
from pytest_meshnet.evidence.report.page import Page, page_of_bundle
from pytest_meshnet.evidence.signing.keys import SigningKey
from pytest_meshnet.ledger.applicability import Fact
from pytest_meshnet.ledger.status import PlannedTest
from pytest_meshnet.tests.evidence import making
from pytest_meshnet.tests.evidence.report import structure

TRACE = """... 3 earlier frames
   0.003 s  1    -> decode work='w2' step=2 position=1
   0.008 s  1    <- ack work='w2' step=2 past_len=2   <== HERE"""
LONG = "expected: a refusal\nactual:   it was applied\n" + "\n".join(
    f"row {number} of a long account" for number in range(60)
)
FAILED = {"outcome": "failed", "kind": "nonconformance", "duration_ns": 1_500_000_000}
BROKEN = {"outcome": "failed", "kind": "engine-error", "message": "KeyError: 'x'"}
NOT_RUN = {"outcome": "skipped", "kind": "not-run", "reason": "not provoked: no long prompt"}
LISTED = making.test_id("PREFILL-02")
EXPECTED = f"""[[failure]]
test = "{LISTED}"
reason = "issue 12"
message = "listed"
"""
GPU = {"uuid": "GPU-7", "name": "NVIDIA GeForce RTX 3060", "driver": "560.35", "provider": "nvml"}
LOOK = {
    "moment": "during",
    "verdict": "proven",
    "reasons": ["seen in-process"],
    "requested": ["GPU-7"],
    "observed": ["GPU-7"],
    "claimed": ["GPU-9"],
}


def mixed(out: Path, key: SigningKey, **about: Any) -> Path:
    """A run with a long failure, a short one, a known one, one not run, devices and metrics."""
    failing = making.test_id("DECODE-02")
    calls = {
        failing: {**FAILED, "message": LONG},
        making.test_id("DECODE-03"): {**FAILED, "message": "assert 1 == 2"},
        LISTED: {**FAILED, "message": "expected: it is listed\nactual:   so it is"},
        making.test_id("OPEN-03"): NOT_RUN,
    }

    def extra(writer: BundleWriter) -> None:
        recorder = writer.recorder
        recorder.attach_text(failing, FRAMES, TRACE)
        recorder.facts({"grants": Fact(True, "observed"), "layers": Fact(8, "capability")})
        recorder.device(failing, {"uuid": "GPU-7"}, GPU)
        recorder.attach_text(failing, "placement during", json.dumps(LOOK))
        numbers = (Metric("decode", "14.91", "tokens/s", "higher"),)
        recorder.attach(failing, "speed", metrics.encode(numbers), metrics.MEDIA_TYPE)
        recorder.warning(None, "the card was warm")
        recorder.plugins([Plugin("pytest-timeout", "2.0")])
        recorder.attach_text(None, "log of shard", "x" * 30_000 + "\nthe last line")

    said = {
        "calls": calls,
        "extra": extra,
        "expected_failures": EXPECTED,
        "gpus": (GPU,),
        "gpu_inventory": "nvml",
        "exit_status": 1,
    } | about
    return make(out, key, **said)


def make(out: Path, key: SigningKey, **about: Any) -> Path:
    """Make a bundle as `making.make` does, with its reports."""
    return making.make(out, key, derive=lambda run: derive(run, (Measured(),)), **about)


HOSTILE = (
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "</style></script></details></table>",
    "a|b`c``|d\\|e",
    "\x1b[2J\x00\x08\u202e\ufffe\ud800",
    "{{ 7 * 7 }}{% raw %}",
    "](https://example.org) <https://example.org> www.example.org @someone #1 :+1: $x$",
    "]]> --> <!-- &amp; &#60;",
    "**bold** _it_ ~~no~~ # title\n\n| x |\n|---|\n\n```\n<b>out</b>\n````\n~~~\n",
)


def hostile_run(out: Path, key: SigningKey, text: str) -> Path:
    """A run in which everything that somebody else writes is the text."""
    # An id and a name must be text that the journal can hold; only then does it reach a page.
    test = f"conformance/test_decode.py::test_{text}"
    planned = (PlannedTest(test, ("DECODE-02",)), *making.planned())

    def extra(writer: BundleWriter) -> None:
        recorder = writer.recorder
        recorder.attach_text(test, FRAMES, f"   0.003 s  1    -> {text}\n{text}")
        recorder.claims({text: Fact(text, "capability")})
        recorder.warning(None, text)
        recorder.attach_text(None, f"log of {text}", text)
        lists = {name: [text] for name in ("reasons", "requested", "observed", "claimed")}
        recorder.attach_text(test, f"placement {text}", json.dumps({"verdict": text} | lists))
        recorder.device(test, {"uuid": text}, {"uuid": text, "name": text, "driver": text})
        numbers = (Metric(text, "1", text, "lower"),)
        recorder.attach(test, text, metrics.encode(numbers), metrics.MEDIA_TYPE)

    message = f"expected: {text}\nactual:   {text}\ntry:      {text}\n{text}"
    return make(
        out,
        key,
        collection=Collection(planned),
        calls={test: {**FAILED, "message": message}},
        extra=extra,
        exit_status=1,
        target=Named(text, making.TARGET.digest),
        artifacts=(Named(text, "ab"),),
        options={"x": text},
    )


def page_of(path: Path, key: SigningKey) -> Page:
    return page_of_bundle(making.trusting_report(path, key))


def text_of(path: Path) -> str:
    return structure.words((path / "report.html").read_text())
